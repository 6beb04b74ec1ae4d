"""Micro-steps that are left out: every figure is that of the run in which all of them ran, to the byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from memdoctor.analysis import breakdown_of, peak_of, phases_of, ran_out_at
from memdoctor.catalogue import find_model
from memdoctor.probes.repeating import Repeat
from memdoctor.probes.simulated import recording, timelines
from memdoctor.probes.simulated.probe import simulate
from memdoctor.probes.tracker import Tracker
from memdoctor.records import Completed, Device, Examination, Loop, Precision, Task, Workload

MIB = 1 << 20
CONFS = ("", "expandable_segments:True", "garbage_collection_threshold:0.6,max_split_size_mb:32")
KINDS: dict[str, dict[str, Any]] = {
    "trainer": {},
    "custom loop": {"loop": Loop.CUSTOM},
    "fp16": {"precision": Precision.FP16},
    "checkpointing": {"gradient_checkpointing": True},
    "padded, fp16 and checkpointing": {"padded": True, "precision": Precision.FP16, "gradient_checkpointing": True},
    "labels counted": {"task": Task.MASKED_LM, "padded": True},
    "gradients set to zero": {"zero_grad_set_to_none": False},
    "evaluation empties the cache": {"evaluate": True, "eval_samples": 4, "eval_accumulation_steps": 1},
}


def figures(examination: Examination) -> tuple[object, ...]:
    """All that is told of an examination, but for the numbers of events and how many alike phases there are."""
    highest: dict[tuple[int, str], int] = {}
    ends: dict[tuple[int, str], int] = {}
    for use in phases_of(examination):
        key = (use.step, use.name)
        highest[key] = max(highest.get(key, 0), use.peak_allocated_bytes)
        ends[key] = use.end_allocated_bytes
    timeline, outcome, stop = examination.timeline, examination.outcome, ran_out_at(examination)
    return (
        peak_of(examination), breakdown_of(examination), highest, ends, stop and replace(stop, event=None),
        outcome if isinstance(outcome, Completed) else replace(outcome, event=0),
        timeline.in_use()[-1], timeline.memory_allocated()[-1], timeline.reserved()[-1],
    )  # fmt: skip


Recorded = tuple[Tracker, Sequence[Repeat]]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Recorded]:
    """What every probe hands to the allocator."""
    seen: list[Recorded] = []

    def kept(tracker: Tracker, device: Device, repeats: Sequence[Repeat] = ()) -> timelines.Replayed:
        seen.append((tracker, tuple(repeats)))
        return timelines.with_allocator(tracker, device, repeats)

    monkeypatch.setattr(recording, "with_allocator", kept)
    return seen


@pytest.mark.parametrize("steps", [4, 8])
@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
def test_what_is_left_out_changes_no_figure(
    small_bert: Any, make_card: Callable[..., Device], recorded: list[Recorded], settings: dict[str, Any], steps: int
) -> None:
    """On cards from too small to large enough, with each kind of allocator."""
    workload = Workload(model="bert", batch_size=8, seq_length=64, gradient_accumulation_steps=steps, **settings)
    facts = small_bert(vocab_size=8000)
    full = simulate(workload, make_card(), facts, "a test", all_micro_steps=True)
    short = simulate(workload, make_card(), facts, "a test")
    assert full.repeated_micro_steps == 0
    assert 0 < short.repeated_micro_steps <= steps - 3
    assert figures(short) == figures(full)
    needed = max(full.timeline.reserved())
    for conf in CONFS:
        for missing in (2 * MIB, needed // 4):
            device = replace(make_card(total_bytes=needed - missing), alloc_conf=conf)
            made = [timelines.with_allocator(tracker, device, repeats) for tracker, repeats in recorded]
            theirs, ours = (
                Examination(
                    workload, device, full.provenance, one.outcome, one.timeline, None, one.repeated_micro_steps
                )
                for one in made
            )
            assert figures(ours) == figures(theirs)


@pytest.mark.parametrize("settings", [{}, {"precision": Precision.FP16, "gradient_checkpointing": True}], ids=str)
def test_it_is_so_for_bert_base(make_card: Callable[..., Device], settings: dict[str, Any]) -> None:
    entry = find_model("bert-base-uncased")
    assert entry is not None
    facts = {"model_type": entry.model_type, **entry.config}
    workload = Workload(model=entry.name, seq_length=128, gradient_accumulation_steps=5, **settings)
    full = simulate(workload, make_card(), facts, "a test", steps=1, all_micro_steps=True)
    short = simulate(workload, make_card(), facts, "a test", steps=1)
    assert short.repeated_micro_steps == 2
    assert figures(short) == figures(full)


def test_more_micro_steps_hold_more_inputs_and_take_no_more_events(small_bert: Any, probe: Any) -> None:
    few, many = (probe(small_bert(), gradient_accumulation_steps=steps) for steps in (8, 64))
    assert many.repeated_micro_steps - few.repeated_micro_steps == 64 - 8
    inputs = 2 * 32 * 8 * 3 + 2 * 8  # ids, mask and token types of 2 x 32, and 2 labels
    assert peak_of(many).allocated_bytes - peak_of(few).allocated_bytes == (64 - 8) * inputs


class Changing(nn.Module):
    """Makes one more tensor each time that it is called, or asks which of its inputs are not zero."""

    def __init__(self, *, asks: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.calls, self.asks = 0, asks

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        out: torch.Tensor = self.linear(x)
        if self.asks:
            return out[ids.nonzero()[:, 0]].sum()
        for _ in range(self.calls):
            out = out + 1
        return out.sum()


@pytest.mark.parametrize("asks", [False, True], ids=["other operators", "asks for data"])
def test_where_they_are_not_alike_all_run(make_card: Callable[..., Device], asks: bool) -> None:
    with FakeTensorMode() as fake:
        model = Changing(asks=asks)
    workload = Workload(model="toy", optimizer="sgd", gradient_accumulation_steps=6)
    batch = {"x": torch.zeros(2, 4), "ids": torch.ones(2, dtype=torch.long)}
    made = recording.record(workload, make_card(), model, fake, lambda workload, number: batch, 1)
    assert made.repeated_micro_steps == 0
    assert model.calls == 6
