"""Plans for small models beside a look at every setting, each probed directly: what is promised holds, none is missed.

The settings are enumerated here without the planner's help. Every direct probe is made afresh, past the session that
the planner asks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import pytest

from memdoctor.analysis import peak_of
from memdoctor.catalogue import rates_of
from memdoctor.doctor import Case, open_case, replayed_on
from memdoctor.matrix import ALLOC_CONF, apply_to
from memdoctor.measuring import Probing
from memdoctor.planning import Clock, Forecasts, Found, Search, Writer
from memdoctor.planning.cards import smallest_card
from memdoctor.probes.pool import Pool, Request
from memdoctor.records import (
    Attention,
    Change,
    Completed,
    Cost,
    Device,
    Examination,
    PhaseName,
    Precision,
    Task,
    Workload,
)
from memdoctor.steptime import estimate

COSTS: tuple[Cost, ...] = ("none", "time", "numerics", "task")
SIZES = {
    "vocab_size": 4000, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512,
    "max_position_embeddings": 514, "type_vocab_size": 2,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {},
    "static": {"model_type": "bert", "vocab_size": 100_000},  # nearly all of it is embeddings
    "roberta": {"pad_token_id": 1},
    "albert": {"embedding_size": 64, "num_hidden_layers": 3},
    "distilbert": {"dim": 128, "n_layers": 2, "n_heads": 2, "hidden_dim": 512},
    "deberta": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},  # no sdpa
    "funnel": {
        "d_model": 128,
        "n_head": 2,
        "d_head": 64,
        "d_inner": 512,
        "block_sizes": [1, 1],
        "num_hidden_layers": None,
    },  # no checkpointing
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A model on a card of which so much is for PyTorch: that share of what the target reserves where it has room."""

    family: str
    share: float
    settings: dict[str, Any]
    gpu: str = "T4"


SGD: dict[str, Any] = {"optimizer": "sgd"}
FP16: dict[str, Any] = {"precision": Precision.FP16}
CELLS = {  # all levers in some; where one is in use already, fewer settings are left to look at
    "batch of one": Cell("bert", 0.6, {"batch_size": 1, "seq_length": 512}),
    "prime batch": Cell("albert", 0.6, {"batch_size": 7, "seq_length": 128, **SGD}, "A10"),
    "halves": Cell("bert", 0.6, {"batch_size": 2, "seq_length": 256, **FP16}),
    "accumulating": Cell(
        "roberta", 0.5, {"batch_size": 4, "seq_length": 256, "gradient_accumulation_steps": 3, **SGD}
    ),
    "eager": Cell("bert", 0.5, {"batch_size": 3, "seq_length": 256, "attention": Attention.EAGER, **SGD}),
    "temporaries": Cell("static", 0.8, {"batch_size": 2, "seq_length": 16, "optimizer": "adamw_torch", **FP16}),
    "states": Cell("static", 0.6, {"batch_size": 2, "seq_length": 16, **FP16}),
    "kept gradients": Cell(
        "static", 0.9, {"batch_size": 4, "seq_length": 64, "zero_grad_set_to_none": False, **FP16, **SGD}
    ),
    "evaluation": Cell(
        "bert", 0.4,
        {"batch_size": 4, "seq_length": 64, "task": Task.MASKED_LM, "evaluate": True, "eval_samples": 200,
         "eval_batch_size": 32, **SGD, **FP16},
    ),
    "padded": Cell("distilbert", 0.6, {"batch_size": 4, "seq_length": 200, "padded": True, **SGD}),
    "no checkpointing": Cell("funnel", 0.6, {"batch_size": 4, "seq_length": 128, **SGD}),
    "no sdpa": Cell("deberta", 0.6, {"batch_size": 4, "seq_length": 128, **SGD}),
    "masked words": Cell("bert", 0.4, {"batch_size": 6, "seq_length": 128, "task": Task.MASKED_LM, **SGD}),
    "hopeless": Cell("bert", 0.1, {"batch_size": 2, "seq_length": 64, **SGD, **FP16}),
}  # fmt: skip


