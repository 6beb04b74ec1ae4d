"""The largest batch that fits: predicted from two small batches, then checked by direct probes of it and of one more.

A search asks for batches and is told whether they fit, so that many of them go on side by side. Where the prediction
is off, what was probed there gives a better one: kernels' own memory grows in steps, which small batches do not show.
Where that does not help either, it steps away in strides that double, and halves what is left between a batch that fits
and one that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from typing import TypeVar

from memdoctor.records import PhaseLine
from memdoctor.scaling import Model

_K = TypeVar("_K", bound=Hashable)

EdgeSearch = Generator[tuple[int, ...], Mapping[int, bool], int]
"""Yields batches to probe, is sent which of them fit, and returns the largest that does (0: not even one)."""

_STEP_BY_STEP = 16  # batches below the bound of what is allocated that are replayed one by one


_MOST_PREDICTIONS = 4  # from then on the search needs no more than twice the logarithm of how far it is off

Predict = Callable[[int], int | None]
"""The edge as it looks from a batch that was just probed; ``None`` where that says nothing."""


def edge_search(predicted: int, cap: int, predict: Predict) -> EdgeSearch:
    """Look for a batch that fits where one more does not, from ``predicted`` on; ``cap`` is the largest ever probed."""
    known: dict[int, bool] = {}
    start = max(0, min(predicted, cap))
    asked = tuple(batch for batch in (start, start + 1) if 1 <= batch <= cap)
    stride, rounds = 1, 0
    while asked:
        answers = yield asked
        known |= {batch: answers[batch] for batch in asked}
        low = max((batch for batch, fits in known.items() if fits), default=0)
        high = min((batch for batch, fits in known.items() if not fits and batch > low), default=cap + 1)
        if high - low == 1:
            return low
        rounds += 1
        guess = predict(asked[-1]) if rounds < _MOST_PREDICTIONS else None
        if guess is not None and low <= guess < high:
            asked = tuple(batch for batch in (guess, guess + 1) if low < batch < high)
        else:
            asked = (_between(low, high, stride, found=(low in known, high in known)),)
            stride *= 2
    return 0


def _between(low: int, high: int, stride: int, found: tuple[bool, bool]) -> int:
    """The next batch to ask for: halfway between two that were probed, else a stride away from the one that was."""
    match found:
        case True, False:
            return min(low + stride, high - 1)
        case False, True:
            return max(high - stride, low + 1)
    return (low + high) // 2


def run_searches(
    searches: Mapping[_K, EdgeSearch], probe: Callable[[Sequence[tuple[_K, int]]], Sequence[bool]]
) -> dict[_K, int]:
    """Run searches side by side: what all of them ask for is probed at once, round by round."""
    found: dict[_K, int] = {}
    waiting: dict[_K, tuple[int, ...]] = {}

    def advance(key: _K, answers: Mapping[int, bool] | None) -> None:
        try:
            waiting[key] = next(searches[key]) if answers is None else searches[key].send(answers)
        except StopIteration as end:
            found[key] = end.value

    for key in searches:
        advance(key, None)
    while waiting:
        questions = [(key, batch) for key, batches in waiting.items() for batch in batches]
        waiting = {}
        told = dict(zip(questions, probe(questions), strict=True))
        for key in dict.fromkeys(key for key, _ in questions):
            advance(key, {batch: fits for (of, batch), fits in told.items() if of == key})
    return found


def predicted_edge(model: Model, lines: Sequence[PhaseLine], limit: int, cap: int) -> int:
    """The largest batch of which ``model`` says that it fits, at most ``cap``; 0 where it says so of none.

    ``lines`` are what the phases allocate, and bound it from above: nobody can allocate more than ``limit`` bytes.
    From there it is replayed batch by batch, and where the allocator's overhead is many batches, in growing strides.
    """
    high = min([cap + 1, *(_first_beyond(line, limit, cap) for line in lines)])
    low, steps, stride = high - 1, 0, 1
    while low > 0 and not model.fits(low):
        steps += 1
        stride *= 2 if steps > _STEP_BY_STEP else 1
        high, low = low, max(low - stride, 0)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if model.fits(middle) else (low, middle)
    return low


def _first_beyond(line: PhaseLine, limit: int, cap: int) -> int:
    """The smallest batch at which the phase allocates more than ``limit``; one more than ``cap`` where none does."""
    if line.fixed_bytes + line.per_sample_bytes > limit:
        return 1
    return (limit - line.fixed_bytes) // line.per_sample_bytes + 1 if line.per_sample_bytes > 0 else cap + 1
