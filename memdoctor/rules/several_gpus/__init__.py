"""Rules about several GPUs."""

from memdoctor.rules.rule import Rule
from memdoctor.rules.several_gpus import (
    md701_ddp_buckets,
    md702_zero_buckets,
    md703_stage_without_effect,
    md704_one_gpu,
    md705_ddp_divides_nothing,
    md706_one_large_parameter,
)

RULES: tuple[Rule, ...] = (
    md701_ddp_buckets.RULE,
    md702_zero_buckets.RULE,
    md703_stage_without_effect.RULE,
    md704_one_gpu.RULE,
    md705_ddp_divides_nothing.RULE,
    md706_one_large_parameter.RULE,
)
