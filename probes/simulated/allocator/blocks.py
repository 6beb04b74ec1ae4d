"""Blocks of device memory, and the pool in which free ones are found by best fit."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

# Free blocks are ordered by size, then by address. One integer holds both, because a list of integers
# bisects several times faster than a list of pairs; 64 bits hold any address.
_ADDRESS_BITS = 64
_ADDRESS_MASK = (1 << _ADDRESS_BITS) - 1


@dataclass(slots=True, eq=False, repr=False)
class Block:
    """A run of bytes of one segment, linked to its neighbours there; ``requested`` is 0 while it is free.

    ``origin`` is the address at which its segment starts if that is an expandable one, else ``None``; only there
    may a block be not ``mapped``: addresses without memory behind them. ``pooled_at`` is the pool's count of
    ``searches`` when the block was last put into it. Mutable, unlike the records of this project: splitting and
    coalescing are its whole life.
    """

    address: int
    size: int
    pool: Pool
    requested: int = 0
    previous: Block | None = None
    following: Block | None = None
    origin: int | None = None
    mapped: bool = True
    pooled_at: int = 0

    @property
    def end(self) -> int:
        """The first address behind this block."""
        return self.address + self.size

    @property
    def is_whole_segment(self) -> bool:
        """Whether no cut separates this block from either end of its segment."""
        return self.previous is None and self.following is None

    def cut(self, size: int) -> Block:
        """Shorten this block to ``size`` bytes and return the rest as a new, free block behind it."""
        rest = Block(self.address + size, self.size - size, self.pool, 0, self, self.following, self.origin)
        if self.following is not None:
            self.following.previous = rest
        self.following = rest
        self.size = size
        return rest

    def absorb_following(self) -> None:
        """Take over the bytes of the block behind this one, which is no more."""
        gone = self.following
        assert gone is not None
        self.size += gone.size
        self.following = gone.following
        if gone.following is not None:
            gone.following.previous = self


@dataclass(slots=True, eq=False)
class Pool:
    """The free blocks of one kind of segment (``small`` or large), ordered by (size, address).

    ``searches`` counts the requests that looked for a block here while the allocator collects garbage, else it
    stays 0: a block's age is how many there were since it was put in (``BlockPool::get_free_blocks_call_count``).
    """

    small: bool
    searches: int = 0
    _keys: list[int] = field(default_factory=list)
    _blocks: dict[int, Block] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Block]:
        """Walk the free blocks from the smallest to the largest, lower addresses first among equals."""
        return (self._blocks[key & _ADDRESS_MASK] for key in self._keys)

    def add(self, block: Block) -> None:
        """Put a free block in."""
        block.pooled_at = self.searches
        insort(self._keys, block.size << _ADDRESS_BITS | block.address)
        self._blocks[block.address] = block

    def remove(self, block: Block) -> None:
        """Take this very block out."""
        del self._keys[bisect_left(self._keys, block.size << _ADDRESS_BITS | block.address)]
        del self._blocks[block.address]

    def put_back(self, block: Block) -> Block:
        """Put in a block that has just become free, grown together with free neighbours, and return the whole."""
        following = block.following
        if following is not None and not following.requested and following.mapped:
            self.remove(following)
            block.absorb_following()
        previous = block.previous
        if previous is not None and not previous.requested and previous.mapped:
            self.remove(previous)
            previous.absorb_following()
            block = previous
        self.add(block)
        return block

    def take(self, size: int, ceiling: int | None = None) -> Block | None:
        """Take out the smallest block of ``size`` bytes or more, the lowest address among equals.

        ``None`` when there is none, or when that block has ``ceiling`` bytes or more.
        """
        at = bisect_left(self._keys, size << _ADDRESS_BITS)
        if at == len(self._keys):
            return None
        key = self._keys[at]
        if ceiling is not None and key >> _ADDRESS_BITS >= ceiling:
            return None
        del self._keys[at]
        return self._blocks.pop(key & _ADDRESS_MASK)

    def _lower_bound(self, size: int) -> int:
        """Return the place of the smallest free block of ``size`` bytes or more, behind the last if there is none."""
        return bisect_left(self._keys, size << _ADDRESS_BITS)

    def _at(self, place: int) -> Block:
        return self._blocks[self._keys[place] & _ADDRESS_MASK]

    def releasable(self, block: Block) -> int:
        """Return how many bytes of a free block the driver could have back."""
        return block.size if block.is_whole_segment else 0

    @property
    def largest(self) -> int:
        """Bytes of the largest free block, 0 when there is none."""
        return self._keys[-1] >> _ADDRESS_BITS if self._keys else 0

    @property
    def free_bytes(self) -> int:
        """Bytes of all free blocks together."""
        return sum(key >> _ADDRESS_BITS for key in self._keys)
