"""The GPU probe on a real card: what no stand-in can show. Skipped where there is none.

Every step runs in a worker: this process has seen the simulated GPU, beside which a real one does not work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from memdoctor.agreement import compare, counters_of
from memdoctor.cases import Case, open_case
from memdoctor.probes.pool import Pool, Request
from memdoctor.records import Attention, Backend, Completed, Examination, Precision, RanOut

pytestmark = pytest.mark.gpu
TINY = "google/bert_uncased_L-2_H-128_A-2"
KINDS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "fp16": {"precision": Precision.FP16},
    "bf16": {"precision": Precision.BF16},
    "eager": {"attention": Attention.EAGER},
    "checkpointing": {"gradient_checkpointing": True},
    "padded": {"padded": True},
    "foreach": {"optimizer": "adamw_torch"},
    "adafactor": {"optimizer": "adafactor"},
    "accumulation": {"gradient_accumulation_steps": 2},
}


@pytest.fixture(scope="module")
def gpu() -> Iterator[Pool]:
    with Pool(Backend.GPU) as pool:
        yield pool


@pytest.fixture(scope="module")
def simulated() -> Iterator[Pool]:
    with Pool() as pool:
        yield pool


def case(**settings: Any) -> Case:
    return open_case(TINY, offline=True, backend="gpu", **{"batch_size": 4, "seq_length": 128, **settings})


def measured(pool: Pool, asked: Case) -> Examination:
    (found,) = pool.examine([Request(asked.workload, asked.device, asked.facts)])
    return found


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
def test_the_timeline_explains_pytorchs_counters_to_the_byte(gpu: Pool, settings: dict[str, Any]) -> None:
    found = measured(gpu, case(**settings))
    assert isinstance(found.outcome, Completed)
    assert {check.name: check.difference_bytes for check in counters_of(found) if check.difference_bytes} == {}


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
def test_what_is_simulated_is_what_is_measured(gpu: Pool, simulated: Pool, settings: dict[str, Any]) -> None:
    asked = case(**settings)
    found = measured(gpu, asked)
    (other,) = simulated.examine([Request(asked.workload, found.device, asked.facts)])
    row = compare({}, found, other)
    assert (row.allocated_error_percent, row.reserved_error_percent) == (0.0, 0.0)


def test_two_runs_of_one_process_are_alike(gpu: Pool) -> None:
    first, second = (measured(gpu, case()) for _ in range(2))
    assert first.timeline.events == second.timeline.events
    assert [block.op for block in first.timeline.blocks] == [block.op for block in second.timeline.blocks]


def test_the_context_is_measured(gpu: Pool) -> None:
    device = measured(gpu, case()).device
    assert device.context_source.startswith("measured")
    assert device.context_bytes > 0


def test_running_out_is_a_result_and_the_next_step_runs(gpu: Pool) -> None:
    """A batch that no card holds: activations of half a TiB."""
    asked = case(seq_length=512)
    huge = replace(asked, workload=replace(asked.workload, batch_size=2**15))
    found = measured(gpu, huge)
    assert isinstance(found.outcome, RanOut)
    assert found.outcome.requested_bytes > found.outcome.free_bytes
    assert isinstance(measured(gpu, case()).outcome, Completed)
