"""Questions that model code asks of data: answered where token ids, masks and labels decide them, refused elsewhere."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from memdoctor.errors import MeasureError
from memdoctor.probes.simulated.device import register
from memdoctor.probes.simulated.known import KnownValues, remember

MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
IDS = torch.tensor([[7, 8, 9, 0], [5, 6, 0, 0]])


@contextmanager
def known(*values: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Fake tensors on the simulated GPU whose values are known."""
    device = register()
    with FakeTensorMode() as fake, KnownValues():
        tensors = tuple(fake.from_tensor(value).to(device) for value in values)
        for tensor, value in zip(tensors, values, strict=True):
            remember(tensor, value)
        yield tensors


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda mask, ids: bool(mask.all()), id="all"),
        pytest.param(lambda mask, ids: bool(mask.bool().any()), id="any"),
        pytest.param(lambda mask, ids: mask.sum().item(), id="item"),
        pytest.param(lambda mask, ids: mask[0, 3].item(), id="item of an element"),
        pytest.param(lambda mask, ids: int(ids.max()), id="max"),
        pytest.param(lambda mask, ids: "padded" if (mask == 0).any() else "full", id="if"),
        pytest.param(lambda mask, ids: bool(torch.equal(mask, mask.clone())), id="equal"),
        pytest.param(lambda mask, ids: mask.nonzero().shape, id="nonzero"),
        pytest.param(lambda mask, ids: torch.nonzero(mask.flatten()).flatten().shape, id="nonzero of a view"),
        pytest.param(lambda mask, ids: ids[mask.bool()].shape, id="index by a boolean mask"),
        pytest.param(lambda mask, ids: ids[mask.bool()].sum().item(), id="item of what a mask chose"),
        pytest.param(lambda mask, ids: ids.masked_select(mask > 0).shape, id="masked_select"),
        pytest.param(lambda mask, ids: torch.unique(ids).shape, id="unique"),
        pytest.param(lambda mask, ids: torch.where(mask == 0)[1].shape, id="where"),
        pytest.param(lambda mask, ids: bool((mask[:, None, None, :] == 1).all()), id="comparison after a view"),
        pytest.param(lambda mask, ids: int((ids.ne(0).cumsum(1) * mask + 1).max()), id="positions of RoBERTa"),
        pytest.param(lambda mask, ids: int((1 - mask).sum(-1).max()), id="arithmetic"),
        pytest.param(lambda mask, ids: int(torch.arange(4, device=ids.device).expand(2, 4).max()), id="arange"),
        pytest.param(lambda mask, ids: bool(torch.ones_like(mask).all()), id="ones_like"),
        pytest.param(lambda mask, ids: bool(mask.new_zeros(2, 2).any()), id="new_zeros"),
        pytest.param(lambda mask, ids: int(mask.cpu().sum()), id="moved to the host"),
        pytest.param(lambda mask, ids: bool(((1.0 - mask.float()) * -1e4 < 0).any()), id="additive mask of Longformer"),
        pytest.param(lambda mask, ids: mask.tolist(), id="tolist"),
        pytest.param(lambda mask, ids: mask.sum(-1).tolist(), id="tolist of sums"),
        pytest.param(lambda mask, ids: [int(row.sum()) for row in mask], id="iteration"),
        pytest.param(lambda mask, ids: int(mask.split(1)[0].sum()), id="split"),
        pytest.param(lambda mask, ids: int(ids.max(-1).values[0]), id="max of rows"),
        pytest.param(lambda mask, ids: int(ids.sort(-1).values[0, 0]), id="sort"),
        pytest.param(lambda mask, ids: torch.where(mask == 0)[1][0].item(), id="item of where"),
    ],
)
def test_answers_are_those_of_the_real_tensors(ask: Callable[..., Any]) -> None:
    with known(MASK, IDS) as (mask, ids):
        answer = ask(mask, ids)
    assert answer == ask(MASK, IDS)


