"""What fits: edges over lengths and settings of one card, and one workload over cards, each probed."""

from memdoctor.fitting.cards import USUAL_CARDS, able_cards, over_cards, smallest_cards
from memdoctor.fitting.lengths import lengths_of, over_lengths
from memdoctor.fitting.looking import Looker
from memdoctor.fitting.wanting import plan_for

__all__ = [
    "USUAL_CARDS",
    "Looker",
    "able_cards",
    "lengths_of",
    "over_cards",
    "over_lengths",
    "plan_for",
    "smallest_cards",
]
