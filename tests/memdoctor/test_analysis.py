"""From small timelines written by hand to figures worked out on paper, with ``==``. See ``two_steps`` for the first."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod
from typing import Any

import pytest

from memdoctor.analysis import (
    breakdown_of,
    modules_of,
    peak_event,
    peak_of,
    phase_of,
    phases_of,
    ran_out_at,
    tensors_of,
    verdict_of,
)
from memdoctor.records import Breakdown, Category, Examination, ModuleUse, RanOut, TensorGroup, Verdict
from memdoctor.units import MIB, format_bytes

PRODUCT = re.compile(r"((?:[\d,]+(?: parameters)?(?: x |x))+[\d,]+) B = (-?[\d.]+ \w*B)")


def products(sentence: str) -> list[tuple[int, str]]:
    """Every product in the sentence, worked out, and what the sentence says it is."""
    found = []
    for factors, printed in PRODUCT.findall(sentence):
        numbers = re.findall(r"\d+", factors.replace(",", ""))
        found.append((prod(map(int, numbers)), printed))
    return found


def test_the_peak_is_the_event_after_which_most_is_in_use(two_steps: Examination) -> None:
    at = peak_event(two_steps.timeline)
    assert at == 21
    assert two_steps.timeline.in_use()[at] == 3216
    assert (phase_of(two_steps.timeline, at).step, phase_of(two_steps.timeline, at).name) == (2, "backward")


def test_of_equal_peaks_the_first_counts(recording: Any) -> None:
    recording.phase(1, "forward")
    recording.death(recording.birth(100))
    recording.phase(1, "backward")
    recording.death(recording.birth(100))
    assert peak_of(recording.examination()).phase == "forward"


def test_each_event_belongs_to_the_phase_that_was_begun_last(two_steps: Examination) -> None:
    timeline = two_steps.timeline
    names = [(phase_of(timeline, event).step, phase_of(timeline, event).name.value) for event in (0, 1, 2, 6, 7, 25)]
    assert names == [(0, "setup"), (0, "setup"), (1, "forward"), (1, "forward"), (1, "backward"), (2, "zero_grad")]


def test_the_peak_climbs_from_what_was_asked_for_to_what_the_card_holds(recording: Any) -> None:
    recording.phase(1, "forward")
    recording.reserve(2048)
    recording.birth(100, allocated=512)
    recording.birth(600, allocated=1024)
    peak = peak_of(recording.examination(total=10_000, context=1_000))
    assert (peak.allocated_bytes, peak.max_memory_allocated_bytes) == (700, 1536)
    assert (peak.reserved_bytes, peak.device_bytes) == (2048, 3048)


def test_rounding_may_peak_elsewhere_than_what_was_asked_for(recording: Any) -> None:
    """One large block, then many small ones, each rounded up to 512 bytes."""
    recording.phase(1, "forward")
    recording.death(recording.birth(1000, allocated=1024))
    recording.phase(1, "backward")
    for _ in range(5):
        recording.birth(10, allocated=512)
    examination = recording.examination()
    peak = peak_of(examination)
    assert (peak.allocated_bytes, peak.max_memory_allocated_bytes, peak.phase) == (1000, 2560, "forward")
    assert breakdown_of(examination).allocator_overhead == 1560


def test_other_processes_are_on_the_card_and_not_in_the_peak_of_pytorch(two_steps: Examination) -> None:
    shared = replace(two_steps, device=replace(two_steps.device, other_processes_bytes=2_000))
    assert (peak_of(shared).reserved_bytes, peak_of(shared).device_bytes) == (3216, 6216)
    assert breakdown_of(shared).free == breakdown_of(two_steps).free - 2_000


FITS = Breakdown(
    parameters=600, gradients=400, optimizer_state=1200, activations=1000, inputs_and_buffers=16, context=1000,
    free=5784,
)  # fmt: skip


def test_a_breakdown_that_fits_sums_to_the_card(two_steps: Examination) -> None:
    assert breakdown_of(two_steps) == FITS
    assert sum(size for _, size in FITS.items()) == 10_000


def test_a_breakdown_that_does_not_fit_sums_to_the_card_with_a_shortfall(two_steps: Examination) -> None:
    small = replace(two_steps, device=replace(two_steps.device, total_bytes=4_000), outcome=RanOut(400, 184, 21))
    assert breakdown_of(small) == replace(FITS, free=-216)
    assert sum(size for _, size in breakdown_of(small).items()) == 4_000


def test_overhead_is_what_was_reserved_over_the_run_and_not_asked_for_at_the_peak(recording: Any) -> None:
    recording.phase(1, "forward")
    recording.reserve(1000)
    first = recording.birth(900, "parameters")
    recording.reserve(500)
    passing = recording.birth(300, "temporaries")
    recording.phase(1, "backward")
    recording.death(passing)
    recording.reserve(-500)
    recording.death(first)
    parts = breakdown_of(recording.examination())
    assert (parts.parameters, parts.temporaries, parts.allocator_overhead) == (900, 300, 300)


def test_a_phase_counts_what_was_in_use_when_it_began(two_steps: Examination) -> None:
    table = [(use.step, use.name, use.peak_allocated_bytes, use.end_allocated_bytes) for use in phases_of(two_steps)]
    assert table == [
        (0, "setup", 600, 600),
        (1, "forward", 1916, 1616),
        (1, "backward", 2016, 1216),
        (1, "optimizer", 2416, 2416),
        (1, "zero_grad", 2416, 1800),  # nothing is born in it: its peak is where it began
        (2, "forward", 3116, 2816),
        (2, "backward", 3216, 2416),
        (2, "optimizer", 2416, 2416),  # empty: its state was made in step 1
        (2, "zero_grad", 2416, 1800),
    ]


def test_each_phase_has_the_categories_of_its_own_peak(two_steps: Examination) -> None:
    uses = {(use.step, use.name): use.breakdown for use in phases_of(two_steps)}
    forward = replace(FITS, gradients=0, optimizer_state=0, temporaries=300, allocator_overhead=1300)
    assert uses[1, "forward"] == forward
    assert uses[2, "backward"] == FITS
    assert uses[2, "zero_grad"] == replace(FITS, gradients=600, activations=0, allocator_overhead=800)
    assert all(parts.device + parts.free == 10_000 for parts in uses.values())


def test_a_phase_has_the_overhead_of_its_own_time(recording: Any) -> None:
    recording.phase(0, "setup")
    recording.reserve(1000)
    recording.birth(900, "parameters")
    recording.phase(1, "forward")
    recording.reserve(4000)
    recording.birth(3000)
    setup, forward = (use.breakdown for use in phases_of(recording.examination()))
    assert (setup.allocator_overhead, setup.free) == (100, 8000)
    assert (forward.allocator_overhead, forward.free) == (1100, 4000)


def test_modules_share_out_the_peak_largest_first(two_steps: Examination) -> None:
    assert modules_of(two_steps) == (
        ModuleUse(path="net.layer.0", parameters=400, activations=500, gradients=400),
        ModuleUse(path="", optimizer_state=1200, inputs_and_buffers=16),
        ModuleUse(path="net.layer.1", parameters=200, activations=500),
    )


def test_equal_modules_are_in_order_of_their_paths(recording: Any) -> None:
    recording.phase(1, "forward")
    for path in ("b", "c", "a"):
        recording.birth(10, module=path)
    assert [use.path for use in modules_of(recording.examination())] == ["a", "b", "c"]


def test_tensors_alike_but_for_their_layer_are_one_group(two_steps: Examination) -> None:
    groups = tensors_of(two_steps)
    assert sum(group.bytes for group in groups) == 3216
    assert [group.bytes for group in groups] == sorted((group.bytes for group in groups), reverse=True)
    assert groups[0] == TensorGroup(
        bytes=1000, count=2, dtype="uint8", shape=(5, 100), category=Category.ACTIVATIONS, module="net.layer.*",
        op="aten.gelu.default", phase="forward",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("paths", "module"),
    [
        (("encoder.layer.0.output", "encoder.layer.11.output"), "encoder.layer.*.output"),
        (("layers.3", "layers.4"), "layers.*"),
        (("groups.0.layers.0", "groups.0.layers.1", "groups.1.layers.0"), "groups.*.layers.*"),
        (("conv1.fc2", "conv1.fc2"), "conv1.fc2"),
        (("", ""), ""),
    ],
)
def test_the_number_of_a_layer_is_a_star(recording: Any, paths: tuple[str, ...], module: str) -> None:
    recording.phase(1, "forward")
    for path in paths:
        recording.birth(8, module=path)
    (group,) = tensors_of(recording.examination())
    assert (group.module, group.count, group.bytes) == (module, len(paths), 8 * len(paths))


def test_a_group_of_one_names_its_layer(recording: Any) -> None:
    """A star where nothing differs would hide which layer it is."""
    recording.phase(1, "forward")
    recording.birth(8, module="encoder.layer.7.output")
    (group,) = tensors_of(recording.examination())
    assert group.module == "encoder.layer.7.output"


@pytest.mark.parametrize(
    "other",
    [{"dtype": "float16"}, {"shape": (2, 4)}, {"category": "temporaries"}, {"module": "b"}, {"op": "aten.mul.Tensor"}],
    ids=lambda other: next(iter(other)),
)
def test_tensors_that_differ_otherwise_are_apart(recording: Any, other: dict[str, Any]) -> None:
    recording.phase(1, "forward")
    recording.birth(8, module="a")
    recording.birth(8, **{"module": "a", **other})
    assert [group.count for group in tensors_of(recording.examination())] == [1, 1]


def test_tensors_born_in_other_phases_are_apart(recording: Any) -> None:
    recording.phase(1, "forward")
    recording.birth(8)
    recording.phase(1, "backward")
    recording.birth(8)
    assert {group.phase for group in tensors_of(recording.examination())} == {"forward", "backward"}


def test_the_verdict_says_how_much_is_left_and_what_holds_most(two_steps: Examination) -> None:
    verdict = verdict_of(two_steps)
    assert (verdict.fits, verdict.headroom_bytes, verdict.cause) == (True, 5784, "optimizer_state")
    assert verdict.sentence.startswith(f"Fits, {format_bytes(5784)} ")
    assert "backward" in verdict.sentence
    assert "37 %" in verdict.sentence  # 1200 of 3216
    assert format_bytes(1200) in verdict.sentence


def test_the_verdict_says_how_much_is_missing(two_steps: Examination) -> None:
    small = replace(two_steps, device=replace(two_steps.device, total_bytes=4_000), outcome=RanOut(400, 184, 21))
    verdict = verdict_of(small)
    assert (verdict.fits, verdict.headroom_bytes) == (False, -216)
    assert verdict.sentence.startswith("Does not fit, 216 B ")
    assert "-216" not in verdict.sentence


def test_whether_it_fits_is_what_the_run_said(two_steps: Examination) -> None:
    """A run that ran out did, whatever two sums may say of it."""
    assert not verdict_of(replace(two_steps, outcome=RanOut(400, 184, 21))).fits


def test_what_is_kept_for_every_parameter_is_told_as_a_multiple(two_steps: Examination) -> None:
    sentence = verdict_of(two_steps).sentence
    assert "2 x 150 parameters x 4 B" in sentence
    assert products(sentence) == [(1200, format_bytes(1200))]


def of_parameters(recording: Any, *state: tuple[int, str]) -> Verdict:
    """The verdict on 1000 fp32 parameters in two tensors, and this state in bytes per element."""
    recording.phase(0, "setup")
    for elements in (900, 100):
        recording.birth(4 * elements, "parameters", dtype="float32", shape=(elements,))
    recording.phase(1, "optimizer")
    for width, dtype in state:
        for elements in (900, 100):
            recording.birth(width * elements, "optimizer_state", dtype=dtype, shape=(elements,))
    return verdict_of(recording.examination(total=100_000))


def test_parameters_alone_are_one_times_themselves(recording: Any) -> None:
    verdict = of_parameters(recording)
    assert (verdict.cause, products(verdict.sentence)) == ("parameters", [(4000, format_bytes(4000))])
    assert "1 x 1,000 parameters x 4 B" in verdict.sentence


def test_state_of_two_moments_is_two_times_the_parameters(recording: Any) -> None:
    verdict = of_parameters(recording, (4, "float32"), (4, "float32"))
    assert "2 x 1,000 parameters x 4 B" in verdict.sentence
    assert products(verdict.sentence) == [(8000, format_bytes(8000))]


def test_a_few_scalars_more_do_not_spoil_the_multiple(recording: Any) -> None:
    """Adam's step counters: less than a hundredth of the state."""
    recording.phase(0, "setup")
    recording.birth(4, "optimizer_state", dtype="float32", shape=())
    verdict = of_parameters(recording, (4, "float32"), (4, "float32"))
    assert "2 x 1,000 parameters x 4 B" in verdict.sentence


