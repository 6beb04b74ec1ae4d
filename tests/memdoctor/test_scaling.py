"""From two small batches to any: exact where the steps are the same sequence, and honest where they are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import pytest

from memdoctor.analysis import peak_of
from memdoctor.probes.simulated.allocator.replay import replay
from memdoctor.records import Event, Examination, PhaseLine, Scaling
from memdoctor.scaling import LARGEST_BATCH, Need, aligned, scaling_of
from memdoctor.scaling.events import EventModel
from memdoctor.scaling.pair import Pair

LIMIT = 9_000  # what the allocator can reserve on the card of the builder
PARAMETERS, STATE, SAMPLE, PASSING = 1_000, 2_000, 100, 40
"""Bytes: of the parameters, of the optimizer's state, and for each sample kept and passing."""


def asked(events: Sequence[Event], clears: Sequence[int] = ()) -> Need:
    """An allocator without overhead."""
    needed = max(accumulate(event.delta_bytes for event in events))
    return Need(needed <= LIMIT, lambda: needed)


Step = Callable[..., Examination]


@pytest.fixture
def step(new_recording: Callable[[], Any]) -> Step:
    """A step at a batch size; its peak is in the optimizer up to batch 20, and from 21 on in the backward pass.

    Backward holds ``1000 + 100 b + 1000 + 40 b``, the optimizer ``1000 + 1000 + 2000 + 800``. ``op`` is what the
    step's first kept tensor comes from, ``total`` the card.
    """

    def at(batch: int, *, op: str = "aten.gelu.default", total: int = LIMIT + 1_000) -> Examination:
        tape = new_recording()
        tape.phase(0, "setup")
        tape.birth(PARAMETERS, "parameters")
        tape.phase(1, "forward")
        kept = tape.birth(SAMPLE * batch, op=op)
        tape.phase(1, "backward")
        gradient = tape.birth(PARAMETERS, "gradients")
        tape.death(tape.birth(PASSING * batch, "temporaries"))
        tape.death(kept)
        tape.phase(1, "optimizer")
        tape.birth(STATE, "optimizer_state")
        tape.death(tape.birth(800, "temporaries"))
        tape.phase(1, "zero_grad")
        tape.death(gradient)
        made: Examination = tape.examination(batch_size=batch, total=total)
        return made

    return at


def largest(step: Step, limit: int, **apart: Any) -> int | None:
    """The largest batch that fits an allocator's limit."""
    scaling = scaling_of(
        step(1, **apart),
        step(2),
        step(8, total=limit + 1_000),
        lambda events, clears: Need(asked(events).reserved() <= limit, asked(events).reserved),
    )
    return scaling.largest_batch_that_fits


def test_steps_that_differ_in_sizes_only_are_aligned(step: Step) -> None:
    assert aligned(step(1), step(2))
    assert aligned(step(3), step(3))


def test_steps_with_another_operator_are_not_aligned(step: Step) -> None:
    assert not aligned(step(1, op="aten.squeeze.dim"), step(2))


@pytest.mark.parametrize("difference", ["module", "birth", "death", "order", "phase"])
def test_steps_of_another_sequence_are_not_aligned(new_recording: Callable[[], Any], difference: str) -> None:
    def make(changed: str) -> Examination:
        tape = new_recording()
        tape.phase(1, "forward")
        first = tape.birth(8, module="b" if changed == "module" else "a")
        if changed == "phase":
            tape.phase(1, "backward")
        second = tape.birth(8)
        if changed == "birth":
            tape.birth(8)
        if changed != "phase":
            tape.phase(1, "backward")
        for number in (second, first) if changed == "order" else (first, second):
            if changed != "death":
                tape.death(number)
        made: Examination = tape.examination()
        return made

    assert not aligned(make(""), make(difference))


@pytest.mark.parametrize("pair", [(1, 2), (2, 3)])
@pytest.mark.parametrize("target", [1, 2, 3, 8, 20, 21, 64])
def test_event_by_event_the_prediction_is_the_probe(step: Step, pair: tuple[int, int], target: int) -> None:
    scaling = scaling_of(step(pair[0]), step(pair[1]), step(target), asked)
    assert (scaling.method, scaling.from_batches) == ("event by event", pair)
    check = scaling.check
    assert (check.batch_size, check.difference_bytes) == (target, 0)
    assert check.predicted_allocated_bytes == check.probed_allocated_bytes == peak_of(step(target)).allocated_bytes
    assert check.predicted_reserved_bytes == check.probed_reserved_bytes


def test_the_phase_of_the_peak_changes_with_the_batch(step: Step) -> None:
    scaling = scaling_of(step(1), step(2), step(8), asked)
    for prediction in scaling.predicted:
        probed = peak_of(step(prediction.batch_size))
        assert (prediction.allocated_bytes, prediction.phase) == (probed.allocated_bytes, probed.phase)
    phases = {prediction.batch_size: prediction.phase for prediction in scaling.predicted}
    assert (phases[8], phases[16], phases[32]) == ("optimizer", "optimizer", "backward")


