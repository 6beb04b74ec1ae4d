"""Rules about the environment: who else is on the card, and what is not PyTorch's.

That static state and context together are more than the card has is MD301's; there is no MD905.
"""

from memdoctor.rules.environment import (
    md901_other_processes,
    md902_outside_pytorch,
    md903_context_on_a_small_card,
    md904_spilled,
    md906_close_call,
    md907_held_by_nobody_listed,
)
from memdoctor.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    md901_other_processes.RULE,
    md902_outside_pytorch.RULE,
    md903_context_on_a_small_card.RULE,
    md904_spilled.RULE,
    md906_close_call.RULE,
    md907_held_by_nobody_listed.RULE,
)