def test_state_of_mixed_widths_is_not_told_as_if_all_were_alike(recording: Any) -> None:
    """A moment in fp32 and one in eight bits hold 5000 bytes; "2 x 1,000 parameters x 4 B" would say 8000."""
    verdict = of_parameters(recording, (4, "float32"), (1, "uint8"))
    assert verdict.cause == "optimizer_state"
    told = products(verdict.sentence)
    assert told
    assert all(printed == format_bytes(size) for size, printed in told)
    assert sum(size for size, _ in told) <= 5000


def test_activations_are_told_by_their_largest_groups(recording: Any) -> None:
    recording.phase(1, "forward")
    for layer in range(12):
        recording.birth(4 * 2 * 3 * 5, module=f"layer.{layer}.a", dtype="float32", shape=(2, 3, 5))
        recording.birth(2 * 7 * 11, module=f"layer.{layer}.b", dtype="float16", shape=(7, 11))
    verdict = verdict_of(recording.examination())
    assert "12 x 2x3x5 x 4 B" in verdict.sentence
    assert products(verdict.sentence) == [(12 * 154, format_bytes(12 * 154)), (12 * 120, format_bytes(12 * 120))]


def test_a_storage_larger_than_its_shape_is_not_told_as_a_product(recording: Any) -> None:
    """A view's base: 1000 bytes behind a tensor of 3 elements. No product of the shape gives them."""
    recording.phase(1, "forward")
    recording.birth(1000, dtype="float32", shape=(3,))
    sentence = verdict_of(recording.examination()).sentence
    assert "1000 B" in sentence
    assert products(sentence) == []


