"""A belief: what people say, what has to be probed to judge it, and the judgement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from memdoctor.checklist.looking import reserved
from memdoctor.records import Change, Claim, Examination, Workload
from memdoctor.rules import Evidence
from memdoctor.units import format_bytes

Verdict = tuple[bool | None, str, Mapping[str, int | float | str | bool]]
"""Whether it is confirmed (``None``: not probed), what was shown, and its figures."""


@dataclass(frozen=True, slots=True)
class Belief:
    """``changes`` are of the target (a workload, and the most tokens that its model takes)."""

    id: str
    text: str
    changes: Callable[[Workload, int | None], tuple[Change, ...]]
    weigh: Callable[[Evidence], Verdict]

    def judge(self, evidence: Evidence) -> Claim:
        """The claim beside what was probed."""
        holds, showed, figures = self.weigh(evidence)
        verdict = "not probed" if holds is None else "confirmed" if holds else "refuted"
        return Claim(id=self.id, claim=self.text, verdict=verdict, showed=showed, evidence=figures)  # type: ignore[arg-type]


def share_saved(before: Examination, after: Examination) -> float:
    """The part of the reserved peak that is saved; negative where it costs."""
    return 1 - reserved(after) / reserved(before)


def pair_in_words(where: str, before: Examination, after: Examination) -> str:
    """``at batch 1 it saves 3 % (1.81 GiB to 1.75 GiB)``, ``it costs 1 % (..)``."""
    share = share_saved(before, after)
    size = 100 * abs(share)
    effect = f"{'saves' if share >= 0 else 'costs'} {size:.{0 if size >= 1 or not size else 1}f} %"
    figures = f"{format_bytes(reserved(before))} to {format_bytes(reserved(after))}"
    return f"{where} it {effect} ({figures})"
