"""Training loops as people write them: one that is right, those with a known mistake, and hostile ones."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import torch

IGNORED = -100


def _summed(model: Any, batch: Any) -> torch.Tensor:
    logits = model(**batch).logits
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORED, reduction="sum"
    )


def right(model: Any, optimizer: Any, batches: Any, steps: int) -> None:
    """Each token counts the same, the leftover micro-batches get their step."""
    model.train()
    for begin in range(0, len(batches), steps):
        together = batches[begin : begin + steps]
        tokens = sum(batch["labels"].ne(IGNORED).sum() for batch in together)
        for batch in together:
            (_summed(model, batch) / tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def _by_means(
    model: Any, optimizer: Any, batches: Any, steps: int, *, divide: bool = True, clear: str = "step",
    step_every: int | None = None, leftover: bool = True, rate: float | None = None, kept: list[Any] | None = None,
) -> None:  # fmt: skip
    for group in optimizer.param_groups:
        group["lr"] = rate or group["lr"]
    for index, batch in enumerate(batches):
        outputs = model(**batch)
        together = min(steps, len(batches) - index + index % steps)
        (outputs.loss / together if divide else outputs.loss).backward()
        if kept is not None:
            kept.append(outputs.loss)
        every = step_every or steps
        if (index + 1) % every == 0 or (leftover and index + 1 == len(batches)):
            optimizer.step()
            if clear == "step":
                optimizer.zero_grad()
        if (clear == "micro-batch" and (index + 1) % steps) or clear == "micro-batch":
            optimizer.zero_grad()


def mean_of_means(*given: Any) -> None:
    _by_means(*given)


def not_divided(*given: Any) -> None:
    _by_means(*given, divide=False)


def clears_every_micro_batch(*given: Any) -> None:
    _by_means(*given, clear="micro-batch")


def never_clears(*given: Any) -> None:
    _by_means(*given, clear="never")


def steps_every_micro_batch(*given: Any) -> None:
    _by_means(*given, step_every=1)


def forgets_the_leftover(*given: Any) -> None:
    _by_means(*given, leftover=False)


def divides_the_leftover(model: Any, optimizer: Any, batches: Any, steps: int) -> None:
    for index, batch in enumerate(batches):
        (model(**batch).loss / steps).backward()
        if (index + 1) % steps == 0 or index + 1 == len(batches):
            optimizer.step()
            optimizer.zero_grad()


def drops_the_leftover(model: Any, optimizer: Any, batches: Any, steps: int) -> None:
    _by_means(model, optimizer, batches[: len(batches) - len(batches) % steps] or batches, steps)


def explodes(*given: Any) -> None:
    _by_means(*given, rate=1e4)


KEPT: list[Any] = []


def keeps_graphs(*given: Any) -> None:
    KEPT.clear()
    _by_means(*given, kept=KEPT)


def raises(*given: Any) -> None:
    raise RuntimeError("my own mistake")


def exits(*given: Any) -> None:
    sys.exit(0)


def does_nothing(*given: Any) -> None:
    return None


def never_steps(model: Any, optimizer: Any, batches: Any, steps: int) -> None:
    for batch in batches:
        model(**batch).loss.backward()


def never_goes_backward(model: Any, optimizer: Any, batches: Any, steps: int) -> None:
    for batch in batches:
        model(**batch)
        optimizer.step()


def swaps_the_optimizer(model: Any, optimizer: Any, batches: Any, steps: int) -> None:
    _by_means(model, torch.optim.SGD(model.parameters(), lr=0.1), batches, steps)


def runs_on_other_batches(model: Any, optimizer: Any, batches: Any, steps: int) -> None:
    others = [{**batch, "input_ids": batch["input_ids"].flip(1)} for batch in batches]
    _by_means(model, optimizer, others, steps)


def shuffles(model: Any, optimizer: Any, batches: Any, steps: int) -> None:
    _by_means(model, optimizer, batches[::-1], steps)


def goes_over_them_twice(model: Any, optimizer: Any, batches: Any, steps: int) -> None:
    _by_means(model, optimizer, [*batches, *batches], steps)


def calls_forward(model: Any, optimizer: Any, batches: Any, steps: int) -> None:
    for batch in batches:
        model.forward(**batch).loss.backward()
        optimizer.step()


def prints_and_forks(*given: Any) -> None:
    print('{"verification": null}', flush=True)  # noqa: T201 - what a loop may do to our answers
    os.fork()
    right(*given)


def hangs(*given: Any) -> None:
    time.sleep(3600)


def takes_too_few(model: Any, optimizer: Any) -> None:
    return None


def _copied(batch: Any) -> Any:
    return {name: value.clone() for name, value in batch.items()}


def copies_each(model: Any, optimizer: Any, batches: Any, steps: int) -> None:
    """As a loop that masks anew, or moves the batch to where the model is."""
    right(model, optimizer, _Copying(batches), steps)


class _Copying:
    """Batches that are copied when they are asked for, for each micro-batch anew."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, part: slice) -> Any:
        return [_copied(batch) for batch in self._batches[part]]


def copies_all(model: Any, optimizer: Any, batches: Any, steps: int) -> None:
    right(model, optimizer, [_copied(batch) for batch in batches], steps)


def steps_with_a_closure(model: Any, optimizer: Any, batches: Any, steps: int) -> None:
    for begin in range(0, len(batches), steps):
        together = batches[begin : begin + steps]

        def closure(together: Any = together) -> Any:
            for batch in together:
                (model(**batch).loss / len(together)).backward()

        optimizer.step(closure)
        optimizer.zero_grad()


def divides_by_nothing(model: Any, optimizer: Any, batches: Any, steps: int) -> None:
    """A mean over no label: 0 / 0."""
    for index, batch in enumerate(batches):
        (_summed(model, batch) * 0 / batch["labels"].eq(-1).sum()).backward()
        if (index + 1) % steps == 0 or index + 1 == len(batches):
            optimizer.step()
            optimizer.zero_grad()


def keeps_logits(model: Any, optimizer: Any, batches: Any, steps: int) -> None:
    """Right, and what the model returned is never let go of."""
    KEPT.clear()
    handle = model.register_forward_hook(lambda *given: KEPT.append(given[-1].logits.detach()))
    try:
        right(model, optimizer, batches, steps)
    finally:
        handle.remove()
