"""From a case of the data files to evidence: probed for real on the simulated GPU, or built from a report's figures."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest

from memdoctor.cases import Case, open_case
from memdoctor.levers import effect_of, pulls_of
from memdoctor.matrix import apply_to
from memdoctor.measuring import Probed, Probing, Subject
from memdoctor.probes.pool import Pool, Request
from memdoctor.records import (
    Attention,
    Block,
    Category,
    Change,
    Counters,
    Device,
    Event,
    Examination,
    Lever,
    Phase,
    PhaseName,
    Precision,
    Provenance,
    RanOut,
    SegmentEvent,
    Task,
    Timeline,
    Workload,
)
from memdoctor.rules import Evidence, evidence_of
from memdoctor.units import MIB, parse_bytes

Facts = Mapping[str, Any]
FOLDER = Path(__file__).parent
_KINDS: Mapping[str, Callable[[Any], Any]] = {
    "task": Task, "attention": Attention, "precision": Precision, "freeze": tuple,
}  # fmt: skip


def in_bytes(amount: int | str) -> int:
    """``4096``, ``"8 GiB"``, or a product as people write it: ``"32x256x50265x4"``."""
    if isinstance(amount, int):
        return amount
    factors = amount.split("x")
    return prod(map(int, factors)) if all(map(str.isdecimal, factors)) else parse_bytes(amount)


@pytest.fixture(scope="session")
def amount() -> Callable[[int | str], int]:
    """Reads a figure of the data files."""
    return in_bytes


@pytest.fixture(scope="module")
def evidence_for() -> Iterator[Callable[[Facts], Evidence]]:
    """The evidence of a case. One pool for all, and what two cases have in common is probed once."""
    path = os.pathsep.join(filter(None, (str(FOLDER), os.environ.get("PYTHONPATH"))))
    shared: dict[Subject, Probed] = {}
    with pytest.MonkeyPatch.context() as patch, Pool() as pool:
        patch.setenv("PYTHONPATH", path)

        def make(case: Facts) -> Evidence:
            if "figures" in case:
                return _by_hand(case["figures"])
            return _probed(case, pool, shared)

        yield make


def _probed(facts: Facts, pool: Pool, shared: dict[Subject, Probed]) -> Evidence:
    case = _opened(facts)
    target, device = case.workload, case.device
    if "steps" in facts:
        (best,) = pool.examine([Request(target, device, case.facts, steps=facts["steps"])])
        return evidence_of(best, case.facts.config)
    session = Probing(case, plain=pool, gpu=None, simulations=shared)
    session.simulate([target])
    best = session.best(target)
    pulls = [
        (kind, pull) for kind, pull in pulls_of(replace(target, attention=best.workload.attention), device)
        if kind.name in facts["expected"].get("levers", {})
    ]  # fmt: skip
    asked: list[Change] = [{**probe["change"]} for probe in facts.get("probes", ())]
    changes = [*asked, *(pull.change for _, pull in pulls if not isinstance(pull, str))]
    found = session.ask([apply_to(target, device, change) for change in changes])
    probes = [(change, other) for change, other in zip(changes, found, strict=True) if other is not None]
    assert len(probes) == len(changes), f"{facts['id']}: one of {changes} could not be probed"
    levers: list[Lever] = []
    for kind, pull in pulls:
        assert not isinstance(pull, str), f"{kind.name}: {pull}"
        other = session.simulated(*apply_to(target, device, pull.change))
        assert isinstance(other, Examination)
        levers.append(effect_of(kind, pull, best, other))
    if "several_gpus" in facts:
        best = replace(best, workload=replace(best.workload, **facts["several_gpus"]))
    evidence = evidence_of(best, case.facts.config, probes=probes, levers=levers)
    return replace(evidence, runs_allocated_bytes=tuple(map(in_bytes, facts.get("runs", ()))))


def _opened(facts: Facts) -> Case:
    settings = {name: _KINDS.get(name, lambda value: value)(value) for name, value in facts["settings"].items()}
    model = facts["model"]
    if model.startswith("configs/"):
        model = str(FOLDER / model)
    case = open_case(model, gpu=facts["gpu"], memory=facts.get("memory"), backend="simulated", **settings)
    if "outside" not in facts:
        return case
    others = in_bytes(facts["outside"]) - case.device.context_bytes
    return replace(case, device=replace(case.device, other_processes_bytes=others))


def _by_hand(figures: Facts) -> Evidence:
    """One GPU as a report describes it: PyTorch's message, or what was allocated after each of several runs.

    ``outside`` says whose the memory is that PyTorch does not hold; ``loading`` is state that is there while a
    checkpoint is loaded, beside the optimizer's own.
    """
    told = ("runs", "outside", "several_gpus")
    sizes = {name: in_bytes(value) for name, value in figures.items() if name not in told}
    total, asked = sizes.get("total", 2**36), sizes.get("requested", 0)
    allocated, reserved = sizes.get("allocated", 0), sizes.get("reserved", 0)
    births = [(Category.PARAMETERS, sizes.get("weights", 0)), (Category.GRADIENTS, sizes.get("gradients", 0))]
    births += [(Category.OPTIMIZER_STATE, sizes.get("state", 0)), (Category.OPTIMIZER_STATE, sizes.get("loading", 0))]
    births += [(Category.ACTIVATIONS, allocated), (Category.TEMPORARIES, asked)]
    timeline = _timeline([(category, size) for category, size in births if size], reserved)
    context = 300 * MIB
    device = Device(
        name="card", total_bytes=total, compute_capability="7.0", context_bytes=context, context_error_bytes=0,
        context_source="by hand", source="report",
    )  # fmt: skip
    outcome = RanOut(asked, sizes.get("free", 0), len(timeline.events) - 1, asked, allocated, reserved)
    examination = Examination(
        Workload(model="by-hand", **figures.get("several_gpus", {})), device, _PROVENANCE, outcome, timeline
    )
    if "outside" in figures:
        examination = _held_outside(examination, figures["outside"], total - reserved - sizes["free"])
    evidence = evidence_of(examination, {})
    return replace(evidence, runs_allocated_bytes=tuple(map(in_bytes, figures.get("runs", ()))))


def _timeline(births: list[tuple[Category, int]], reserved: int) -> Timeline:
    """All is born in setup but what is not there to stay; a copy that is loaded dies at the end of setup."""
    blocks = tuple(
        Block(
            bytes=size, category=category, module="", op="", dtype="float32", shape=(size // 4,), allocated_bytes=size,
            address=number << 40,
        )
        for number, (category, size) in enumerate(births)
    )  # fmt: skip
    events = [Event(number, block.bytes) for number, block in enumerate(blocks)]
    states = [number for number, block in enumerate(blocks) if block.category is Category.OPTIMIZER_STATE]
    if len(states) > 1:
        events.append(Event(states[-1], -blocks[states[-1]].bytes))
    most = max(reserved, sum(block.bytes for block in blocks))
    setup = Phase(0, PhaseName.SETUP, 0, len(events))
    return Timeline(blocks, tuple(events), (setup,), (SegmentEvent(0, most),))


def _held_outside(examination: Examination, whose: str, outside: int) -> Examination:
    """With NVML's account of who holds what PyTorch's message leaves over: this process, others, or nobody listed."""
    device, reserved = examination.device, examination.outcome.reserved_bytes  # type: ignore[union-attr]
    assert reserved is not None
    own = outside if whose == "this process" else device.context_bytes
    others = outside - own
    counters = Counters(
        max_memory_allocated_bytes=reserved, max_memory_reserved_bytes=reserved, memory_allocated_bytes=reserved,
        memory_reserved_bytes=reserved, process_bytes=reserved + own, used_bytes=reserved + outside,
        listed_bytes=others if whose == "others" else 0,
    )  # fmt: skip
    listed = others if whose == "others" else 0
    return replace(examination, device=replace(device, other_processes_bytes=listed), counters=counters)


_PROVENANCE = Provenance(
    mode="measured", memdoctor="", torch="", transformers="", python="", created="", model_source="report",
    attention_kernels=(), seconds=0,
)  # fmt: skip
