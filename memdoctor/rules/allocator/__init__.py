"""Rules about PyTorch's caching allocator."""

from memdoctor.rules.allocator import (
    md601_fragmentation,
    md602_rounding,
    md603_overhead_that_segments_save,
    md604_emptying_the_cache,
    md605_settings_without_effect,
    md606_cached,
    md607_collects_nothing,
)
from memdoctor.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    md601_fragmentation.RULE,
    md602_rounding.RULE,
    md603_overhead_that_segments_save.RULE,
    md604_emptying_the_cache.RULE,
    md605_settings_without_effect.RULE,
    md606_cached.RULE,
    md607_collects_nothing.RULE,
)
