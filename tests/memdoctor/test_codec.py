"""Records as JSON and back: nothing is lost, what is new is passed over, what is broken is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memdoctor.codec import examination_from_json, examination_to_json, from_json, json_schema, to_json
from memdoctor.doctor import conclude
from memdoctor.records import (
    Budget,
    Diagnosis,
    Examination,
    Finding,
    Plan,
    Prediction,
    PredictionCheck,
    RanOut,
    Scaling,
    Toggle,
    Workload,
)

OPEN_MAPPINGS = {"change", "evidence", "patch"}  # their keys are data, not fields


def through_text(value: Any) -> Any:
    """What a file makes of it."""
    return json.loads(json.dumps(value, allow_nan=False))


@pytest.fixture
def full(two_steps: Examination) -> Diagnosis:
    """A diagnosis in which every field that may be empty is filled."""
    diagnosis = conclude(replace(two_steps, outcome=RanOut(400, 99, 11)))
    peak, parts = diagnosis.peak, diagnosis.breakdown
    predicted = Prediction(
        batch_size=2, seq_length=8, allocated_bytes=4_000, reserved_bytes=None, phase="backward", fits=True
    )
    scaling = Scaling(
        method="phase by phase", from_batches=(1, 2), per_sample_bytes=1_016, fixed_bytes=2_200, phases=(),
        predicted=(predicted,), largest_batch_that_fits=None,
        check=PredictionCheck(
            batch_size=1, predicted_allocated_bytes=3_216, probed_allocated_bytes=3_216, difference_bytes=0,
            predicted_reserved_bytes=None, probed_reserved_bytes=3_216,
        ),
    )  # fmt: skip
    change = {"gradient_checkpointing": True, "batch_size": 1, "precision": "fp16", "max_grad_norm": 0.5}
    return replace(
        diagnosis,
        scaling=scaling,
        toggles=(Toggle(change=change, peak=peak, breakdown=parts, fits=False, saves_bytes=-7),),
        findings=(
            Finding(
                id="MD201", severity="warning", title="t", detail="d", remedies=("r",),
                evidence={"bytes": 1, "share": 0.25, "where": "backward", "known": False},
            ),
        ),
        plan=(
            Plan(
                change=change, why="w", peak=peak, fits=True, saves_bytes=1, time_cost="none", numerics="same",
                patch={"trainer": "fp16=True"},
            ),
        ),
        budgets=(Budget(name="b", metric="peak_reserved", limit_bytes=1, value_bytes=2, status="exceeded"),),
        assumed=("batch_size 8",),
    )  # fmt: skip


def test_an_examination_comes_back(two_steps: Examination) -> None:
    assert examination_from_json(through_text(examination_to_json(two_steps))) == two_steps


def test_an_examination_that_ran_out_comes_back(two_steps: Examination) -> None:
    stopped = replace(two_steps, outcome=RanOut(requested_bytes=400, free_bytes=99, event=11))
    assert examination_from_json(through_text(examination_to_json(stopped))) == stopped


def test_a_full_diagnosis_comes_back(full: Diagnosis) -> None:
    assert from_json(Diagnosis, through_text(to_json(full))) == full


def test_values_of_a_change_keep_their_types(full: Diagnosis) -> None:
    change = from_json(Diagnosis, through_text(to_json(full))).toggles[0].change
    assert {name: type(value) for name, value in change.items()} == {
        "gradient_checkpointing": bool, "batch_size": int, "precision": str, "max_grad_norm": float,
    }  # fmt: skip


def test_what_was_unknown_stays_unknown(full: Diagnosis) -> None:
    document = through_text(to_json(full))
    assert document["scaling"]["predicted"][0]["reserved_bytes"] is None
    assert document["scaling"]["largest_batch_that_fits"] is None
    assert from_json(Diagnosis, document).scaling == full.scaling


def test_strings_and_shapes_are_stored_once(two_steps: Examination) -> None:
    stored = examination_to_json(two_steps)["timeline"]
    assert len(stored["strings"]) == len(set(stored["strings"]))
    assert len(stored["shapes"]) == len(set(map(tuple, stored["shapes"])))


def later(value: Any) -> Any:
    """The document as a later memdoctor may write it: with a key more wherever keys are fields."""
    if isinstance(value, list):
        return [later(item) for item in value]
    if not isinstance(value, dict):
        return value
    grown = {name: item if name in OPEN_MAPPINGS else later(item) for name, item in value.items()}
    return {"a_key_of_later": [1, {"x": None}], **grown}


def test_unknown_keys_are_passed_over_at_every_level(full: Diagnosis, two_steps: Examination) -> None:
    assert from_json(Diagnosis, later(through_text(to_json(full)))) == full
    assert examination_from_json(later(through_text(examination_to_json(two_steps)))) == two_steps


@pytest.mark.parametrize("key", ["workload", "device", "peak", "breakdown", "verdict", "phases", "modules", "tensors"])
def test_a_diagnosis_without_a_part_is_refused_by_its_name(full: Diagnosis, key: str) -> None:
    document = to_json(full)
    del document[key]
    with pytest.raises(ValueError, match=key):
        from_json(Diagnosis, document)


@pytest.mark.parametrize("key", ["findings", "plan", "budgets", "toggles", "scaling", "assumed", "ran_out"])
def test_a_diagnosis_from_before_a_part_existed_is_read(full: Diagnosis, key: str) -> None:
    document = to_json(full)
    del document[key]
    assert from_json(Diagnosis, document).peak == full.peak


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("peak", "allocated_bytes"), "much"),
        (("peak", "allocated_bytes"), 1.5),
        (("peak", "allocated_bytes"), None),
        (("workload", "precision"), "fp8"),
        (("workload", "batch_size"), 0),
        (("phases",), {}),
        (("verdict", "fits"), "perhaps"),
        (("device", "compute_capability"), "seven"),
    ],
)
def test_a_wrong_value_is_refused_and_the_complaint_says_where(
    full: Diagnosis, path: tuple[str, ...], value: Any
) -> None:
    document: Any = through_text(to_json(full))
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    with pytest.raises(ValueError, match=path[0]) as caught:
        from_json(Diagnosis, document)
    assert len(str(caught.value)) < 500
    assert "pydantic" not in str(caught.value)


def test_a_document_wrong_throughout_gets_few_complaints() -> None:
    with pytest.raises(ValueError, match="workload") as caught:
        from_json(Diagnosis, {"tensors": [{"bytes": "x"}] * 1000})
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("value", [None, 1, "text", [], True])
def test_what_is_no_object_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_json(Workload, value)


def column(name: str, value: int) -> Callable[[dict[str, Any]], None]:
    """Set the first entry of a column of the blocks."""

    def change(stored: dict[str, Any]) -> None:
        stored["blocks"][name][0] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        column("module", 999),
        column("op", -1),
        column("dtype", -999),
        column("shape", 999),
        column("shape", -1),
        column("category", -1),
        column("bytes", 0),
        column("bytes", -4),
        lambda stored: stored["blocks"]["bytes"].append(4),
        lambda stored: stored["blocks"]["shape"].pop(),
        lambda stored: stored["strings"].clear(),
        lambda stored: stored["events"].__setitem__(0, 0),
        lambda stored: stored["events"].__setitem__(0, 999),
        lambda stored: stored["events"].__setitem__(0, -1),
        lambda stored: stored["events"].reverse(),
        lambda stored: stored["phases"].pop(),
        lambda stored: stored["phases"][0].__setitem__(1, "warm-up"),
        lambda stored: stored["phases"][0].pop(),
        lambda stored: stored["segments"][0].__setitem__(0, 999),
        lambda stored: stored["segments"][0].__setitem__(0, -1),
    ],
    ids=[
        "module", "op-negative", "dtype", "shape", "shape-negative", "category", "empty-block", "negative-block",
        "long-column", "short-column", "no-strings", "event-0", "event-of-no-block", "death-first", "events-reversed",
        "untiled", "phase-name", "phase-short", "segment-late", "segment-negative",
    ],
)  # fmt: skip
def test_a_broken_timeline_is_refused(two_steps: Examination, change: Callable[[dict[str, Any]], None]) -> None:
    document = through_text(examination_to_json(two_steps))
    change(document["timeline"])
    with pytest.raises(ValueError, match=r"."):
        examination_from_json(document)


def test_a_category_that_is_a_module_is_refused(two_steps: Examination) -> None:
    document = through_text(examination_to_json(two_steps))
    stored = document["timeline"]
    stored["blocks"]["category"][0] = stored["strings"].index("net.layer.0")
    with pytest.raises(ValueError, match=r"net\.layer\.0"):
        examination_from_json(document)


@pytest.mark.parametrize("figure", ["requested_bytes", "free_bytes", "event"])
def test_a_run_that_ran_out_without_its_figures_is_refused(two_steps: Examination, figure: str) -> None:
    document = examination_to_json(replace(two_steps, outcome=RanOut(400, 99, 11)))
    document["outcome"][figure] = None
    with pytest.raises(ValueError, match="figures"):
        examination_from_json(document)


@pytest.mark.parametrize("event", [-1, 999])
def test_a_run_that_ran_out_at_no_event_of_its_timeline_is_refused(two_steps: Examination, event: int) -> None:
    document = examination_to_json(replace(two_steps, outcome=RanOut(400, 99, 11)))
    document["outcome"]["event"] = event
    with pytest.raises(ValueError, match="event"):
        examination_from_json(document)


def test_the_schema_names_every_field_of_a_diagnosis(full: Diagnosis) -> None:
    assert set(json_schema(Diagnosis)["properties"]) == set(to_json(full))