@dataclass(slots=True)
class Solved:
    """A cell's target, what the planner found for it, and every setting of its levers, probed directly."""

    case: Case
    target: Examination
    search: Search
    found: tuple[Found, ...]
    pool: Pool
    session: Probing
    _direct: dict[tuple[Workload, Device], Examination] = field(default_factory=dict)

    def directly(self, changes: Sequence[Change]) -> list[Examination | None]:
        """Each probed afresh; ``None`` for what the model refuses."""
        subjects = [apply_to(self.case.workload, self.case.device, change) for change in changes]
        missing = [subject for subject in dict.fromkeys(subjects) if subject not in self._direct]
        made = self.pool.attempt([Request(*subject, self.case.facts) for subject in missing])
        self._direct |= zip(missing, made, strict=True)
        results = [self._direct[subject] for subject in subjects]
        return [result if isinstance(result, Examination) else None for result in results]

    def everything(self, tasks: Sequence[tuple[Change, Cost]] = (({}, "none"),)) -> list[tuple[Cost, Examination]]:
        """Every setting with its cost; the allocator's pages only where they could let it fit."""
        plain = list(every_change(self.case.workload, self.case.device, tasks))
        probed = self._probed(plain)
        limit = self.case.device.allocator_limit_bytes
        helped = [
            ({**change, ALLOC_CONF: "expandable_segments:True"}, cost)
            for change, cost, made in probed
            if not fits(made) and peak_of(made).allocated_bytes <= limit
        ]
        return [(cost, made) for _, cost, made in (*probed, *self._probed(helped))]

    def _probed(self, changes: Sequence[tuple[Change, Cost]]) -> list[tuple[Change, Cost, Examination]]:
        results = self.directly([change for change, _ in changes])
        return [(*pair, made) for pair, made in zip(changes, results, strict=True) if made is not None]

    def seconds(self, examination: Examination) -> float:
        """Of a step, by its own probe."""
        rates = rates_of(self.case.device.name)
        assert rates is not None
        return estimate(examination, rates).seconds


def every_change(
    target: Workload, device: Device, tasks: Sequence[tuple[Change, Cost]]
) -> Iterator[tuple[Change, Cost]]:
    """All combinations of the planner's levers but the allocator's, with the highest cost of their parts."""
    levers: list[list[tuple[Change, Cost]]] = [_batches(target), list(tasks)]
    if target.attention == "eager":
        levers.append([({}, "none"), ({"attention": "sdpa"}, "none")])
    if not target.zero_grad_set_to_none:
        levers.append([({}, "none"), ({"zero_grad_set_to_none": True}, "none")])
    levers.append([({}, "none"), ({"gradient_checkpointing": True}, "time")])
    if target.precision == "fp32":
        levers.append([({}, "none"), ({"precision": "bf16" if device.capability >= (8, 0) else "fp16"}, "numerics")])
    if target.optimizer.startswith("adamw"):
        smaller: list[tuple[Change, Cost]] = [
            ({"optimizer": name}, "numerics") for name in ("adamw_bnb_8bit", "adafactor", "sgd")
        ]
        fused: list[tuple[Change, Cost]] = [({"optimizer": "adamw_torch_fused"}, "none")]
        levers.append([({}, "none"), *(fused if target.optimizer == "adamw_torch" else []), *smaller])
    if target.evaluate:
        moved: Change = {"eval_accumulation_steps": 1}
        levers.append([({}, "none"), (moved, "time"), ({**moved, "eval_batch_size": 1}, "time")])
    for parts in product(*levers):
        change = {name: value for part, _ in parts for name, value in part.items()}
        if change:
            yield change, max((cost for _, cost in parts), key=COSTS.index)


