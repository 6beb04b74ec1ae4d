"""What to do and why, on the terminal: the most telling in 25 lines, all of it under --details."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memdoctor.records import (
    CardFit,
    ChecklistStep,
    Cost,
    Diagnosis,
    Finding,
    Lever,
    NotChecked,
    Plan,
    Severity,
    Smallest,
)
from memdoctor.reports.advice import most_telling, print_details
from memdoctor.reports.terminal import print_diagnosis
from memdoctor.units import MIB

CAUSE = (
    "The batch is the cause: 1 sample takes 5.20 GiB and fits, 32 take 29.07 GiB, 808.95 MiB for each one more, and "
    "PyTorch can have 14.44 GiB. Batch 1 x 4 micro-batches: 6.35 GiB reserved, fits."
)


@pytest.fixture
def view(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What is printed at a width."""

    def shown(printing: Callable[[Diagnosis], None], diagnosis: Diagnosis, width: int = 100) -> str:
        stream = io.StringIO()
        monkeypatch.setenv("COLUMNS", str(width))
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", stream)
            printing(diagnosis)
        return stream.getvalue()

    return shown


def entry(diagnosis: Diagnosis, change: dict[str, Any], cost: Cost, step_time: float | None = 1.25) -> Plan:
    """One of the plan that fits."""
    return Plan(
        change=change, why="because", peak=diagnosis.toggles[0].peak, fits=True, saves_bytes=810 * MIB,
        time_cost="1.25 x the step time (estimate, 1.10 to 1.40)", numerics="same", cost=cost, step_time=step_time,
        step_time_low=1.1, step_time_high=1.4, time_kind="estimate",
        patch={"trainer": "activation_checkpointing=True,\nper_device_train_batch_size=4,", "cli": "memdoctor"},
    )  # fmt: skip


def finding(number: int, severity: Severity = "warning") -> Finding:
    """What a rule found."""
    return Finding(
        id=f"MD{number}", severity=severity, title=f"Pattern {number} is there", detail="1 x 2 B = 2 B", evidence={},
        remedies=("do less (safe)",), at_stake_bytes=2,
    )  # fmt: skip


@pytest.fixture
def advised(diagnosis: Diagnosis) -> Diagnosis:
    """With five entries of the plan, four findings, a cause and two levers."""
    changes: list[tuple[dict[str, Any], Cost]] = [
        ({"batch_size": 2, "gradient_accumulation_steps": 2}, "time"),
        ({"batch_size": 1, "gradient_accumulation_steps": 4}, "time"),
        ({"gradient_checkpointing": True}, "time"),
        ({"precision": "fp16", "gradient_checkpointing": True}, "numerics"),
        ({"precision": "fp16", "optimizer": "adamw_bnb_8bit"}, "numerics"),
    ]
    levers = (
        Lever(
            name="checkpointing", change={"gradient_checkpointing": True}, status="probed", cost="time",
            sentence="saves nothing: the peak is in optimizer", peak=diagnosis.peak, fits=False, saves_bytes=0,
            phase="backward", phase_before_bytes=2, phase_after_bytes=1, step_time=1.33, time_kind="estimate",
        ),
        Lever(name="sharding", change={}, status="not probed", cost="none", sentence="one GPU"),
    )  # fmt: skip
    return replace(
        diagnosis,
        plan=tuple(entry(diagnosis, change, cost) for change, cost in changes),
        findings=(finding(102, "error"), finding(202), finding(401), finding(109, "info")),
        checklist=(ChecklistStep(id="4a", question="Does batch 1 run?", probed=(), showed=CAUSE, cause=True),),
        levers=levers,
        checks_passed=("MD201", "MD203"),
        not_checked=(NotChecked(id="MD701", title="Buckets", why="training is on one GPU"),),
    )


def test_the_first_of_each_cost_is_shown_before_others_of_it(advised: Diagnosis) -> None:
    plan = advised.plan
    assert most_telling(plan, 5) == list(plan)
    assert most_telling(plan, 2) == [plan[0], plan[3]]
    assert most_telling(plan, 3) == [plan[0], plan[1], plan[3]]
    assert most_telling(plan, 1) == [plan[0]]
    assert most_telling((), 3) == []


