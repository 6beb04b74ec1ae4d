"""The allocator's settings and its end, seen from the training step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memdoctor.analysis import peak_of
from memdoctor.records import Examination, RanOut, Task


def test_expandable_segments_reserve_what_is_needed_and_no_more(
    probe: Callable[..., Examination], small_bert: Callable[..., Any]
) -> None:
    """Evaluation asks for ever larger blocks, which fit none of the segments before them."""
    config = small_bert(num_hidden_layers=1, vocab_size=30_000)
    settings = {"evaluate": True, "eval_samples": 100, "task": Task.MASKED_LM, "steps": 1}
    usual = probe(config, **settings)
    expandable = probe(config, alloc_conf="expandable_segments:True", **settings)
    assert usual.timeline.in_use() == expandable.timeline.in_use()
    assert peak_of(usual).reserved_bytes > peak_of(expandable).reserved_bytes >= peak_of(expandable).allocated_bytes


def test_running_out_carries_the_figures_of_pytorchs_message(
    probe: Callable[..., Examination], small_bert: Callable[..., Any]
) -> None:
    outcome = probe(small_bert(num_hidden_layers=1), steps=1, total_bytes=20 << 20).outcome
    assert isinstance(outcome, RanOut)
    assert outcome.segment_bytes == 20 << 20  # for the first cuBLAS workspace, of 8,519,680 bytes
    assert outcome.reserved_bytes is not None
    assert outcome.allocated_bytes is not None
    assert outcome.free_bytes == (20 << 20) - outcome.reserved_bytes
    assert 0 < outcome.allocated_bytes <= outcome.reserved_bytes
