"""Where the cause is found: each branch, and exactly one whatever was probed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from memdoctor.checklist import cause_of, trace_of
from memdoctor.records import Change, Examination
from memdoctor.rules import Evidence, evidence_of

BRANCHES = (
    "batch", "length", "length at batch 1", "static", "optimizer step", "evaluation", "others", "accumulation", "size",
    "one sample", "nothing probed",
)  # fmt: skip
IDS = ["1", "2", "3", "4a", "4b", "4c", "4d", "5"]


@pytest.mark.parametrize("branch", BRANCHES)
def test_the_cause_is_found_at_its_step_with_its_figures(
    too_large: dict[str, tuple[Evidence, str, str]], branch: str
) -> None:
    evidence, step, words = too_large[branch]
    cause = cause_of(evidence)
    assert cause is not None
    assert cause.step == step
    assert words in cause.sentence


def test_every_branch_is_tried(too_large: dict[str, tuple[Evidence, str, str]]) -> None:
    assert set(too_large) == set(BRANCHES)


def test_what_fits_has_no_cause(holding: Callable[..., Examination]) -> None:
    evidence = evidence_of(holding({"activations": 8_000}), {})
    assert cause_of(evidence) is None
    trace = trace_of(evidence, ())
    assert [step.id for step in trace] == IDS
    assert not any(step.cause for step in trace)


def test_a_batch_that_fits_only_without_accumulation_is_the_cause_all_the_same(
    holding: Callable[..., Examination],
) -> None:
    probes: list[tuple[Change, Examination]] = [
        ({"batch_size": 1}, holding({"activations": 8_500})),
        ({"batch_size": 1, "gradient_accumulation_steps": 4}, holding({"activations": 9_500}, fits=False)),
    ]
    target = holding({"activations": 12_000}, fits=False, batch_size=8)
    cause = cause_of(evidence_of(target, {}, probes=probes))
    assert cause is not None
    assert cause.step == "4a"
    assert cause.sentence.endswith("; 4 micro-batches of it take 9.28 KiB")


def test_there_is_exactly_one_cause_whatever_was_probed(holding: Callable[..., Examination]) -> None:
    fits, not_fits = holding({"activations": 5_000}), holding({"activations": 9_500}, fits=False)
    stops = holding({"parameters": 5_000, "temporaries": 4_500}, fits=False, phase="optimizer")
    answers = (None, fits, not_fits, stops)
    changes: tuple[Change, ...] = (
        {"batch_size": 1}, {"batch_size": 1, "seq_length": 4}, {"gradient_accumulation_steps": 1},
    )  # fmt: skip
    for others, phase, batch, static in product((0, 500, 3_000), ("forward", "optimizer"), (1, 8), (1_000, 9_100)):
        sizes = {"parameters": static, "activations": 9_800 - static}
        target = holding(sizes, fits=False, phase=phase, batch_size=batch, gradient_accumulation_steps=batch)
        target = replace(target, device=replace(target.device, other_processes_bytes=others))
        for found in product(answers, repeat=len(changes)):
            probes = [(change, one) for change, one in zip(changes, found, strict=True) if one is not None]
            trace = trace_of(evidence_of(target, {}, probes=probes), ())
            causes = [step for step in trace if step.cause]
            assert len(causes) == 1
            assert causes[0].made
            assert "cause" in causes[0].showed or "holds most" in causes[0].showed


@pytest.mark.parametrize(
    ("workspace", "words"),
    [
        (4_000, "The size of the model is the cause: at batch 1 static state holds 3.91 KiB of the 9.28 KiB"),
        (4_001, "The workspace of libraries is the cause: at batch 1 cuBLAS and the like, at any batch and length, "),
    ],
)
def test_one_sample_names_whoever_holds_most(holding: Callable[..., Examination], workspace: int, words: str) -> None:
    sizes = {"parameters": 4_000, "workspace": workspace, "activations": 5_500 - workspace}
    target = holding(sizes, fits=False)
    shorter = holding({**sizes, "activations": 5_400 - workspace}, fits=False)
    cause = cause_of(evidence_of(target, {}, probes=[({"seq_length": 4}, shorter)]))
    assert cause is not None
    assert (cause.step, cause.kind) == ("4b", "one sample")
    assert cause.sentence.startswith(words)
