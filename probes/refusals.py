"""Whose error it is: that of the code of a model, which its user can mend, or ours."""

from __future__ import annotations

import traceback
from pathlib import Path

import torch

from memdoctor.errors import MeasureError
from memdoctor.probes.job import OF_THE_MODEL

_TORCH = str(Path(torch.__file__).parent)
_OWN = str(Path(__file__).parent)


def refusal_of(error: Exception) -> MeasureError | None:
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
