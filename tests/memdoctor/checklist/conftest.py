"""Targets that do not fit, each for another reason, on a card of which 9,000 bytes can be had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memdoctor.records import Change, Examination, RanOut
from memdoctor.rules import Evidence, evidence_of

Holding = Callable[..., Examination]
HALF: Change = {"batch_size": 1, "seq_length": 4}


def of(target: Examination, *probes: tuple[Change, Examination]) -> Evidence:
    """The evidence of a target of 8 tokens and what else was probed."""
    return evidence_of(target, {}, probes=probes)


@pytest.fixture
def too_large(holding: Holding, new_recording: Callable[[], Any]) -> dict[str, tuple[Evidence, str, str]]:
    """By name: the evidence, the step at which the cause is to be found, and how it is told."""

    def fits(size: int) -> Examination:
        return holding({"activations": size})

    def not_fits(size: int) -> Examination:
        return holding({"activations": size}, fits=False)

    large = holding({"activations": 12_000}, fits=False, batch_size=8)
    crowded = holding({"activations": 8_000}, fits=False)
    crowded = replace(crowded, device=replace(crowded.device, other_processes_bytes=3_000))
    tape = new_recording()
    tape.phase(1, "forward")
    tape.birth(2_000)
    tape.phase(1, "evaluation")
    tape.birth(10_000, "temporaries")
    evaluated = tape.examination(outcome=RanOut(requested_bytes=1, free_bytes=0, event=1), evaluate=True)
    static = {"parameters": 3_000, "gradients": 3_000, "optimizer_state": 6_000}
    adam = {"parameters": 2_000, "gradients": 2_000, "optimizer_state": 4_000, "temporaries": 2_000}
    accumulating = holding({"activations": 9_500, "gradients": 500}, fits=False, gradient_accumulation_steps=4)
    sized = holding({"parameters": 8_000, "activations": 2_000}, fits=False)
    return {
        "batch": (of(large, ({"batch_size": 1}, fits(1_500))), "4a", "1 sample takes 1.46 KiB and fits, 8 take 11.72"),
        "length": (of(large, ({"batch_size": 1}, not_fits(9_500)), (HALF, fits(4_750))), "4b", "1 sample of 8 tokens"),
        "length at batch 1": (of(not_fits(9_500), ({"seq_length": 4}, fits(4_750))), "4b", "1 of 4 takes 4.64 KiB"),
        "static": (of(holding(static, fits=False)), "4b", "optimizer state 5.86 KiB = 11.72 KiB, 2.93 KiB more"),
        "optimizer step": (of(holding(adam, fits=False, phase="optimizer")), "1", "static state is 7.81 KiB and temp"),
        "evaluation": (of(evaluated), "1", "training fits, with 1.95 KiB allocated"),
        "others": (of(crowded), "1", "they hold 2.93 KiB of the card, and leave 5.86 KiB for the 7.81 KiB"),
        "accumulation": (of(accumulating, ({"gradient_accumulation_steps": 1}, fits(8_000))), "2", "500 B of grad"),
        "size": (of(sized, ({"seq_length": 4}, not_fits(9_100))), "4b", "static state holds 7.81 KiB"),
        "one sample": (of(not_fits(9_500), ({"seq_length": 4}, not_fits(9_100))), "4b", "activations of one sample"),
        "nothing probed": (of(large), "1", "batch 1 could not be probed"),
    }  # fmt: skip
