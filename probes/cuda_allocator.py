"""CUDA's caching allocator and PyTorch's history of it: the one file that asks ``torch.cuda`` about memory.

``torch.cuda.memory._record_memory_history`` writes into host memory, and takes none of the card. Its names begin with
an underscore, so what is missing is told with the releases that have been read (2.11 to 2.14).
"""

from __future__ import annotations

import gc
from typing import Any

import torch

from memdoctor.errors import MeasureError
from memdoctor.probes.history import Action, Entry, History, Totals

MOST_ENTRIES = 1 << 24  # a step of BERT-large has some 20,000; each is about 100 bytes of host memory
READ = "2.11 to 2.14"
_ACTIONS = {action.value: action for action in Action}


class CudaAllocator:
    """The allocator of the current CUDA device, for one run at a time.

    Raises:
        MeasureError: this PyTorch has no CUDA, or sees no device that it can use.
    """

    def __init__(self) -> None:
        require_cuda()
        self.device = torch.device("cuda", torch.cuda.current_device())
        self._began = 0

    def begin(self) -> None:
        """Give back what is left of earlier work, reset the peaks, and write down everything from here on.

        Raises:
            MeasureError: something of this process still lies on the card, or the history cannot be kept.
        """
        self.reset()
        try:
            torch.cuda.memory._record_memory_history(
                enabled="all", context=None, stacks="python", max_entries=MOST_ENTRIES, clear_history=True
            )
        except (TypeError, AttributeError, RuntimeError) as error:
            raise _unread(error) from error
        self._began = self._passed()

    def reset(self) -> None:
        """Give back what is left of earlier work, and reset the peaks.

        Raises:
            MeasureError: something of this process still lies on the card.
        """
        gc.collect()
        self._forget_workspaces()
        torch.cuda.empty_cache()
        held = torch.cuda.memory_allocated(self.device)
        if held:
            raise MeasureError(
                f"{held} B are on the GPU before the step begins",
                why="the factory, or what it imports, put tensors there, or something holds on to an earlier model",
                hint="return the model and its batch on the CPU: the probe moves them",
            )
        torch.cuda.synchronize(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor on the card."""
        return tensor.to(self.device)

    def position(self) -> int:
        """How many blocks were born and died since the beginning."""
        return self._passed() - self._began

    def address_of(self, storage: torch.UntypedStorage) -> int:
        """Where the block of this storage lies."""
        return storage.data_ptr()

    def empty_cache(self) -> None:
        """Give unused segments back to the driver."""
        torch.cuda.empty_cache()

    def end(self) -> History:
        """Stop writing, and read what was written.

        Raises:
            MeasureError: somebody else stopped or cleared the history, or reset its counters.
        """
        torch.cuda.synchronize(self.device)
        passed, totals = self.position(), self.totals()
        try:
            snapshot = torch.cuda.memory._snapshot(self.device)
            torch.cuda.memory._record_memory_history(enabled=None)
            traces = snapshot["device_traces"]
            entries = tuple(filter(None, map(_entry, traces[self.device.index] if traces else ())))
        except (TypeError, AttributeError, KeyError, IndexError, RuntimeError) as error:
            raise _unread(error) from error
        written = sum(entry.action in (Action.ALLOC, Action.FREE) for entry in entries)
        if written != passed:
            raise MeasureError(
                f"the allocator's history has gaps: {written} entries, and {passed} births and deaths were counted",
                why="something in the model or its factory stopped the history, cleared it or reset its counters",
                hint="let it call none of torch.cuda.memory's functions while it is probed",
            )
        return History(entries, totals)

    def _passed(self) -> int:
        # Counted by the allocator itself: alloc_found_block and free of CUDACachingAllocator.cpp, where it writes too.
        counted = torch.cuda.memory_stats_as_nested_dict(self.device)["allocation"]["all"]
        return int(counted["allocated"]) + int(counted["freed"])

    def totals(self) -> Totals:
        """What is allocated and reserved, and the peaks since the beginning."""
        stats = torch.cuda.memory_stats_as_nested_dict(self.device)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        return Totals(allocated["current"], reserved["current"], allocated["peak"], reserved["peak"])

    def _forget_workspaces(self) -> None:
        """cuBLAS keeps its workspace for the life of the process (``CublasHandlePool.cpp``); a fresh one has none."""
        clear: Any = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
        if clear is not None:
            clear()


def require_cuda() -> None:
    """See to it that there is a CUDA device that works.

    Raises:
        MeasureError: this PyTorch has no CUDA, or sees no device that it can use.
    """
    if torch.version.cuda is None:
        raise MeasureError(
            "this PyTorch cannot use a GPU",
            why=f"torch {torch.__version__} was built without CUDA",
            hint="install torch with CUDA, or --backend simulated",
        )
    try:
        torch.cuda.init()
        torch.zeros(1, device="cuda")
    except (RuntimeError, AssertionError) as error:
        why = " ".join(str(error).split())
        raise MeasureError(
            "no GPU can be used", why=why, hint="memdoctor env says what is wrong; --backend simulated needs none"
        ) from error


def _entry(found: dict[str, Any]) -> Entry | None:
    """An entry of a trace; ``None`` for one that is of no interest here."""
    action = _ACTIONS.get(found["action"])
    if action is None:
        return None
    return Entry(action, found["device_free" if action is Action.OOM else "addr"], found["size"])


def _unread(error: Exception) -> MeasureError:
    return MeasureError(
        f"the allocator's history of torch {torch.__version__} cannot be read",
        why=" ".join(f"{type(error).__name__}: {error}".split()),
        hint=f"a release of torch from {READ}, or --backend simulated",
    )
