"""The tracker's own rules, on real tensors of the CPU: births, deaths, phases, marks, modules, categories."""

from __future__ import annotations

from copy import deepcopy
from itertools import permutations

import pytest
import torch
from torch import nn

from memdoctor.probes.attribution import ORDER, category_of
from memdoctor.probes.modules import ModuleClock
from memdoctor.probes.tracker import BlockDraft, Mark, Tracker, watching
from memdoctor.records import Category, Event, Phase, PhaseName

F32 = 4


def new_tracker() -> Tracker:
    tracker = Tracker("cpu", ModuleClock())
    tracker.begin(0, PhaseName.SETUP)
    return tracker


def test_a_storage_is_born_once_and_dies_when_its_last_tensor_does() -> None:
    tracker = new_tracker()
    with tracker:
        tensor = torch.zeros(3, 4)
        view = tensor.view(12)[2:]
        del tensor
        assert tracker.events == [Event(0, 12 * F32)]  # a view is no storage, and keeps its own alive
        del view
    assert tracker.events == [Event(0, 12 * F32), Event(0, -12 * F32)]
    assert (tracker.blocks[0].op, tracker.blocks[0].dtype, tracker.blocks[0].shape) == (
        "aten.zeros.default", "float32", (3, 4),
    )  # fmt: skip


def test_what_is_computed_in_place_is_no_birth() -> None:
    tracker = new_tracker()
    with tracker:
        tensor = torch.zeros(5)
        tensor.add_(1).mul_(2)
        assert len(tracker.events) == 1


def test_tensors_of_no_bytes_and_of_other_devices_are_passed_over() -> None:
    tracker = new_tracker()
    with tracker:
        torch.zeros(0)
        torch.zeros(3, device="meta")
    assert tracker.events == []


def test_every_tensor_of_a_list_is_seen_but_those_that_stay_on_the_host() -> None:
    tracker = Tracker("cpu", ModuleClock(), host_outputs={torch.ops.aten.sort.default: (1,)})
    tracker.begin(0, PhaseName.SETUP)
    with tracker:
        values, positions = torch.zeros(3).sort()
        assert [block.op for block in tracker.blocks] == ["aten.zeros.default", "aten.sort.default"]
        del values, positions


def test_an_address_that_is_used_again_is_another_block() -> None:
    tracker = new_tracker()
    with tracker:
        for _ in range(3):
            torch.zeros(1000)
    assert [event.block for event in tracker.events] == [0, 0, 1, 1, 2, 2]


def test_nothing_is_recorded_after_the_finish() -> None:
    tracker = new_tracker()
    with tracker:
        tensor = torch.zeros(2)
        tracker.finish()
        del tensor
    assert tracker.events == [Event(0, 2 * F32)]


def test_phases_tile_the_events() -> None:
    tracker = new_tracker()
    with tracker:
        kept = [torch.zeros(1), torch.zeros(1)]
        tracker.begin(1, PhaseName.FORWARD)
        tracker.begin(1, PhaseName.BACKWARD)
        kept.append(torch.zeros(1))
        tracker.finish()
    assert tracker.phases == [
        Phase(0, PhaseName.SETUP, 0, 2), Phase(1, PhaseName.FORWARD, 2, 2), Phase(1, PhaseName.BACKWARD, 2, 3),
    ]  # fmt: skip


def test_a_workspace_is_a_block_that_nobody_frees() -> None:
    tracker = new_tracker()
    tracker.open_workspace("a library's workspace", 4096)
    assert tracker.events == [Event(0, 4096)]
    assert category_of(tracker.blocks[0]) is Category.WORKSPACE


def test_a_mark_on_a_view_is_a_mark_on_its_storage() -> None:
    tracker = new_tracker()
    with tracker:
        tensor = torch.zeros(4)
        tracker.mark(tensor[1:], Mark.INPUT)
        tracker.mark(torch.empty(3, device="meta"), Mark.INPUT)  # never seen: passed over
    assert tracker.blocks[0].marks == {Mark.INPUT}


# Modules


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x) * 2) + 1


def watch_a_step(model: nn.Module) -> Tracker:
    """Copy the model under the tracker's eyes, and run it forward and backward."""
    clock = ModuleClock()
    tracker = Tracker("cpu", clock)
    tracker.begin(0, PhaseName.SETUP)
    with tracker:
        model = deepcopy(model)
        with watching(tracker, clock, model):
            tracker.begin(1, PhaseName.FORWARD)
            loss = model(torch.ones(2, 4)).sum()
            tracker.begin(1, PhaseName.BACKWARD)
            loss.backward()
            clock.leave()
            tracker.begin(1, PhaseName.OPTIMIZER)
            torch.zeros(1)
            tracker.finish()
    return tracker


