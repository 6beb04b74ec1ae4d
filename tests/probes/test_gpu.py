"""The GPU probe on a stand-in of CUDA's allocator: the same code, from the model's move to the examination."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
import torch
from cuda_standin import CUBLAS, CudaStandIn

from memdoctor.agreement import RESET, UNLISTED, counters_of
from memdoctor.analysis import breakdown_of, peak_of, ran_out_at, tensors_of, verdict_of
from memdoctor.codec import examination_from_json, examination_to_json
from memdoctor.errors import MeasureError
from memdoctor.probes import gpu
from memdoctor.probes.bare import run_bare
from memdoctor.probes.card import Card
from memdoctor.probes.gpu import Asked, examine
from memdoctor.probes.history import Action, History
from memdoctor.probes.nvml import GpuProcess, MemoryReading, NoGpu
from memdoctor.probes.real import real_subject
from memdoctor.probes.resolve import FACTORY_KEY
from memdoctor.probes.seen import ProcessState
from memdoctor.probes.simulated.allocator.conf import parse_alloc_conf
from memdoctor.records import Category, Completed, Device, Examination, PhaseName, Precision, RanOut, Workload

GIB, MIB = 1 << 30, 1 << 20
CONTEXT, OTHERS = 400 * MIB, 100 * MIB
BERT = {
    "model_type": "bert", "vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 256, "max_position_embeddings": 128,
}  # fmt: skip
CARD = Device(
    name="asked for", total_bytes=8 * GIB, compute_capability="7.0", context_bytes=300 * MIB,
    context_error_bytes=50 * MIB, context_source="catalogue", source="catalogue",
)  # fmt: skip


def card(allocator: CudaStandIn, listed: int = OTHERS) -> Card:
    """A T4 that others hold 100 MiB of, by NVML's list another process, and on which the context takes 400 MiB."""

    def read() -> MemoryReading:
        own = allocator.caching.reserved + CONTEXT
        return MemoryReading(16 * GIB, own + OTHERS, own, (GpuProcess(7, "python", listed, ProcessState.ALIVE),))

    before = MemoryReading(16 * GIB, OTHERS, None, ())
    return Card("T4", 16 * GIB, "7.5", "GPU-1", "13.0", "580.1", before, read, lambda: read().used_bytes)


def probe(
    allocator: CudaStandIn | None = None,
    config: dict[str, Any] | None = None,
    on: Card | None = None,
    device: Device = CARD,
    **workload: Any,
) -> Examination:
    allocator = allocator or CudaStandIn(parse_alloc_conf(device.alloc_conf))
    wanted = Workload(**{"model": "small", "batch_size": 4, "seq_length": 64, **workload})
    return examine(allocator, on or card(allocator), Asked(wanted, device, config or BERT, "by hand", 2))


KINDS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "bf16": {"precision": Precision.BF16},
    "checkpointing": {"gradient_checkpointing": True},
    "reentrant": {"gradient_checkpointing": True, "use_reentrant": True},
    "accumulation": {"gradient_accumulation_steps": 2},
    "padded": {"padded": True},
    "adafactor": {"optimizer": "adafactor"},
    "foreach": {"optimizer": "adamw_torch"},
    "LoRA": {"lora_rank": 4},
    "evaluation": {"evaluate": True, "eval_samples": 10, "eval_accumulation_steps": 1},
    "emptying the cache": {"torch_empty_cache_steps": 1},
}


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("conf", ["", "expandable_segments:True"])
def test_the_timeline_is_the_allocators(settings: dict[str, Any], conf: str) -> None:
    """Every block, what it was given, both peaks and what is left, to the byte."""
    device = Device(**{**_fields(CARD), "alloc_conf": conf})
    allocator = CudaStandIn(parse_alloc_conf(conf))
    found = probe(allocator, device=device, **settings)
    assert isinstance(found.outcome, Completed)
    assert [block.allocated_bytes for block in found.timeline.blocks] == allocator.given[: len(found.timeline.blocks)]
    checks = counters_of(found)
    assert [check.name for check in checks] == [
        "max_memory_allocated", "max_memory_reserved", "memory_allocated at the end", "memory_reserved at the end",
        "used on the card",
    ]  # fmt: skip
    assert {check.name: check.difference_bytes for check in checks if check.difference_bytes} == {}


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
def test_recording_takes_nothing_of_the_card(settings: dict[str, Any]) -> None:
    """The allocator's history is the same, entry by entry, when nobody looks at the step."""
    watched, alone = CudaStandIn(), CudaStandIn()
    found = probe(watched, **settings)
    subject = real_subject(BERT, found.workload)
    alone.begin()
    run_bare(alone, subject, found.workload, 2)
    alone.end()
    end = found.timeline.phases[-1].end
    assert lives(watched, end) == lives(alone, end)
    assert watched.peak_allocated == alone.peak_allocated


