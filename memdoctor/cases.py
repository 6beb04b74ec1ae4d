"""What a user asked for, filled in: the model found, the card found, and every setting that was not said."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

from memdoctor.catalogue import find_gpu, near_gpus
from memdoctor.codec import from_json, to_json
from memdoctor.errors import InputError, MeasureError, UsageError
from memdoctor.own_gpu import in_use, own_device
from memdoctor.patches import patch_of
from memdoctor.probes.host import host_device
from memdoctor.probes.nvml import Absence, NoGpu
from memdoctor.probes.resolve import ModelFacts, resolve_model
from memdoctor.probes.simulated.allocator.conf import parse_alloc_conf
from memdoctor.records import Backend, Change, Device, Dtype, Precision, Provenance, Workload
from memdoctor.units import format_bytes, parse_bytes

REFERENCE_GPU = "T4"
DEFAULT_SEQ_LENGTH = 512
MEMORY = "--memory "  # before the size that was asked for, in the source of a device
MOST_MICRO_BATCHES = 10_000  # their inputs are made and counted one by one: some minutes
MOST_TOKENS = 2**24  # 128 MiB of token ids; a hundredth of it fills a card of 80 GB with BERT-base


@dataclass(frozen=True, slots=True)
class Case:
    """What a user asked for, filled in: ``assumed`` names what they did not say.

    ``backend`` is the one that was insisted on, else the simulated one; ``tries_gpu``: the device is this machine's own
    card, and steps are to be measured on it where they can be.
    """

    workload: Workload
    device: Device
    facts: ModelFacts
    assumed: tuple[str, ...]
    backend: Backend = Backend.SIMULATED
    tries_gpu: bool = False


def open_case(
    model: str,
    *,
    gpu: str | None = None,
    memory: str | None = None,
    backend: str = "auto",
    offline: bool = False,
    alloc_conf: str | None = None,
    default_seq_length: int = DEFAULT_SEQ_LENGTH,
    **settings: Any,
) -> Case:
    """Find the model and the GPU, and fill in what was not said. ``settings`` are fields of Workload or ``None``.

    Raises:
        InputError: an unknown model or GPU, or a sequence longer than the model takes.
        UsageError: a setting that is out of range.
    """
    if backend == Backend.CPU:
        of_a_card = {"gpu": gpu, "memory": memory, "cuda-alloc-conf": alloc_conf}
        return _on_cpu(resolve_model(model, offline=offline), of_a_card, settings, default_seq_length)
    insisted = Backend.GPU if backend == Backend.GPU else Backend.SIMULATED
    device, assumed_gpu = _device(gpu, memory)
    own = backend != "simulated" and memory is None and _is_own(device)  # else nobody asks NVML again
    if insisted is Backend.GPU and not (own or gpu is memory is None):
        _refuse(gpu, memory)
    conf, assumed_conf = _alloc_conf(alloc_conf)
    facts = resolve_model(model, offline=offline)
    workload, assumed = _workload(facts, settings, default_seq_length)
    tries = insisted is Backend.GPU or (backend == "auto" and own)
    told = (*assumed, *assumed_gpu, *assumed_conf)
    return Case(workload, replace(device, alloc_conf=conf), facts, told, insisted, tries)


def _is_own(device: Device) -> bool:
    """Whether the device is the card that CUDA calls 0 on this machine, by its name."""
    own = own_device(os.environ)
    return not isinstance(own, NoGpu) and own[0].name == device.name


def _refuse(gpu: str | None, memory: str | None) -> NoReturn:
    """A step can be measured on the card that is there, as it is.

    Raises:
        UsageError: another card, or another size of it, was asked for.
        MeasureError: there is none.
    """
    own = own_device(os.environ)
    if isinstance(own, NoGpu):
        raise MeasureError("no GPU is seen on this machine", why=own.reason, hint="--backend simulated")
    option, why = (f"--gpu {gpu}", f"the card that CUDA calls 0 on this machine is {own[0].name}")
    if memory is not None:
        option, why = "--memory", "a card is measured with the memory that it has"
    raise UsageError(
        f"{option} and --backend gpu contradict each other",
        why=why,
        hint=f"--backend simulated, or leave {option.partition(' ')[0]} out",
    )


def _on_cpu(
    facts: ModelFacts, of_a_card: Mapping[str, str | None], settings: Mapping[str, Any], default_seq_length: int
) -> Case:
    """The case of a step on this machine's processor, which has no settings of a card."""
    for name, value in of_a_card.items():
        if value is not None:
            raise UsageError(
                f"--{name} and --backend cpu contradict each other",
                why="the step runs on this machine's processor and in its memory; there is no card",
                hint=f"leave --{name} out, or --backend simulated",
            )
    workload, assumed = _workload(facts, settings, default_seq_length)
    return Case(workload, host_device(), facts, assumed, Backend.CPU)