def _batches(target: Workload) -> list[tuple[Change, Cost]]:
    whole = target.batch_size * target.gradient_accumulation_steps
    smaller = [batch for batch in range(1, target.batch_size) if whole % batch == 0]
    made: list[tuple[Change, Cost]] = [
        ({"batch_size": batch, "gradient_accumulation_steps": whole // batch}, "time") for batch in smaller
    ]
    return [({}, "none"), *made]


def fits(examination: Examination) -> bool:
    """Whether it ran to its end."""
    return isinstance(examination.outcome, Completed)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """Workers for all cells."""
    with Pool() as pool:
        yield pool


@pytest.fixture(scope="module", params=CELLS)
def solved(request: pytest.FixtureRequest, pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Solved]:
    """One cell, planned."""
    cell = CELLS[request.param]
    path = tmp_path_factory.mktemp("model") / "config.json"
    path.write_text(json.dumps(_config(cell.family)), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pynvml", None)
        case = _on_a_small_card(open_case(str(path), gpu=cell.gpu, **cell.settings), cell.share, pool)
        yield _solve(case, pool)


def _config(family: str) -> dict[str, Any]:
    """The family's own names for the sizes stand in for the usual ones; Funnel refuses a number of layers."""
    given = {"model_type": family, **SIZES, **FAMILIES[family]}
    return {name: value for name, value in given.items() if value is not None}


def _on_a_small_card(case: Case, share: float, pool: Pool) -> Case:
    (roomy,) = pool.examine([Request(case.workload, case.device, case.facts)])
    limit = int(share * peak_of(roomy).reserved_bytes)
    return replace(case, device=replace(case.device, total_bytes=case.device.context_bytes + limit))


def _solve(case: Case, pool: Pool) -> Solved:
    session = Probing(case, pool, None)
    session.simulate([case.workload])
    target = session.best(case.workload)
    assert not fits(target), "it must not fit as it is"
    forecasts = Forecasts(case.workload, case.device, session.ask, replayed_on)
    search = Search(forecasts, Clock(rates_of(case.device.name)), target.workload.attention)
    return Solved(case, target, search, search.run(), pool, session)


def test_what_is_promised_is_what_a_fresh_probe_finds(solved: Solved) -> None:
    writer = Writer(solved.target, solved.search.clock, lambda _: {})
    entries = [writer.entry(found) for found in writer.front(solved.found)]
    for entry, made in zip(entries, solved.directly([entry.change for entry in entries]), strict=True):
        assert made is not None
        assert (entry.peak, entry.fits) == (peak_of(made), True)
        assert fits(made)


def test_what_exists_is_found_and_is_hardly_slower_than_the_fastest(solved: Solved) -> None:
    everything = [(cost, solved.seconds(made)) for cost, made in solved.everything() if fits(made)]
    for cost in COSTS[:-1]:
        possible = [seconds for of, seconds in everything if of == cost]
        ours = [solved.seconds(found.examination) for found in solved.found if found.setting.cost == cost]
        assert bool(ours) == bool(possible), cost
        assert not possible or min(ours) <= 1.1 * min(possible), cost


def test_the_front_leaves_out_nothing_that_is_faster(solved: Solved) -> None:
    writer = Writer(solved.target, solved.search.clock, lambda _: {})
    front = [solved.seconds(found.examination) for found in writer.front(solved.found)]
    assert min(front, default=0) <= 1.1 * min((solved.seconds(found.examination) for found in solved.found), default=0)


@pytest.mark.parametrize("solved", ["hopeless"], indirect=True)
def test_where_nothing_fits_the_smallest_footprint_is_the_smallest_of_all(solved: Solved) -> None:
    tasks: list[tuple[Change, Cost]] = [
        ({}, "none"), ({"freeze": ("*embeddings*",)}, "task"), ({"lora_rank": 8}, "task"), ({"seq_length": 32}, "task"),
    ]  # fmt: skip
    everything = [made for _, made in solved.everything(tasks)]
    assert not any(map(fits, everything))
    assert solved.found == ()
    smallest = solved.search.smallest()
    assert smallest.reserved_bytes == min(peak_of(made).reserved_bytes for made in everything)
    workload, _ = apply_to(solved.case.workload, solved.case.device, smallest.setting.change)
    card = smallest_card(workload, "", smallest.reserved_bytes, solved.session.ask)
    assert card is not None
    assert card.fits


@pytest.mark.parametrize("solved", ["temporaries"], indirect=True)
def test_the_peak_of_this_one_is_the_optimizer_s(solved: Solved) -> None:
    assert peak_of(solved.target).phase == PhaseName.OPTIMIZER