def test_an_answer_with_a_shape_is_a_tensor_on_the_simulated_gpu_and_known_itself() -> None:
    with known(MASK) as (mask,):
        found = mask.nonzero()
        assert isinstance(found, FakeTensor)
        assert found.device == mask.device
        assert int(found[-1, 1]) == 1  # the last token of the second row is its second


def line_of(function: Callable[..., Any], offset: int) -> str:
    return f"{__file__}:{inspect.getsourcelines(function)[1] + offset}"


def ask_in_a_condition(hidden: torch.Tensor) -> str:
    return "positive" if hidden.sum() > 0 else "negative"


def test_data_that_rests_on_no_input_is_refused_and_the_line_that_asked_is_named() -> None:
    with known(MASK) as (mask,):
        hidden = torch.empty(2, 4, device=mask.device)
        with pytest.raises(MeasureError) as refused:
            ask_in_a_condition(hidden)
    assert line_of(ask_in_a_condition, 1) in refused.value.what
    assert "_local_scalar_dense" in refused.value.what
    assert refused.value.why
    assert refused.value.hint


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda hidden: hidden.mean().item(), id="item"),
        pytest.param(lambda hidden: hidden.argmax(-1).max().item(), id="integers computed from floats"),
        pytest.param(lambda hidden: (hidden > 0).nonzero(), id="nonzero"),
        pytest.param(lambda hidden: hidden[hidden > 0], id="index by a comparison"),
        pytest.param(lambda hidden: bool((hidden == 1).any()), id="comparison with a number"),
        pytest.param(lambda hidden: bool((hidden == -float("inf")).any()), id="what a mask may have put there"),
        pytest.param(lambda hidden: bool((hidden == hidden.clone()).all()), id="comparison with its copy"),
    ],
)
def test_what_rests_on_unknown_data_is_refused(ask: Callable[[torch.Tensor], Any]) -> None:
    with known(MASK) as (mask,), pytest.raises(MeasureError, match="asks for data"):
        ask(torch.empty(2, 4, device=mask.device))


def test_a_model_that_asks_is_refused_by_the_probe(train: Callable[..., Any]) -> None:
    class Impatient(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": super().forward(x).sum() if x.sum() > 0 else x.sum()}

    with pytest.raises(MeasureError, match=r"test_known\.py:\d+"):
        train(lambda: Impatient(4, 4), {"x": torch.zeros(2, 4)})


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        pytest.param(lambda hidden: bool(torch.isnan(hidden).any()), False, id="isnan"),
        pytest.param(lambda hidden: bool(torch.isinf(hidden).any()), False, id="isinf"),
        pytest.param(lambda hidden: bool(torch.isfinite(hidden).all()), True, id="isfinite"),
        pytest.param(lambda hidden: bool(hidden.ne(hidden).any()), False, id="differs from itself"),
    ],
)
def test_what_rests_on_weights_is_finite(ask: Callable[[torch.Tensor], bool], answer: bool) -> None:
    with known(MASK) as (mask,):
        assert ask(torch.empty(2, 4, device=mask.device)) is answer


def test_whether_a_known_value_is_finite_is_not_taken_for_granted() -> None:
    with known(MASK) as (mask,):
        assert bool(torch.isinf(mask.float().log()).any())
        assert bool(torch.isnan(mask.float().log() * 0).any())


# What a known mask chooses of unknown values


@pytest.mark.parametrize(
    ("choose", "shape"),
    [
        pytest.param(lambda hidden, mask: hidden[mask.bool()], (5, 3), id="index"),
        pytest.param(lambda hidden, mask: hidden[mask.bool(), 0], (5,), id="index with a number"),
        pytest.param(lambda hidden, mask: hidden[0, mask[0].bool()], (3, 3), id="index of a later dimension"),
        pytest.param(lambda hidden, mask: hidden.masked_select(mask[:, :, None] > 0), (15,), id="masked_select"),
    ],
)
def test_a_known_mask_chooses_of_unknown_values(choose: Callable[..., torch.Tensor], shape: tuple[int, ...]) -> None:
    with known(MASK) as (mask,):
        assert choose(torch.empty(2, 4, 3, device=mask.device), mask).shape == shape


