"""Which cards CUDA sees, and how it numbers them: CUDA_DEVICE_ORDER, then CUDA_VISIBLE_DEVICES, then MIG.

Sources: CUDA Programming Guide, "CUDA Environment Variables" (the order, UUIDs and their abbreviations, that the list
ends at the first invalid entry); ``_parse_visible_devices``, ``_transform_uuid_to_ordinals`` and
``_device_count_nvml`` of torch/cuda/__init__.py, by which ``torch.cuda.device_count`` goes (what a number is, that a
list is of one kind, that an entry named twice leaves nothing); NVIDIA MIG User Guide, "CUDA Device Enumeration" (one
compute instance at most, and no whole card beside it).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from memdoctor.probes.seen import SeenGpu, Survey, Unknown

VARIABLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
_NUMBER = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True, slots=True)
class Visible:
    """The cards in the order of their CUDA numbers. Where it is not ``certain``, torch must confirm them by UUID."""

    gpus: tuple[SeenGpu, ...]
    certain: bool
    notes: tuple[str, ...]
    """What was guessed, left out or not understood."""


def as_cuda_numbers(seen: Survey, environ: Mapping[str, str]) -> Visible:
    """The cards that CUDA would see in this environment, the one it calls 0 first."""
    ordered, guesses = _ordered(seen, environ)
    text = environ.get(VARIABLE)
    picked, notes = (ordered, []) if text is None else _picked(ordered, text)
    gpus, cut = _with_instances(picked)
    by_number = text is None or not text.startswith(("GPU-", "MIG-"))
    if by_number:
        notes = [*guesses, *notes]
    return Visible(tuple(gpus), certain=not cut and not (by_number and guesses), notes=(*notes, *cut))


def _ordered(seen: Survey, environ: Mapping[str, str]) -> tuple[list[SeenGpu], list[str]]:
    """The cards in CUDA's order, and what is a guess about it."""
    by_bus = sorted(seen.gpus, key=lambda gpu: (_text(gpu.pci_bus_id), gpu.index))
    guesses = [f"GPU {gpu.index} does not answer, and CUDA may or may not count it" for gpu in seen.unreadable]
    if len(by_bus) > 1 and any(isinstance(gpu.pci_bus_id, Unknown) for gpu in by_bus):
        guesses.append("the order on the bus is not told")
    if environ.get(ORDER) == "PCI_BUS_ID" or len({gpu.name for gpu in by_bus}) <= 1:
        return by_bus, guesses
    guesses.append(f"{ORDER} is FASTEST_FIRST, the driver's own rule: which card is the fastest is a guess here")
    fastest = sorted(by_bus, key=lambda gpu: (_capability(gpu), gpu.total_bytes), reverse=True)
    return fastest, guesses


def _picked(ordered: Sequence[SeenGpu], text: str) -> tuple[list[SeenGpu], list[str]]:
    """The cards that the variable names, in its order, up to the first that is none."""
    entries = text.split(",")
    chosen = _by_uuid(ordered, entries) if text.startswith(("GPU-", "MIG-")) else _by_number(ordered, entries)
    picked = [gpu for gpu in takewhile(lambda gpu: gpu is not None, chosen or ()) if gpu is not None]
    if chosen is None or len({gpu.uuid for gpu in picked}) < len(picked):
        return [], [f"{VARIABLE}={text} names a card twice, which leaves none"]
    if not text.strip():
        return [], [f"{VARIABLE} is empty, which hides every card"]
    if len(picked) == len(entries):
        return picked, []
    wrong = entries[len(picked)].strip()
    rest = "it and what follows it is left out" if picked else "which hides every card"
    return picked, [f"{VARIABLE}={text}: {wrong!r} is no card here, {rest}"]


def _by_number(ordered: Sequence[SeenGpu], entries: Sequence[str]) -> list[SeenGpu | None] | None:
    """Numbers as C reads them, where ``1gpu2`` is 1; ``None`` where one comes twice before the first that is none."""
    matches = (_NUMBER.match(entry.strip()) for entry in entries)
    numbers = list(takewhile(lambda number: number >= 0, (int(match.group()) if match else -1 for match in matches)))
    if len(set(numbers)) < len(numbers):
        return None
    return [ordered[number] if number < len(ordered) else None for number in numbers]


def _by_uuid(ordered: Sequence[SeenGpu], entries: Sequence[str]) -> list[SeenGpu | None] | None:
    """UUIDs of the kind of the first, or beginnings that fit one card only; ``None`` where one comes twice."""
    kind = entries[0][:4]
    named = list(takewhile(lambda entry: entry.startswith(kind), entries))
    if len(set(named)) < len(named):
        return None
    candidates = [*ordered, *(part for gpu in ordered for part in _instances(gpu))]
    fitting = [[gpu for gpu in candidates if gpu.uuid.startswith(entry)] for entry in named]
    return [found[0] if len(found) == 1 else None for found in fitting]


def _with_instances(picked: Sequence[SeenGpu]) -> tuple[list[SeenGpu], list[str]]:
    """CUDA sees the instances of a card in MIG mode, not the card; one instance only, and then nothing else."""
    parts = [part for gpu in picked for part in (_instances(gpu) if _is_cut(gpu) else (gpu,))]
    instance = next((part for part in parts if part.is_instance), None)
    if instance is None:
        empty = [f"GPU {gpu.index} is in MIG mode and has no instance" for gpu in picked if _is_cut(gpu)]
        return parts, empty
    if len(parts) == 1:
        return parts, []
    return [instance], [f"CUDA uses one MIG instance and nothing beside it: {instance.uuid}, the first of {len(parts)}"]


def _instances(gpu: SeenGpu) -> tuple[SeenGpu, ...]:
    return () if isinstance(gpu.mig, Unknown) else gpu.mig.instances


def _is_cut(gpu: SeenGpu) -> bool:
    return not isinstance(gpu.mig, Unknown) and gpu.mig.on


def _capability(gpu: SeenGpu) -> tuple[int, ...]:
    return tuple(int(part) for part in gpu.compute_capability.split("."))


def _text(text: str | Unknown) -> str:
    return "" if isinstance(text, Unknown) else text
