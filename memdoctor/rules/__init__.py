"""The rules, by family: patterns that cost memory, in the order of the checklist."""

from memdoctor.rules import (
    activations,
    allocator,
    environment,
    evaluation,
    growth,
    optimizer,
    precision,
    several_gpus,
    shape,
)
from memdoctor.rules.engine import Checked, check_all
from memdoctor.rules.evidence import Evidence, Probe, evidence_of
from memdoctor.rules.rule import Need, Remedy, Rule, Threshold

FAMILIES = {
    "MD1": ("shape of what reaches the model", shape.RULES),
    "MD2": ("activations and attention", activations.RULES),
    "MD3": ("optimizer and static state", optimizer.RULES),
    "MD4": ("precision", precision.RULES),
    "MD5": ("evaluation", evaluation.RULES),
    "MD6": ("the caching allocator", allocator.RULES),
    "MD7": ("several GPUs", several_gpus.RULES),
    "MD8": ("growth", growth.RULES),
    "MD9": ("the environment", environment.RULES),
}
"""What each family is about, and its rules; the keys start the ids, which never change meaning."""

RULES: tuple[Rule, ...] = tuple(rule for _, rules in FAMILIES.values() for rule in rules)

__all__ = [
    "FAMILIES", "RULES", "Checked", "Evidence", "Need", "Probe", "Remedy", "Rule", "Threshold", "check_all",
    "evidence_of",
]  # fmt: skip