def lives(allocator: CudaStandIn, end: int) -> list[tuple[Action, int]]:
    """So many births and deaths, in order; deaths with no birth between them, which can be in any order, sorted."""
    seen = [(entry.action, entry.bytes) for entry in allocator.entries if entry.action in (Action.ALLOC, Action.FREE)]
    runs = groupby(seen[:end], key=lambda life: life[0])
    return [life for action, run in runs for life in (run if action is Action.ALLOC else sorted(run))]


def _fields(device: Device) -> dict[str, Any]:
    return {name: getattr(device, name) for name in Device.__dataclass_fields__}


def held(found: Examination) -> dict[Category, int]:
    """Bytes by category that are alive at the end of the first step's optimizer phase."""
    phase = next(item for item in found.timeline.phases if (item.step, item.name) == (1, PhaseName.OPTIMIZER))
    total: dict[Category, int] = {}
    for number in found.timeline.alive_after(phase.end - 1):
        block = found.timeline.blocks[number]
        total[block.category] = total.get(block.category, 0) + block.bytes
    return total


def test_categories_are_those_of_the_model_by_hand() -> None:
    hidden, inner, words, positions = 64, 256, 1000, 128
    layer = 4 * (hidden * hidden + hidden) + 2 * hidden * inner + inner + hidden + 4 * hidden
    parameters = (words + positions + 2) * hidden + 2 * hidden + 2 * layer + hidden * hidden + hidden + 2 * hidden + 2
    tensors = 5 + 2 * 16 + 4
    bytes_held = held(probe())
    assert bytes_held[Category.PARAMETERS] == 4 * parameters
    assert bytes_held[Category.GRADIENTS] == 4 * parameters
    assert bytes_held[Category.OPTIMIZER_STATE] == 2 * 4 * parameters + 4 * tensors  # two moments, and a count each
    assert bytes_held[Category.WORKSPACE] == CUBLAS
    assert Category.ACTIVATIONS not in bytes_held


def test_the_four_peaks_parts_sum_to_the_card() -> None:
    found = probe()
    parts = breakdown_of(found)
    assert parts.device + parts.free == 16 * GIB
    assert (parts.context, parts.other_processes) == (CONTEXT, OTHERS)
    assert found.device.name == "T4"
    assert "by pid" in found.device.context_source
    assert (found.provenance.mode, found.provenance.cuda, found.provenance.driver) == ("measured", "13.0", "580.1")
    assert peak_of(found).device_bytes == parts.reserved + CONTEXT + OTHERS


def test_what_a_kernel_takes_for_itself_is_its_operators_workspace() -> None:
    backward = torch.ops.aten.embedding_dense_backward.default
    found = probe(CudaStandIn(scratch={backward: 5000}))
    blocks = [block for block in found.timeline.blocks if block.category is Category.WORKSPACE]
    assert [(block.bytes, block.op) for block in blocks if block.bytes == 5000] == [
        (5000, "aten.embedding_dense_backward.default: workspace")
    ] * 6  # three tables, two steps
    first = blocks[0]
    assert (first.bytes, first.op) == (CUBLAS, "aten.addmm.default: workspace")
    assert first.module == "bert.encoder.layer.0.attention.self.query"


def test_autocasts_copies_of_weights_are_told_from_activations() -> None:
    """Query, key, value, output, the two dense layers, pooler and classifier: weights and biases in two bytes."""
    hidden, inner = 64, 256
    linear = 2 * (4 * (hidden * hidden + hidden) + 2 * hidden * inner + inner + hidden)
    linear += hidden * hidden + hidden + 2 * hidden + 2
    copies = [
        block for block in probe(precision=Precision.BF16).timeline.blocks
        if block.category is Category.AUTOCAST_COPIES
    ]  # fmt: skip
    assert sum(block.bytes for block in copies) == 2 * 2 * linear  # in both steps


