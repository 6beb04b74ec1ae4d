"""What is wrong with an environment, in the order in which it keeps a GPU from being used."""

from __future__ import annotations

import os
from collections.abc import Iterator

from memdoctor.environment.builds import capability_problems, driver_problem, driver_problem_of_any, suitable_cuda
from memdoctor.environment.card_problems import card_problems
from memdoctor.environment.gather import Environment
from memdoctor.environment.wording import MAY_TALK, Problem
from memdoctor.errors import UsageError
from memdoctor.probes.nvml import Absence, NoGpu, Survey
from memdoctor.probes.seen import UnreadableGpu, Why
from memdoctor.probes.simulated.allocator.conf import parse_alloc_conf
from memdoctor.probes.visibility import VARIABLE


def find_problems(environment: Environment, own_pid: int | None = None) -> tuple[Problem, ...]:
    """Everything that is in the way; ``own_pid`` is whose memory is nobody else's, by default this process."""
    own = os.getpid() if own_pid is None else own_pid
    seen = environment.gpus
    gpu = _no_gpu(seen, environment.cards_on_bus) if isinstance(seen, NoGpu) else _with_gpus(environment, seen, own)
    return (*gpu, *_distributions(environment), *_alloc_conf(environment))


def _no_gpu(seen: NoGpu, cards_on_bus: int) -> Iterator[Problem]:
    if seen.absence is Absence.NO_PYNVML:
        yield Problem(
            f"NVML cannot be asked: {seen.reason}", "GPUs and what is on them are not seen", "pip install nvidia-ml-py"
        )
    elif seen.absence is Absence.MISMATCH:
        yield Problem(
            f"the driver and its library are of two versions: {seen.reason}",
            "the driver was upgraded and the old one is still loaded, or a container brings a library of its own",
            "restart the machine, or remove the library (libnvidia-ml.so) from the container",
        )
    elif seen.absence is Absence.NO_PERMISSION:
        yield Problem(seen.reason, "this user may not talk to the driver", MAY_TALK)
    elif seen.absence is not Absence.NO_DRIVER:
        yield Problem(seen.reason, "GPUs and what is on them are not seen", "does nvidia-smi work?")
    elif cards_on_bus:
        yield Problem(
            f"there is an NVIDIA card and no driver for it: {seen.reason}",
            "CUDA needs the driver; in a container, the host's driver must be let in",
            "install the driver, or start the container with --gpus all",
        )


def _with_gpus(environment: Environment, seen: Survey, own_pid: int) -> Iterator[Problem]:
    yield from map(_unreadable, seen.unreadable)
    if not seen.gpus:
        return
    yield from _torch(environment, seen)
    yield from _visibility(environment)
    for gpu in seen.gpus:
        yield from card_problems(gpu, own_pid)


def _unreadable(gpu: UnreadableGpu) -> Problem:
    what = f"GPU {gpu.index} does not answer: {gpu.reason}"
    if gpu.why is Why.NO_PERMISSION:
        return Problem(what, "this user may not talk to the card", MAY_TALK)
    if gpu.why is Why.LOST:
        return Problem(
            what,
            "a card that has fallen off the bus stays away until it is reset, and may keep CUDA from starting",
            "sudo dmesg | grep -i xid tells what happened; then nvidia-smi --gpu-reset or a restart of the machine",
        )
    return Problem(
        what,
        "without that memdoctor does not count the card; CUDA may see it all the same",
        "does nvidia-smi show it? sudo dmesg | grep -i xid tells what happened to it",
    )


def _torch(environment: Environment, seen: Survey) -> Iterator[Problem]:
    build = environment.torch
    if build is None:
        return
    if isinstance(build.cuda, str):
        yield from driver_problem(build.cuda, seen)
        yield from capability_problems(build.cuda, seen.gpus)
    elif build.cuda is None:
        built = f"for ROCm {build.hip}" if isinstance(build.hip, str) else "for CPUs only"
        yield Problem(
            f"torch {build.version} is built {built}, and there is an NVIDIA GPU",
            "this torch cannot use it; memdoctor simulates and does not measure",
            f"install a build for CUDA{suitable_cuda(seen)}; https://pytorch.org/get-started/locally/ has the command",
        )
        yield from driver_problem_of_any(seen)


def _visibility(environment: Environment) -> Iterator[Problem]:
    visible = environment.visible
    for note in visible.notes if visible is not None else ():
        if note.startswith(VARIABLE):
            yield Problem(
                note,
                "CUDA sees the cards that the variable names, up to the first that is none",
                f"unset {VARIABLE}, or name cards as nvidia-smi -L lists them",
            )


def _distributions(environment: Environment) -> Iterator[Problem]:
    if environment.packages.get("pynvml") is not None:
        yield Problem(
            "the distribution called pynvml is installed, and deprecated",
            "older ones overwrite the module that nvidia-ml-py brings, and torch warns of it",
            "pip uninstall pynvml; pip install --force-reinstall nvidia-ml-py",
        )


def _alloc_conf(environment: Environment) -> Iterator[Problem]:
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        try:
            parse_alloc_conf(environment.variables.get(name) or "")
        except UsageError as error:
            yield Problem(f"{name}: {error.what}", error.why, error.hint)
