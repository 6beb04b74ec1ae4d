"""The same workload gives the same timeline, two steps are enough, and batches 2 and 3 tell any other to the byte."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from memdoctor.probes.simulated.allocator.replay import replay
from memdoctor.probes.simulated.probe import simulate
from memdoctor.records import Attention, Device, Event, Examination, Precision, Task, Timeline, Workload
from memdoctor.scaling import Need, aligned, scaling_of

SIZES = {
    "vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 128,
    "max_position_embeddings": 130,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {"model_type": "bert", **SIZES},
    "roberta": {"model_type": "roberta", **SIZES, "pad_token_id": 1},
    "distilbert": {
        "model_type": "distilbert", "vocab_size": 1000, "dim": 64, "n_layers": 1, "n_heads": 4, "hidden_dim": 128,
        "max_position_embeddings": 130,
    },
}  # fmt: skip

KINDS = [
    pytest.param({"optimizer": "adamw_torch"}, id="fp32"),
    pytest.param({"precision": Precision.FP16}, id="fp16"),
    pytest.param({"gradient_checkpointing": True}, id="checkpointing"),
    pytest.param({"precision": Precision.FP16, "gradient_checkpointing": True}, id="fp16 and checkpointing"),
    pytest.param({"gradient_checkpointing": True, "use_reentrant": True}, id="reentrant checkpointing"),
    pytest.param({"optimizer": "adafactor"}, id="adafactor"),
    pytest.param({"gradient_accumulation_steps": 2}, id="accumulation"),
    pytest.param({"padded": True, "task": Task.MASKED_LM}, id="padded masked language modelling"),
]


@pytest.fixture(scope="module")
def simulate_anew(make_card: Callable[..., Device]) -> Callable[..., Timeline]:
    """Probe without looking at what was probed before."""

    def run(family: str = "bert", **settings: Any) -> Timeline:
        gc.freeze()  # a probe collects before it starts
        workload = Workload(**{"model": family, "batch_size": 2, "seq_length": 32, **settings})
        return simulate(workload, make_card(), FAMILIES[family], "a test").timeline

    return run


@pytest.mark.parametrize("settings", KINDS)
def test_the_same_workload_gives_the_same_timeline(
    probe: Callable[..., Examination], simulate_anew: Callable[..., Timeline], settings: dict[str, Any]
) -> None:
    assert probe(FAMILIES["bert"], **settings).timeline == simulate_anew(**settings)


def test_a_probe_leaves_nothing_behind_for_the_next(simulate_anew: Callable[..., Timeline]) -> None:
    first = simulate_anew(precision=Precision.FP16, gradient_checkpointing=True)
    simulate_anew("distilbert", precision=Precision.BF16, gradient_checkpointing=True, padded=True)
    simulate_anew("roberta", optimizer="adafactor")
    assert simulate_anew(precision=Precision.FP16, gradient_checkpointing=True) == first


def of_step(timeline: Timeline, step: int) -> tuple[list[int], int, int]:
    """Bytes of each birth and death of a step in order, the most in use, and what is reserved at its end."""
    phases = [phase for phase in timeline.phases if phase.step == step]
    begin, end = phases[0].begin, phases[-1].end
    deltas = [event.delta_bytes for event in timeline.events[begin:end]]
    return deltas, max(timeline.in_use()[begin:end]), timeline.reserved()[end - 1]


@pytest.mark.parametrize("settings", KINDS)
def test_the_second_step_is_like_all_that_follow(probe: Callable[..., Examination], settings: dict[str, Any]) -> None:
    timeline = probe(FAMILIES["bert"], steps=4, **settings).timeline
    second, third, fourth = (of_step(timeline, step) for step in (2, 3, 4))
    assert second == third
    assert second[1:] == fourth[1:]  # in the last step the loop's own tensors die as well
    assert max(timeline.in_use()) == max(of_step(timeline, step)[1] for step in (1, 2))
    assert max(timeline.reserved()) == second[2]


@pytest.mark.parametrize("settings", KINDS)
def test_two_steps_are_the_first_two_of_more(probe: Callable[..., Examination], settings: dict[str, Any]) -> None:
    two = probe(FAMILIES["bert"], steps=2, **settings).timeline
    more = probe(FAMILIES["bert"], steps=4, **settings).timeline
    assert of_step(two, 1) == of_step(more, 1)
    assert max(two.in_use()) == max(more.in_use())
    assert max(two.reserved()) == max(more.reserved())


def without_limit(events: Sequence[Event], clears: Sequence[int]) -> Need:
    return Need(True, lambda: replay(events, empty_cache_at=clears).peak_reserved)


@pytest.mark.parametrize("attention", Attention)
@pytest.mark.parametrize("family", FAMILIES)
def test_batches_of_2_and_3_predict_a_batch_of_5_to_the_byte(
    probe: Callable[..., Examination], family: str, attention: Attention
) -> None:
    def at(batch: int) -> Examination:
        return probe(FAMILIES[family], batch_size=batch, attention=attention)

    assert aligned(at(2), at(3))
    scaling = scaling_of(at(2), at(3), at(5), without_limit)
    check = scaling.check
    assert scaling.method == "event by event"
    assert check.predicted_allocated_bytes == check.probed_allocated_bytes == max(at(5).timeline.in_use())
    assert check.predicted_reserved_bytes == check.probed_reserved_bytes == max(at(5).timeline.reserved())


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"precision": Precision.FP16}, id="fp16"),
        pytest.param({"gradient_checkpointing": True}, id="checkpointing"),
        pytest.param({"optimizer": "adamw_torch"}, id="foreach"),
        pytest.param({"padded": True}, id="padding"),
        pytest.param({"task": Task.MASKED_LM}, id="masked language modelling"),
    ],
)
def test_the_prediction_holds_for_every_kind_of_step(
    probe: Callable[..., Examination], settings: dict[str, Any]
) -> None:
    def at(batch: int) -> Examination:
        return probe(FAMILIES["bert"], batch_size=batch, **settings)

    check = scaling_of(at(2), at(3), at(8), without_limit).check
    assert check.predicted_allocated_bytes == check.probed_allocated_bytes
    assert check.predicted_reserved_bytes == check.probed_reserved_bytes


def test_one_row_is_different_in_kind(probe: Callable[..., Examination]) -> None:
    """With one row BERT's position embeddings are not broadcast, and backward sums nothing over rows."""
    one, two, three = (probe(FAMILIES["bert"], batch_size=batch) for batch in (1, 2, 3))
    assert not aligned(one, two)
    assert aligned(two, three)