VERIFIED_BY_DEFAULT = {"gradient_accumulation_steps": 4, "batch_size": 2}
VERIFIED_SEQ_LENGTH = 64
"""Of a verification, where nothing was said: no check rests on the sizes, and seconds do."""


def check_verifiable(case: Case) -> None:
    """Refuse what cannot be verified.

    Raises:
        UsageError: not on the CPU, nothing accumulated, or numbers too coarse to tell a mistake from rounding.
    """
    workload = case.workload
    refusals = {
        f"--backend {case.backend.value}": (case.backend is not Backend.CPU, "only on the CPU are numbers real"),
        "--gradient-accumulation-steps 1": (
            workload.gradient_accumulation_steps < 2, "there is something to accumulate from 2 on"
        ),
        f"--{workload.precision.value}": (workload.precision is not Precision.FP32, _COARSE),
        f"--dtype {workload.dtype.value}": (workload.dtype is not Dtype.FLOAT32, _COARSE),
        "--eval": (workload.evaluate, "what is verified is training"),
        "--forward-passes": (workload.forward_passes > 1, "the loop itself decides how often it calls the model"),
    }  # fmt: skip
    for option, (refused, why) in refusals.items():
        if refused:
            raise UsageError(f"--verify-accumulation does not go with {option}", why=why, hint=f"leave {option} out")


_COARSE = "accumulation is checked in fp32: in 16 bits rounding is as large as the mistakes that are looked for"


def patcher(case: Case, target: Workload, provenance: Provenance) -> Callable[[Change], Mapping[str, str]]:
    """Writes changes of the target in the user's languages, by the names of the releases that are installed.

    The command line in it names the card as the case does.
    """
    device = case.device
    return partial(
        patch_of,
        target,
        transformers=provenance.transformers,
        torch=provenance.torch,
        gpu=None if case.tries_gpu else device.name,
        memory=device.source.removeprefix(MEMORY) if device.source.startswith(MEMORY) else None,
        alloc_conf=device.alloc_conf,
    )


def parse_change(case: Case, text: str) -> Change:
    """A change written as ``key=value``, e.g. ``precision=fp16``: a field of the workload and its new value.

    Raises:
        UsageError: no such field, or a value that it cannot have.
    """
    name, _, value = text.partition("=")
    key = name.strip().replace("-", "_")
    fixed = ("model", "strategy", "world_size", "freeze", "lora_target_modules", "optim_target_modules")
    settings = {name: value for name, value in to_json(case.workload).items() if name not in fixed}
    if key not in settings:
        raise UsageError(f"--toggle {text}: there is no setting {name!r}", hint=f"one of {', '.join(settings)}")
    try:
        changed = to_json(from_json(Workload, {**to_json(case.workload), key: value.strip()}))
    except ValueError as error:
        raise UsageError(f"--toggle {text}: {value!r} is no {key}", why=str(error)) from error
    _check_size(case.facts, changed["batch_size"], changed["seq_length"])
    return {key: changed[key]}


