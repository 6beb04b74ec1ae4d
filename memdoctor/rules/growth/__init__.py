"""Rules about memory that grows: from step to step, from run to run, on resuming."""

from memdoctor.rules.growth import (
    md801_growth,
    md802_kept_with_graph,
    md803_kept_between_runs,
    md804_workspace_stays,
    md805_resumed_twice,
    md806_second_step,
)
from memdoctor.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    md801_growth.RULE,
    md802_kept_with_graph.RULE,
    md803_kept_between_runs.RULE,
    md804_workspace_stays.RULE,
    md805_resumed_twice.RULE,
    md806_second_step.RULE,
)
