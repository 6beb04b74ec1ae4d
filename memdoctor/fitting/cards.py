"""The table over cards: which take the workload as it is, which with a change, and the largest batch there."""

from __future__ import annotations

from collections.abc import Sequence

from memdoctor.errors import MemdoctorError
from memdoctor.fitting.lengths import settings_of
from memdoctor.fitting.looking import SMALL, Looker, cap_of
from memdoctor.matrix import apply_to
from memdoctor.measuring import Subject
from memdoctor.records import CardRow, Change, Device, Edge, SettingFit, Trial, Workload
from memdoctor.scaling import Pair

USUAL_CARDS = (
    "RTX2060", "RTX4060", "RTX3080", "RTX3060", "T4", "RTX4080", "L4", "RTX4090", "RTX5090", "A100-40GB", "L40S",
    "A100-80GB", "H200",
)  # fmt: skip
"""A card or two of every size, from 6 GiB to 141."""


_SETTLED = 2  # the step from which on gradients and optimizer state are there in every phase


def over_cards(looker: Looker, target: Workload, cards: Sequence[Device]) -> tuple[CardRow, ...]:
    """A row for each card, the smallest first.

    Changes are probed on the cards that do not take the workload as it is.

    Raises:
        MemdoctorError: the workload cannot be probed on any; this is why.
    """
    ordered = sorted(cards, key=_size)
    as_it_is = dict(zip(ordered, looker.look([(target, card) for card in ordered]), strict=True))
    errors = [result for result in as_it_is.values() if isinstance(result, MemdoctorError)]
    if len(errors) == len(ordered):
        raise errors[0]
    short = [card for card, result in as_it_is.items() if not isinstance(result, Trial) or not result.fits]
    places = [(card, change) for card in short for change in settings_of(target, card) if change]
    changed = dict(enumerate(looker.look([apply_to(target, card, change) for card, change in places])))
    edges = _edges(looker, target, ordered)
    return tuple(
        CardRow(
            gpu=card.name,
            total_bytes=card.total_bytes,
            compute_capability=card.compute_capability,
            settings=(
                _setting({}, card, as_it_is[card]),
                *(_setting(change, card, changed[n]) for n, (of, change) in enumerate(places) if of == card),
            ),
            edge=edges.get((target, card)),
        )
        for card in ordered
    )


def able_cards(looker: Looker, target: Workload, cards: Sequence[Device]) -> tuple[Device, ...]:
    """Those of the cards that can hold the static state, which no batch, precision or checkpointing makes smaller.

    All of them where that is not known; the largest in any case.
    """
    ordered = sorted(cards, key=_size)
    largest = (target, ordered[-1])
    (pair,) = looker.pairs([largest]) if cap_of(largest) >= SMALL[-1] else (None,)
    if not isinstance(pair, Pair):
        return tuple(ordered)
    static = min((line.fixed_bytes for line in pair.phase_lines() if line.step == _SETTLED), default=0)
    return tuple(card for card in ordered if card.allocator_limit_bytes >= static or card is ordered[-1])


def _size(card: Device) -> tuple[int, str]:
    return card.allocator_limit_bytes, card.name


def _edges(looker: Looker, target: Workload, cards: Sequence[Device]) -> dict[Subject, Edge]:
    """The largest batch on each card, as the workload is; predicted for all of them from one pair on the largest."""
    subjects = [(target, card) for card in cards]
    (found,) = looker.pairs([subjects[-1]]) if cap_of(subjects[-1]) >= SMALL[-1] else (None,)
    pair = found if isinstance(found, Pair) else None
    edges = looker.edges(dict.fromkeys(subjects, pair))
    return {subject: edge for subject, edge in edges.items() if isinstance(edge, Edge)}


def _setting(change: Change, card: Device, result: Trial | MemdoctorError) -> SettingFit:
    if isinstance(result, MemdoctorError):
        return SettingFit(change=change, fits=False, peak=None, headroom_bytes=None, why_not=result.what)
    headroom = card.allocator_limit_bytes - result.peak.reserved_bytes
    return SettingFit(change=change, fits=result.fits, peak=result.peak, headroom_bytes=headroom)


def smallest_cards(rows: Sequence[CardRow]) -> tuple[str | None, str | None]:
    """The smallest card that takes the workload as it is, and the smallest that takes it with a change or without."""
    as_it_is = next((row.gpu for row in rows if row.fits), None)
    changed = next((row.gpu for row in rows if row.cheapest is not None), None)
    return as_it_is, changed