def born(tracker: Tracker, name: PhaseName) -> list[BlockDraft]:
    phase = next(phase for phase in tracker.phases if phase.name is name)
    return [tracker.blocks[event.block] for event in tracker.events[phase.begin : phase.end] if event.delta_bytes > 0]


def test_births_in_forward_belong_to_the_innermost_module() -> None:
    forward = born(watch_a_step(Outer()), PhaseName.FORWARD)
    # The input and the loss are made outside the model; the product with 2 and the sum with 1 in the model itself.
    assert [block.module for block in forward] == ["", "first", "Outer", "second.0", "second.1", "Outer", ""]


def test_births_in_backward_belong_to_the_module_whose_saved_tensors_were_read_last() -> None:
    tracker = watch_a_step(Outer())
    weights = [block.module for block in born(tracker, PhaseName.BACKWARD) if block.shape == (4, 4)]
    assert weights == ["second.0", "first"]
    assert [block.module for block in born(tracker, PhaseName.OPTIMIZER)] == [""]


def test_a_module_that_fails_is_left() -> None:
    class Failing(nn.Module):
        def forward(self) -> None:
            raise ValueError("out of words")

    model, clock = nn.Sequential(Failing()), ModuleClock()
    with clock.following(model):
        with pytest.raises(ValueError, match="out of words"):
            model[0]()
        assert clock.current == ""


def test_nothing_is_followed_afterwards() -> None:
    model, clock = Outer(), ModuleClock()
    seen: list[str] = []
    with clock.following(model):
        pass
    model.first.register_forward_hook(lambda *_: seen.append(clock.current))
    model(torch.zeros(2, 4))
    assert seen == [""]


def test_what_autograd_packs_is_marked() -> None:
    forward = born(watch_a_step(Outer()), PhaseName.FORWARD)
    saved = [block.op for block in forward if Mark.SAVED_FOR_BACKWARD in block.marks]
    # The first product's input; the second's; tanh's output.
    assert saved == ["aten.ones.default", "aten.mul.Tensor", "aten.tanh.default"]


def test_gradients_are_the_same_under_watch() -> None:
    torch.manual_seed(0)
    model, clock, x = Outer(), ModuleClock(), torch.randn(2, 4)
    model(x).sum().backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    tracker = Tracker("cpu", clock)
    tracker.begin(1, PhaseName.FORWARD)
    with tracker, watching(tracker, clock, model):
        model(x).sum().backward()
    assert all(torch.equal(p.grad, grad) for p, grad in zip(model.parameters(), expected, strict=True))


# Categories


def draft(*marks: Mark) -> BlockDraft:
    return BlockDraft(4, "", "op", "float32", (1,), set(marks))


def test_every_mark_has_a_category_and_no_mark_is_a_temporary() -> None:
    assert {mark for mark, _ in ORDER} == set(Mark)
    assert all(category_of(draft(mark)) is category for mark, category in ORDER)
    assert category_of(draft()) is Category.TEMPORARIES
    assert {category for _, category in ORDER} | {Category.TEMPORARIES} == set(Category)


@pytest.mark.parametrize(("first", "second"), list(permutations(range(len(ORDER)), 2)))
def test_of_two_marks_the_earlier_in_the_order_decides(first: int, second: int) -> None:
    marked = draft(ORDER[first][0], ORDER[second][0])
    assert category_of(marked) is ORDER[min(first, second)][1]


@pytest.mark.parametrize(
    ("marks", "category"),
    [
        ((Mark.PARAMETER, Mark.SAVED_FOR_BACKWARD), Category.PARAMETERS),
        ((Mark.INPUT, Mark.SAVED_FOR_BACKWARD), Category.INPUTS_AND_BUFFERS),
        ((Mark.GRADIENT, Mark.SAVED_FOR_BACKWARD), Category.GRADIENTS),
        ((Mark.AUTOCAST_COPY, Mark.SAVED_FOR_BACKWARD), Category.AUTOCAST_COPIES),
    ],
)
def test_what_backward_saves_keeps_its_name_if_it_has_one(marks: tuple[Mark, ...], category: Category) -> None:
    assert category_of(draft(*marks)) is category
