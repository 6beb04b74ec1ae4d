"""The grid: what the cells are, that they can run, and what is left out on which card."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import replace

import pytest

from memdoctor.analysis import peak_of
from memdoctor.catalogue import find_gpu
from memdoctor.errors import UsageError
from memdoctor.probes.record.files import MOST_BYTES
from memdoctor.probes.record.grid import DEFAULT, GRIDS, Cell, beyond, cell, choose, facts_of, reason_to_skip
from memdoctor.probes.simulated.probe import simulate
from memdoctor.records import Attention, Device, Precision, Workload
from memdoctor.storage import examination_document

ALL = {
    "model": {
        "bert-base-uncased", "bert-large-uncased", "roberta-base", "distilbert-base-uncased",
        "microsoft/deberta-v3-base",
    },
    "batch_size": {1, 2, 8, 32},
    "seq_length": {128, 512},
    "precision": set(Precision),
    "attention": set(Attention),
    "gradient_checkpointing": {False, True},
    "optimizer": {"adamw_torch_fused", "adamw_torch", "adafactor"},
    "padded": {False, True},
}  # fmt: skip
MIB = 1 << 20


def card(total_mib: int = 143_156, capability: str = "9.0") -> Device:
    return Device(
        name="H200", total_bytes=total_mib * MIB, compute_capability=capability, context_bytes=0, context_error_bytes=0,
        context_source="none", source="by hand",
    )  # fmt: skip


def named(name: str) -> Cell:
    return next(cell for cell in DEFAULT if cell.name == name)


def values(cells: Iterable[Cell]) -> dict[str, set[object]]:
    return {setting: {getattr(cell.workload, setting) for cell in cells} for setting in ALL}


def test_a_cell_is_written_in_words() -> None:
    found = cell("bert-large 2x512 fp16 eager ckpt foreach padded", 7, "why")
    assert found == Cell(
        "bert-large-2x512-fp16-eager-ckpt-foreach-padded", "why",
        Workload(
            model="bert-large-uncased", batch_size=2, seq_length=512, precision=Precision.FP16,
            attention=Attention.EAGER, gradient_checkpointing=True, optimizer="adamw_torch", padded=True,
        ), 7,
    )  # fmt: skip


def test_the_default_grid_has_sixty_different_cells_with_a_reason_each() -> None:
    assert len(DEFAULT) == 60
    assert len({cell.name for cell in DEFAULT}) == 60
    assert len({cell.workload for cell in DEFAULT}) == 60
    assert len({cell.why for cell in DEFAULT}) == 60


def test_the_first_dozen_has_every_value_of_every_setting_and_nothing_else_is_asked_for() -> None:
    assert values(DEFAULT[:12]) == ALL
    assert values(DEFAULT) == ALL


def test_the_quick_grid_is_the_first_ten_with_every_model() -> None:
    assert GRIDS["quick"] == DEFAULT[:10]
    assert values(DEFAULT[:10])["model"] == ALL["model"]


@pytest.mark.parametrize("one", DEFAULT, ids=lambda cell: cell.name)
def test_every_model_is_in_the_catalogue_and_takes_the_length(one: Cell) -> None:
    facts = facts_of(one.workload.model)
    assert facts.source.startswith("catalogue")
    assert facts.max_seq_length is not None
    assert one.workload.seq_length <= facts.max_seq_length


# The last has the largest recording of the grid. In fp32 attention is the same under every release.
@pytest.mark.parametrize(
    "name",
    ["bert-base-1x128-fp32-sdpa", "deberta-v3-base-8x128-fp32-eager-adafactor",
     "bert-large-32x128-fp16-sdpa-adafactor-padded"],
)  # fmt: skip
def test_a_recording_is_small_and_needs_what_the_grid_says(name: str) -> None:
    one = named(name)
    facts, gpu = facts_of(one.workload.model), find_gpu("H200")
    assert gpu is not None
    found = simulate(one.workload, replace(card(), name=gpu.name), facts.config, facts.source)
    text = json.dumps(examination_document(found), separators=(",", ":")).encode()
    assert len(gzip.compress(text, mtime=0)) <= MOST_BYTES
    if one.workload.precision is Precision.FP32:
        assert -(-peak_of(found).reserved_bytes // MIB) == one.needs_mib


def test_patterns_choose_cells_in_the_order_of_the_grid() -> None:
    assert [one.name for one in choose("quick", ("distil*", "bert-base-8x512-fp??-sdpa"))] == [
        "bert-base-8x512-fp32-sdpa", "bert-base-8x512-fp16-sdpa", "distilbert-2x128-fp32-sdpa-adafactor",
    ]  # fmt: skip


@pytest.mark.parametrize(("grid", "patterns", "what"), [("huge", (), "no grid 'huge'"), ("quick", ("gpt*",), "gpt*")])
def test_what_is_not_there_is_an_error(grid: str, patterns: tuple[str, ...], what: str) -> None:
    with pytest.raises(UsageError, match=what.replace("*", r"\*")):
        choose(grid, patterns)


def test_bf16_is_left_out_before_ampere() -> None:
    one = named("bert-base-8x512-bf16-sdpa")
    assert reason_to_skip(one, card(), running_out=False) == ""
    assert reason_to_skip(one, card(capability="7.5"), running_out=True) == (
        "compute capability 7.5 has no bf16 arithmetic"
    )


def test_what_is_predicted_not_to_fit_is_left_out_unless_it_is_wanted() -> None:
    one = replace(named("bert-base-8x512-fp32-sdpa"), needs_mib=4096)
    assert reason_to_skip(one, card(4096), running_out=False) == ""
    assert reason_to_skip(one, card(4095), running_out=True) == ""
    assert reason_to_skip(one, card(4095), running_out=False) == (
        "predicted to need 4.00 GiB, the card has 4.00 GiB; --with-oom runs it"
    )


def test_a_batch_beyond_the_card_needs_a_quarter_more_by_the_growth_of_two_cells() -> None:
    small, large = named("bert-base-8x512-fp32-eager"), named("bert-base-32x512-fp32-eager")
    assert (small.needs_mib, large.needs_mib) == (6594, 22136)  # 15542 for 24 samples: 647 each
    one = beyond(16_000 * MIB)  # 20,000 MiB wanted: 13,406 more than 8 samples, 20.7 samples of 647
    assert one.workload == replace(small.workload, batch_size=29)
    assert one.needs_mib == 6594 + 21 * 647
    assert one.name == "bert-base-29x512-fp32-eager"