def test_every_tensor_at_the_peak_has_its_operator_module_and_phase() -> None:
    groups = tensors_of(probe())
    assert all(group.op.startswith("aten.") for group in groups)
    for group in groups:
        match group.category:
            case Category.PARAMETERS:
                assert group.phase == PhaseName.SETUP
            case Category.ACTIVATIONS:
                assert (group.phase, group.module.split(".")[0]) == (PhaseName.FORWARD, "bert")
            case Category.GRADIENTS:
                assert group.phase == PhaseName.BACKWARD
            case Category.OPTIMIZER_STATE:
                assert group.phase == PhaseName.OPTIMIZER


def test_what_nobody_on_nvmls_list_holds_is_a_line_of_its_own() -> None:
    allocator = CudaStandIn()
    checks = counters_of(probe(allocator, on=card(allocator, listed=OTHERS - 30 * MIB)))
    assert [(check.name, check.difference_bytes, check.note) for check in checks if check.difference_bytes] == [
        ("used on the card", 30 * MIB, UNLISTED)
    ]


def test_a_context_that_cannot_be_kept_is_told() -> None:
    allocator = CudaStandIn()
    forgetful = replace(card(allocator), keep=lambda context: f"no room for {context.context_bytes} B")
    notes = probe(allocator, on=forgetful).provenance.notes
    assert f"the measured context could not be kept for later: no room for {CONTEXT} B" in notes


def test_an_examination_that_was_measured_is_the_same_after_a_file() -> None:
    found = probe()
    assert examination_from_json(examination_to_json(found)) == found


@pytest.fixture(scope="module")
def needed() -> int:
    return peak_of(probe()).reserved_bytes


def limited(capacity: int) -> tuple[Examination, CudaStandIn]:
    """On a card that has this much left for the allocator."""
    allocator = CudaStandIn(capacity_bytes=capacity)
    reading = MemoryReading(capacity + CONTEXT, 0, None, ())
    small = Card(
        "T4", capacity + CONTEXT, "7.5", "GPU-1", "13.0", "580.1", reading,
        lambda: MemoryReading(capacity + CONTEXT, allocator.caching.reserved + CONTEXT, None, ()), lambda: 0,
    )  # fmt: skip
    return probe(allocator, on=small), allocator


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_running_out_of_memory_is_a_result(needed: int, share: float) -> None:
    capacity = int(needed * share) >> 21 << 21
    found, allocator = limited(capacity)
    outcome = found.outcome
    assert isinstance(outcome, RanOut)
    refused = next(entry for entry in allocator.entries if entry.action == "oom")
    assert (outcome.requested_bytes, outcome.free_bytes) == (refused.bytes, refused.address)
    assert outcome.event == len(found.timeline.events) - 1
    assert outcome.allocated_bytes == found.timeline.memory_allocated()[-2]
    assert outcome.reserved_bytes == found.timeline.reserved()[-2]
    assert not verdict_of(found).fits
    assert verdict_of(found).headroom_bytes < 0
    assert "at least" in verdict_of(found).sentence
    where = ran_out_at(found)
    assert where is not None
    assert where.op.startswith("aten.")
    assert "CUDA out of memory" in where.message
    assert {check.name: check.difference_bytes for check in counters_of(found)} == {
        "max_memory_allocated": 0, "max_memory_reserved": 0
    }  # fmt: skip


def test_a_model_that_does_not_fit_on_the_card_runs_out_of_parameters() -> None:
    wide = {**BERT, "vocab_size": 100_000}
    allocator = CudaStandIn(capacity_bytes=24 * MIB)
    found = probe(allocator, wide)
    assert isinstance(found.outcome, RanOut)
    assert found.outcome.requested_bytes == 100_000 * 64 * 4
    assert breakdown_of(found).parameters == 100_000 * 64 * 4
    assert breakdown_of(found).temporaries == 0


def test_an_out_of_memory_that_the_model_wraps_is_a_result_all_the_same() -> None:
    allocator = CudaStandIn(capacity_bytes=24 * MIB)

    def fail() -> None:
        try:
            torch.ones(10 * MIB)
        except torch.OutOfMemoryError as error:
            raise RuntimeError("wrapped") from error

    found = probe_meddling(allocator, fail)
    assert isinstance(found.outcome, RanOut)
    assert found.outcome.requested_bytes == 4 * 10 * MIB


