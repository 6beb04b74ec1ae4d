"""Two examinations beside each other, every figure worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from memdoctor.probes.record.comparison import CellComparison, Kind, Row, Summary, compare, summarize, worst_first
from memdoctor.records import Counters, Device, Examination, RanOut, Workload

MIB = 1 << 20
Recording = Callable[..., Examination]


def rows(comparison: CellComparison, *kinds: Kind) -> list[tuple[str, int | None, int | None]]:
    return [(row.what, row.recorded, row.simulated) for row in comparison.rows if row.kind in kinds]


def test_every_figure_of_two_runs(recording: Recording) -> None:
    # At the peak 1000 + 600 + 100 are in use, rounded up to 1024 + 1024 + 512.
    found = compare("a", recording(), recording(kept=2000, reserved=4 * MIB))
    assert rows(found, Kind.ALLOCATED, Kind.RESERVED) == [
        ("allocated", 2560, 1024 + 2048 + 512),
        ("reserved", 2 * MIB, 4 * MIB),
    ]
    assert rows(found, Kind.CATEGORY) == [
        ("parameters", 1000, 1000), ("gradients", 0, 0), ("optimizer_state", 0, 0), ("activations", 600, 2000),
        ("inputs_and_buffers", 0, 0), ("autocast_copies", 0, 0), ("temporaries", 100, 100), ("workspace", 0, 0),
    ]  # fmt: skip
    assert rows(found, Kind.PHASE) == [
        ("step 0 setup", 1000, 1000), ("step 1 forward", 1600, 3000), ("step 1 backward", 1700, 3100),
    ]  # fmt: skip
    assert (found.recorded, found.simulated, found.same_outcome) == ("completed", "completed", True)


def test_the_device_is_what_nvml_showed_beside_what_the_catalogue_would_say(recording: Recording) -> None:
    """500 MiB of context were measured; the catalogue has 600 for an H200."""
    found = compare("a", recording(), recording())
    assert rows(found, Kind.DEVICE) == [("device", 502 * MIB, 602 * MIB)]


def test_pytorchs_counters_are_what_was_measured_and_what_they_do_not_explain_is_told(recording: Recording) -> None:
    """The history adds up to 2560 B of 2 MiB; at its end 1024 B are left."""
    counted = Counters(
        max_memory_allocated_bytes=3072, max_memory_reserved_bytes=2 * MIB, memory_allocated_bytes=1024,
        memory_reserved_bytes=2 * MIB,
    )  # fmt: skip
    found = compare("a", replace(recording(), counters=counted), recording())
    assert rows(found, Kind.ALLOCATED, Kind.RESERVED) == [("allocated", 3072, 2560), ("reserved", 2 * MIB, 2 * MIB)]
    assert found.notes == ("max_memory_allocated: +512 B that the recorded history does not explain",)


def test_without_nvml_the_device_is_unknown_and_says_so(recording: Recording) -> None:
    there = recording().device
    blind = replace(there, context_source="catalogue: NVML is missing")
    found = compare("a", recording(device=blind), recording(device=blind))
    assert rows(found, Kind.DEVICE) == [("device", None, 602 * MIB)]
    assert "device bytes unknown: catalogue: NVML is missing" in found.notes


def test_a_card_that_is_in_no_catalogue_has_its_measured_context_or_none(recording: Recording) -> None:
    there = replace(recording().device, name="unheard of", other_processes_bytes=3 * MIB)
    assert rows(compare("a", recording(device=there), recording()), Kind.DEVICE) == [("device", 505 * MIB, 505 * MIB)]
    blind = replace(there, context_bytes=0, context_source="unknown")
    assert rows(compare("a", recording(device=blind), recording()), Kind.DEVICE) == [("device", None, None)]


def test_what_was_not_measured_is_told(recording: Recording) -> None:
    found = compare("a", recording(mode="simulated"), recording())
    assert found.notes == ("no measurement: the file is simulated",)


def test_other_versions_and_kernels_are_told(recording: Recording) -> None:
    ours = recording(torch="2.13.0+cpu", transformers="5.24.0", attention_kernels=("flash", "math"))
    assert compare("a", recording(), ours).notes == (
        "recorded with torch 2.11.0, simulated with 2.13.0: both may be right",
        "recorded with transformers 5.17.0, simulated with 5.24.0: both may be right",
        "attention ran as eager, simulated flash, math",
    )
    assert compare("a", recording(), recording(torch="2.11.0+cpu")).notes == ()


def test_another_workload_is_told(recording: Recording) -> None:
    other = Workload(model="roberta-base", batch_size=1, seq_length=128)
    assert compare("a", recording(), recording(workload=other)).notes == (
        "the recorded workload is not the simulated one",
    )


def test_a_phase_that_only_one_has_is_unknown_to_the_other(recording: Recording) -> None:
    whole = recording()
    timeline = whole.timeline
    merged = (timeline.phases[0], replace(timeline.phases[1], end=5))
    short = replace(whole, timeline=replace(timeline, phases=merged))
    assert rows(compare("a", whole, short), Kind.PHASE) == [
        ("step 0 setup", 1000, 1000), ("step 1 forward", 1600, 1700), ("step 1 backward", 1700, None),
    ]  # fmt: skip


def test_phases_of_one_name_are_counted(recording: Recording) -> None:
    whole = recording()
    timeline = whole.timeline
    twice = (timeline.phases[0], timeline.phases[1], replace(timeline.phases[2], name=timeline.phases[1].name))
    again = replace(whole, timeline=replace(timeline, phases=twice))
    assert [row[0] for row in rows(compare("a", again, again), Kind.PHASE)] == [
        "step 0 setup", "step 1 forward", "step 1 forward (2)",
    ]  # fmt: skip


def test_where_both_ran_out_the_messages_are_compared(recording: Recording) -> None:
    theirs = recording(outcome=RanOut(100, 50, 2, 2 * MIB, 1600, 2 * MIB))
    ours = recording(outcome=RanOut(100, 70, 2, 2 * MIB, 1500, 2 * MIB))
    found = compare("a", theirs, ours)
    assert rows(found, *Kind) == [
        ("tried to allocate", 2 * MIB, 2 * MIB), ("free", 50, 70), ("allocated when it ran out", 1600, 1500),
        ("reserved when it ran out", 2 * MIB, 2 * MIB),
    ]  # fmt: skip
    assert found.recorded == "ran out in backward of step 1"
    assert found.same_outcome


def test_where_one_ran_out_the_other_has_no_figures(recording: Recording) -> None:
    found = compare("a", recording(outcome=RanOut(100, 50, 1, 2 * MIB, 1600, 2 * MIB)), recording())
    assert not found.same_outcome
    assert {row.simulated for row in found.rows} == {None}
    assert [row.recorded for row in found.rows] == [2 * MIB, 50, 1600, 2 * MIB]


@pytest.mark.parametrize(
    ("recorded", "simulated", "difference", "error"),
    [
        (2000, 1990, -10, -0.5), (2000, 2000, 0, 0.0), (0, 0, 0, 0.0), (0, 8, 8, None), (None, 8, None, None),
        (8, None, None, None),
    ],
)  # fmt: skip
def test_the_error_is_percent_of_what_was_recorded(
    recorded: int | None, simulated: int | None, difference: int | None, error: float | None
) -> None:
    row = Row(Kind.RESERVED, "reserved", recorded, simulated)
    assert (row.difference, row.error) == (difference, error)


def made(name: str, device: Device, *figures: Row, simulated: str = "completed") -> CellComparison:
    return CellComparison(name, Workload(model="m"), device, "completed", simulated, figures, ())


def allocated(recorded: int | None, simulated: int) -> Row:
    return Row(Kind.ALLOCATED, "allocated", recorded, simulated)


def test_a_summary_counts_what_is_exact_too_little_and_unknown(recording: Recording) -> None:
    device = recording().device
    many = [
        made("a", device, allocated(100, 100), Row(Kind.PHASE, "step 0 setup", 10, 10)),
        made("b", device, allocated(100, 98), Row(Kind.PHASE, "step 1 forward", 10, 11)),
        made("c", device, allocated(100, 110)),
        made("d", device, allocated(None, 110)),
    ]
    assert summarize(many) == (
        Summary("allocated", 4, unknown=1, exact=1, too_little=1, median_percent=2.0, largest_percent=10.0,
                largest_bytes=10),
        Summary("phases", 2, unknown=0, exact=1, too_little=0, median_percent=5.0, largest_percent=10.0,
                largest_bytes=1),
    )  # fmt: skip


def test_a_figure_that_is_known_nowhere_has_no_error(recording: Recording) -> None:
    (found,) = summarize([made("a", recording().device, allocated(None, 1))])
    assert found == Summary(
        "allocated", 1, unknown=1, exact=0, too_little=0, median_percent=None, largest_percent=None, largest_bytes=None
    )


def test_the_worst_comes_first(recording: Recording) -> None:
    device = recording().device
    many = [
        made("exact", device, allocated(100, 100)),
        made("ten", device, allocated(100, 110)),
        made("twenty", device, allocated(100, 80)),
        made("other", device, simulated="ran out in forward of step 1"),
        made("reserved", device, allocated(100, 100), Row(Kind.RESERVED, "reserved", 100, 101)),
    ]
    assert [one.name for one in worst_first(many)] == ["other", "twenty", "ten", "reserved", "exact"]
