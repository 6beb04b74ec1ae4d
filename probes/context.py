"""What the CUDA context takes: measured by NVML beside PyTorch's allocator, and remembered for this machine.

It is all that a process holds on the card and that the allocator has not reserved: the context itself, the code of
the kernels, and what cuBLAS and cuDNN take for themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

from memdoctor.probes.seen import GpuProcess, MemoryReading, Unknown

# A reading is as close as the driver's pages: PyTorch maps memory in 2 MiB as well (kSmallBuffer for segments and
# for the pages of expandable ones, c10/cuda/CUDACachingAllocator.cpp).
PAGE_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class Context:
    """What the context takes, known to ``error_bytes`` either way; ``source`` says how it was found."""

    context_bytes: int
    error_bytes: int
    source: str


def context_of(before: MemoryReading, after: MemoryReading, reserved_bytes: int) -> Context | Unknown:
    """The context of a process, from readings before it had one and after, with what its allocator had reserved then.

    By the process's own bytes where the driver lists them; else by what has come to be in use on the card, less what
    other processes have taken that were listed before. An impossible reading is Unknown with its reason.
    """
    if after.own_bytes is not None:
        own = after.own_bytes - reserved_bytes
        if own <= 0:
            return Unknown(
                f"the driver counts {after.own_bytes} B for the process, of which {reserved_bytes} B are reserved"
            )
        return Context(own, PAGE_BYTES, "measured: process bytes by pid less reserved")
    held_before, held_after = _held(before.others), _held(after.others)
    # A newcomer may be this very process under the number that it has outside of its container: nothing to take off.
    followed = {pid: count for pid, count in held_before.items() if pid in held_after or _is_gone(pid, after)}
    moved = sum(held_after.get(pid, 0) - count for pid, count in followed.items())
    newcomers = sorted(count for pid, count in held_after.items() if pid not in held_before)
    taken = after.used_bytes - before.used_bytes - moved - reserved_bytes
    if taken <= 0:
        return Unknown(
            f"{before.used_bytes} B of the card were in use before and {after.used_bytes} B after, of which "
            f"{reserved_bytes} B are reserved and others have taken {moved} B: no context fits between"
        )
    # What nobody is known to go on holding may have been given back meanwhile, and hides as much of the context.
    unaccounted = max(0, before.used_bytes - sum(followed.values())) + sum(newcomers[:-1])
    return Context(
        taken,
        PAGE_BYTES + min(taken, unaccounted),
        "measured: by difference of used bytes less reserved; other processes may have moved",
    )


def _is_gone(pid: int, after: MemoryReading) -> bool:
    """Whether the process is told to hold nothing any more; without a list, or without its bytes, it is not."""
    return not isinstance(after.others, Unknown) and pid not in {process.pid for process in after.others}


def _held(processes: tuple[GpuProcess, ...] | Unknown) -> dict[int, int]:
    """The bytes of the processes that are listed with theirs, by pid."""
    listed = () if isinstance(processes, Unknown) else processes
    return {process.pid: process.used_bytes for process in listed if process.used_bytes is not None}
