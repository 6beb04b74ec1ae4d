"""How much of its segment each block was given: what a history tells of sizes that it does not name."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

from memdoctor.probes.simulated.allocator.settings import AllocatorSettings, is_split, round_size


class Tiling:
    """The segments of an allocator and the blocks in use in them, by address.

    A history names the bytes that were requested. A block that was served from a larger free one keeps all of it
    where the rest was too little to split off; and the free block reached to the next one in use, or to the end of
    the segment, since free neighbours are one block. So what was given follows from where blocks lie.
    Weak case: blocks that another stream still uses count as free here and are not (one stream trains).
    """

    def __init__(self, settings: AllocatorSettings) -> None:
        self._settings = settings
        self._segments: list[tuple[int, int]] = []  # start and end; pages that touch are one
        self._starts: list[int] = []  # of the blocks in use
        self._given: dict[int, int] = {}

    def map(self, address: int, nbytes: int) -> None:
        """The driver gave a segment, or pages of one."""
        start, end = address, address + nbytes
        index = bisect_left(self._segments, (start, end))
        if self._settings.expandable_segments:  # only there do neighbours belong together
            if index < len(self._segments) and self._segments[index][0] == end:
                end = self._segments.pop(index)[1]
            if index and self._segments[index - 1][1] == start:
                index -= 1
                start = self._segments.pop(index)[0]
        self._segments.insert(index, (start, end))

    def unmap(self, address: int, nbytes: int) -> None:
        """The segment, or pages of one, went back.

        Raises:
            ValueError: there is no such segment.
        """
        index = bisect_right(self._segments, (address, 1 << 64)) - 1
        if index < 0 or self._segments[index][1] < address + nbytes:
            raise ValueError(f"a segment of {nbytes} B at {address:#x} is released and was never got")
        start, end = self._segments.pop(index)
        rests = [(start, address), (address + nbytes, end)]
        self._segments[index:index] = [(first, last) for first, last in rests if first < last]

    def allocate(self, address: int, nbytes: int) -> int:
        """Bytes given to a block at ``address`` for a request of ``nbytes``.

        Raises:
            ValueError: it lies in no segment, or in another block.
        """
        index = bisect_right(self._segments, (address, 1 << 64)) - 1
        place = bisect_left(self._starts, address)
        room = self._segments[index][1] if index >= 0 else 0
        if place < len(self._starts):
            room = min(room, self._starts[place])
        before = self._starts[place - 1] if place else 0
        taken = before + self._given[before] if place else 0
        rounded = round_size(nbytes, self._settings)
        if taken > address or address + rounded > room:
            raise ValueError(f"a block of {nbytes} B at {address:#x} is in no segment, or in another block")
        rest = room - address - rounded
        given = rounded if is_split(rounded, rest, self._settings) else rounded + rest
        insort(self._starts, address)
        self._given[address] = given
        return given

    def free(self, address: int) -> None:
        """The block at ``address`` is in use no more.

        Raises:
            ValueError: there is none.
        """
        if self._given.pop(address, None) is None:
            raise ValueError(f"a block at {address:#x} is freed and was never allocated")
        self._starts.pop(bisect_left(self._starts, address))