def _workload(
    facts: ModelFacts, settings: Mapping[str, Any], default_seq_length: int
) -> tuple[Workload, tuple[str, ...]]:
    said = {name: value for name, value in settings.items() if value is not None}
    longest = facts.max_seq_length
    said_length = said.setdefault("seq_length", min(default_seq_length, longest or default_seq_length))
    _check_size(facts, said.get("batch_size", 1), said_length)
    if (steps := said.get("gradient_accumulation_steps", 1)) > MOST_MICRO_BATCHES:
        raise InputError(
            f"a step of {steps:,} micro-batches takes too long to probe",
            why=f"the inputs of each are made and counted, and it stops at {MOST_MICRO_BATCHES:,}",
            hint="fewer: what accumulates takes the same, and the inputs of each a little more",
        )
    if said.get("strategy", "single") != "single" or said.get("world_size", 1) != 1:
        raise InputError(
            "several GPUs cannot be probed yet",
            why="only --strategy single with --world-size 1 is simulated",
            hint="probe one GPU; with DDP each GPU takes at least that much",
        )
    try:
        workload = Workload(model=facts.name, **said)
    except ValueError as error:
        raise UsageError(str(error)) from error
    telling = ["batch_size", "seq_length", "precision", "optimizer", "max_grad_norm"]
    if workload.evaluate:
        telling += ["eval_batch_size", "eval_samples"]
    assumed = [f"{name} {getattr(workload, name)}" for name in telling if settings.get(name) is None]
    if settings.get("padded") is None:
        assumed.append("no padding in the batch")
    return workload, tuple(assumed)


def _check_size(facts: ModelFacts, batch: int, length: int) -> None:
    longest = facts.max_seq_length
    if batch * length > MOST_TOKENS:
        raise InputError(
            f"a batch of {batch:,} x {length:,} tokens is more than any GPU could hold",
            why=f"the probe makes its token ids on this machine, and stops at {MOST_TOKENS:,} tokens",
            hint="a smaller --batch-size",
        )
    if longest is not None and length > longest:
        raise InputError(
            f"a sequence of {length} tokens is longer than {facts.name} takes",
            why=f"its positions end at {longest}",
            hint=f"--seq-length {longest} or less, or a model for longer texts",
        )


def _alloc_conf(said: str | None) -> tuple[str, tuple[str, ...]]:
    """The allocator's settings: those asked for, else those that PyTorch would read from the environment."""
    if said is not None:
        _check_alloc_conf(said, "--cuda-alloc-conf")
        return said, ()
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):  # PyTorch's own order, from 2.9 on
        if conf := os.environ.get(name, ""):
            _check_alloc_conf(conf, name)
            return conf, (f"{name}={conf}",)
    return "", ()


def _check_alloc_conf(conf: str, source: str) -> None:
    try:
        settings = parse_alloc_conf(conf)
    except UsageError as error:
        raise UsageError(f"{source}: {error.what}", why=error.why, hint=error.hint) from error
    if settings.memory_fraction < 1:
        raise UsageError(
            f"{source}: per_process_memory_fraction cannot be probed yet",
            why="what the process may not have would be no part of the card that is shown",
            hint="--memory with what it may have and the context",
        )


def _device(gpu: str | None, memory: str | None) -> tuple[Device, tuple[str, ...]]:
    """The card asked for, else the first of this machine, else the reference card; and what was assumed."""
    device, assumed = (_catalogued(gpu), ()) if gpu is not None else _own_or_reference()
    if memory is None:
        return device, (*assumed, *in_use(device))
    total = parse_bytes(memory)
    if total <= device.context_bytes:
        raise UsageError(
            f"--memory {memory} is too little", why=f"the CUDA context alone takes {format_bytes(device.context_bytes)}"
        )
    # A size that was asked for is that of a card to itself.
    return replace(device, total_bytes=total, other_processes_bytes=0, source=f"{MEMORY}{memory}"), assumed


def _catalogued(gpu: str) -> Device:
    entry = find_gpu(gpu)
    if entry is None:
        near = near_gpus(gpu)
        raise InputError(
            f"unknown GPU {gpu!r}",
            hint=f"{' or '.join(near)}; memdoctor gpus lists the catalogue" if near else "memdoctor gpus",
        )
    return entry.device


def card_of(case: Case, gpu: str) -> Device:
    """The card of the catalogue by this name, with the allocator's settings of the case.

    Raises:
        InputError: an unknown GPU.
    """
    return replace(_catalogued(gpu), alloc_conf=case.device.alloc_conf)


def _own_or_reference() -> tuple[Device, tuple[str, ...]]:
    own = own_device(os.environ)
    if not isinstance(own, NoGpu):
        return own
    why = own.reason if own.absence is Absence.HIDDEN else "no GPU is seen here"
    return _catalogued(REFERENCE_GPU), (f"GPU {REFERENCE_GPU}, the reference card, since {why}",)
