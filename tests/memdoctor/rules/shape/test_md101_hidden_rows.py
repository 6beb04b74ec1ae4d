"""MD101: fires where the word embedding gives more rows than the batch has samples."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.records import Task
from memdoctor.rules import check_all
from memdoctor.rules.shape.md101_hidden_rows import RULE

LOOKUP = "aten.embedding.default"


def looked_up(recording: Any, *shapes: tuple[int, ...], **workload: Any) -> Any:
    recording.phase(1, "forward")
    for shape in shapes:
        recording.birth(8, "temporaries", module="words", op=LOOKUP, shape=shape)
    recording.birth(3000)
    return recording.examination(**{"batch_size": 2, "seq_length": 8, **workload})


def test_choices_are_rows(recording: Any, evidence: Any) -> None:
    finding = RULE.check(evidence(looked_up(recording, (8, 8, 4))))
    assert finding is not None
    assert finding.severity == "info"
    assert "a batch of 2 is 8 rows x 8 tokens" in finding.detail
    assert "4 times the batch size, 2.93 KiB" in finding.detail
    assert finding.at_stake_bytes == 3000 - 750


def test_every_call_of_the_model_counts(recording: Any, evidence: Any) -> None:
    finding = RULE.check(evidence(looked_up(recording, (2, 8, 4), (2, 8, 4), total=4_000)))
    assert finding is not None
    assert finding.severity == "warning"  # 3016 of 3000 bytes
    assert finding.evidence["rows"] == 4
    assert "2 calls of the model, its word embedding gave 2x8x4;" in finding.detail


def test_a_decoder_that_looks_up_in_the_same_module_is_no_second_view(recording: Any, evidence: Any) -> None:
    examined = looked_up(recording, (2, 8, 4), (2, 8, 4), task=Task.SEQ2SEQ_LM)
    assert RULE.check(evidence(examined)) is None


@pytest.mark.parametrize(("rows", "fires"), [(3, False), (4, True)])
def test_at_the_threshold(recording: Any, evidence: Any, rows: int, fires: bool) -> None:
    """Two rows a sample are enough, three rows for two samples are not."""
    assert (RULE.check(evidence(looked_up(recording, (rows, 8, 4)))) is not None) == fires


@pytest.mark.parametrize(("tokens", "fires"), [(16, False), (32, True)])
def test_tokens_without_padding_are_one_row(recording: Any, evidence: Any, tokens: int, fires: bool) -> None:
    assert (RULE.check(evidence(looked_up(recording, (tokens, 4)))) is not None) == fires


def test_without_a_lookup_it_is_not_checked(two_steps: Any, evidence: Any) -> None:
    checked = check_all([RULE], evidence(two_steps))
    assert [missing.id for missing in checked.not_checked] == ["MD101"]
