"""Rules about activations and attention."""

from memdoctor.rules.activations import md201_eager_attention
from memdoctor.rules.rule import Rule

RULES: tuple[Rule, ...] = (md201_eager_attention.RULE,)
