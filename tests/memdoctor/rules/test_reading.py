"""What rules read off the evidence: shortage, gains, probes of one setting, what is alive at once, lookups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memdoctor.records import NO_CAPABILITY, Category, Lever, Peak, TensorGroup
from memdoctor.rules import Evidence, Remedy
from memdoctor.rules.reading import (
    effect,
    gain,
    left,
    lookups,
    most_alive,
    others_decide,
    percent,
    presses,
    product,
    varied,
)

SAFE = Remedy("off", "none", "checkpointing")
OTHER = Remedy("less", "task")


def reserved(size: int) -> Peak:
    return Peak(
        allocated_bytes=1, max_memory_allocated_bytes=1, reserved_bytes=size, device_bytes=size, phase="forward", step=1
    )


@pytest.mark.parametrize(("size", "pressing"), [(8_100, False), (8_101, True)])
def test_memory_is_short_above_nine_tenths(holding: Any, evidence: Any, size: int, pressing: bool) -> None:
    assert presses(evidence(holding({"activations": size}))) == pressing


def test_what_does_not_fit_is_short_of_memory(holding: Any, evidence: Any) -> None:
    assert presses(evidence(holding({"activations": 1}, fits=False)))


@pytest.mark.parametrize(
    ("size", "others", "mode", "decide"),
    [
        (9_000, 1, "simulated", True), (9_001, 1, "simulated", False), (9_000, 0, "simulated", False),
        (9_000, 1, "measured", False),
    ],
)  # fmt: skip
def test_others_decide_where_the_card_alone_would_do(
    holding: Any, evidence: Any, size: int, others: int, mode: str, decide: bool
) -> None:
    """PyTorch can have 9,000 B of the card where nobody else is on it."""
    found = holding({"activations": size}, fits=False)
    device = replace(found.device, other_processes_bytes=others)
    found = replace(found, device=device, provenance=replace(found.provenance, mode=mode))
    assert others_decide(evidence(found)) == decide


def test_others_decide_nothing_of_what_fits(holding: Any, evidence: Any) -> None:
    found = holding({"activations": 1})
    assert not others_decide(evidence(replace(found, device=replace(found.device, other_processes_bytes=1))))


def test_a_gain_is_that_of_having_the_lever(probed_lever: Callable[..., Lever]) -> None:
    assert gain(probed_lever("fp16", 300)) == 300
    assert gain(probed_lever("fp16", 300, status="in use")) == 300
    assert gain(probed_lever("fp16", 0, saves_bytes=None)) is None
    assert gain(None) is None


@pytest.mark.parametrize(
    ("saves", "status", "words"),
    [
        (400, "probed", "fp16 saves 400 B of the reserved peak (1000 B without it, 600 B with it)"),
        (-200, "probed", "fp16 costs 200 B of the reserved peak (1000 B without it, 1.17 KiB with it)"),
        (200, "in use", "fp16 saves 200 B of the reserved peak (1.17 KiB without it, 1000 B with it)"),
        (0, "probed", "fp16 leaves the reserved peak at 1000 B"),
    ],
)
def test_an_effect_in_words(
    holding: Any, evidence: Any, probed_lever: Any, saves: int, status: str, words: str
) -> None:
    other = 1000 + saves if status == "in use" else 1000 - saves
    lever = probed_lever("fp16", saves, status=status, peak=reserved(other))
    assert effect(evidence(holding({"activations": 1000})), lever) == words


def test_levers_that_are_pulled_save_nothing_or_are_not_there_are_no_remedies(
    holding: Any, evidence: Any, probed_lever: Any
) -> None:
    def of(*levers: Lever) -> tuple[Remedy, ...]:
        return left(evidence(holding({"activations": 1}), levers=levers), (SAFE, OTHER))

    assert of() == (SAFE, OTHER)
    assert of(probed_lever("checkpointing", 1)) == (SAFE, OTHER)
    assert of(probed_lever("checkpointing", 0)) == (OTHER,)
    assert of(probed_lever("checkpointing", 5, status="in use")) == (OTHER,)
    assert of(probed_lever("checkpointing", 0, status="not probed", saves_bytes=None)) == (OTHER,)


def test_without_any_remedy_left_all_are_told(holding: Any, evidence: Any, probed_lever: Any) -> None:
    found = evidence(holding({"activations": 1}), levers=(probed_lever("checkpointing", 0),))
    assert left(found, (SAFE,)) == (SAFE,)


@pytest.mark.parametrize(("here", "told"), [("5.2", 1), ("5.3", 2), ("7.5", 2), ("8.0", 1), (NO_CAPABILITY, 2)])
def test_a_remedy_is_for_cards_that_can(holding: Any, evidence: Any, here: str, told: int) -> None:
    found = holding({"activations": 1})
    found = replace(found, device=replace(found.device, compute_capability=here))
    remedies = (Remedy("half", "numerics", since=5.3, before=8.0), OTHER)
    assert left(evidence(found), remedies) == remedies[-told:]


def test_probes_that_change_one_count_alone(two_steps: Any, evidence: Callable[..., Evidence]) -> None:
    probes = [({"batch_size": 4}, "four"), ({"batch_size": 2, "seq_length": 4}, "both"), ({"batch_size": 1}, "one")]
    assert varied(evidence(two_steps, probes=probes), "batch_size") == {1: "one", 4: "four"}


def test_what_is_alive_at_once_is_not_all_that_there_ever_was(recording: Any) -> None:
    recording.phase(1, "forward")
    first = recording.birth(30)
    recording.birth(1_000, "parameters")
    recording.death(first)
    recording.birth(20)
    recording.birth(11)
    alive = most_alive(recording.timeline(), lambda block: block.category is Category.ACTIVATIONS)
    assert [block.bytes for block in alive] == [20, 11]


def test_nothing_wanted_is_nothing_alive(two_steps: Any) -> None:
    assert most_alive(two_steps.timeline, lambda block: False) == ()


def test_the_word_embedding_is_the_lookup_that_holds_most(recording: Any, evidence: Any) -> None:
    lookup = "aten.embedding.default"
    recording.phase(0, "setup")
    recording.birth(1, "parameters")
    recording.phase(1, "forward")
    recording.birth(64, op=lookup, module="positions", shape=(1, 8, 2))
    for _ in range(2):
        recording.birth(256, op=lookup, module="words", shape=(4, 8, 2))
    recording.birth(999, op="aten.add.Tensor", module="words", shape=(999, 1))
    recording.phase(1, "backward")
    recording.birth(4096, op=lookup, module="positions", shape=(64, 8, 2))
    assert lookups(evidence(recording.examination())) == ((4, 8, 2), (4, 8, 2))


def test_figures_in_words() -> None:
    def group(size: int) -> TensorGroup:
        return TensorGroup(
            bytes=size, count=2, dtype="int1", shape=(4, 8), category=Category.ACTIVATIONS, module="", op="", phase=""
        )

    assert product(group(256)) == "2 x 4x8 x 4 B = 256 B"
    assert product(group(8)) == "2 x 4x8 int1 = 8 B"
    assert percent(1, 3) == "33 %"
    assert percent(0, 0) == "0 %"