def test_the_view_has_the_plan_the_lines_to_paste_the_cause_and_findings(
    view: Callable[..., str], advised: Diagnosis
) -> None:
    lines = [" ".join(line.split()) for line in view(print_diagnosis, advised, 120).splitlines()]
    assert "do batch 2 x 2 micro-batches 300.00 MiB est. 1.25 x time (1.10 to 1.40)" in lines
    assert "fp16 + checkpointing 300.00 MiB est. 1.25 x time (1.10 to 1.40), numerics" in lines
    assert "and 1 more: --details" in lines
    assert "paste activation_checkpointing=True, per_device_train_batch_size=4," in lines
    assert any(line.startswith("cause The batch is the cause: 1 sample takes 5.20 GiB") for line in lines)
    assert "found MD102 Pattern 102 is there" in lines
    assert "MD401 Pattern 401 is there; and 1 more: --details" in lines


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_with_advice_the_view_keeps_to_25_lines(view: Callable[..., str], advised: Diagnosis, width: int) -> None:
    lines = view(print_diagnosis, advised, width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= 25
    said = " ".join(" ".join(lines).split())
    for part in ("batch 2 x 2 micro-batches", "fp16 + checkpointing", "The batch is the cause", "MD102", "--details"):
        assert part in said


def test_where_nothing_fits_the_smallest_footprint_and_the_cards_are_named(
    view: Callable[..., str], advised: Diagnosis
) -> None:
    card = CardFit(gpu="T4", total_bytes=4096 * MIB, peak=advised.peak, fits=True, headroom_bytes=1)
    smallest = Smallest(change={"batch_size": 1}, peak=advised.peak, card=card, card_as_is=None)
    text = " ".join(view(print_diagnosis, replace(advised, plan=(), smallest=smallest)).split())
    assert "do nothing fits; the smallest footprint found is 1.08 GiB reserved (batch size 1); it fits on T4" in text
    assert "unchanged" not in text


def test_python_of_several_lines_is_left_to_the_details(view: Callable[..., str], advised: Diagnosis) -> None:
    patch = {"model": "for name in names:\n    freeze(name)", "environment": "export A=1"}
    text = view(print_diagnosis, replace(advised, plan=(replace(advised.plan[0], patch=patch),)))
    assert "some lines of Python for the model: --details" in text
    assert "export A=1" in text
    assert "freeze(name)" not in text


def test_an_entry_without_a_time_says_none(view: Callable[..., str], advised: Diagnosis) -> None:
    untimed = replace(advised, plan=(entry(advised, {"batch_size": 1}, "time", None),))
    assert "x time" not in view(print_diagnosis, untimed)


def test_details_have_every_finding_lever_patch_and_what_was_not_checked(
    view: Callable[..., str], advised: Diagnosis
) -> None:
    text = " ".join(view(print_details, advised).split())
    for said in (
        "MD102 error: Pattern 102 is there: 1 x 2 B = 2 B - do less (safe)",
        "MD109 info:",
        "lever checkpointing (checkpointing): saves nothing: the peak is in optimizer; 1.33 x the time a sample",
        "lever sharding: not probed: one GPU",
        "plan because; 1.25 x the step time (estimate, 1.10 to 1.40)",
        "trainer: activation_checkpointing=True, per_device_train_batch_size=4,",
        "checks 2 rules found nothing; 1 could not be checked:",
        "MD701 Buckets: not checked, because training is on one GPU",
    ):
        assert said in text, said


def test_names_from_files_cannot_command_the_terminal(view: Callable[..., str], advised: Diagnosis) -> None:
    hostile = replace(advised, findings=(replace(finding(102), title="\x1b[2J", detail="\x07"),))
    assert "\x1b[2J" not in view(print_diagnosis, hostile) + view(print_details, hostile)
