"""The search finds what looking at everything finds, promises only what was probed, and asks for few probes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from memdoctor.planning import Clock, Found, Search, Setting
from memdoctor.planning.settings import (
    INTRUSION,
    ORDER,
    SMALLER_OPTIMIZERS,
    expandable,
    mixed_precision,
    setting_of,
    splits,
    structures,
    task_changes,
    worst,
)  # fmt: skip
from memdoctor.records import Attention, Cost, Precision, Workload

TARGET = Workload(model="by-hand", batch_size=16, seq_length=512, attention=Attention.SDPA)


def every_setting(target: Workload, world: Any, task: bool = False) -> Iterator[Setting]:
    """All that the planner's levers allow, without forecasts or order."""
    for cost in ORDER[:-1]:
        for structure, structure_cost in structures(target, world.device, cost, {}):
            for split, change in product(splits(target), task_changes(target) if task else ({},)):
                whole = worst(structure_cost, "task") if task else structure_cost
                yield setting_of(target, {**structure, **change}, whole, split)


def best_by_exhaustion(target: Workload, world: Any, clock: Clock, cost: Cost) -> float | None:
    """The shortest time of a setting of this cost that fits; ``None`` where none does."""
    forecasts = world.forecasts(target)
    times = [
        clock.expected(setting, forecasts)
        for setting in every_setting(target, world)
        if setting.cost == cost and setting.change and fits(world, target, setting)
    ]
    return min(times, default=None)


def fits(world: Any, target: Workload, setting: Setting) -> bool:
    """Whether the setting fits, probed directly."""
    (found,) = world.probe([setting.of(target, world.device)])
    return found is not None and Found(setting, found).fits


@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.generate],
)  # an example is a whole search: shrinking would take minutes
@given(
    limit=st.integers(20_000, 200_000),
    parameters=st.integers(1_000, 30_000),
    each=st.integers(1, 40),
    batch=st.sampled_from([1, 2, 7, 12, 16, 32]),
    accumulation=st.sampled_from([1, 1, 4]),
)
def test_what_exists_is_found_and_is_hardly_slower_than_the_fastest_of_its_cost(
    world: Callable[..., Any], limit: int, parameters: int, each: int, batch: int, accumulation: int
) -> None:
    here = world(limit, parameters=parameters, each=each)
    target = replace(TARGET, batch_size=batch, gradient_accumulation_steps=accumulation)
    clock = Clock(None)
    search = Search(here.forecasts(target), clock)
    found = search.run()
    for cost in ("time", "numerics"):
        best = best_by_exhaustion(target, here, clock, cost)
        ours = [clock.expected(item.setting, search.forecasts) for item in found if item.setting.cost == cost]
        assert (best is None) == (not ours), cost
        assert best is None or min(ours) <= 1.1 * best, cost
    anything = any(fits(here, target, setting) for setting in every_setting(target, here, task=True))
    assert bool(found) or not anything, "a change of the task would have fitted"
    for item in found:
        assert item.examination.workload == item.setting.of(target, here.device)[0], "it was itself probed"
        assert item.setting.batch * item.setting.accumulation == batch * accumulation


def test_all_that_is_preferred_for_changing_less_stays_within_a_tenth() -> None:
    optimizers = max(INTRUSION[name] for name in SMALLER_OPTIMIZERS)
    rest = sum(weight for name, weight in INTRUSION.items() if name not in SMALLER_OPTIMIZERS)
    assert optimizers + rest <= 0.1


def test_the_effective_batch_is_kept_by_every_split() -> None:
    assert splits(replace(TARGET, batch_size=12)) == ((12, 1), (6, 2), (4, 3), (3, 4), (2, 6), (1, 12))
    assert splits(replace(TARGET, batch_size=2, gradient_accumulation_steps=3)) == ((2, 3), (1, 6))
    assert splits(replace(TARGET, batch_size=7)) == ((7, 1), (1, 7))


def test_few_probes_are_asked_for(world: Callable[..., Any]) -> None:
    here = world(90_000)
    assert Search(here.forecasts(TARGET), Clock(None)).run()
    assert len(here.probed) < len(list(every_setting(TARGET, here))) / 3


