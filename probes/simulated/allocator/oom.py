"""Running out of memory, with the figures of PyTorch's message."""

from __future__ import annotations


class OutOfMemory(Exception):
    """A request failed for good. Not an error of the user's: a replay reports it as a result.

    The figures are those of the message of ``torch.OutOfMemoryError`` (``DeviceCachingAllocator::malloc``), read as
    there after every cached segment went back: "Tried to allocate" ``segment_bytes``, of the device ``free_bytes``
    are free, ``allowed_bytes`` allowed (only under a memory fraction), ``allocated_bytes`` are allocated by PyTorch,
    and ``reserved_bytes - allocated_bytes`` are reserved by PyTorch but unallocated. ``requested_bytes`` is what
    the tensor asked for. In an expandable segment ``segment_bytes`` is not what was asked of the driver, which
    gives pages: it can be less than ``free_bytes``. The device's total is not known here.
    """

    def __init__(
        self,
        *,
        requested_bytes: int,
        segment_bytes: int,
        free_bytes: int,
        allocated_bytes: int,
        reserved_bytes: int,
        allowed_bytes: int | None = None,
    ) -> None:
        """Keep the figures."""
        super().__init__(f"{requested_bytes} bytes need a segment of {segment_bytes}, {free_bytes} are free")
        self.requested_bytes = requested_bytes
        self.segment_bytes = segment_bytes
        self.free_bytes = free_bytes
        self.allocated_bytes = allocated_bytes
        self.reserved_bytes = reserved_bytes
        self.allowed_bytes = allowed_bytes
