"""Finding a probe: by what it changes of the target, however the change is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from memdoctor.checklist.asking import minimal
from memdoctor.checklist.looking import changing, made, moved, probed, takes
from memdoctor.records import Dtype, Examination, Precision, Workload
from memdoctor.rules import evidence_of

Holding = Callable[..., Examination]


def test_a_change_that_changes_nothing_is_the_target_itself(holding: Holding) -> None:
    evidence = evidence_of(holding({"activations": 1}, batch_size=2, freeze=("a", "b")), {})
    for change in ({}, {"batch_size": 2}, {"freeze": ["a", "b"]}, {"precision": "fp32"}, {"cuda_alloc_conf": ""}):
        assert probed(evidence, change) is evidence.examination
    assert probed(evidence, {"batch_size": 1}) is None


def test_a_probe_is_found_by_what_it_changes(holding: Holding) -> None:
    other = holding({"activations": 2})
    evidence = evidence_of(holding({"activations": 1}, seq_length=8), {}, probes=[({"batch_size": 3}, other)])
    assert probed(evidence, {"seq_length": 8, "batch_size": 3}) is other
    assert probed(evidence, {"seq_length": 4, "batch_size": 3}) is None
    assert changing(evidence, {"cuda_alloc_conf": "x:1", "seq_length": 8}) == {"cuda_alloc_conf": "x:1"}


def test_what_was_made_is_told_once_and_without_the_target(holding: Holding) -> None:
    probes = [({"batch_size": 3}, holding({"activations": 2}))]
    evidence = evidence_of(holding({"activations": 1}), {}, probes=probes)
    assert made(
        evidence, {"batch_size": 1}, {"batch_size": 3}, {"batch_size": 3, "seq_length": 8}, {"batch_size": 4}
    ) == ({"batch_size": 3},)


def test_effects_in_words(holding: Holding) -> None:
    assert [moved(3, 3), moved(3, 1), moved(1, 3)] == ["changes nothing", "saves 2 B", "costs 2 B"]
    assert takes(holding({"activations": 7})) == "7 B reserved, fits"
    assert takes(holding({"activations": 7}, fits=False)) == "7 B reserved, does not fit"


@pytest.mark.parametrize(
    ("workload", "capability", "batch", "precision"),
    [
        (Workload(model="m"), "7.5", 2, "fp16"),
        (Workload(model="m"), "8.0", 2, "bf16"),
        (Workload(model="m", batch_size=1), "7.5", 1, "fp16"),
        (Workload(model="m", precision=Precision.FP16), "8.0", 2, None),
        (Workload(model="m", dtype=Dtype.BFLOAT16), "8.0", 2, None),
    ],
)
def test_the_minimal_configuration_is_one_that_can_be_made(
    holding: Holding, workload: Workload, capability: str, batch: int, precision: str | None
) -> None:
    device = replace(holding({"activations": 1}).device, compute_capability=capability)
    change = minimal(workload, device)
    assert (change["batch_size"], change["gradient_accumulation_steps"], change.get("precision")) == (
        batch, 8, precision,
    )  # fmt: skip
    assert change["gradient_checkpointing"] is True
