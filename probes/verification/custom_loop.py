"""A training loop of the user's own: ``--loop package.module:function``.

The contract: ``function(model, optimizer, batches, gradient_accumulation_steps)`` goes once over ``batches``, a list
of micro-batches (mappings of CPU tensors by the names of ``forward``'s parameters), in their order; calls ``model``
with a micro-batch and ``backward`` on its loss; and steps ``optimizer`` after every ``gradient_accumulation_steps`` of
them, and after those that are left over at the end. What it returns is passed over.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from memdoctor.errors import InputError, MemdoctorError
from memdoctor.probes.failures import host_out_of_memory
from memdoctor.probes.user_models import import_function, told
from memdoctor.probes.verification.loops import LoopJob, RunLoop, only_here

SIGNATURE = "train(model, optimizer, batches, gradient_accumulation_steps)"


def runner(name: str) -> RunLoop:
    """The function ``name`` as a loop.

    Raises:
        InputError: it cannot be imported, or does not take what a loop is given.
    """
    function = import_function(name)
    try:
        _bind(function)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name} cannot be called as a loop",
            why=f"it is called by position, as {SIGNATURE}: {error}",
            hint=_another(name),
        ) from error

    def run(job: LoopJob) -> None:
        process = os.getpid()
        try:
            _call(name, function, job)
        finally:
            only_here(process)

    return run


def _bind(function: Callable[..., Any]) -> None:
    inspect.signature(function).bind("model", "optimizer", [], 1)


def _another(name: str) -> str:
    """A function of the same module that can be called as a loop, else what is to be written."""
    module = name.partition(":")[0]
    for other, value in vars(sys.modules[module]).items():
        if inspect.isfunction(value) and value.__module__ == module and not other.startswith("_"):
            with suppress(TypeError, ValueError):
                _bind(value)
                return f"--loop {module}:{other}"
    return f"def {SIGNATURE}; docs/verification.md has an example"


def _call(name: str, function: Callable[..., Any], job: LoopJob) -> None:
    batches = [dict(batch) for batch in job.batches]
    try:
        function(job.model, job.optimizer, batches, job.accumulation)
    except MemdoctorError:
        raise
    except (Exception, SystemExit) as error:
        raise host_out_of_memory(error) or InputError(f"the loop {name} failed", why=told(error)) from error
