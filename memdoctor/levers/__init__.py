"""Levers: what people change to save memory, and its true effect on a target."""

from memdoctor.levers.effects import effect_of, not_probed
from memdoctor.levers.kinds import COSTS, KINDS, LeverKind, Pull, pulls_of

__all__ = ["COSTS", "KINDS", "LeverKind", "Pull", "effect_of", "not_probed", "pulls_of"]