def test_what_the_model_refuses_is_not_planned(world: Callable[..., Any]) -> None:
    here = world(90_000, refused=lambda workload: workload.gradient_checkpointing)
    found = Search(here.forecasts(TARGET), Clock(None)).run()
    assert found
    assert not any("gradient_checkpointing" in item.setting.change for item in found)


def test_the_task_is_changed_only_where_nothing_else_fits(world: Callable[..., Any]) -> None:
    roomy = Search(world(90_000).forecasts(TARGET), Clock(None)).run()
    assert all(item.setting.cost != "task" for item in roomy)
    tight = Search(world(13_000, each=8).forecasts(TARGET), Clock(None))
    assert {item.setting.cost for item in tight.run()} == {"task"}


@pytest.mark.parametrize("optimizer", ["adamw_torch_fused", "sgd"])
def test_what_cannot_be_checkpointed_has_its_task_changed_too(world: Callable[..., Any], optimizer: str) -> None:
    here = world(14_000, parameters=5_000, refused=lambda workload: workload.gradient_checkpointing)
    target = replace(TARGET, batch_size=1, seq_length=2048, optimizer=optimizer)
    found = Search(here.forecasts(target), Clock(None)).run()
    assert found
    assert {item.setting.cost for item in found} == {"task"}


def test_what_nothing_can_be_changed_of_has_itself_as_smallest(world: Callable[..., Any]) -> None:
    target = replace(TARGET, batch_size=1, seq_length=32, optimizer="sgd")
    here = world(1_000, refused=lambda workload: workload != target)
    search = Search(here.forecasts(target), Clock(None))
    assert search.run() == ()
    assert search.smallest().setting.change == {}


def test_where_nothing_fits_the_smallest_footprint_is_known(world: Callable[..., Any]) -> None:
    here = world(9_000)
    search = Search(here.forecasts(TARGET), Clock(None))
    assert search.run() == ()
    smallest = search.smallest()
    assert smallest.reserved_bytes == min(
        Found(setting, here.examine(setting.of(TARGET, here.device)[0])).reserved_bytes
        for setting in every_setting(TARGET, here, task=True)
    )


@pytest.mark.parametrize("conf", ["", "max_split_size_mb:64", "expandable_segments:False"])
def test_pages_are_offered_where_the_user_has_not_decided(world: Callable[..., Any], conf: str) -> None:
    change = expandable(replace(world(9_000).device, alloc_conf=conf))
    assert (change is None) == ("expandable" in conf)
    if change is not None:
        assert change == {"cuda_alloc_conf": ",".join(filter(None, (conf, "expandable_segments:True")))}


@pytest.mark.parametrize(("capability", "precision"), [("5.2", None), ("7.5", "fp16"), ("8.0", None)])
def test_a_bf16_that_the_card_emulates_gives_way_to_fp16(
    world: Callable[..., Any], capability: str, precision: str | None
) -> None:
    card = replace(world(90_000).device, compute_capability=capability)
    assert mixed_precision(replace(TARGET, precision=Precision.BF16), card) == precision
    assert mixed_precision(replace(TARGET, precision=Precision.FP16), card) is None


@pytest.mark.parametrize("optimizer", ["lomo", "adalomo"])
def test_an_optimizer_that_updates_in_backward_has_its_batch_not_split(optimizer: str) -> None:
    assert splits(replace(TARGET, optimizer=optimizer)) == ((16, 1),)


@pytest.mark.parametrize(("more", "planned"), [(0, True), (1, False)])
def test_a_free_change_that_takes_more_is_none(world: Callable[..., Any], more: int, planned: bool) -> None:
    """Fused attention does, where it falls back to the math kernel."""
    here = world(90_000)
    target = replace(TARGET, attention=Attention.EAGER)
    usual = here.forecasts(target)

    def probe(subjects: Any) -> Any:
        dearer = [
            (replace(w, seq_length=w.seq_length + more * (w.attention is Attention.SDPA)), d) for w, d in subjects
        ]
        return usual.probe(dearer)

    search = Search(replace(usual, probe=probe), Clock(None), Attention.EAGER)
    assert any("attention" in item.setting.change for item in search.run()) is planned
