"""Rules of this family."""

from memdoctor.rules.rule import Rule

RULES: tuple[Rule, ...] = ()