def test_a_mask_that_chooses_takes_the_positions_that_it_chose_on_the_gpu_too(train: Callable[..., Any]) -> None:
    class Chooser(torch.nn.Linear):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": super().forward(x)[mask.bool()].sum()}

    run = train(lambda: Chooser(4, 4), {"x": torch.zeros(2, 4, 4), "mask": MASK})
    positions = [block for block in run.born("forward") if block.op == "aten.nonzero.default"]
    assert [(block.shape, block.dtype, block.bytes) for block in positions] == [((5, 2), "int64", 5 * 2 * 8)]


# Changes in place


CHANGES_OF_A_MASK = [
    pytest.param(lambda mask: mask.add_(1), id="the tensor"),
    pytest.param(lambda mask: mask[0].zero_(), id="a view of it"),
    pytest.param(lambda mask: mask.__setitem__((0, 0), 5), id="an element"),
    pytest.param(lambda mask: mask.__setitem__((slice(None), 0), 7), id="the first column, as Longformer does"),
    pytest.param(lambda mask: mask.__setitem__(mask == 0, 3), id="what a mask chooses"),
    pytest.param(lambda mask: mask.masked_fill_(mask > 0, 0), id="where a mask says"),
    pytest.param(lambda mask: torch.add(mask, 1, out=mask), id="as the output of an operator"),
    pytest.param(lambda mask: mask.T.fill_(3), id="a transposed view"),
    pytest.param(lambda mask: mask.data.add_(1), id="past autograd, through data"),
    pytest.param(lambda mask: mask.view(torch.int32)[0].zero_(), id="its bytes, read as another type"),
    pytest.param(lambda mask: torch._foreach_add_([mask], 1), id="in a list of tensors"),
    pytest.param(lambda mask: mask[:, 1:].copy_(mask[:, :-1].clone()), id="shifted by one"),
    pytest.param(lambda mask: mask.scatter_(1, mask[:, :1], 9), id="scattered"),
    pytest.param(lambda mask: mask.mul_(mask), id="by itself"),
]


@pytest.mark.parametrize("change", CHANGES_OF_A_MASK)
def test_what_is_changed_in_place_is_known_as_changed(change: Callable[[torch.Tensor], Any]) -> None:
    real = MASK.clone()
    with known(MASK.clone()) as (mask,):
        row = mask[1]
        change(mask)
        values = (mask.tolist(), mask.T.tolist(), row.tolist(), mask[:, 1:].tolist())
    change(real)
    assert values == (real.tolist(), real.T.tolist(), real[1].tolist(), real[:, 1:].tolist())


def test_what_was_not_initialised_is_known_once_it_is_written() -> None:
    with known(MASK) as (mask,):
        filled, copied, part = (torch.empty(2, 4, dtype=torch.long, device=mask.device) for _ in range(3))
        filled.fill_(3)
        copied.copy_(mask)
        assert (filled.sum().item(), copied.tolist()) == (24, MASK.tolist())
        part[0].fill_(3)
        with pytest.raises(MeasureError):
            part.sum().item()
        with pytest.raises(MeasureError):
            part[0].sum().item()  # known in truth, but not followed: the rest of the storage is not


