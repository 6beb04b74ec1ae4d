"""Modules of one's own that keep what they should let go, probed for real."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import pytest

from memdoctor.cases import open_case
from memdoctor.probes.pool import Pool, Request
from memdoctor.rules import RULES, Evidence, check_all, evidence_of

FACTORIES = ("healthy", "losses", "outputs", "copies", "teacher")
STEPS = 3  # so that growth is seen twice
HIDDEN = 8 * 128 * 64 * 4  # bytes of the output that is kept, or of its copy

SOURCE = """
import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, keep):
        super().__init__()
        self.words, self.inner, self.head = nn.Embedding(50, 64), nn.Linear(64, 64), nn.Linear(64, 2)
        self.keep, self.kept = keep, []

    def forward(self, input_ids, labels):
        hidden = torch.tanh(self.inner(self.words(input_ids)))
        loss = nn.functional.cross_entropy(self.head(hidden.mean(1)), labels)
        kept = self.keep(self, hidden, loss)
        if kept is not None:
            self.kept.append(kept)
        return loss


def healthy():
    return Classifier(lambda model, hidden, loss: None)


def losses():
    return Classifier(lambda model, hidden, loss: loss.detach())


def outputs():
    return Classifier(lambda model, hidden, loss: hidden)


def copies():
    return Classifier(lambda model, hidden, loss: hidden.detach() * 2)


def teacher():
    return Classifier(lambda model, hidden, loss: torch.tanh(torch.tanh(hidden)).mean())
"""


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Evidence]]:
    """Each model probed; one after another, so that one worker does them all."""
    folder = tmp_path_factory.mktemp("leaks")
    (folder / "keeping.py").write_text(SOURCE, encoding="utf-8")
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    with pytest.MonkeyPatch.context() as patch, Pool() as pool:
        patch.setenv("PYTHONPATH", path)
        found = {}
        for factory in FACTORIES:
            case = open_case(f"keeping:{factory}", gpu="T4", backend="simulated", batch_size=8, seq_length=128)
            (examination,) = pool.examine([Request(case.workload, case.device, case.facts, steps=STEPS)])
            found[factory] = evidence_of(examination, case.facts.config)
        yield found


@pytest.mark.parametrize("factory", ["healthy", "losses"])
def test_what_lets_go_is_quiet(probed: Mapping[str, Evidence], factory: str) -> None:
    """A loss kept without its graph is 4 B a step."""
    found = check_all(RULES, probed[factory])
    assert not [finding.id for finding in found.findings if finding.id.startswith("MD8")]
    assert {"MD801", "MD802"} <= set(found.passed)


@pytest.mark.parametrize(
    ("factory", "rule", "kept"),
    [("outputs", "MD802", HIDDEN), ("copies", "MD801", HIDDEN), ("teacher", "MD802", 2 * HIDDEN)],
)
def test_what_is_kept_is_named(probed: Mapping[str, Evidence], factory: str, rule: str, kept: int) -> None:
    """A teacher's graph keeps what its two tanh gave, since no backward runs through it.

    Three scalars of 4 B, which are there at the end of every step but the last, are of the category of copies.
    """
    (finding,) = [item for item in check_all(RULES, probed[factory]).findings if item.id.startswith("MD8")]
    assert finding.id == rule
    assert finding.evidence["steps_seen"] == STEPS
    assert finding.at_stake_bytes == kept - (3 * 4 if factory == "copies" else 0)
    assert "8x128x64 float32" in finding.detail
    assert "Classifier" in finding.detail