def test_nothing_is_left_of_a_run_that_ran_out(needed: int) -> None:
    import gc

    _, allocator = limited(int(needed * 0.9) >> 21 << 21)
    gc.collect()
    assert allocator.caching.allocated == CUBLAS


class Meddling(torch.nn.Module):
    """A model that does something else in its forward pass."""

    def __init__(self, meddle: Callable[[], None]) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        self.meddle = meddle

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        out = self.layer(rows).sum()
        self.meddle()
        return out


MEDDLE: dict[str, Callable[[], None]] = {}


def meddling() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """A factory; what is done is in MEDDLE."""
    return Meddling(MEDDLE["now"]), {"rows": torch.ones(4, 8)}


def probe_meddling(allocator: CudaStandIn, meddle: Callable[[], None]) -> Examination:
    MEDDLE["now"] = meddle
    return probe(allocator, {FACTORY_KEY: f"{__name__}:meddling"})


def test_peaks_that_somebody_reset_are_told() -> None:
    allocator = CudaStandIn()

    def reset() -> None:
        torch.ones(1 << 20)  # the peak
        allocator.peak_allocated = 0

    found = probe_meddling(allocator, reset)
    (check,) = [check for check in counters_of(found) if check.difference_bytes]
    assert check.name == "max_memory_allocated"
    assert check.difference_bytes < 0
    assert check.note == RESET


def test_a_history_that_contradicts_itself_is_no_result() -> None:
    allocator = CudaStandIn()

    def forget() -> None:
        allocator.entries[:] = [entry for entry in allocator.entries if entry.action != "segment_alloc"]

    with pytest.raises(MeasureError, match="contradicts itself") as caught:
        probe_meddling(allocator, forget)
    assert "is in no segment" in caught.value.why


def test_an_error_of_the_models_code_is_told_as_the_models() -> None:
    def fail() -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(MeasureError, match="the model's code refuses") as caught:
        probe_meddling(CudaStandIn(), fail)
    assert "mat1 and mat2" in caught.value.why


@pytest.mark.parametrize(
    "words",
    ["CUDA error: out of memory", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"],
)
def test_memory_that_the_driver_refused_is_told(words: str) -> None:
    def fail() -> None:
        raise RuntimeError(words)

    with pytest.raises(MeasureError, match="ran out of memory beside PyTorch's allocator") as caught:
        probe_meddling(CudaStandIn(), fail)
    assert words in caught.value.why
    assert "--batch-size" in caught.value.hint


class Failing(CudaStandIn):
    """CUDA's errors come up wherever the host next waits for the device: here when the history is read."""

    def end(self) -> History:
        super().end()
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")


def test_an_error_of_the_device_is_told_wherever_it_comes_up() -> None:
    with pytest.raises(MeasureError, match="CUDA failed in the training step") as caught:
        probe(Failing())
    assert "illegal memory access" in caught.value.why


def test_an_out_of_memory_that_the_allocator_did_not_write_is_told() -> None:
    def fail() -> None:
        raise torch.OutOfMemoryError("NCCL")

    with pytest.raises(MeasureError, match="did not refuse anything"):
        probe_meddling(CudaStandIn(), fail)


def test_without_nvml_the_context_and_others_are_one_figure() -> None:
    allocator = CudaStandIn()
    gone = NoGpu("NVML cannot start: driver not loaded")
    blind = Card(
        "T4", 16 * GIB, "7.5", "GPU-1", "13.0", "", gone, lambda: gone,
        lambda: allocator.caching.reserved + CONTEXT + OTHERS,
    )  # fmt: skip
    found = probe(allocator, on=blind)
    assert found.device.context_bytes == CONTEXT + OTHERS
    assert "others included" in found.device.context_source
    assert any("driver not loaded" in note for note in found.provenance.notes)
    assert "used on the card" not in [check.name for check in counters_of(found)]  # nothing to hold it to


def test_the_gpu_probe_times_a_step_and_records_what_it_would_without(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = probe()
    assert timed.step_seconds is not None
    monkeypatch.setattr(gpu, "seconds_of_step", lambda *_: None)
    untimed = probe()
    assert untimed.step_seconds is None
    assert (timed.timeline, timed.counters, timed.outcome) == (untimed.timeline, untimed.counters, untimed.outcome)
