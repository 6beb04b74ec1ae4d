"""The tracker: writes down every storage that is born and dies on one device, and who it belongs to.

It only appends facts. A dispatch mode sees each operator's outputs (births), a finalizer on each storage sees
its death, hooks tell which module is running, and marks say what a storage was seen to be (a parameter's, a
``.grad``, packed by autograd for backward). :mod:`memdoctor.probes.attribution` turns marks into categories.

No reference to any tensor is held: the autograd engine steals gradients only from tensors that nobody else owns.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from memdoctor.probes.modules import ModuleClock
from memdoctor.probes.scratch import Scratch, Stage
from memdoctor.probes.work import WorkCounter
from memdoctor.records import Event, Phase, PhaseName


class Mark(Enum):
    """A fact about what a storage was seen to be. A storage can carry several."""

    PARAMETER = auto()
    BUFFER = auto()
    INPUT = auto()
    GRADIENT = auto()
    OPTIMIZER_STATE = auto()
    AUTOCAST_COPY = auto()
    SAVED_FOR_BACKWARD = auto()
    WORKSPACE = auto()


@dataclass(slots=True)
class BlockDraft:
    """What is known of one storage so far; becomes a :class:`memdoctor.records.Block`."""

    bytes: int
    module: str
    op: str
    dtype: str
    shape: tuple[int, ...]
    marks: set[Mark] = field(default_factory=set)


class Tracker(TorchDispatchMode):
    """Records births, deaths and phases of every storage on devices of type ``device_type``.

    ``after_op(tracker, operator)`` is called after every operator; ``host_outputs`` names outputs, by operator and
    position, that are on the host although their device says otherwise (shape functions are not exact about this);
    ``scratch`` says, by operator and from its arguments, what its kernel takes for itself while it runs. ``work``
    counts what operators compute and move.
    """

    def __init__(
        self,
        device_type: str,
        clock: ModuleClock,
        after_op: Callable[[Tracker, Any], None] | None = None,
        host_outputs: Mapping[Any, Collection[int]] | None = None,
        scratch: Mapping[Any, Callable[..., Scratch]] | None = None,
        work: WorkCounter | None = None,
    ) -> None:
        super().__init__()
        self.blocks: list[BlockDraft] = []
        self.events: list[Event] = []
        self.phases: list[Phase] = []
        self.cache_clears: list[int] = []  # the events before which the cache was emptied
        self._device_type = device_type
        self._clock = clock
        self._after_op = after_op
        self._host_outputs = host_outputs or {}
        self._scratch = scratch or {}
        self._work = work
        self._recording = True
        self._acting_for: Any = None
        self._alive: dict[int, int] = {}  # storage address in this process -> block

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and being wrapped for it costs time at every operator

    def begin(self, step: int, name: PhaseName) -> None:
        """A new phase starts here; the one before it ends."""
        self._end_phase()
        if self._work is not None:
            self._work.begin(step, name)
        self.phases.append(Phase(step, name, self._position(), self._position()))

    def finish(self) -> None:
        """The last phase ends, and nothing that happens from here on is recorded."""
        self._end_phase()
        self._recording = False

    def empty_cache(self) -> None:
        """Here the allocator gave its unused segments back."""
        self.cache_clears.append(self._position())

    def _position(self) -> int:
        """How many events there were."""
        return len(self.events)

    def _end_phase(self) -> None:
        if self.phases:
            last = self.phases[-1]
            self.phases[-1] = Phase(last.step, last.name, last.begin, self._position())

    def mark(self, tensor: torch.Tensor, mark: Mark) -> None:
        """Note what the tensor's storage was seen to be; tensors on other devices are passed over."""
        block = self._alive.get(tensor.untyped_storage()._cdata)
        if block is not None:
            self.blocks[block].marks.add(mark)

    @contextmanager
    def acting_for(self, func: Any) -> Iterator[None]:
        """What is born in the context counts as the output of ``func``, whatever operator makes it."""
        self._acting_for = func
        try:
            yield
        finally:
            self._acting_for = None

    def open_workspace(self, op: str, nbytes: int) -> None:
        """A library allocates ``nbytes`` for itself and keeps them."""
        self._born(BlockDraft(nbytes, "", op, "uint8", (nbytes,), {Mark.WORKSPACE}))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator, then look at what it returned."""
        kwargs = kwargs or {}
        measure = self._scratch.get(func)
        if measure is None or not self._is_here(args[0]):
            out = self._run(func, args, kwargs)
        else:
            scratch = measure(*args, **kwargs)
            held = self._take(scratch.before, func)
            out = self._run(func, args, kwargs)
            held += self._take(scratch.after, func)
            for block in reversed(held):
                self._died(block)
        if self._after_op is not None:
            self._after_op(self, func)
        if self._work is not None and self._recording:
            self._work.count(func, args, kwargs, out)
        return out

    def _is_here(self, argument: Any) -> bool:
        first = argument[0] if isinstance(argument, (list, tuple)) else argument
        return bool(first.device.type == self._device_type)

    def _take(self, stages: tuple[Stage, ...], func: Any) -> list[int]:
        """A kernel's own allocations, stage by stage; those that stay are returned."""
        held: list[int] = []
        for stage in stages:
            passing: list[int] = []
            for piece in stage:
                if piece.bytes:
                    name = f"{func}: {piece.name}"
                    shape = (piece.bytes,)
                    draft = BlockDraft(piece.bytes, self._clock.current, name, "uint8", shape, {Mark.WORKSPACE})
                    (held if piece.stays else passing).append(self._born(draft))
            for block in reversed(passing):
                self._died(block)
        return held

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = func(*args, **kwargs)
        if isinstance(out, torch.Tensor):
            self._see(out, func)
        elif isinstance(out, (list, tuple)):
            on_host = self._host_outputs.get(func, ())
            for position, leaf in enumerate(tree_leaves(out)):
                if isinstance(leaf, torch.Tensor) and position not in on_host:
                    self._see(leaf, func)
        return out

    def _see(self, tensor: torch.Tensor, func: Any) -> None:
        if tensor.device.type != self._device_type:
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._alive:
            return
        nbytes = storage.nbytes()
        if nbytes == 0:
            return
        op = str(self._acting_for or func)
        draft = BlockDraft(nbytes, self._clock.current, op, str(tensor.dtype)[6:], tuple(tensor.shape))
        block = self._born_with(storage, draft)
        self._alive[key] = block
        weakref.finalize(storage, self._storage_died, key, block).atexit = False

    def _born_with(self, storage: torch.UntypedStorage, draft: BlockDraft) -> int:
        return self._born(draft)

    def _born(self, draft: BlockDraft) -> int:
        self.blocks.append(draft)
        self.events.append(Event(len(self.blocks) - 1, draft.bytes))
        return len(self.blocks) - 1

    def _storage_died(self, key: int, block: int) -> None:
        if self._alive.get(key) == block:
            del self._alive[key]
        self._died(block)

    def _died(self, block: int) -> None:
        if self._recording:
            self.events.append(Event(block, -self.blocks[block].bytes))


