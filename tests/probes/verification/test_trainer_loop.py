"""What the real Trainer of the installed transformers does with gradient accumulation, measured."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
from transformers import BertForTokenClassification

from memdoctor.errors import MeasureError
from memdoctor.probes.verification import trainer_loop
from memdoctor.records import Check, Status, Task, Verification

Verify = Callable[..., Verification]
HAS_ACCELERATE = importlib.util.find_spec("accelerate") is not None
needs_accelerate = pytest.mark.skipif(not HAS_ACCELERATE, reason="the Trainer needs accelerate")


def statuses(found: Verification) -> dict[str, Status]:
    return {check.id: check.status for check in found.checks}


def check(found: Verification, name: str) -> Check:
    return next(check for check in found.checks if check.id == name)


@needs_accelerate
@pytest.mark.parametrize("task", [Task.SEQUENCE_CLASSIFICATION, Task.TOKEN_CLASSIFICATION, Task.MASKED_LM])
def test_the_trainer_does_not_divide_the_loss_of_bert_heads(verified: Verify, task: Task) -> None:
    """Their forward takes ``**kwargs`` and drops ``num_items_in_batch``; the Trainer leaves the division to them."""
    even = check(verified("trainer", task=task, learning_rate=3e-2), "gradients_even")
    assert even.status is Status.FAILED
    assert even.evidence["ratio"] == pytest.approx(3, rel=1e-5)
    assert "the Trainer hands num_items_in_batch to a model whose forward takes **kwargs" in even.cause


@needs_accelerate
def test_the_remedy_that_is_named_makes_the_trainer_divide(verified: Verify, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BertForTokenClassification, "accepts_loss_kwargs", False, raising=False)
    found = verified("trainer")
    assert check(found, "gradients_even").status is Status.PASSED
    assert check(found, "gradients_uneven").cause.startswith("averaging per micro-batch: with 1, 14, 14 label tokens")


@needs_accelerate
def test_the_rest_of_the_trainer_is_right(verified: Verify) -> None:
    found = verified("trainer")
    rest = {"gradients_leftover", "steps", "peak", "loss"}
    assert {name: status for name, status in statuses(found).items() if name in rest} == dict.fromkeys(
        rest, Status.PASSED
    )


@needs_accelerate
def test_the_trainer_is_right_where_there_are_no_labels_by_that_name(verified: Verify) -> None:
    """Question answering has start and end positions: nothing is counted, and the Trainer divides."""
    found = verified("trainer", task=Task.QUESTION_ANSWERING)
    assert found.passed
    assert check(found, "gradients_uneven").status is Status.NOT_APPLICABLE


@needs_accelerate
def test_a_head_that_takes_the_count_is_right_with_uneven_tokens_too(verified: Verify) -> None:
    found = verified("trainer", task=Task.CAUSAL_LM)
    assert found.passed
    assert check(found, "gradients_uneven").status is Status.PASSED


@needs_accelerate
def test_the_trainers_inputs_that_wait_are_named_to_the_byte(verified: Verify) -> None:
    """Three micro-batches and the one fetched ahead are there; ids, mask, types and labels of 2 x 8 x 8 B each."""
    found = verified("trainer")
    forward = next(peak for peak in found.peaks if peak.phase == "forward")
    each = 4 * 2 * 8 * 8
    assert forward.other_input_bytes % each == 0
    assert forward.other_input_bytes >= 2 * each
    assert forward.unexplained_bytes == 0


def test_without_accelerate_one_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str, *_: Any) -> None:
        assert name == "accelerate"

    monkeypatch.setattr(importlib.util, "find_spec", absent)
    with pytest.raises(MeasureError, match="the real Trainer cannot run here") as caught:
        trainer_loop.require()
    assert caught.value.hint.startswith("pip install 'accelerate>=1.1' (the extra trainer)")
