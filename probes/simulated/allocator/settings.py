"""The numbers of the allocator's policy, and the roundings that follow from them.

Source of every rule: ``c10/cuda/CUDACachingAllocator.cpp`` and ``c10/core/AllocatorConfig`` of PyTorch (read
in several releases of 2.x, which agree on what is modelled here). Not modelled: ``expandable_segments`` and
``garbage_collection_threshold`` (which PyTorch heeds only under a memory fraction).
"""

from __future__ import annotations

from dataclasses import dataclass

POWER2_INTERVALS = 16
"""Entries of ``roundup_power2_divisions``."""

_FIRST_INTERVAL_BITS = (1 << 20).bit_length()


@dataclass(frozen=True, slots=True)
class AllocatorSettings:
    """The policy in numbers, all in bytes, with PyTorch's defaults.

    The last four are options of ``PYTORCH_CUDA_ALLOC_CONF`` (there in MiB; older releases fix ``large_segment``);
    the others are constants of PyTorch. ``max_split_size=None`` cuts blocks of any size;
    ``max_non_split_rounding=None`` stands for ``large_segment``; ``roundup_power2_divisions`` has one
    number for each power of two from 1 MiB (and all below) to 32 GiB (and all above), 0 or 1 for no rounding.
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
    """Say whether ``rest`` bytes over what ``block_bytes`` needs become a free block, or stay in the block."""
    if block_bytes <= settings.small_limit:
        return rest >= settings.minimum_block
    if settings.max_split_size is not None and block_bytes >= settings.max_split_size:
        return False
    return rest > settings.small_limit


def _round_up(nbytes: int, step: int) -> int:
    return -(-nbytes // step) * step