def test_the_line_is_that_of_the_phase_of_the_targets_peak(step: Step) -> None:
    small = scaling_of(step(1), step(2), step(8), asked)
    assert (small.fixed_bytes, small.per_sample_bytes) == (4_800, 0)
    large = scaling_of(step(1), step(2), step(32), asked)
    assert (large.fixed_bytes, large.per_sample_bytes) == (2_000, 140)


def test_a_sample_takes_what_it_adds_where_the_target_has_its_peak(new_recording: Callable[[], Any]) -> None:
    """Backward of few samples peaks at its end, with 5,000 B of gradients; of many at its start."""

    def at(batch: int) -> Examination:
        tape = new_recording()
        tape.phase(1, "forward")
        kept = tape.birth(SAMPLE * batch)
        tape.phase(1, "backward")
        tape.death(tape.birth(PASSING * batch, "temporaries"))
        tape.death(kept)
        tape.birth(5_000, "gradients")
        made: Examination = tape.examination(batch_size=batch)
        return made

    few, many = (scaling_of(at(2), at(3), at(batch), asked) for batch in (8, 40))
    assert (few.fixed_bytes, few.per_sample_bytes) == (5_000, 0)
    assert (many.fixed_bytes, many.per_sample_bytes) == (0, 140)
    assert {(line.name, line.per_sample_bytes) for line in many.phases} >= {("backward", 0)}


def test_every_phase_has_its_line(step: Step) -> None:
    assert scaling_of(step(1), step(2), step(8), asked).phases == (
        PhaseLine(step=0, name="setup", fixed_bytes=1_000, per_sample_bytes=0),
        PhaseLine(step=1, name="forward", fixed_bytes=1_000, per_sample_bytes=100),
        PhaseLine(step=1, name="backward", fixed_bytes=2_000, per_sample_bytes=140),
        PhaseLine(step=1, name="optimizer", fixed_bytes=4_800, per_sample_bytes=0),
        PhaseLine(step=1, name="zero_grad", fixed_bytes=4_000, per_sample_bytes=0),
    )


@pytest.mark.parametrize("target", [1, 3, 8, 100])
def test_powers_of_two_and_the_target_are_predicted(step: Step, target: int) -> None:
    batches = [prediction.batch_size for prediction in scaling_of(step(1), step(2), step(target), asked).predicted]
    assert batches == sorted(set(batches))
    assert {1, 2, 4, 8, target} <= set(batches)
    assert max(batches) >= 2 * target
    assert all(batch == target or batch.bit_count() == 1 for batch in batches)


def test_predictions_are_at_the_targets_length(step: Step) -> None:
    assert {p.seq_length for p in scaling_of(step(1), step(2), step(8), asked).predicted} == {8}


def apart(step: Step, target: int, total: int = LIMIT + 1_000) -> Scaling:
    """The scaling where batch 1 is another sequence of operators than batch 2."""
    return scaling_of(step(1, op="aten.squeeze.dim"), step(2), step(target, total=total), asked)


@pytest.mark.parametrize("target", [1, 8, 20, 21, 64])
def test_steps_that_differ_in_kind_are_predicted_phase_by_phase(step: Step, target: int) -> None:
    scaling = apart(step, target)
    assert scaling.method == "phase by phase"
    assert scaling.check.predicted_reserved_bytes is None
    assert all(prediction.reserved_bytes is None for prediction in scaling.predicted)
    assert scaling.check.difference_bytes == 0  # each phase of this step happens to be a line


def test_a_wrong_prediction_is_told_with_its_difference(step: Step, new_recording: Callable[[], Any]) -> None:
    tape = new_recording()
    tape.phase(1, "forward")
    tape.birth(7_000)
    target = tape.examination(batch_size=8)
    check = scaling_of(step(1), step(2), target, asked).check
    assert (check.predicted_allocated_bytes, check.probed_allocated_bytes) == (4_800, 7_000)
    assert check.difference_bytes == -2_200


@pytest.mark.parametrize("kind", [{}, {"op": "aten.squeeze.dim"}], ids=["event by event", "phase by phase"])
@pytest.mark.parametrize("batch", [21, 22, 31, 32, 33, 49, 63, 64, 65, 127, 128, 1000])
def test_the_largest_batch_fits_and_the_next_does_not(step: Step, kind: dict[str, str], batch: int) -> None:
    needed = 2_000 + 140 * batch
    assert largest(step, needed, **kind) == batch
    assert largest(step, needed - 1, **kind) == batch - 1
    assert largest(step, needed + 139, **kind) == batch


