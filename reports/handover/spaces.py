"""The two ways in which segments hold memory: each of one size, or growing by pages."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from memdoctor.units import MIB

SMALL_REQUEST = MIB  # kSmallSize of CUDACachingAllocator.cpp: requests up to it are of the small pool
SMALL_PAGE, LARGE_PAGE = 2 * MIB, 20 * MIB  # kSmallBuffer and kLargeBuffer: pages of expandable segments


class Underivable(Exception):
    """The timeline does not say where this was."""


class Fixed:
    """Segments that keep their size: got for one block, released as a whole."""

    def __init__(self, births: list[tuple[int, int, bool]]) -> None:
        """``births`` are (address, event, whether a segment was got for it), in order of address."""
        self.births = births
        self.starts: list[int] = []
        self.sizes: dict[int, int] = {}
        self.used: dict[int, int] = {}

    def got(self, size: int, address: int, _requested: int) -> int:
        """A new segment for the block at ``address``; where it lies."""
        at = bisect_right(self.starts, address)
        if at and self.starts[at - 1] + self.sizes[self.starts[at - 1]] > address:
            raise Underivable  # there is one already
        if at < len(self.starts) and self.starts[at] < address + size:
            raise Underivable
        self.starts.insert(at, address)
        self.sizes[address], self.used[address] = size, 0
        return address

    def given_back(self, size: int, event: int) -> int:
        """A segment of this size, wholly free, goes back before this event; where it lay."""
        free = [start for start in self.starts if self.sizes[start] == size and not self.used[start]]
        if len(free) > 1:
            told = [(self._next_birth(start, event), start) for start in free]
            gone = [(birth is None, birth or (0, False), start) for birth, start in told if birth is None or birth[1]]
            free = [start for _, _, start in sorted(gone)]
        if not free:
            raise Underivable
        start = free[0]
        self.starts.remove(start)
        del self.sizes[start], self.used[start]
        return start

    def _next_birth(self, start: int, event: int) -> tuple[int, bool] | None:
        """The next event that puts a block there, and whether a segment was got for it."""
        births = self.births
        first = bisect_left(births, (start, 0, False))
        last = bisect_left(births, (start + self.sizes[start], 0, False))
        return min(((number, got) for _, number, got in births[first:last] if number >= event), default=None)

    def born(self, address: int, size: int) -> None:
        """A block takes its bytes of a segment."""
        start = self._segment(address)
        if address + size > start + self.sizes[start]:
            raise Underivable
        self.used[start] += size

    def died(self, address: int, size: int) -> None:
        """It gives them back."""
        self.used[self._segment(address)] -= size

    def _segment(self, address: int) -> int:
        at = bisect_right(self.starts, address)
        if not at:
            raise Underivable
        return self.starts[at - 1]

    def segments(self) -> Iterator[tuple[int, int]]:
        """Those held, (address, bytes)."""
        return ((start, self.sizes[start]) for start in self.starts)


class Growing:
    """Expandable segments: runs of mapped pages. ``spaces`` are [first address, highest end so far, page]."""

    def __init__(self) -> None:
        """Nothing is mapped."""
        self.runs: list[list[int]] = []  # [begin, end], in order, none touching the next
        self.spaces: list[list[int]] = []
        self.live: list[int] = []
        self.sizes: dict[int, int] = {}

    def got(self, size: int, address: int, requested: int) -> int:
        """Pages are mapped for the block at ``address``, from its first byte that has none; where."""
        at = bisect_right(self.runs, [address, _END])
        begin = self.runs[at - 1][1] if at and self.runs[at - 1][1] >= address else address
        end = begin + size
        if at < len(self.runs) and self.runs[at][0] < end:
            raise Underivable
        space = next((space for space in self.spaces if space[0] <= begin <= space[1]), None)
        if space is None:
            page = SMALL_PAGE if requested <= SMALL_REQUEST else LARGE_PAGE
            self.spaces.append(space := [begin, end, page])
        space[1] = max(space[1], end)
        if at < len(self.runs) and self.runs[at][0] == end:
            end = self.runs.pop(at)[1]
        if at and self.runs[at - 1][1] == begin:
            self.runs[at - 1][1] = end
        else:
            self.runs.insert(at, [begin, end])
        return begin

    def given_back(self, size: int, _event: int) -> int:
        """So many bytes of pages of one free run go back; where they were."""
        candidates = sorted((length, begin) for begin, length in self._free())
        for length, begin in candidates:
            pages = self._pages(begin, begin + length)
            if pages[1] - pages[0] == size:
                self._unmap(*pages)
                return pages[0]
        raise Underivable

    def _free(self) -> Iterator[tuple[int, int]]:
        for begin, end in self.runs:
            at = begin
            for address in self.live[bisect_left(self.live, begin) : bisect_left(self.live, end)]:
                if address > at:
                    yield at, address - at
                at = address + self.sizes[address]
            if at < end:
                yield at, end - at

    def _pages(self, begin: int, end: int) -> tuple[int, int]:
        origin, _, page = next(space for space in self.spaces if space[0] <= begin < space[1])
        first = origin + -(-(begin - origin) // page) * page
        return first, max(first, origin + (end - origin) // page * page)

    def _unmap(self, begin: int, end: int) -> None:
        at = bisect_right(self.runs, [begin, _END]) - 1
        run = self.runs.pop(at)
        for rest in ([end, run[1]], [run[0], begin]):
            if rest[0] < rest[1]:
                self.runs.insert(at, rest)

    def born(self, address: int, size: int) -> None:
        """A block takes its bytes of what is mapped."""
        at = bisect_right(self.runs, [address, _END])
        if not at or self.runs[at - 1][1] < address + size:
            raise Underivable
        insort(self.live, address)
        self.sizes[address] = size

    def died(self, address: int, _size: int) -> None:
        """It gives them back."""
        del self.live[bisect_left(self.live, address)]
        del self.sizes[address]

    def segments(self) -> Iterator[tuple[int, int]]:
        """Each run of mapped pages, as a snapshot has it: (address, bytes)."""
        return ((begin, end - begin) for begin, end in self.runs)


_END = 1 << 64
