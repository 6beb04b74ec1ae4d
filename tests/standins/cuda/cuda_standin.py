"""What stands in for CUDA's allocator on a machine without one: real CPU tensors, served by the modelled allocator.

It sees every storage as CUDA's allocator would, at the operator that makes it and when its last owner lets it go,
writes the same history, and takes for chosen operators what their kernels would take for themselves. It is a dispatch
mode below the tracker's, so the tracker sees a tensor only after the allocator has served it, as on a GPU.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from memdoctor.probes.history import Action, Entry, History, Totals
from memdoctor.probes.simulated.allocator.blocks import Block
from memdoctor.probes.simulated.allocator.caching import CachingAllocator
from memdoctor.probes.simulated.allocator.oom import OutOfMemory
from memdoctor.probes.simulated.allocator.settings import AllocatorSettings, round_size

CUBLAS = 8_519_680  # bytes, taken by the first product and kept
Scratch = Callable[[Any], int]


class CudaStandIn(TorchDispatchMode):
    """An ``Allocator`` whose device is the CPU. ``scratch`` maps operators to bytes that they take while they run."""

    def __init__(
        self,
        settings: AllocatorSettings | None = None,
        capacity_bytes: int | None = None,
        *,
        cublas: int = CUBLAS,
        scratch: dict[Any, int] | None = None,
    ) -> None:
        super().__init__()
        self.device = torch.device("cpu")
        self.caching = CachingAllocator(settings, capacity_bytes)
        self.entries: list[Entry] = []
        self.given: list[int] = []  # bytes set aside for each block, in order of birth: the truth
        self.peak_allocated = 0
        self._cublas, self._scratch = cublas, scratch or {}
        self._blocks: dict[int, Block] = {}  # storage -> block
        self._passed = 0
        self._on = False

    def begin(self) -> None:
        self._on = True
        self.__enter__()

    def end(self) -> History:
        if self._on:
            self.__exit__(None, None, None)
            self._on = False
        totals = Totals(
            self.caching.allocated, self.caching.reserved, self.peak_allocated, self.caching.peak_reserved
        )  # fmt: skip
        return History(tuple(self.entries), totals)

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        known = tensor.untyped_storage()._cdata in self._blocks
        return tensor if known else tensor.to(self.device, copy=True)

    def position(self) -> int:
        return self._passed

    def address_of(self, storage: torch.UntypedStorage) -> int:
        return self._blocks[storage._cdata].address

    def empty_cache(self) -> None:
        self.caching.empty_cache()
        self._note_segments()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.addmm.default and self._cublas:
            self._allocate(self._cublas)
            self._cublas = 0
        scratch = self._scratch.get(func)
        passing = self._allocate(scratch) if scratch else None
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self._see(leaf.untyped_storage())
        if passing is not None:
            self._free(passing)
        return out

    def _see(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._blocks or not storage.nbytes():
            return
        self._blocks[key] = self._allocate(storage.nbytes())
        weakref.finalize(storage, self._died, key).atexit = False

    def _died(self, key: int) -> None:
        self._free(self._blocks.pop(key))

    def _allocate(self, nbytes: int) -> Block:
        try:
            block = self.caching.malloc(nbytes)
        except OutOfMemory as full:
            self._note_segments()
            rounded = round_size(nbytes, self.caching.settings)  # as malloc of CUDACachingAllocator.cpp notes it
            self.entries.append(Entry(Action.OOM, full.free_bytes, rounded))
            raise torch.OutOfMemoryError("CUDA out of memory.") from full
        self._note_segments()
        self.entries.append(Entry(Action.ALLOC, block.address, nbytes))
        self.given.append(block.size)
        self._passed += 1
        self.peak_allocated = max(self.peak_allocated, self.caching.allocated)
        return block

    def _free(self, block: Block) -> None:
        self.entries.append(Entry(Action.FREE, block.address, block.requested))
        self._passed += 1
        self.caching.free(block)

    def _note_segments(self) -> None:
        expandable = self.caching.settings.expandable_segments
        grown = Action.SEGMENT_MAP if expandable else Action.SEGMENT_ALLOC
        shrunk = Action.SEGMENT_UNMAP if expandable else Action.SEGMENT_FREE
        for address, delta in self.caching.segment_changes:
            self.entries.append(Entry(grown if delta > 0 else shrunk, address, abs(delta)))
        self.caching.segment_changes.clear()
