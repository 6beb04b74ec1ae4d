"""The checks, each from a few runs of the loop to a record with its arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from memdoctor.probes.adapting import base_of
from memdoctor.probes.verification.causes import (
    FIRST,
    LARGE,
    LAST,
    MEAN_OF_MEANS,
    SUMMED_STEPS,
    Setting,
    cause_of,
    cause_of_no_numbers,
)
from memdoctor.probes.verification.gradients import Likeness, likeness, not_finite, weighted
from memdoctor.probes.verification.micro_batches import Rows, has_token_labels, label_tokens
from memdoctor.probes.verification.numbers import Gradients, Numbers
from memdoctor.probes.verification.running import Bench
from memdoctor.records import Check, Status

FP32_TOLERANCE = 1e-4
FP32_REASON = (
    "fp32 keeps 24 bits (6e-8), and sums over the rows are taken in another order: some 1e-6 of the norm is seen; the "
    "mistakes looked for make 1e-2 and more"
)
HALF_TOLERANCE = 3e-2
HALF_REASON = (
    "the loop runs the model under autocast: bf16 keeps 8 bits (4e-3), and each micro-batch is rounded by itself"
)
WITHOUT = "dropout and clipping off, learning rate 0"
RULE = "norm of the difference by the norm of the large batch's gradients, at most"


def even(bench: Bench, rows: Rows) -> tuple[Check, Check]:
    """Gradients of the first two steps, with as many label tokens everywhere; and those of the leftover micro-batch."""
    count = bench.accumulation
    seen = bench.gradients_of(rows.micro_batches(), count)
    title = f"gradients of {count} micro-batches = those of one batch"
    if rows.alike():
        return _not_applicable("gradients_even", title, _ALIKE), _not_applicable(
            "gradients_leftover", _LEFTOVER, _ALIKE
        )
    comparer = _Comparer(bench, rows, seen)
    steps = [comparer.compare(0, 0, count), comparer.compare(1, count, 2 * count)]
    worst = max(steps, key=lambda found: _size(found.like.difference))
    first = comparer.record("gradients_even", title, worst)
    if len(seen.steps) < 3 or seen.steps[2].after != rows.count:
        left = "there was no step after the leftover micro-batch: see steps"
        return first, _not_applicable("gradients_leftover", _LEFTOVER, left)
    return first, comparer.record("gradients_leftover", _LEFTOVER, comparer.compare(2, 2 * count, rows.count))


_STEPS = "parameters change once in {} micro-batches"
_LEFTOVER = "gradients of a leftover micro-batch = its own"
_ALIKE = (
    "all micro-batches are the same rows, repeated from a small example: the last one's gradients are those of all; "
    "let the factory take batch_size and return so many different rows"
)


def uneven(bench: Bench, rows: Rows | None, reason: str) -> Check:
    """Gradients of one step where the first micro-batch has few label tokens; ``reason`` is why there are no rows."""
    title = "the same with uneven label tokens"
    if rows is None:
        return _not_applicable("gradients_uneven", title, reason)
    count = bench.accumulation
    seen = bench.gradients_of(rows.micro_batches()[:count], count)
    comparer = _Comparer(bench, replace_count(rows, count), seen)
    return comparer.record("gradients_uneven", title, comparer.compare(0, 0, count))


def replace_count(rows: Rows, count: int) -> Rows:
    """The first so many micro-batches."""
    return Rows(rows.together(0, count), rows.rows, count)


@dataclass(frozen=True, slots=True)
class _Compared:
    """Step number ``step``, of micro-batches ``first`` to ``last`` (exclusive), beside one batch of their rows.

    ``cause`` is empty where they are alike; ``no_numbers`` says that one of the two is nan or infinite somewhere.
    """

    like: Likeness
    step: int
    first: int
    last: int
    cause: str
    no_numbers: bool = False


class _Comparer:
    """Holds the steps of one run to what the same loop makes of the same rows as one batch."""

    def __init__(self, bench: Bench, rows: Rows, seen: Numbers) -> None:
        self._bench = bench
        self._rows = rows
        self._seen = seen
        half = seen.autocast
        self._tolerance, self._reason = (HALF_TOLERANCE, HALF_REASON) if half else (FP32_TOLERANCE, FP32_REASON)

    def compare(self, step: int, first: int, last: int) -> _Compared:
        """Likeness of step number ``step`` and micro-batches ``first`` to ``last``, with the cause where it is none."""
        seen = self._seen.steps[step].gradients if step < len(self._seen.steps) else {}
        large = self._bench.gradient_of(self._rows.together(first, last))
        like = likeness(seen, large)
        if like.difference <= self._tolerance:
            return _Compared(like, step, first, last, "")
        if not isfinite(like.seen_norm + like.reference_norm) and (odd := self._no_numbers(seen, large)):
            return _Compared(like, step, first, last, odd, no_numbers=True)
        return _Compared(like, step, first, last, self._cause(step, seen, large, first, last))

    def _no_numbers(self, seen: Gradients, large: Gradients) -> str:
        if names := not_finite(seen):
            return cause_of_no_numbers(f"the gradients, from optimizer step {self._seen.no_number_at} on,", names)
        names = not_finite(large)
        return cause_of_no_numbers("the gradients of the same rows as one batch", names) if names else ""

    def _cause(self, step: int, seen: Gradients, large: Gradients, first: int, last: int) -> str:
        after = self._seen.steps[step].after if step < len(self._seen.steps) else None
        if after != last:
            where = "never" if after is None else f"after micro-batch {after}"
            return f"optimizer step {step + 1} comes {where}, not after micro-batch {last}: see steps"
        bench, rows, count = self._bench, self._rows, last - first
        head = type(base_of(bench.model)).__name__ if bench.plan.loop == "trainer" else None
        like = likeness(seen, large)
        if like.seen_norm and like.off_direction <= self._tolerance:  # its length says it all
            return cause_of({LARGE: like}, Setting(count, bench.accumulation, None, head), self._tolerance)
        own = [bench.gradient_of(rows.together(index, index + 1)) for index in range(first, last)]
        beside = {LARGE: large, LAST: own[-1], FIRST: own[0]}
        if count > 1:
            beside[MEAN_OF_MEANS] = weighted((1 / count, gradients) for gradients in own)
        if step:
            before = bench.gradient_of(rows.together(max(0, first - bench.accumulation), first))
            beside[SUMMED_STEPS] = weighted([(1.0, before), (1.0, large)])
        likes = {name: likeness(seen, reference) for name, reference in beside.items()}
        parts = rows.micro_batches()[first:last]
        tokens = [label_tokens(part) for part in parts] if has_token_labels(parts[0]) else None
        return cause_of(likes, Setting(count, bench.accumulation, tokens, head), self._tolerance)

    def record(self, name: str, title: str, found: _Compared) -> Check:
        """The check, of the step that is furthest off."""
        like, step, first, last = found.like, found.step, found.first, found.last
        parts = self._rows.micro_batches()[first:last]
        tokens = ""
        if has_token_labels(parts[0]):
            tokens = f" with {', '.join(str(label_tokens(part)) for part in parts)} label tokens"
        members = f"micro-batches {first + 1} to {last}" if last - first > 1 else f"micro-batch {last}"
        compared = (
            "nothing to compare"
            if found.no_numbers
            else f"gradients of norm {like.seen_norm:.6g}, {like.reference_norm:.6g} as one batch, {like.ratio:.4g} "
            f"times it; {like.difference:.2g} of it apart"
        )
        sentence = f"step {step + 1}, {members}{tokens}: {compared} ({WITHOUT})"
        return Check(
            id=name, title=title, status=Status.FAILED if found.cause else Status.PASSED,
            value=_number(like.difference), tolerance=self._tolerance, rule=RULE, tolerance_reason=self._reason,
            sentence=sentence, cause=found.cause,
            evidence={
                key: value
                for key, value in {
                    "step": step + 1, "micro_batches": last - first, "norm": like.seen_norm,
                    "large_batch_norm": like.reference_norm, "ratio": like.ratio, "off_direction": like.off_direction,
                }.items() if isfinite(value)
            },
        )  # fmt: skip


def steps(bench: Bench, seen: Numbers) -> Check:
    """Parameters change after every so many micro-batches and after the leftover one, and nowhere else."""
    count, total = bench.accumulation, len(seen.batches)
    if seen.no_number_at is not None:
        return _not_applicable(
            "steps",
            _STEPS.format(count),
            f"the gradients are no numbers (nan or infinite) at optimizer step {seen.no_number_at}, nor are the "
            "parameters after it: whether these change says nothing",
        )
    wanted = [*range(count, total + 1, count), *([total] if total % count else [])]
    idle = {step.after for step in seen.steps if step.learning_rate == 0}
    changed = seen.changed_after
    expected = [after for after in wanted if after not in idle or after in changed]
    wrong = len(set(changed) ^ set(expected))
    sentence = (
        f"{total} micro-batches, parameters compared bit by bit after each: changed after {_listed(changed)}; "
        f"a step is due after every {count} and after the leftover one: {_listed(expected)}"
        + (f"; learning rate 0 at {len(idle)} steps, where nothing changes" if idle else "")
    )
    return Check(
        id="steps", title=_STEPS.format(count),
        status=Status.FAILED if wrong else Status.PASSED, value=float(wrong), tolerance=0.0,
        rule="places where they change and should not, or should and do not, at most",
        tolerance_reason="bits are equal or not", sentence=sentence, cause=_step_cause(bench, seen, changed, expected),
        evidence={"micro_batches": total, "changes": len(changed), "expected_changes": len(expected)},
    )  # fmt: skip


def _step_cause(bench: Bench, seen: Numbers, changed: Sequence[int], expected: Sequence[int]) -> str:
    count, total = bench.accumulation, len(seen.batches)
    if list(changed) == list(expected):
        return ""
    if len(seen.taken) < total:
        return f"the last {total - len(seen.taken)} of {total} micro-batches are left out: they train nothing"
    if list(changed) == list(range(1, total + 1)):
        return f"the optimizer steps after every micro-batch, not after every {count}"
    if list(changed) == list(expected)[:-1] and total % count:
        return (
            f"there is no step for the {total % count} leftover micro-batch{'es' if total % count > 1 else ''} at the "
            "end: their gradients are lost, or added to the next epoch's first step"
        )
    stepped = [step.after for step in seen.steps]
    if set(changed) - set(stepped):
        return "parameters change where the optimizer did not step: the loop, or the model, writes to them itself"
    if set(stepped) - set(changed):
        return f"the optimizer steps after {_listed(stepped)}, and some steps change nothing: they have no gradient"
    first = changed[0] if changed else 0
    return f"the first change is after micro-batch {first}, not {count}: the loop counts otherwise"


def loss_falls(bench: Bench, seen: Numbers) -> tuple[Check, tuple[float, ...]]:
    """The mean loss of the last quarter of the steps is below that of the first; also the curve, step by step."""
    count, wanted = bench.accumulation, bench.plan.steps
    curve = tuple(
        sum(seen.losses[begin : begin + count]) / count
        for begin in range(0, min(wanted * count, len(seen.losses)), count)
    )
    part = max(1, wanted // 4)
    first, last = sum(curve[:part]) / part, sum(curve[-part:]) / part
    finite = all(map(isfinite, curve))
    falls = finite and last < first
    bad = next((number for number, loss in enumerate(curve, 1) if not isfinite(loss)), 0)
    rate = bench.plan.learning_rate
    sentence = (
        f"{len(curve)} optimizer steps on the same {count} micro-batches, dropout on, learning rate {rate:g}: mean "
        f"loss {first:.4f} over the first {part}, {last:.4f} over the last {part}"
    )
    cause = ""
    if not falls:
        rates = sorted({step.learning_rate for step in seen.steps})
        own = f"; the loop sets learning rates from {rates[0]:g} to {rates[-1]:g} itself" if rates[-1] != rate else ""
        cause = (
            f"the loss is no number at step {bad}: the learning rate is too large, or something divides by zero{own}"
            if bad
            else f"the loss does not fall: the learning rate is too large or too small, or what is stepped is not what "
            f"the loss rests on{own}"
        )
    check = Check(
        id="loss", title=f"the loss falls over {wanted} steps", status=Status.PASSED if falls else Status.FAILED,
        value=_number(last / first) if first else None, tolerance=1.0,
        rule=f"mean loss of the last {part} steps by that of the first {part}, below",
        tolerance_reason="rows seen again and again are learnt by heart, or nothing is", sentence=sentence, cause=cause,
        evidence={"first": first, "last": last, "learning_rate": rate} if finite else {"learning_rate": rate},
    )  # fmt: skip
    return check, curve


def _not_applicable(name: str, title: str, why: str) -> Check:
    return Check(
        id=name, title=title, status=Status.NOT_APPLICABLE, value=None, tolerance=None, rule="", tolerance_reason="",
        sentence=why,
    )  # fmt: skip


def _listed(numbers: Sequence[int]) -> str:
    if len(numbers) <= 8:
        return ", ".join(map(str, numbers)) or "none"
    return f"{', '.join(map(str, numbers[:4]))} ... {numbers[-2]}, {numbers[-1]}"


def _number(value: float) -> float | None:
    return value if isfinite(value) else None


def _size(difference: float) -> float:
    return difference if isfinite(difference) else float("inf")
