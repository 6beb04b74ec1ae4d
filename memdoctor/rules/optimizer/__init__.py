"""Rules about the optimizer and the static state."""

from memdoctor.rules.optimizer import (
    md301_static_state,
    md302_step_is_the_peak,
    md303_foreach_temporaries,
    md304_state_in_32_bits,
    md305_gradients_kept,
    md306_clipping_is_the_peak,
    md307_few_trained,
    md308_paged_state,
    md309_accumulated_gradients,
)
from memdoctor.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    md301_static_state.RULE,
    md302_step_is_the_peak.RULE,
    md303_foreach_temporaries.RULE,
    md304_state_in_32_bits.RULE,
    md305_gradients_kept.RULE,
    md306_clipping_is_the_peak.RULE,
    md307_few_trained.RULE,
    md308_paged_state.RULE,
    md309_accumulated_gradients.RULE,
)