@contextmanager
def watching(tracker: Tracker, clock: ModuleClock, model: torch.nn.Module) -> Iterator[None]:
    """Follow modules through forward and backward, and mark what autograd packs for backward.

    torch lets only the innermost pair of saved-tensor hooks act, and checkpointing pushes its own: so every
    pair that is pushed is wrapped. A tensor counts as saved when what the hook returns still holds its
    storage; the first forward of a checkpointed layer returns a placeholder, and is not counted.
    """
    native_push = torch._C._autograd._push_saved_tensors_default_hooks

    def push(pack: Callable[[torch.Tensor], Any], unpack: Callable[[Any], torch.Tensor]) -> None:
        native_push(partial(_pack, tracker, clock, pack), partial(_unpack, clock, unpack))

    with ExitStack() as stack:
        stack.enter_context(clock.following(model))
        torch._C._autograd._push_saved_tensors_default_hooks = push  # type: ignore[assignment]  # parameter names
        stack.callback(setattr, torch._C._autograd, "_push_saved_tensors_default_hooks", native_push)
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(_keep, _give_back))
        yield


def _keep(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach() if tensor.requires_grad else tensor  # holding an output itself would be a cycle


def _give_back(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _pack(
    tracker: Tracker, clock: ModuleClock, pack: Callable[[torch.Tensor], Any], tensor: torch.Tensor
) -> tuple[str, Any]:
    packed = pack(tensor)
    if isinstance(packed, torch.Tensor) and packed.untyped_storage()._cdata == tensor.untyped_storage()._cdata:
        tracker.mark(tensor, Mark.SAVED_FOR_BACKWARD)
    return clock.current, packed


def _unpack(clock: ModuleClock, unpack: Callable[[Any], torch.Tensor], packed: tuple[str, Any]) -> torch.Tensor:
    module, inner = packed
    clock.in_backward_of(module)
    return unpack(inner)
