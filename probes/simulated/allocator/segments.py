"""Segments: the stretches of memory got from the driver, and the blocks that tile them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from memdoctor.probes.simulated.allocator.blocks import Block


@dataclass(frozen=True, slots=True)
class Segment:
    """One stretch of memory got from the driver, and how many of its bytes are in blocks in use."""

    address: int
    size: int
    small: bool
    allocated: int


@dataclass(frozen=True, slots=True)
class LiveBlock:
    """A block in use: where it lies, its true size in bytes, and the bytes that were asked for."""

    address: int
    size: int
    requested: int


def tile(address: int, size: int, live: Sequence[LiveBlock]) -> list[tuple[int, int]]:
    """Cut a segment into (bytes, requested or 0 when free) at the bounds of its live blocks."""
    pieces = []
    at = address
    for block in live:
        if block.address < at or block.size < block.requested or block.requested <= 0:
            raise ValueError(f"the block at {block.address} overlaps another or has an impossible size")
        if block.address > at:
            pieces.append((block.address - at, 0))
        pieces.append((block.size, block.requested))
        at = block.address + block.size
    if at > address + size:
        raise ValueError(f"the block that ends at {at} does not fit the segment at {address} of {size} bytes")
    if at < address + size:
        pieces.append((address + size - at, 0))
    return pieces


def walk(head: Block) -> Iterator[Block]:
    """Yield a segment's blocks in order of address, from its first one."""
    block: Block | None = head
    while block is not None:
        yield block
        block = block.following


def describe(head: Block) -> Iterator[Segment]:
    """Sum a segment up, from its first block; of an expandable one each run of mapped blocks, as a snapshot has it."""
    for mapped, run in groupby(walk(head), key=lambda block: block.mapped):
        if mapped:
            blocks = list(run)
            allocated = sum(block.size for block in blocks if block.requested)
            yield Segment(blocks[0].address, sum(block.size for block in blocks), head.pool.small, allocated)