def test_a_long_chain_of_writes_is_followed() -> None:
    with known(torch.zeros(2000, dtype=torch.long)) as (counts,):
        for position in range(2000):
            counts[position] = position
        assert int(counts.sum()) == 1999 * 1000


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda mask: mask.add_(torch.empty_like(mask)), id="by something unknown"),
        pytest.param(lambda mask: mask[0].copy_(torch.empty_like(mask[0])), id="a part, by something unknown"),
        pytest.param(lambda mask: mask.random_(5), id="at random"),
        pytest.param(lambda mask: mask.masked_fill_(torch.empty_like(mask).bool(), 0), id="where it is not known"),
        pytest.param(lambda mask: mask.resize_(3, 5), id="in its size"),
        pytest.param(
            lambda mask: torch._foreach_add_([mask, torch.empty_like(mask)], 1), id="beside something unknown"
        ),
    ],
)
def test_what_is_changed_by_what_is_not_known_is_no_longer_known(change: Callable[[torch.Tensor], Any]) -> None:
    with known(MASK) as (mask,):
        row = mask[0]
        change(mask)
        for tensor in (mask, row, mask[1:]):
            with pytest.raises(MeasureError):
                tensor.sum().item()
        mask.fill_(2)
        assert int(mask.sum()) == 2 * mask.numel()


# Never a wrong answer


def test_what_was_computed_before_a_change_in_place_is_known_as_it_was() -> None:
    with known(MASK) as (mask,):
        before = mask + 0
        mask.add_(1)
        assert int(before.sum()) == 5


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(torch.empty_like, id="empty_like"),
        pytest.param(lambda mask: mask.new_empty(3), id="new_empty"),
        pytest.param(lambda mask: torch.empty(3, dtype=torch.long, device=mask.device), id="empty"),
        pytest.param(lambda mask: torch.randint_like(mask, 1000), id="randint_like"),
        pytest.param(lambda mask: torch.randint(1000, (3,), device=mask.device), id="randint"),
        pytest.param(lambda mask: torch.bernoulli(mask.float()).long(), id="bernoulli"),
    ],
)
def test_what_is_not_initialised_or_random_is_not_known(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with known(MASK) as (mask,):
        made = make(mask)
        with pytest.raises(MeasureError):
            made.sum().item()


# Programs of integer operators, against eager PyTorch on the CPU. All tensors are 3 x 3.

PURE: tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], ...] = (
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    torch.maximum,
    lambda a, b: (a == b).long(),
    lambda a, b: (a > b).int().long(),
    lambda a, b: torch.where(a > 1, a, b),
    lambda a, b: a.masked_fill(b.bool(), 2),
    lambda a, b: torch.stack([a[0], b[1], a[2]]),
    lambda a, b: torch.cat([a[:1], b[1:]]),
    lambda a, b: a.gather(0, b.remainder(3)),
    lambda a, b: a.clamp(-3, 3) % 4,
    lambda a, b: (-a).abs() // 2,
    lambda a, b: a.cumsum(-1),
    lambda a, b: a.flip(0).roll(1, 1),
    lambda a, b: a.t(),
    lambda a, b: a.reshape(9).view(3, 3),
    lambda a, b: a[:, None, :].expand(3, 3, 3).diagonal(0, 0, 2).contiguous(),
    lambda a, b: a.tril() + torch.arange(3, device=a.device),
    lambda a, b: a.sum(-1, keepdim=True).expand(3, 3).contiguous(),
)
IN_PLACE: tuple[Callable[[torch.Tensor, torch.Tensor], Any], ...] = (
    lambda a, b: a.contiguous().add_(1),
    lambda a, b: a.clone().mul_(b),
    lambda a, b: a.add(0).fill_(1),
)
CHANGES: tuple[Callable[[torch.Tensor, torch.Tensor], Any], ...] = (
    lambda a, b: a.add_(1),
    lambda a, b: a.mul_(a),
    lambda a, b: a.copy_(b.clone()),
    lambda a, b: a.masked_fill_(b > 0, 0),
    lambda a, b: a[1].zero_(),
    lambda a, b: a[:, 0].fill_(3),
    lambda a, b: a.t()[1:].sub_(b.clone()[1:]),
    lambda a, b: a.diagonal().copy_(b.sum(0)),
    lambda a, b: a.__setitem__(b == 1, 7),
    lambda a, b: a.__setitem__((b[0].remainder(3),), b.clone()[0, 0]),
    lambda a, b: a.clamp_(-2, 2),
    lambda a, b: torch.maximum(a.clone(), b.clone(), out=a),
)
VIEWS: tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], ...] = (
    lambda a, b: a.t(),
    lambda a, b: a.view(-1).as_strided((3, 3), (3, 1)) if a.is_contiguous() else a,
    lambda a, b: a[:],
    lambda a, b: a.detach(),
)

