"""The recorder over the GPU probe itself, on real CPU tensors and a stand-in of CUDA's allocator and of NVML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from cuda_standin import CUBLAS, CudaStandIn

from memdoctor.errors import MeasureError
from memdoctor.probes.card import Card
from memdoctor.probes.gpu import Asked, examine
from memdoctor.probes.nvml import MemoryReading, NoGpu
from memdoctor.probes.pool import Request
from memdoctor.probes.record.files import Versions
from memdoctor.probes.record.grid import Cell, facts_of
from memdoctor.probes.record.runner import Limits, Recorder, State
from memdoctor.probes.record.shell import THIS_GPU, with_a_context
from memdoctor.probes.record.simulating import compare_all
from memdoctor.probes.simulated.probe import simulate
from memdoctor.records import Attention, Category, Examination, Precision, RanOut, Workload
from memdoctor.storage import load_examination

GIB, MIB = 1 << 30, 1 << 20
CONTEXT, OTHERS = 150 * MIB, 100 * MIB
TINY = "google/bert_uncased_L-2_H-128_A-2"
HERE = Versions("2.11.0", "5.17.0")


def tiny(name: str, **workload: object) -> Cell:
    settings = {"batch_size": 2, "seq_length": 32, "attention": Attention.EAGER, **workload}
    return Cell(name, "small", Workload(model=TINY, **settings), 10)  # type: ignore[arg-type]


CELLS = (
    tiny("fp32"),
    tiny("ckpt", gradient_checkpointing=True, optimizer="adafactor", padded=True),
    tiny("bf16", precision=Precision.BF16, optimizer="adamw_torch"),
)


def a_t4(allocator: CudaStandIn, before: MemoryReading | NoGpu) -> Card:
    def read() -> MemoryReading:
        own = allocator.caching.reserved + CONTEXT
        return MemoryReading(16 * GIB, own + OTHERS, own, ())

    return Card("Tesla T4", 16 * GIB, "7.5", "GPU-1", "13.0", "580.1", before, read, lambda: read().used_bytes)


def recorder(folder: Path, *, capacity: int | None = None, nvml: MemoryReading | NoGpu | None = None) -> Recorder:
    """One whose GPU is a T4 that is not there, of which ``capacity`` bytes can be had."""

    def measure(workload: Workload, seconds: float) -> Examination:
        facts = facts_of(workload.model)
        allocator = CudaStandIn(capacity_bytes=capacity)
        card = a_t4(allocator, nvml or MemoryReading(16 * GIB, OTHERS, None, ()))
        return with_a_context(examine(allocator, card, Asked(workload, THIS_GPU, facts.config, facts.source, 2)))

    return Recorder(measure, folder, HERE, Limits(1000.0, 100.0))


def answer(requests: Sequence[Request]) -> list[Examination | MeasureError]:
    return [
        simulate(request.workload, request.device, request.facts.config, request.facts.source, request.steps)
        for request in requests
    ]


def test_steps_are_recorded_and_what_they_took_is_beside_the_simulation(tmp_path: Path) -> None:
    results = list(recorder(tmp_path).run(CELLS))
    assert [result.state for result in results] == [State.RECORDED, State.RECORDED, State.SKIPPED]
    assert [result.file for result in results] == ["t4-fp32.json.gz", "t4-ckpt.json.gz", ""]
    for comparison in compare_all([tmp_path / "t4-ckpt.json.gz", tmp_path / "t4-fp32.json.gz"], answer):
        assert comparison.same_outcome
        assert comparison.device.context_bytes == CONTEXT
        assert comparison.device.other_processes_bytes == OTHERS
        figures = {row.what: row.difference for row in comparison.rows}
        # What is owned by name is the same in both; no CPU takes what CUDA's kernels take for themselves.
        exact = (Category.PARAMETERS, Category.GRADIENTS, Category.OPTIMIZER_STATE, Category.INPUTS_AND_BUFFERS)
        assert [figures[category.value] for category in exact] == [0, 0, 0, 0]
        assert figures["device"] is not None


def test_a_recording_holds_what_pytorch_and_nvml_counted(tmp_path: Path) -> None:
    (result,) = recorder(tmp_path).run(CELLS[:1])
    found = load_examination(tmp_path / result.file)
    assert found.provenance.mode == "measured"
    assert (found.device.name, found.device.total_bytes) == ("T4", 16 * GIB)
    assert found.device.context_source.startswith("measured")
    assert found.counters is not None
    assert found.counters.max_memory_allocated_bytes == max(found.timeline.memory_allocated())
    assert found.counters.used_bytes == found.counters.memory_reserved_bytes + CONTEXT + OTHERS
    assert CUBLAS in {block.bytes for block in found.timeline.blocks}


def test_without_nvml_the_device_is_what_cuda_counts_for_all(tmp_path: Path) -> None:
    (result,) = recorder(tmp_path, nvml=NoGpu("pynvml cannot be imported")).run(CELLS[:1])
    found = load_examination(tmp_path / result.file)
    assert (found.device.context_bytes, found.device.other_processes_bytes) == (CONTEXT + OTHERS, 0)
    assert any("pynvml cannot be imported" in note for note in found.provenance.notes)
    (comparison,) = compare_all([tmp_path / result.file], answer)
    (device,) = [row for row in comparison.rows if row.what == "device"]
    assert found.counters is not None
    assert device.recorded == found.counters.max_memory_reserved_bytes + CONTEXT + OTHERS
    assert any(note.endswith("less reserved, others included") for note in comparison.notes)


def test_a_context_that_nobody_measured_is_the_catalogues(tmp_path: Path) -> None:
    (result,) = recorder(tmp_path).run(CELLS[:1])
    found = load_examination(tmp_path / result.file)
    blind = replace(found, device=replace(found.device, context_bytes=0, context_source="unknown"))
    known = with_a_context(blind).device
    assert known.context_bytes == 139_460_608  # of a T4, in the catalogue
    assert with_a_context(found) == found


def test_running_out_is_recorded_and_compared(tmp_path: Path) -> None:
    (result,) = recorder(tmp_path, capacity=48 * MIB).run(CELLS[:1])
    assert (result.state, result.reason) == (State.RECORDED, "ran out of memory")
    found = load_examination(tmp_path / result.file)
    assert isinstance(found.outcome, RanOut)
    (comparison,) = compare_all([tmp_path / result.file], answer)  # on the recorded card, which has 16 GiB
    assert (comparison.recorded.split(" of ")[0].split()[:2], comparison.simulated) == (["ran", "out"], "completed")
    assert not comparison.same_outcome


@pytest.mark.parametrize("name", ["NVIDIA Unheard Of", "the GPU of this machine"])
def test_a_card_that_nobody_knows_keeps_its_device(tmp_path: Path, name: str) -> None:
    (result,) = recorder(tmp_path).run(CELLS[:1])
    found = load_examination(tmp_path / result.file)
    unknown = replace(found, device=replace(found.device, name=name, context_source="unknown"))
    assert with_a_context(unknown) == unknown
