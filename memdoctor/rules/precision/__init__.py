"""Rules about precision: autocast, types of weights, and what the card computes in."""

from memdoctor.rules.precision import (
    md401_full_precision,
    md402_no_gain,
    md403_not_in_hardware,
    md404_cast_copies,
    md405_half_weights,
    md406_adds_to_checkpointing,
)
from memdoctor.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    md401_full_precision.RULE,
    md402_no_gain.RULE,
    md403_not_in_hardware.RULE,
    md404_cast_copies.RULE,
    md405_half_weights.RULE,
    md406_adds_to_checkpointing.RULE,
)
