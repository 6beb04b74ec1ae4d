"""What a diagnosis changes, one thing at a time."""

from __future__ import annotations

import pytest

from memdoctor.matrix import apply_change, toggles_of
from memdoctor.records import Change, Precision, Workload

T4, A100 = (7, 5), (8, 0)
FP16, CHECKPOINTED = {"precision": "fp16"}, {"gradient_checkpointing": True}
BOTH = {**FP16, **CHECKPOINTED}


def toggles(capability: tuple[int, int] = T4, longest: int | None = 512, **workload: object) -> tuple[Change, ...]:
    """The changes for a workload of batch 8 and length 512."""
    return toggles_of(Workload(model="bert", **workload), capability, longest)  # type: ignore[arg-type]


def of_key(changes: tuple[Change, ...], key: str) -> list[object]:
    """The values of the changes of this one key."""
    return [change[key] for change in changes if list(change) == [key]]


def test_a_plain_workload_gets_batches_lengths_precision_and_checkpointing() -> None:
    changes = toggles()
    assert of_key(changes, "batch_size") == [1, 2]
    assert of_key(changes, "seq_length") == [128, 256]
    assert of_key(changes, "precision") == ["fp16"]
    assert of_key(changes, "gradient_checkpointing") == [True]
    assert BOTH in changes


def test_an_fp16_workload_is_tried_in_fp32() -> None:
    changes = toggles(precision=Precision.FP16)
    assert of_key(changes, "precision") == ["fp32"]
    assert BOTH not in changes


def test_a_checkpointed_workload_is_tried_without() -> None:
    changes = toggles(gradient_checkpointing=True)
    assert of_key(changes, "gradient_checkpointing") == [False]
    assert of_key(changes, "precision") == ["fp16"]
    assert BOTH not in changes


def test_bf16_is_tried_from_capability_8_on() -> None:
    assert of_key(toggles(capability=(7, 9)), "precision") == ["fp16"]
    assert of_key(toggles(capability=A100), "precision") == ["fp16", "bf16"]
    assert of_key(toggles(capability=(10, 0)), "precision") == ["fp16", "bf16"]


def test_a_bf16_workload_is_tried_in_fp32_and_not_in_bf16_again() -> None:
    assert of_key(toggles(capability=A100, precision=Precision.BF16), "precision") == ["fp32"]


@pytest.mark.parametrize(
    ("longest", "lengths"),
    [(None, [128, 256, 512]), (512, [128, 256, 512]), (511, [128, 256]), (255, [128]), (128, [128]), (127, [])],
)
def test_no_length_is_longer_than_the_model_takes(longest: int | None, lengths: list[int]) -> None:
    assert of_key(toggles(longest=longest, seq_length=100), "seq_length") == lengths


WORKLOADS = [
    {"batch_size": batch, "seq_length": length, "precision": precision, "gradient_checkpointing": checkpointed}
    for batch in (1, 2, 8)
    for length in (64, 128, 512)
    for precision in Precision
    for checkpointed in (False, True)
]


@pytest.mark.parametrize("capability", [T4, A100])
def test_no_change_is_the_target_itself_and_none_comes_twice(capability: tuple[int, int]) -> None:
    for fields in WORKLOADS:
        target = Workload(model="bert", **fields)  # type: ignore[arg-type]
        changed = [apply_change(target, change) for change in toggles_of(target, capability, 512)]
        assert target not in changed
        assert len(set(changed)) == len(changed) >= 4


@pytest.mark.parametrize("fields", WORKLOADS)
def test_a_change_has_the_workloads_own_keys_and_plain_values(fields: dict[str, object]) -> None:
    for change in toggles(capability=A100, **fields):
        assert set(change) <= set(fields)
        assert all(type(value) in (str, int, bool) for value in change.values())


def test_a_change_applies_to_its_keys_alone() -> None:
    target = Workload(model="bert", batch_size=4, seq_length=64, num_labels=3)
    changed = apply_change(target, BOTH)
    assert changed == Workload(
        model="bert", batch_size=4, seq_length=64, num_labels=3, precision=Precision.FP16, gradient_checkpointing=True
    )
    assert changed.precision is Precision.FP16
    assert apply_change(target, {}) == target


def test_a_change_to_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"precision.*'fp16'"):
        apply_change(Workload(model="bert"), {"precision": "fp8"})
    with pytest.raises(ValueError, match="batch_size"):
        apply_change(Workload(model="bert"), {"batch_size": 0})
