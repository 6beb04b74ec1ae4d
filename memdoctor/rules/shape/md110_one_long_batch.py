"""MD110: the target fits, one longer batch would not."""

from __future__ import annotations

from memdoctor.analysis import peak_of
from memdoctor.records import Completed, Examination, Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.reading import left, varied
from memdoctor.rules.rule import Need, Remedy, Rule, Threshold
from memdoctor.units import format_bytes

POSITIONS_UNUSED = Threshold(
    "positions without a token", 2, "of max_position_embeddings",
    "transformers, modeling_roberta.py, create_position_ids_from_input_ids: they start behind the padding index, 1",
)  # fmt: skip


def longer(evidence: Evidence) -> dict[int, Examination]:
    """What was probed of longer sequences, by their length."""
    length = evidence.workload.seq_length
    return {tried: found for tried, found in varied(evidence, "seq_length").items() if tried > length}


def check(evidence: Evidence) -> Finding | None:
    """A probed longer length, that the model takes, does not fit beside what the target leaves free."""
    tried = longer(evidence)
    too_long = [length for length, found in tried.items() if not isinstance(found.outcome, Completed)]
    if not evidence.fits or not too_long:
        return None
    workload, shortest = evidence.workload, min(too_long)
    fitting = max((length for length in tried if length < shortest), default=workload.seq_length)
    free, needs = evidence.breakdown.free, peak_of(tried[shortest]).reserved_bytes - evidence.peak.reserved_bytes
    return RULE.finding(
        "info",
        f"{workload.batch_size} x {workload.seq_length} leaves {format_bytes(free)} free, and one batch of "
        f"{workload.batch_size} x {shortest} would need {format_bytes(needs)} more; the longest probed that fits is "
        f"{fitting}. If longer texts are in the data and not cut off at {workload.seq_length}, the run ends at the "
        "first of them, late and at the same step every time",
        {"seq_length": workload.seq_length, "longest_probed_that_fits": fitting, "shortest_probed_that_does_not":
         shortest, "free_bytes": free, "needed_bytes": needs},
        at_stake_bytes=needs,
        remedies=left(evidence, RULE.remedies),
    )  # fmt: skip


def _is_longest(evidence: Evidence) -> bool:
    """Whether the model takes nothing longer: positions before the first token (RoBERTa's two) are none."""
    positions = evidence.config.get("max_position_embeddings")
    return isinstance(positions, int) and evidence.workload.seq_length + POSITIONS_UNUSED.value >= positions


RULE = Rule(
    id="MD110",
    title="One longer batch would not fit",
    why=(
        "With padding to the longest of the batch, the longest text of the data decides, and it may come after hours. "
        "An out-of-memory error late in training, at the same step every time, is one long batch and no leak."
    ),
    needs=(
        Need(
            "a probe with a longer sequence",
            lambda evidence: (
                None
                if longer(evidence) or not evidence.fits or _is_longest(evidence)
                else "no longer sequence was probed"
            ),
        ),
    ),
    thresholds=(POSITIONS_UNUSED,),
    remedies=(
        Remedy("truncation at the length that was probed (max_length)", "task", "length"),
        Remedy("the longest batch first, so that the run fails at once or not at all", "none"),
        Remedy("a smaller per-device batch with more gradient accumulation", "time", "batch", accumulates=True),
    ),
    check=check,
)
