"""Rules about evaluation."""

from memdoctor.rules.evaluation import (
    md501_predictions_on_the_gpu,
    md502_evaluation_batch,
    md503_hidden_states_gathered,
    md504_whole_logits,
    md505_accumulation_never_acts,
)
from memdoctor.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    md501_predictions_on_the_gpu.RULE,
    md502_evaluation_batch.RULE,
    md503_hidden_states_gathered.RULE,
    md504_whole_logits.RULE,
    md505_accumulation_never_acts.RULE,
)
