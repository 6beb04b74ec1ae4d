"""A loop that is right passes; each known mistake fails the check that is for it, and is called by its name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memdoctor.errors import InputError, UsageError
from memdoctor.records import Check, Status, Task, Verification

Verify = Callable[..., Verification]
EVERY = {"gradients_even", "gradients_uneven", "gradients_leftover", "steps", "peak", "loss"}


def check(found: Verification, name: str) -> Check:
    return next(check for check in found.checks if check.id == name)


def failed(found: Verification) -> set[str]:
    return {check.id for check in found.failed}


def test_a_right_loop_passes_every_check(verified: Verify) -> None:
    found = verified("right")
    assert {one.id: one.status for one in found.checks} == dict.fromkeys(EVERY, Status.PASSED)
    assert found.passed
    assert len(found.losses) == 8
    assert all(loss is not None for loss in found.losses)
    assert check(found, "gradients_uneven").sentence.startswith(
        "step 1, micro-batches 1 to 3 with 1, 14, 14 label tokens"
    )


def test_the_figures_of_a_right_loop_are_near_and_not_zero(verified: Verify) -> None:
    value = check(verified("right"), "gradients_even").value
    assert value is not None
    assert 0 < value < 1e-5


@pytest.mark.parametrize(
    ("loop", "name", "cause", "others"),
    [
        ("not_divided", "gradients_even", "not divided by the number of micro-batches: divide it by 3",
         {"gradients_uneven"}),
        ("mean_of_means", "gradients_uneven", "averaging per micro-batch: with 1, 14, 14 label tokens", set()),
        ("clears_every_micro_batch", "gradients_even", "zero_grad is called for every micro-batch",
         {"gradients_uneven"}),
        ("never_clears", "gradients_even", "zero_grad is not called after the step",
         {"gradients_uneven", "gradients_leftover", "peak"}),
        ("steps_every_micro_batch", "steps", "steps after every micro-batch, not after every 3",
         {"gradients_even", "gradients_uneven", "peak"}),
        ("forgets_the_leftover", "steps", "no step for the 1 leftover micro-batch", {"gradients_uneven"}),
        ("drops_the_leftover", "steps", "the last 1 of 25 micro-batches are left out", {"gradients_uneven"}),
        ("divides_the_leftover", "gradients_leftover", "1 leftover micro-batch is divided by 3, not by 1",
         {"gradients_uneven"}),
        ("explodes", "loss", "the loop sets learning rates from 10000 to 10000 itself", {"gradients_uneven"}),
        ("keeps_graphs", "peak", "losses or outputs are kept with their graph", {"gradients_uneven"}),
    ],
)  # fmt: skip
def test_a_mistake_is_caught_and_named(verified: Verify, loop: str, name: str, cause: str, others: set[str]) -> None:
    found = verified(loop)
    assert check(found, name).status is Status.FAILED
    assert cause in check(found, name).cause
    assert failed(found) <= {name, *others}
    assert not found.passed


@pytest.mark.parametrize("loop", ["copies_each", "copies_all"])
def test_copies_that_a_loop_makes_of_its_batches_are_inputs_too(verified: Verify, loop: str) -> None:
    found = verified(loop)
    assert found.passed
    assert [peak.unexplained_bytes for peak in found.peaks] == [0, 0, 0]


def test_copies_of_other_micro_batches_are_told_as_such(verified: Verify) -> None:
    """Ids, mask, types and labels of 2 x 8 x 8 B: six copied before the first forward, one of them at work."""
    each = 4 * 2 * 8 * 8
    plain, copied = verified("right").peaks[0], verified("copies_all").peaks[0]
    assert copied.other_input_bytes == plain.other_input_bytes + 5 * each


def test_gradients_that_are_no_numbers_are_told_as_such(verified: Verify) -> None:
    found = verified("divides_by_nothing")
    even, steps = check(found, "gradients_even"), check(found, "steps")
    assert even.cause.startswith(
        "the gradients, from optimizer step 1 on, are no numbers (nan or infinite), in bert.embeddings.word_embeddings."
        "weight and "
    )
    assert (even.value, "nothing to compare" in even.sentence) == (None, True)
    assert "nan times" not in even.sentence
    assert steps.status is Status.NOT_APPLICABLE
    assert steps.sentence.startswith("the gradients are no numbers (nan or infinite) at optimizer step 1")


def test_what_is_not_divided_is_as_many_times_too_long(verified: Verify) -> None:
    evidence = check(verified("not_divided"), "gradients_even").evidence
    assert evidence["ratio"] == pytest.approx(3, rel=1e-5)
    assert evidence["off_direction"] < 1e-5  # type: ignore[operator]  # a number


def test_labels_by_row_have_no_uneven_check_and_say_why(verified: Verify) -> None:
    found = verified("custom", task=Task.SEQUENCE_CLASSIFICATION, learning_rate=3e-2)
    uneven = check(found, "gradients_uneven")
    assert uneven.status is Status.NOT_APPLICABLE
    assert "each row has its own label" in uneven.sentence
    assert found.passed


@pytest.mark.parametrize(
    ("loop", "complaint"),
    [
        ("raises", "failed"),
        ("exits", "failed"),
        ("does_nothing", "never called the model"),
        ("never_steps", "never stepped the optimizer that it was given"),
        ("never_goes_backward", "never called backward"),
        ("swaps_the_optimizer", "never stepped the optimizer that it was given: it stepped SGD of its own"),
        ("runs_on_other_batches", "called the model on 7 batches that it was not given"),
        ("shuffles", "took the micro-batches in the order 6, 5, 4, 3, 2, 1, 0, not 0 to 6"),
        ("goes_over_them_twice", "took the micro-batches in the order"),
        ("calls_forward", "never called the model"),
        ("steps_with_a_closure", "called optimizer.step with a closure"),
        ("takes_too_few", "cannot be called as a loop"),
        ("is_not_there", "has no function 'is_not_there'"),
        ("no_such_module:train", "cannot be imported"),
    ],
)
def test_a_loop_that_does_not_follow_the_contract_is_one_error(verified: Verify, loop: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        verified(loop)


def test_a_function_that_is_no_loop_is_told_of_one_that_is(verified: Verify) -> None:
    with pytest.raises(InputError) as caught:
        verified("takes_too_few")
    assert caught.value.hint == "--loop loops_of_others:right"


def test_a_loop_that_is_not_there_is_told_before_the_model_is_made(verified: Verify) -> None:
    with pytest.raises(InputError, match="has no function 'is_not_there'"):
        verified("is_not_there", config={"model_type": "no such model"})


def test_an_error_of_the_loops_own_says_where(verified: Verify) -> None:
    with pytest.raises(InputError) as caught:
        verified("raises")
    assert "RuntimeError: my own mistake at " in caught.value.why
    assert "loops_of_others.py:" in caught.value.why


def test_an_optimizer_that_drops_its_gradients_cannot_accumulate(verified: Verify) -> None:
    with pytest.raises(UsageError, match="--optim lomo cannot accumulate"):
        verified("custom", optimizer="lomo")