@pytest.mark.parametrize("shape", [(), (0,), (0, 5)])
def test_shapes_without_extent_do_not_stop_the_verdict(recording: Any, shape: tuple[int, ...]) -> None:
    recording.phase(1, "forward")
    recording.birth(512, dtype="float32", shape=shape)
    sentence = verdict_of(recording.examination()).sentence
    assert "100 %" in sentence
    assert all(printed == format_bytes(size) for size, printed in products(sentence))


def test_products_of_the_sentence_are_recognised() -> None:
    assert products("(12 x 32x12x512x512 x 4 B = 4.50 GiB; 2 x 1,000 parameters x 4 B = 7.81 KiB)") == [
        (12 * 32 * 12 * 512 * 512 * 4, "4.50 GiB"),
        (8000, "7.81 KiB"),
    ]


def test_a_run_that_completed_ran_out_nowhere(two_steps: Examination) -> None:
    assert ran_out_at(two_steps) is None


def test_where_it_ran_out_is_the_block_that_could_not_be_born(two_steps: Examination) -> None:
    place = ran_out_at(replace(two_steps, outcome=RanOut(requested_bytes=400, free_bytes=184, event=21)))
    assert place is not None
    assert (place.step, place.phase, place.module) == (2, "backward", "net.layer.0")
    assert (place.requested_bytes, place.free_bytes) == (400, 184)
    assert place.message == ""  # an older file does not have the figures


def test_running_out_is_told_in_pytorchs_own_words(two_steps: Examination) -> None:
    full = RanOut(
        requested_bytes=20 * MIB, free_bytes=100 * MIB, event=21, segment_bytes=120 * MIB, allocated_bytes=900 * MIB,
        reserved_bytes=1000 * MIB,
    )  # fmt: skip
    card = replace(two_steps.device, total_bytes=2048 * MIB, context_bytes=300 * MIB)
    place = ran_out_at(replace(two_steps, outcome=full, device=card))
    assert place is not None
    assert place.message == (
        "CUDA out of memory. Tried to allocate 120.00 MiB. GPU 0 has a total capacity of 2.00 GiB of which 100.00 MiB "
        "is free. Including non-PyTorch memory, this process has 1.27 GiB memory in use. Of the allocated memory "
        "900.00 MiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
    )
