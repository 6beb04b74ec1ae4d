"""What a lever does, and why it does nothing, by hand: two examinations whose every byte is written down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.levers import KINDS, LeverKind, Pull, effect_of, not_probed
from memdoctor.records import Examination, SegmentEvent

MIB = 1 << 20


def kind(name: str) -> LeverKind:
    """The lever of this name."""
    return next(kind for kind in KINDS if kind.name == name)


@pytest.fixture
def step(new_recording: Callable[[], Any]) -> Callable[..., Examination]:
    """A step with so many MiB of activations in backward, then so many of temporaries in the optimizer."""

    def make(activations: int, temporaries: int, *, overhead: int = 0) -> Examination:
        tape = new_recording()
        tape.phase(1, "backward")
        kept = tape.birth(activations * MIB)
        tape.phase(1, "optimizer")
        tape.death(kept)
        tape.birth(temporaries * MIB, "temporaries")
        tape.segments.append(SegmentEvent(0, (max(activations, temporaries) + overhead) * MIB))
        examination: Examination = tape.examination(total=1000 * MIB, context=10 * MIB)
        return examination

    return make


def test_a_lever_that_lowers_the_peak_says_by_what(step: Callable[..., Examination]) -> None:
    lever = effect_of(kind("checkpointing"), Pull({"gradient_checkpointing": True}), step(100, 30), step(40, 30))
    assert (lever.status, lever.saves_bytes, lever.fits) == ("probed", 60 * MIB, True)
    assert (lever.phase, lever.phase_before_bytes, lever.phase_after_bytes) == ("backward", 100 * MIB, 40 * MIB)
    assert lever.sentence == "saves 60.00 MiB: activations -60.00 MiB"


def test_where_the_peak_moves_it_says_where_to(step: Callable[..., Examination]) -> None:
    lever = effect_of(kind("checkpointing"), Pull({"gradient_checkpointing": True}), step(100, 70), step(40, 70))
    assert lever.saves_bytes == 30 * MIB
    assert lever.sentence.endswith("; the peak is then in optimizer, not in backward")


def test_a_lever_on_a_phase_that_is_not_the_peak_says_so(step: Callable[..., Examination]) -> None:
    lever = effect_of(kind("checkpointing"), Pull({"gradient_checkpointing": True}), step(60, 90), step(20, 90))
    assert lever.saves_bytes == 0
    assert lever.sentence == (
        "saves nothing: the peak is in optimizer, 90.00 MiB; it lowers backward from 60.00 MiB to 20.00 MiB, which is "
        "not the peak"
    )


def test_a_lever_that_finds_nothing_to_act_on_says_so(step: Callable[..., Examination]) -> None:
    lever = effect_of(kind("accumulation"), Pull({"gradient_accumulation_steps": 4}), step(60, 90), step(60, 90))
    assert lever.sentence.startswith(
        "saves nothing: the reserved peak stays at 90.00 MiB; it acts on how many micro-batches"
    )


def test_a_lever_that_costs_says_what_grew(step: Callable[..., Examination]) -> None:
    lever = effect_of(kind("empty_cache"), Pull({"torch_empty_cache_steps": 1}), step(60, 9), step(75, 9))
    assert lever.saves_bytes == -15 * MIB
    assert lever.sentence == "costs 15.00 MiB: activations +15.00 MiB"


def test_overhead_is_told_as_such(step: Callable[..., Examination]) -> None:
    conf = Pull({"cuda_alloc_conf": "expandable_segments:True"})
    lever = effect_of(kind("expandable_segments"), conf, step(60, 9, overhead=25), step(60, 9, overhead=5))
    assert lever.sentence == "saves 20.00 MiB: allocator overhead -20.00 MiB"


def test_of_a_lever_in_use_the_figures_are_what_it_saves_now(step: Callable[..., Examination]) -> None:
    lever = effect_of(kind("attention"), Pull({"attention": "eager"}, in_use=True), step(40, 9), step(100, 9))
    assert (lever.status, lever.saves_bytes) == ("in use", 60 * MIB)
    assert lever.sentence == "in use: saves 60.00 MiB: activations -60.00 MiB"
    assert lever.peak is not None
    assert lever.peak.reserved_bytes == 100 * MIB, "the peak is that of the probe, without the lever"


@pytest.mark.parametrize(("saved", "told"), [(1, "saves 1.00 MiB"), (0, "saves nothing")])
def test_less_than_a_mebibyte_is_nothing(step: Callable[..., Examination], saved: int, told: str) -> None:
    lever = effect_of(kind("fp16"), Pull({"precision": "fp16"}), step(60, 9), step(60 - saved, 9))
    assert lever.sentence.startswith(told)


def test_what_was_not_probed_has_its_reason() -> None:
    lever = not_probed(kind("sharding"), "one GPU")
    assert (lever.status, lever.sentence, lever.peak, lever.saves_bytes) == ("not probed", "one GPU", None, None)


def test_more_that_is_allocated_in_what_was_reserved_is_no_saving(step: Callable[..., Examination]) -> None:
    lever = effect_of(
        kind("accumulation"),
        Pull({"gradient_accumulation_steps": 2}),
        step(60, 10, overhead=40),
        step(80, 10, overhead=20),
    )
    assert lever.saves_bytes == 0
    assert lever.sentence == (
        "saves nothing: what is reserved stays at 100.00 MiB, and more is allocated, 20.00 MiB: activations "
        "+20.00 MiB, allocator overhead -20.00 MiB"
    )
