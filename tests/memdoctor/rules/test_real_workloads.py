"""The rules over real steps, simulated: quiet where all is well, and by name where it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from memdoctor.cases import open_case
from memdoctor.probes.pool import Pool, Request
from memdoctor.records import Task
from memdoctor.rules import RULES, Evidence, check_all, evidence_of

Probed = Callable[..., Evidence]
OF_SHAPE = ("MD1", "MD2", "MD4")  # their own tests say when they are quiet
PARAMETERS = 109_483_778


@pytest.fixture(scope="module")
def probed() -> Iterator[Probed]:
    """What a probe of BERT-base on a T4 with these settings gives; all by one worker."""
    with Pool() as pool:

        def probe(**settings: Any) -> Evidence:
            case = open_case("bert-base-uncased", **{"gpu": "T4", "backend": "simulated", **settings})
            (examination,) = pool.examine([Request(case.workload, case.device, case.facts)])
            return evidence_of(examination, case.facts.config)

        yield probe


def found(evidence: Evidence) -> dict[str, str]:
    """The findings about other things than shapes, by id, with their severity."""
    findings = check_all(RULES, evidence).findings
    return {finding.id: finding.severity for finding in findings if not finding.id.startswith(OF_SHAPE)}


def test_a_default_run_that_fits_is_quiet(probed: Probed) -> None:
    assert found(probed()) == {}


def test_a_small_batch_is_the_optimizer_step(probed: Probed) -> None:
    """Foreach temporaries on top: less than one copy of the parameters, since each group's die before the next's."""
    evidence = probed(batch_size=1, seq_length=128, optimizer="adamw_torch")
    assert found(evidence) == {"MD302": "info", "MD303": "warning"}
    lists = next(finding for finding in check_all(RULES, evidence).findings if finding.id == "MD303")
    assert 0.99 * 4 * PARAMETERS < lists.evidence["foreach_bytes"] < 4 * PARAMETERS  # type: ignore[operator]


def test_a_card_smaller_than_static_state_is_an_error(probed: Probed) -> None:
    evidence = probed(batch_size=1, seq_length=128, memory="1500 MiB")
    assert found(evidence) == {"MD301": "error", "MD302": "warning", "MD806": "info"}
    static = next(finding for finding in check_all(RULES, evidence).findings if finding.id == "MD301")
    assert static.at_stake_bytes == 16 * PARAMETERS + 4 * 201  # a step count of 4 B for each of 201 tensors
    assert "2 x 109,483,778 x 4 B" in static.detail


def test_evaluation_gathers_logits(probed: Probed) -> None:
    evidence = probed(task=Task.MASKED_LM, batch_size=2, seq_length=128, evaluate=True, eval_samples=40)
    assert found(evidence) == {"MD501": "warning", "MD504": "warning", "MD606": "info"}
    logits = next(finding for finding in check_all(RULES, evidence).findings if finding.id == "MD504")
    assert logits.evidence["logits_bytes"] == 40 * 128 * 30522 * 4