@pytest.mark.parametrize("kind", [{}, {"op": "aten.squeeze.dim"}], ids=["event by event", "phase by phase"])
def test_where_not_even_one_fits_there_is_no_largest_batch(step: Step, kind: dict[str, str]) -> None:
    assert largest(step, 4_799, **kind) is None
    assert largest(step, 4_800, **kind) == 20


@pytest.mark.parametrize("kind", [{}, {"op": "aten.squeeze.dim"}], ids=["event by event", "phase by phase"])
def test_nothing_is_claimed_beyond_the_largest_batch_that_is_looked_at(step: Step, kind: dict[str, str]) -> None:
    assert largest(step, 10**12, **kind) == LARGEST_BATCH
    assert largest(step, 2_000 + 140 * LARGEST_BATCH, **kind) == LARGEST_BATCH
    assert largest(step, 2_000 + 140 * LARGEST_BATCH - 1, **kind) == LARGEST_BATCH - 1


def test_phase_by_phase_the_overhead_of_the_target_counts(step: Step, new_recording: Callable[[], Any]) -> None:
    """The target reserves 1000 bytes more than it asks for; so is every batch taken to do."""
    tape = new_recording()
    tape.phase(1, "forward")
    tape.reserve(8_000)
    tape.birth(7_000)
    target = tape.examination(batch_size=8, total=LIMIT + 1_000)
    scaling = scaling_of(step(1, op="aten.squeeze.dim"), step(2), target, asked)
    assert scaling.largest_batch_that_fits == (LIMIT - 1_000 - 2_000) // 140


def on_the_allocator(events: Sequence[Event], clears: Sequence[int]) -> Need:
    """The allocator itself, which takes no event of zero bytes and no death before a birth."""
    return Need(True, lambda: replay(events, empty_cache_at=clears).peak_reserved)


@pytest.mark.parametrize("first", [0, -8])
def test_a_size_that_vanishes_at_a_smaller_batch_does_not_stop_the_prediction(
    new_recording: Callable[[], Any], first: int
) -> None:
    """From batch 2 and 3 a size can come out as nothing, or less, at batch 1; no such storage is ever born."""

    def at(batch: int) -> Examination:
        tape = new_recording()
        tape.phase(1, "forward")
        tape.birth(1_000, "parameters")
        tape.death(tape.birth(first + (8 - first) * (batch - 1)))
        made: Examination = tape.examination(batch_size=batch)
        return made

    scaling = scaling_of(at(2), at(3), at(4), on_the_allocator)
    (one,) = (prediction for prediction in scaling.predicted if prediction.batch_size == 1)
    assert one.allocated_bytes == 1_000


# What kernels take for themselves


@pytest.fixture
def with_scratch(new_recording: Callable[[], Any]) -> Step:
    """A step whose kernel takes 50 bytes a sample up to batch 4 and no more after; below batch 2 it takes nothing."""

    def at(batch: int) -> Examination:
        tape = new_recording()
        tape.phase(1, "forward")
        kept = tape.birth(SAMPLE * batch)
        tape.phase(1, "backward")
        if batch > 1:
            tape.death(tape.birth(50 * min(batch, 4), "workspace", op="aten.sum: staging buffer"))
        tape.death(kept)
        made: Examination = tape.examination(batch_size=batch, total=1_000_000)
        return made

    return at


def test_steps_that_differ_in_what_kernels_take_are_aligned(with_scratch: Step) -> None:
    assert aligned(with_scratch(1), with_scratch(2))


@pytest.mark.parametrize(
    ("batch", "scratch"),
    [
        (2, 100), (3, 150),  # what was probed
        (8, 200),  # the target's own
        (5, 150 + (200 - 150) * 2 // 5),  # on the line between 3 and 8
        (13, 150 + (200 - 150) * 10 // 5),  # and beyond: not too little
    ],
)  # fmt: skip
def test_what_kernels_take_lies_between_the_small_batches_and_the_target(
    with_scratch: Step, batch: int, scratch: int
) -> None:
    model = EventModel(Pair(with_scratch(2), with_scratch(3)), with_scratch(8), asked)
    assert model.predict(batch).allocated_bytes == SAMPLE * batch + scratch


def test_of_examinations_that_hold_other_micro_steps_the_highest_phases_make_the_lines(new_recording: Any) -> None:
    def examined(batch: int, sizes: list[int]) -> Examination:
        tape = new_recording()
        for size in sizes:
            tape.phase(1, "forward")
            tape.death(tape.birth(size))
        made: Examination = tape.examination(batch_size=batch, gradient_accumulation_steps=3)
        return made

    lines = Pair(examined(1, [100, 300]), examined(2, [100, 500, 400])).phase_lines()
    assert [(line.name, line.fixed_bytes, line.per_sample_bytes) for line in lines] == [("forward", 100, 200)]
