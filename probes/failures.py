"""Whose error it is that a training step raised: the model's, the machine's, or ours."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import torch

from memdoctor.errors import MeasureError
from memdoctor.probes.job import OF_THE_MODEL
from memdoctor.units import format_bytes

_TORCH = str(Path(torch.__file__).parent)
_OWN = str(Path(__file__).parent.parent)
# c10/core/impl/alloc_cpu.cpp, alloc_cpu: where posix_memalign gives nothing.
_NO_HOST_MEMORY = re.compile(
    r"DefaultCPUAllocator: (?:can't allocate memory: you tried to allocate (\d+) bytes|not enough)"
)


def refusal(error: Exception) -> MeasureError | None:
    """An error of the model's code, or of torch when the model called it; ``None`` where it is ours.

    Between the model and torch lie our dispatch modes: an error that comes out of torch through them is the model's.
    """
    lines = traceback.extract_tb(error.__traceback__)
    theirs = [line for line in lines if not line.filename.startswith((_TORCH, _OWN))]
    of_the_model = theirs or OF_THE_MODEL in getattr(error, "__notes__", ())
    if not of_the_model or lines[-1].filename.startswith(_OWN):
        return None
    where = f"at {Path(theirs[-1].filename).name}:{theirs[-1].lineno}" if theirs else OF_THE_MODEL
    why = " ".join(f"{type(error).__name__}: {error}".split())
    hint = "write x.device, of an input or a parameter, in place of a device by name" if "cuda" in why else ""
    return MeasureError(f"the model's code refuses the training step, {where}", why=why, hint=hint)


def host_out_of_memory(error: BaseException) -> MeasureError | None:
    """The error of a machine that has no more memory; ``None`` where that is not what happened."""
    found = _NO_HOST_MEMORY.search(str(error))
    if found is None and not isinstance(error, MemoryError):
        return None
    asked = (
        f"it was asked for {format_bytes(int(found[1]))} at once" if found and found[1] else "it refused an allocation"
    )
    return MeasureError(
        "this machine ran out of memory in the training step", why=asked, hint="a smaller --batch-size or --seq-length"
    )
