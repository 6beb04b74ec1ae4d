"""Which card would do: the smallest of the catalogue on which a workload fits, probed there."""

from __future__ import annotations

from dataclasses import replace

from memdoctor.analysis import breakdown_of, peak_of
from memdoctor.catalogue import gpus
from memdoctor.matrix import BF16_CAPABILITY
from memdoctor.planning.forecast import Prober
from memdoctor.records import CardFit, Completed, Examination, Precision, Workload

WAVE = 2  # cards that are probed side by side
SLACK = 0.9  # of what was reserved elsewhere: another card may pick kernels that take less


def smallest_card(workload: Workload, alloc_conf: str, reserved_bytes: int, probe: Prober) -> CardFit | None:
    """The smallest card that takes the workload; ``reserved_bytes`` is what it reserves on some other card
    with the allocator's settings ``alloc_conf``.

    ``None`` where no card of the catalogue does.
    """
    cards = sorted((entry.device for entry in gpus()), key=lambda card: (card.total_bytes, card.name))
    likely = [
        replace(card, alloc_conf=alloc_conf)
        for card in cards
        if card.allocator_limit_bytes >= SLACK * reserved_bytes
        and (workload.precision is not Precision.BF16 or card.capability >= BF16_CAPABILITY)
    ]
    for first in range(0, len(likely), WAVE):
        for found in probe([(workload, card) for card in likely[first : first + WAVE]]):
            if found is not None and isinstance(found.outcome, Completed):
                return fit_of(found)
    return None


def fit_of(examination: Examination) -> CardFit:
    """Whether a workload fits the card that it was probed on, and by how much."""
    return CardFit(
        gpu=examination.device.name,
        total_bytes=examination.device.total_bytes,
        peak=peak_of(examination),
        fits=isinstance(examination.outcome, Completed),
        headroom_bytes=breakdown_of(examination).free,
    )
