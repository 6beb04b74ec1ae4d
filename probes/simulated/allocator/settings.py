"""The numbers of the allocator's policy, and the roundings that follow from them.

Source of every rule: ``c10/cuda/CUDACachingAllocator.cpp`` and ``c10/core/AllocatorConfig`` of PyTorch (read
in several releases of 2.x). Recordings of real GPUs cover the defaults, address by address, and expandable segments
together with ``max_split_size``, in bytes reserved (see ``expandable``). The other options rest on reading.
"""

from __future__ import annotations

from dataclasses import dataclass

POWER2_INTERVALS = 16
"""Entries of ``roundup_power2_divisions``."""

_FIRST_INTERVAL_BITS = (1 << 20).bit_length()


@dataclass(frozen=True, slots=True)
class AllocatorSettings:
    """The policy, with PyTorch's defaults; sizes in bytes.

    Down to ``large_rounding`` these are constants of PyTorch, the others are options of ``PYTORCH_ALLOC_CONF``
    (there in MiB): :func:`~memdoctor.probes.simulated.allocator.conf.parse_alloc_conf` reads them.

    - ``max_split_size=None`` cuts blocks of any size.
    - ``max_non_split_rounding=None`` stands for ``large_segment``.
    - ``roundup_power2_divisions`` has one number for each power of two from 1 MiB (and all below) to 32 GiB (and
      all above), 0 or 1 for no rounding.
    - ``expandable_segments``: one segment a pool, that grows page by page. PyTorch ignores it on Windows.
    - ``memory_fraction``: the part of the device that may be reserved; 1.0 is no limit
      (``setMemoryFraction``, also behind ``torch.cuda.set_per_process_memory_fraction``).
    - ``garbage_collection_threshold``: 0.0 is off. **No effect unless memory_fraction is below 1**: PyTorch
      counts ages and collects only under a limit (``get_free_block``, ``malloc``).
    - ``throw_on_cudamalloc_oom``: a request over the fraction fails at once, with nothing released before it.
    """

    minimum_block: int = 512
    small_limit: int = 1 << 20
    small_segment: int = 2 << 20
    large_limit: int = 10 << 20
    large_rounding: int = 2 << 20
    large_segment: int = 20 << 20
    max_split_size: int | None = None
    max_non_split_rounding: int | None = None
    roundup_power2_divisions: tuple[int, ...] = (0,) * POWER2_INTERVALS
    expandable_segments: bool = False
    memory_fraction: float = 1.0
    garbage_collection_threshold: float = 0.0
    throw_on_cudamalloc_oom: bool = False

    def __post_init__(self) -> None:
        """Refuse what PyTorch refuses when it reads these options."""
        if self.large_segment <= self.large_limit:
            raise ValueError(f"large_segment must be over {self.large_limit} bytes, not {self.large_segment}")
        for name in ("max_split_size", "max_non_split_rounding"):
            value = getattr(self, name)
            if value is not None and value < self.large_segment:
                raise ValueError(f"{name} must be at least a large segment, {self.large_segment} bytes, not {value}")
        divisions = self.roundup_power2_divisions
        if len(divisions) != POWER2_INTERVALS or any(d < 0 or d & (d - 1) for d in divisions):
            raise ValueError(f"roundup_power2_divisions must be {POWER2_INTERVALS} powers of two or 0, not {divisions}")
        if not 0 <= self.memory_fraction <= 1:
            raise ValueError(f"memory_fraction must be from 0 to 1, not {self.memory_fraction}")
        if not 0 <= self.garbage_collection_threshold < 1:
            threshold = self.garbage_collection_threshold
            raise ValueError(f"garbage_collection_threshold must be between 0 and 1 (or 0 for none), not {threshold}")


def round_size(nbytes: int, settings: AllocatorSettings) -> int:
    """Return the bytes that a request of ``nbytes`` needs in a block."""
    smallest = settings.minimum_block
    if nbytes <= smallest:
        return smallest
    interval = max(0, nbytes.bit_length() - _FIRST_INTERVAL_BITS)
    divisions = settings.roundup_power2_divisions[min(interval, POWER2_INTERVALS - 1)]
    if divisions > 1 and nbytes > smallest * divisions:
        power = 1 << (nbytes.bit_length() - 1)
        return _round_up(nbytes, power // divisions)
    return _round_up(nbytes, smallest)


def segment_size(block_bytes: int, settings: AllocatorSettings) -> int:
    """Return the bytes to ask of the driver when no free block holds ``block_bytes`` (already rounded)."""
    if block_bytes <= settings.small_limit:
        return settings.small_segment
    if block_bytes < settings.large_limit:
        return settings.large_segment
    return _round_up(block_bytes, settings.large_rounding)


def block_ceiling(block_bytes: int, settings: AllocatorSettings) -> int | None:
    """Return the size from which on a free block is too large to serve ``block_bytes``, if there is one.

    Under ``max_split_size`` a block of that size or more is never cut: it is kept for requests of that
    size or more, and even for these it may be at most ``max_non_split_rounding`` too large.
    """
    if settings.max_split_size is None:
        return None
    if block_bytes < settings.max_split_size:
        return settings.max_split_size
    return block_bytes + (settings.max_non_split_rounding or settings.large_segment)


def is_split(block_bytes: int, rest: int, settings: AllocatorSettings) -> bool:
    """Say whether ``rest`` bytes over what ``block_bytes`` needs become a free block, or stay in the block.

    Expandable segments cut large blocks as finely as small ones, whatever ``max_split_size`` says (``should_split``).
    """
    if block_bytes <= settings.small_limit or settings.expandable_segments:
        return rest >= settings.minimum_block
    if settings.max_split_size is not None and block_bytes >= settings.max_split_size:
        return False
    return rest > settings.small_limit


def _round_up(nbytes: int, step: int) -> int:
    return -(-nbytes // step) * step
