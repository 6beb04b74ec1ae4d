"""MD605: fires where settings of the allocator are made and no more is reserved without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memdoctor.records import Examination, NotChecked, RanOut
from memdoctor.rules import Evidence, check_all
from memdoctor.rules.allocator.md605_settings_without_effect import NO_SETTINGS, RULE

Evidences = Callable[..., Evidence]
Recordings = Callable[[], Any]
CONF = "max_split_size_mb:128"


def examination(new_recording: Recordings, reserved: int, conf: str = CONF, **more: Any) -> Examination:
    recording = new_recording()
    recording.phase(1, "forward")
    recording.reserve(reserved)
    recording.birth(1000)
    made: Examination = recording.examination(**more)
    return replace(made, device=replace(made.device, alloc_conf=conf))


@pytest.mark.parametrize(
    ("without", "severity"),
    [(2001, None), (2000, "info"), (1999, "warning")],
    ids=["saves 1 B", "nothing", "costs 1 B"],
)
def test_at_the_threshold(new_recording: Recordings, evidence: Evidences, without: int, severity: str | None) -> None:
    probes = [(NO_SETTINGS, examination(new_recording, without, ""))]
    finding = RULE.check(evidence(examination(new_recording, 2000), probes=probes))
    assert (finding and finding.severity) == severity


def test_fires_with_what_is_reserved_either_way(new_recording: Recordings, evidence: Evidences) -> None:
    probes = [(NO_SETTINGS, examination(new_recording, 1500, ""))]
    finding = RULE.check(evidence(examination(new_recording, 2000), probes=probes))
    assert finding is not None
    assert finding.at_stake_bytes == 500
    assert finding.detail == (
        "with PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 PyTorch reserves 1.95 KiB, without it 1.46 KiB"
    )


def test_the_lever_in_use_tells_it_too(
    new_recording: Recordings, evidence: Evidences, probed_lever: Callable[..., Any]
) -> None:
    lever = probed_lever("expandable_segments", 0, status="in use", fits=True)
    target = examination(new_recording, 2000, "expandable_segments:True")
    assert RULE.check(evidence(target, levers=[lever])) is not None
    needed = probed_lever("expandable_segments", -1, status="in use", fits=True)
    assert RULE.check(evidence(target, levers=[needed])) is None


def test_what_fits_only_with_it_is_left_alone(new_recording: Recordings, evidence: Evidences) -> None:
    full = RanOut(requested_bytes=1, free_bytes=0, event=0)
    probes = [(NO_SETTINGS, examination(new_recording, 2000, "", outcome=full))]
    assert RULE.check(evidence(examination(new_recording, 2000), probes=probes)) is None


def test_no_settings_are_no_pattern(new_recording: Recordings, evidence: Evidences) -> None:
    assert check_all([RULE], evidence(examination(new_recording, 2000, ""))).passed == (RULE.id,)


def test_without_the_probe_it_is_not_checked(new_recording: Recordings, evidence: Evidences) -> None:
    checked = check_all([RULE], evidence(examination(new_recording, 2000)))
    assert checked.not_checked == (
        NotChecked(id=RULE.id, title=RULE.title, why="the target was not probed without max_split_size_mb:128"),
    )
