"""Expandable segments: addresses for the whole device, and memory mapped behind them page by page.

Source: ``ExpandableSegment``, ``find_expandable_block``, ``map_block``, ``try_allocate_expandable_block``,
``unmap_block`` and ``get_free_block`` in ``c10/cuda/CUDACachingAllocator.cpp`` of PyTorch (as of early 2026). What was
recorded of it is what one loop reserved on real GPUs (pytorch/pytorch#193400, torch 2.12 to 2.14), which the tests
repeat: equal to the last page, with growth, release and retry. Addresses rest on reading.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from memdoctor.probes.simulated.allocator.blocks import Block, Pool


@dataclass(slots=True, eq=False)
class ExpandablePool(Pool):
    """A pool whose segments grow by pages of ``page`` bytes, which are got from the driver and returned one by one.

    ``unmapped`` are the blocks that have addresses but no memory, in order of address: they are no free blocks.
    """

    page: int = 0
    unmapped: list[Block] = field(default_factory=list)

    def take(self, size: int, ceiling: int | None = None) -> Block | None:
        """Take out the block that fits best, where one that can expand counts as large as it can become.

        So a block that is larger today is preferred to the growing end of a segment. As in PyTorch the search
        ends with the first block whose successor is not smaller by that measure.
        """
        place = self._lower_bound(size)
        if place == len(self._keys):
            return None
        block = self._at(place)
        while block.origin is not None and place + 1 < len(self._keys):
            larger = self._at(place + 1)
            if _reach(larger) >= _reach(block):
                break
            place, block = place + 1, larger
        if ceiling is not None and block.size >= ceiling:
            return None
        self.remove(block)
        return block

    def room_for(self, size: int) -> Block | None:
        """Return the block at which ``size`` bytes of free or unmapped addresses start, the lowest first.

        It is an unmapped block, or the free one before it.
        """
        for block in self.unmapped:
            start = block.previous if _is_available(block.previous) else block
            if _has_room(start, size):
                return start
        return None

    def open(self, address: int, size: int) -> Block:
        """Start a segment: an unmapped block of ``size`` bytes, which must be whole pages."""
        block = Block(address, size, self, origin=address, mapped=False)
        insort(self.unmapped, block, key=_address)
        return block

    def map(self, block: Block, size: int) -> Block:
        """Put memory behind the first ``size`` bytes (whole pages) of an unmapped block, and return the free block."""
        self.unmapped.remove(block)
        block.mapped = True
        if size < block.size:
            rest = block.cut(size)
            rest.mapped = False
            insort(self.unmapped, rest, key=_address)
        return self.put_back(block)

    def unmap(self, block: Block) -> tuple[int, int] | None:
        """Take the memory from all whole pages within a free block: their address and bytes, ``None`` if none.

        What is left of the block before and behind them stays free.
        """
        begin, end = self._pages(block)
        if begin >= end:
            return None
        self.remove(block)
        if begin > block.address:
            rest = block.cut(begin - block.address)
            self.add(block)
            block = rest
        if end < block.end:
            self.add(block.cut(end - begin))
        block.mapped = False
        self._join_unmapped(block)
        return begin, end - begin

    def releasable(self, block: Block) -> int:
        """Return how many bytes of a free block the driver could have back."""
        if block.origin is None:
            return Pool.releasable(self, block)
        begin, end = self._pages(block)
        return max(0, end - begin)

    def whole_pages(self, size: int) -> int:
        """Round ``size`` bytes up to pages."""
        return -(-size // self.page) * self.page

    def _join_unmapped(self, block: Block) -> None:
        """Grow a block that has just lost its memory together with unmapped neighbours."""
        following, previous = block.following, block.previous
        if following is not None and not following.mapped:
            self.unmapped.remove(following)
            block.absorb_following()
        if previous is not None and not previous.mapped:
            previous.absorb_following()
        else:
            insort(self.unmapped, block, key=_address)

    def _pages(self, block: Block) -> tuple[int, int]:
        """Return the addresses between which whole pages lie within ``block``; pages count from its segment's start."""
        origin = block.origin or 0
        return origin + self.whole_pages(block.address - origin), origin + (block.end - origin) // self.page * self.page


def _address(block: Block) -> int:
    return block.address


def _reach(block: Block) -> int:
    """Bytes that a free block has or can have without moving: its own and the unmapped ones behind it."""
    following = block.following
    return block.size + (following.size if following is not None and not following.mapped else 0)


def _is_available(block: Block | None) -> bool:
    return block is not None and not block.requested


def _has_room(block: Block | None, size: int) -> bool:
    while block is not None and not block.requested and size > 0:
        size -= block.size
        block = block.following
    return size <= 0