Program = list[tuple[Callable[[torch.Tensor, torch.Tensor], Any], int, int]]


def run(program: Program, tensors: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Each step takes two of the tensors so far and adds its result, unless it only changes one of them."""
    pool = list(tensors)
    for step, left, right in program:
        result = step(pool[left % len(pool)], pool[right % len(pool)])
        if step not in CHANGES:
            pool.append(result)
    return pool


def ask_all(tensor: torch.Tensor) -> tuple[int, bool, int, int]:
    chosen = tensor[tensor > 0]
    return int(tensor.sum()), bool(tensor.any()), tensor.nonzero().shape[0], chosen.shape[0]


matrices = st.lists(st.integers(-3, 5), min_size=9, max_size=9).map(lambda row: torch.tensor(row).view(3, 3))
positions = st.integers(0, 20)


@given(
    st.lists(st.tuples(st.sampled_from(PURE), positions, positions), min_size=1, max_size=6),
    st.tuples(matrices, matrices),
)
def test_a_program_without_changes_in_place_is_answered_as_on_the_cpu(
    program: Program, values: tuple[torch.Tensor, torch.Tensor]
) -> None:
    with known(*values) as tensors:
        answers = [ask_all(tensor) for tensor in run(program, tensors)]
    assert answers == [ask_all(tensor) for tensor in run(program, values)]


@given(
    st.lists(st.tuples(st.sampled_from(PURE + VIEWS + IN_PLACE + CHANGES * 2), positions, positions), max_size=12),
    st.tuples(matrices, matrices),
)
def test_a_program_with_changes_in_place_is_answered_as_on_the_cpu(
    program: Program, values: tuple[torch.Tensor, torch.Tensor]
) -> None:
    expected = run(program, tuple(value.clone() for value in values))
    with known(*values) as tensors:
        answers = [ask_all(tensor) for tensor in run(program, tensors)]
    assert answers == [ask_all(tensor) for tensor in expected]


@given(
    st.lists(st.tuples(st.sampled_from(PURE + VIEWS + IN_PLACE + CHANGES * 2), positions, positions), max_size=12),
    st.tuples(matrices, matrices),
)
def test_a_program_that_starts_with_something_unknown_is_answered_as_on_the_cpu_or_refused(
    program: Program, values: tuple[torch.Tensor, torch.Tensor]
) -> None:
    answers: list[Any] = []
    expected = run(program, tuple(value.clone() for value in values))
    with known(*values) as tensors:
        unknown = torch.empty_like(tensors[1])
        try:
            pool = run(program, (tensors[0], unknown))
        except MeasureError:  # it asks on its way
            return
        for tensor in pool:
            try:
                answers.append(ask_all(tensor))
            except MeasureError:
                answers.append(None)
    assert all(answer is None or answer == ask_all(tensor) for answer, tensor in zip(answers, expected, strict=True))


def test_what_cannot_be_computed_here_is_refused_with_the_reason() -> None:
    with known(MASK) as (mask,):
        wide = mask[0].float().expand(1 << 24, 4).T.contiguous().expand(1 << 24, 4, 1 << 24) + 1
        with pytest.raises(MeasureError, match="asks for data") as refused:
            bool(wide.any())
    assert "memory" in refused.value.why
    assert "smaller" in refused.value.hint
