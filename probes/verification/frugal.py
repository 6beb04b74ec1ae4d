"""Running the same model again and again without paying each time for what does not change."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # glibc, malloc/malloc.h
_NEVER = -1  # as bytes, which have no sign: more than there are


@contextmanager
def kept_at_hand() -> Iterator[None]:
    """Memory that is freed stays with the process, and what is there now is not looked through for garbage.

    glibc gives each large tensor pages of its own from the system, which zeroes them, micro-batch by micro-batch; and
    the Trainer collects garbage at the end of each run (accelerate, ``release_memory``), in all that was ever imported.
    No byte that the tracker counts depends on either. The first stays so: a worker ends.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's alone
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, _NEVER)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
