"""Rules about activations and attention."""

from memdoctor.rules.activations import (
    md201_eager_attention,
    md202_no_checkpointing,
    md203_checkpointing_elsewhere,
    md204_checkpointing_ignored,
    md205_reentrant_without_gradient,
    md206_hidden_states,
    md207_checkpointing_costs,
    md208_math_attention,
    md209_frozen_checkpointed,
    md210_outputs_kept,
    md211_shared_layers,
)
from memdoctor.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    md201_eager_attention.RULE,
    md202_no_checkpointing.RULE,
    md203_checkpointing_elsewhere.RULE,
    md204_checkpointing_ignored.RULE,
    md205_reentrant_without_gradient.RULE,
    md206_hidden_states.RULE,
    md207_checkpointing_costs.RULE,
    md208_math_attention.RULE,
    md209_frozen_checkpointed.RULE,
    md210_outputs_kept.RULE,
    md211_shared_layers.RULE,
)
