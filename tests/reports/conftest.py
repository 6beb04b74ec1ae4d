"""A diagnosis written by hand, small enough to read, with something in every part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from memdoctor.difference import difference_of
from memdoctor.doctor import conclude as concluded
from memdoctor.records import (
    Attention,
    Block,
    Breakdown,
    Category,
    ChecklistStep,
    Completed,
    Device,
    Diagnosis,
    Difference,
    Event,
    Examination,
    Finding,
    ModuleUse,
    Peak,
    Phase,
    PhaseLine,
    PhaseName,
    PhaseUse,
    Plan,
    Prediction,
    PredictionCheck,
    Provenance,
    RanOutAt,
    Scaling,
    SegmentEvent,
    TensorGroup,
    Timeline,
    Toggle,
    Verdict,
    Workload,
)
from memdoctor.reports.documents import read_diagnosis

REPORTS = Path(__file__).parent.parent / "data" / "reports"
MIB = 1 << 20
CARD = Device(
    name="Card", total_bytes=1000 * MIB, compute_capability="7.5", context_bytes=100 * MIB,
    context_error_bytes=10 * MIB, context_source="by hand", source="by hand",
)  # fmt: skip
TARGET = Workload(model="by-hand", batch_size=4, seq_length=128, attention=Attention.SDPA)
PROVENANCE = Provenance(
    mode="simulated", memdoctor="0.1.0", torch="2.13.0", transformers="5.24.0", python="3.11.7",
    created="2030-01-01T00:00:00+00:00", model_source="by hand", attention_kernels=("memory-efficient",), seconds=0.5,
)  # fmt: skip
PARTS = Breakdown(
    parameters=100 * MIB, gradients=100 * MIB, optimizer_state=200 * MIB, activations=700 * MIB,
    inputs_and_buffers=MIB // 2, temporaries=MIB // 2, allocator_overhead=9 * MIB, context=100 * MIB, free=-210 * MIB,
)  # fmt: skip
PEAK = Peak(
    allocated_bytes=1101 * MIB, max_memory_allocated_bytes=1102 * MIB, reserved_bytes=1110 * MIB,
    device_bytes=1210 * MIB, phase="backward", step=2,
)  # fmt: skip
SMALLER = Breakdown(parameters=100 * MIB, activations=200 * MIB, context=100 * MIB, free=600 * MIB)
SMALLER_PEAK = Peak(
    allocated_bytes=300 * MIB, max_memory_allocated_bytes=300 * MIB, reserved_bytes=300 * MIB, device_bytes=400 * MIB,
    phase="forward", step=1,
)  # fmt: skip


@pytest.fixture
def diagnosis() -> Diagnosis:
    """One that does not fit, and all that is said of it."""
    kept = TensorGroup(
        bytes=700 * MIB, count=7, dtype="float32", shape=(4, 128, 51200), category=Category.ACTIVATIONS,
        module="net.layer.*.act", op="aten.gelu.default", phase="forward",
    )  # fmt: skip
    scaling = Scaling(
        method="event by event", from_batches=(1, 2), per_sample_bytes=175 * MIB, fixed_bytes=401 * MIB,
        phases=(PhaseLine(step=2, name="backward", fixed_bytes=401 * MIB, per_sample_bytes=175 * MIB),),
        predicted=(
            Prediction(
                batch_size=4, seq_length=128, allocated_bytes=1101 * MIB, reserved_bytes=1110 * MIB, phase="backward",
                fits=False,
            ),
        ),
        largest_batch_that_fits=2,
        check=PredictionCheck(
            batch_size=4, predicted_allocated_bytes=1101 * MIB, probed_allocated_bytes=1101 * MIB, difference_bytes=0,
            predicted_reserved_bytes=1110 * MIB, probed_reserved_bytes=1110 * MIB,
        ),
    )  # fmt: skip
    return Diagnosis(
        workload=TARGET, device=CARD, provenance=PROVENANCE, peak=PEAK, breakdown=PARTS,
        verdict=Verdict(
            fits=False, headroom_bytes=-210 * MIB, cause="activations",
            sentence="Does not fit, 210.00 MiB too much: the peak is in backward, and 64 % of it is activations.",
        ),
        ran_out=RanOutAt(
            step=1, phase="forward", module="net.layer.6.act", op="aten.gelu.default", requested_bytes=100 * MIB,
            free_bytes=90 * MIB,
        ),
        phases=(
            PhaseUse(
                step=2, name="backward", peak_allocated_bytes=1101 * MIB, end_allocated_bytes=401 * MIB, breakdown=PARTS
            ),
        ),
        modules=(ModuleUse(path="net.layer.0.act", activations=100 * MIB),), tensors=(kept,), scaling=scaling,
        toggles=(
            Toggle(
                change={"precision": "fp16"}, peak=SMALLER_PEAK, breakdown=SMALLER, fits=True, saves_bytes=810 * MIB
            ),
            Toggle(
                change={"gradient_checkpointing": True, "batch_size": 9}, peak=PEAK, breakdown=PARTS, fits=False,
                saves_bytes=-5 * MIB,
            ),
        ),
        assumed=("max_grad_norm 1.0", "no padding in the batch"),
    )  # fmt: skip


@pytest.fixture
def examination() -> Examination:
    """Parameters, and an activation that comes and goes."""
    blocks = tuple(
        Block(
            bytes=size, category=category, module="net", op="aten.empty", dtype="uint8", shape=(size,),
            allocated_bytes=512, address=512 * number,
        )
        for number, (size, category) in enumerate([(400, Category.PARAMETERS), (300, Category.ACTIVATIONS)])
    )  # fmt: skip
    timeline = Timeline(
        blocks,
        (Event(0, 400), Event(1, 300), Event(1, -300)),
        (Phase(0, PhaseName.SETUP, 0, 1), Phase(1, PhaseName.FORWARD, 1, 2), Phase(1, PhaseName.BACKWARD, 2, 3)),
        (SegmentEvent(0, 2 * MIB),),
    )
    return Examination(TARGET, CARD, PROVENANCE, Completed(), timeline)


@pytest.fixture(scope="session")
def real() -> Diagnosis:
    """A diagnosis that was made by the command that stands beside it, with something in every part."""
    return read_diagnosis(REPORTS / "bert-base-64-t4.json.gz", concluded)


@pytest.fixture
def smaller(diagnosis: Diagnosis) -> Diagnosis:
    """The same with half of the batch, which fits, seen by another torch."""
    parts = replace(PARTS, activations=350 * MIB, free=140 * MIB)
    peak = Peak(
        allocated_bytes=751 * MIB, max_memory_allocated_bytes=752 * MIB, reserved_bytes=760 * MIB,
        device_bytes=860 * MIB, phase="backward", step=2,
    )  # fmt: skip
    (kept,) = diagnosis.tensors
    (phase,) = diagnosis.phases
    return replace(
        diagnosis, workload=replace(TARGET, batch_size=2), provenance=replace(PROVENANCE, torch="2.11.0"), peak=peak,
        breakdown=parts, ran_out=None, toggles=(),
        verdict=Verdict(fits=True, headroom_bytes=140 * MIB, cause="activations", sentence="Fits, 140.00 MiB to spare"),
        phases=(replace(phase, peak_allocated_bytes=751 * MIB, breakdown=parts),),
        modules=(ModuleUse(path="net.layer.0.act", activations=50 * MIB),),
        tensors=(replace(kept, shape=(2, 128, 51200), bytes=350 * MIB),),
    )  # fmt: skip


@pytest.fixture
def difference(smaller: Diagnosis, diagnosis: Diagnosis) -> Difference:
    """What the batch of 4 needs more than that of 2."""
    return difference_of(smaller, diagnosis, names=("two.json", "four.json"))


NASTY = "<script>alert(1)</script>|`x`*_[a](https://evil.example)@team #123 GH-7\n\x1b[2J\u202e\u0000\"'"
"""What a name should not be able to do: markup, a mention, a reference, a link, a command, a turn of direction."""


def _hostile(diagnosis: Diagnosis, name: str) -> Diagnosis:
    (kept,) = diagnosis.tensors
    return replace(
        diagnosis,
        workload=replace(diagnosis.workload, model=name, optimizer=name),
        device=replace(diagnosis.device, name=name, context_source=name),
        provenance=replace(diagnosis.provenance, torch=name, model_source=name, notes=(name,)),
        verdict=replace(diagnosis.verdict, sentence=f"Does not fit {name}: {name}"),
        modules=(ModuleUse(path=f"=1+1{name}" + 2_000 * "layer.", activations=100 * MIB),),
        tensors=(replace(kept, module=name, op=name, dtype=name),),
        toggles=tuple(replace(toggle, change={"optimizer": name}) for toggle in diagnosis.toggles),
        findings=(Finding(id=name, severity="error", title=name, detail=name, evidence={}, remedies=(name,)),),
        checklist=(ChecklistStep(id=name, question=name, probed=(), showed=name, cause=True),),
        plan=(
            Plan(
                change={"model": name}, why=name, peak=PEAK, fits=False, saves_bytes=1, time_cost=name,
                numerics="same", patch={"trainer": f"```\n{name}", name: "x"}, time_kind=name,
            ),
        ),
        assumed=(name,),
    )  # fmt: skip


@pytest.fixture
def hostile(diagnosis: Diagnosis) -> Diagnosis:
    """One whose every text is nasty, and whose module's path has more than 10,000 characters."""
    return _hostile(diagnosis, NASTY)


@pytest.fixture
def hostile_difference(smaller: Diagnosis, hostile: Diagnosis) -> Difference:
    """Of two files that are called nasty names too."""
    return difference_of(smaller, hostile, names=(NASTY, f"={NASTY}"))


@pytest.fixture
def conclude() -> Callable[[Examination], Diagnosis]:
    """What one examination says by itself."""
    return concluded
