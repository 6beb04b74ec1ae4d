"""MD210: fires where what the forward pass gave is alive after its step."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.rules.activations.md210_outputs_kept import RULE


def looped(recording: Any, rest: int, *, kept: int = 1_024, dies: bool = False) -> Any:
    """Outputs of ``kept`` bytes live on beside parameters of ``rest`` bytes; the batch on the GPU is none of them."""
    recording.phase(0, "setup")
    recording.birth(rest, "parameters")
    recording.phase(1, "forward")
    inputs = recording.birth(64, "inputs_and_buffers")
    outputs = recording.birth(kept, "temporaries", module="head", dtype="float32", shape=(4, kept // 16))
    saved = recording.birth(256)
    recording.phase(1, "backward")
    recording.death(saved)
    if dies:
        recording.death(outputs)
    recording.phase(1, "zero_grad")
    recording.phase(2, "forward")
    recording.death(inputs)
    return recording.examination(total=10**6)


def test_fires_with_the_tensors(recording: Any, evidence: Any) -> None:
    finding = RULE.check(evidence(looped(recording, 2_000)))
    assert finding is not None
    assert finding.severity == "warning"
    assert "1.00 KiB of what the forward pass gave outlive their step (1 tensor," in finding.detail
    assert "the largest 4x64 float32 of head = 1.00 KiB" in finding.detail
    assert "31 % of the peak" in finding.detail  # 1,024 of 3,344 bytes
    assert finding.at_stake_bytes == 1_024


def test_outputs_that_die_in_their_step_are_not_meant(recording: Any, evidence: Any) -> None:
    assert RULE.check(evidence(looped(recording, 2_000, dies=True))) is None


@pytest.mark.parametrize(("excess", "fires"), [(0, True), (1, False)])
def test_at_the_threshold(recording: Any, evidence: Any, excess: int, fires: bool) -> None:
    """A twentieth of the peak of 20,480 bytes is enough."""
    rest = 20 * 1_024 - 1_024 - 64 - 256 + excess
    assert (RULE.check(evidence(looped(recording, rest))) is not None) == fires
