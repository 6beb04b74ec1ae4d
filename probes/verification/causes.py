"""What is most likely wrong, told from numbers: which mistake would make just these gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from memdoctor.probes.verification.gradients import Likeness

LARGE, LAST, FIRST, MEAN_OF_MEANS, SUMMED_STEPS = "large batch", "last", "first", "mean of means", "steps summed"
"""What gradients are held beside: those of the large batch; of the last, or the first, micro-batch alone; the mean of
the micro-batches' own; those of this step and the one before together."""

ZERO_GRAD = "zero_grad is called for every micro-batch: only the last one's gradient is there when the optimizer steps"
_NEAR = 0.01  # ratios this near to a whole number, or to one part of it, are that
_TRAINER_KEEPS_THE_LOSS = (
    "the Trainer hands num_items_in_batch to a model whose forward takes **kwargs, and leaves the division to it: "
    "{head} takes **kwargs and divides by its own tokens or rows alone (transformers issue 47688)"
)
_TRAINER_HINT = (
    "; set model.accepts_loss_kwargs = False before the Trainer is made: it then divides by the micro-batches"
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a step was made of: ``together`` micro-batches with so many label tokens each (``None``: labels by row)."""

    together: int
    accumulation: int
    tokens: Sequence[int] | None
    trainers_head: str | None  # the model's class where the real Trainer ran


def cause_of(likes: Mapping[str, Likeness], setting: Setting, tolerance: float) -> str:
    """The first mistake whose gradients are these, up to a factor that it explains; else what is known."""
    return next(_causes(likes, setting, tolerance), _unknown(likes[LARGE]))


def cause_of_no_numbers(whose: str, names: Sequence[str]) -> str:
    """Gradients that are nan or infinite in these parameters."""
    where = f"{names[0]} and {len(names) - 1} other parameters" if len(names) > 1 else names[0]
    return (
        f"{whose} are no numbers (nan or infinite), in {where}: the loss divides by zero or overflows there; a "
        "mean over no label token is nan"
    )


def _causes(likes: Mapping[str, Likeness], setting: Setting, tolerance: float) -> Iterator[str]:
    large = likes[LARGE]
    if not large.seen_norm:
        yield "the gradients are zero when the optimizer steps: zero_grad is called between backward and step"
    if _along(large, tolerance):
        yield _scaled(large.ratio, setting)
    for name, mistake in (
        (SUMMED_STEPS, "those of the step before are still in them: zero_grad is not called after the step"),
        (LAST, ZERO_GRAD),
        (FIRST, "only the first micro-batch's gradient is there: the others' backward does not reach the parameters"),
        (MEAN_OF_MEANS, _mean_of_means(likes, setting)),
    ):
        if name in likes and _along(likes[name], tolerance):
            yield mistake


def _along(like: Likeness, tolerance: float) -> bool:
    """Whether seen is a multiple of the reference."""
    return like.ratio > 0 and like.off_direction <= tolerance


def _scaled(ratio: float, setting: Setting) -> str:
    """The right direction with a wrong length."""
    count, head = setting.together, setting.trainers_head
    if abs(ratio / count - 1) < _NEAR and count > 1:
        return f"the loss is not divided by the number of micro-batches{_not_divided(setting, head)}"
    if abs(ratio * count - 1) < _NEAR and count > 1:
        return f"the loss is divided by the number of micro-batches twice: the gradients are 1/{count} of those due"
    if abs(ratio * setting.accumulation / count - 1) < _NEAR:
        return (
            f"the loss of {count} leftover micro-batch{'es' if count > 1 else ''} is divided by "
            f"{setting.accumulation}, not by {count}: divide by how many there are before the step"
        )
    return f"the loss is scaled: the gradients are {ratio:.4g} times those of the large batch"


def _not_divided(setting: Setting, head: str | None) -> str:
    if head is None:
        return f": divide it by {setting.together} before backward"
    return f"; {_TRAINER_KEEPS_THE_LOSS.format(head=head)}{_TRAINER_HINT}"


def _mean_of_means(likes: Mapping[str, Likeness], setting: Setting) -> str:
    tokens, count = setting.tokens or (), setting.together
    told = ", ".join(map(str, tokens))
    remedy = f"divide each micro-batch's summed loss by the {sum(tokens)} label tokens of the whole step"
    ratio = likes[MEAN_OF_MEANS].ratio if MEAN_OF_MEANS in likes else 1.0
    each = (
        f"averaging per micro-batch: with {told} label tokens, each micro-batch's mean counts 1/{count}, whatever it "
        f"is a mean of: {remedy}"
    )
    if abs(ratio - 1) < _NEAR:
        return each
    if abs(ratio / count - 1) < _NEAR and setting.trainers_head is not None:
        kept = _TRAINER_KEEPS_THE_LOSS.format(head=setting.trainers_head)
        return (
            f"the micro-batches' means are added up, and not even averaged; {kept}; with {told} label tokens, {remedy}"
        )
    return f"{each}; and they are {ratio:.4g} times that mean"


def _unknown(large: Likeness) -> str:
    return (
        f"unknown: the gradients are {large.ratio:.4g} times those of the large batch and {large.off_direction:.2g} of "
        "them are in another direction; compare what the loop does to the loss with the number of micro-batches"
    )
