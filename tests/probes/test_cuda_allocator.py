"""What is asked of ``torch.cuda`` about memory, against answers in PyTorch's own form: there is no CUDA device here."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from memdoctor.errors import MeasureError
from memdoctor.probes.cuda_allocator import MOST_ENTRIES, CudaAllocator
from memdoctor.probes.history import Action, Entry, Totals

MIB = 1 << 20


class Cuda:
    """A CUDA device that remembers what it was asked, and keeps counters as ``_cuda_memoryStats`` gives them."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.trace: list[dict[str, Any]] = []
        self.allocated = self.freed = 0
        self.current, self.reserved, self.peak = 0, 0, (0, 0)
        self.left_over = 0

    def note(self, action: str, address: int, size: int) -> None:
        """An entry as ``THCPModule_memorySnapshot`` makes it (torch/csrc/cuda/Module.cpp)."""
        place = {"device_free": address} if action == "oom" else {"addr": address}
        rest = {"stream": 0, "time_us": 1, "compile_context": "N/A", "user_metadata": ""}
        self.trace.append({"action": action, **place, "size": size, **rest})
        self.allocated += action == "alloc"
        self.freed += action == "free_requested"

    def stats(self, _device: Any = None) -> dict[str, Any]:
        def stat(current: int, peak: int, allocated: int, freed: int) -> dict[str, Any]:
            return {"all": {"current": current, "peak": peak, "allocated": allocated, "freed": freed}}

        return {
            "allocation": stat(self.allocated - self.freed, 9, self.allocated, self.freed),
            "allocated_bytes": stat(self.current, self.peak[0], 0, 0),
            "reserved_bytes": stat(self.reserved, self.peak[1], 0, 0),
        }


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    made = Cuda()

    def asking(name: str, answer: Any = None) -> Any:
        def function(*_: Any, **__: Any) -> Any:
            made.asked.append(name)
            return answer() if callable(answer) else answer

        return function

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr("memdoctor.probes.cuda_allocator.require_cuda", lambda: None)
    for name, answer in {
        "current_device": 0, "empty_cache": None, "synchronize": None, "reset_peak_memory_stats": None,
        "memory_allocated": lambda: made.left_over,
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, asking(name, answer))
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", made.stats)
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", asking("clear cuBLAS"), raising=False)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", asking("history"))
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda _: {"segments": [], "device_traces": [made.trace]})
    return made


def test_the_history_is_torchs_in_our_words(cuda: Cuda) -> None:
    cuda.allocated, cuda.freed = 70, 70  # of earlier work in this process
    allocator = CudaAllocator()
    allocator.begin()
    assert allocator.position() == 0
    cuda.note("segment_alloc", 0x7000, 2 * MIB)
    cuda.note("alloc", 0x7000, 1000)
    assert allocator.position() == 1
    cuda.note("snapshot", 0, 0)
    cuda.note("free_requested", 0x7000, 1000)
    cuda.note("free_completed", 0x7000, 1000)
    cuda.note("oom", 5 * MIB, 7 * MIB)
    assert allocator.position() == 2
    cuda.current, cuda.reserved, cuda.peak = 0, 2 * MIB, (1024, 2 * MIB)
    history = allocator.end()
    assert history.entries == (
        Entry(Action.SEGMENT_ALLOC, 0x7000, 2 * MIB), Entry(Action.ALLOC, 0x7000, 1000),
        Entry(Action.FREE, 0x7000, 1000), Entry(Action.OOM, 5 * MIB, 7 * MIB),
    )  # fmt: skip
    assert history.totals == Totals(0, 2 * MIB, 1024, 2 * MIB)


def test_it_begins_with_an_empty_card_and_fresh_peaks(cuda: Cuda) -> None:
    CudaAllocator().begin()
    assert cuda.asked == [
        "current_device", "clear cuBLAS", "empty_cache", "memory_allocated", "synchronize", "reset_peak_memory_stats",
        "history",
    ]  # fmt: skip


def test_what_is_left_of_earlier_work_is_refused(cuda: Cuda) -> None:
    cuda.left_over = 512
    with pytest.raises(MeasureError, match="512 B are on the GPU before the step begins"):
        CudaAllocator().begin()
    assert "history" not in cuda.asked


@pytest.mark.parametrize("change", ["cleared", "stopped", "counters"])
def test_a_history_that_somebody_else_touched_has_gaps(cuda: Cuda, change: str) -> None:
    allocator = CudaAllocator()
    allocator.begin()
    for number in range(4):
        cuda.note("alloc", 0x7000 + 512 * number, 512)
    if change == "cleared":
        cuda.trace.clear()
    elif change == "stopped":
        cuda.allocated += 1
    else:
        cuda.allocated = cuda.freed = 0  # reset_accumulated_memory_stats
    with pytest.raises(MeasureError, match="has gaps") as caught:
        allocator.end()
    assert "torch.cuda.memory" in caught.value.hint


def test_a_torch_with_another_history_is_told(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(_: Any) -> dict[str, Any]:
        return {"traces": []}

    monkeypatch.setattr(torch.cuda.memory, "_snapshot", other)
    allocator = CudaAllocator()
    allocator.begin()
    with pytest.raises(MeasureError, match=f"history of torch {torch.__version__}".replace("+", r"\+")) as caught:
        allocator.end()
    assert "device_traces" in caught.value.why
    assert "2.11 to 2.14" in caught.value.hint


def test_a_torch_that_refuses_to_record_is_told(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(enabled: bool) -> None:
        raise AssertionError(enabled)

    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", other)
    with pytest.raises(MeasureError, match="cannot be read") as caught:
        CudaAllocator().begin()
    assert "TypeError" in caught.value.why


def test_the_installed_torch_takes_what_it_is_asked() -> None:
    recorded = inspect.signature(torch.cuda.memory._record_memory_history)
    recorded.bind(enabled="all", context=None, stacks="python", max_entries=MOST_ENTRIES, clear_history=True)
    recorded.bind(enabled=None)
    inspect.signature(torch.cuda.memory._snapshot).bind(torch.device("cuda", 0))
    inspect.signature(torch.cuda.memory_stats_as_nested_dict).bind(torch.device("cuda", 0))


def test_a_torch_without_cuda_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(MeasureError, match="cannot use a GPU") as caught:
        CudaAllocator()
    assert "built without CUDA" in caught.value.why


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_torch_for_cuda_without_a_driver_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with pytest.raises(MeasureError, match="no GPU can be used") as caught:
        CudaAllocator()
    assert caught.value.why
