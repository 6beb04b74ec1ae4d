"""Rules about the shape of what reaches the model: batch, length, padding, hidden multiples, vocabulary."""

from memdoctor.rules.rule import Rule
from memdoctor.rules.shape import (
    md101_hidden_rows,
    md102_batch_too_large,
    md103_one_sample_too_large,
    md104_length,
    md105_padded_rows,
    md106_logits,
    md107_large_vocabulary,
    md108_accumulation,
    md109_whole_batch_at_once,
    md110_one_long_batch,
)

RULES: tuple[Rule, ...] = (
    md101_hidden_rows.RULE,
    md102_batch_too_large.RULE,
    md103_one_sample_too_large.RULE,
    md104_length.RULE,
    md105_padded_rows.RULE,
    md106_logits.RULE,
    md107_large_vocabulary.RULE,
    md108_accumulation.RULE,
    md109_whole_batch_at_once.RULE,
    md110_one_long_batch.RULE,
)
