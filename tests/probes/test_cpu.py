"""The CPU probe: the same step on real numbers, its bytes by hand, its device this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from memdoctor.analysis import breakdown_of, peak_of
from memdoctor.errors import InputError, MeasureError
from memdoctor.probes import user_models
from memdoctor.probes.cpu import run_on_cpu
from memdoctor.probes.host import host_device
from memdoctor.probes.models import build_model
from memdoctor.probes.real import make_up_weights, real_subject
from memdoctor.records import Category, Completed, Examination, Precision, Workload

BERT = {
    "model_type": "bert", "vocab_size": 64, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 16, "max_position_embeddings": 16,
}  # fmt: skip
F32 = 4


def workload(**settings: Any) -> Workload:
    return Workload(**{"model": "small", "batch_size": 2, "seq_length": 8, **settings})


def examine(**settings: Any) -> Examination:
    return run_on_cpu(workload(**settings), host_device(), BERT, "by hand")


def parameters_of(wanted: Workload) -> int:
    return sum(parameter.numel() for parameter in build_model(BERT, wanted).parameters())


def test_parameters_gradients_and_adams_state_by_hand() -> None:
    found = examine(optimizer="adamw_torch")
    count, tensors = parameters_of(workload()), len(list(build_model(BERT, workload()).parameters()))
    held = dict.fromkeys(Category, 0)
    alive = [found.timeline.blocks[block] for block in found.timeline.alive_after(optimizer_end(found))]
    for block in alive:
        held[block.category] += block.bytes
    assert held[Category.PARAMETERS] == count * F32
    assert held[Category.GRADIENTS] == count * F32
    assert held[Category.OPTIMIZER_STATE] == 2 * count * F32 + tensors * F32  # two moments, and a step for each
    assert held[Category.ACTIVATIONS] == 0


def optimizer_end(found: Examination) -> int:
    return next(phase.end - 1 for phase in found.timeline.phases if (phase.step, phase.name) == (2, "optimizer"))


def test_it_is_measured_on_this_machine_and_says_so() -> None:
    found = examine()
    assert found.outcome == Completed()
    assert found.provenance.mode == "measured"
    assert found.device.is_cpu
    assert found.device.total_bytes <= psutil.virtual_memory().total
    assert 0 < found.device.context_bytes < found.device.total_bytes
    assert any("without what kernels take while they run" in note for note in found.provenance.notes)
    assert "made-up weights of the usual size" in found.provenance.notes
    assert any("resident memory" in note for note in found.provenance.notes)


def test_reserved_is_allocated_and_nothing_is_overhead() -> None:
    found = examine()
    peak, parts = peak_of(found), breakdown_of(found)
    assert peak.reserved_bytes == peak.allocated_bytes == peak.max_memory_allocated_bytes
    assert (parts.allocator_overhead, parts.workspace) == (0, 0)


@pytest.mark.parametrize("precision", Precision)
def test_it_is_the_same_each_time(precision: Precision) -> None:
    assert examine(precision=precision).timeline == examine(precision=precision).timeline


def test_autocast_keeps_a_copy_of_every_weight_of_a_linear_layer() -> None:
    """bf16: weights and biases of the linear layers, 2 B an element; embeddings and norms are not cast."""
    found = examine(precision=Precision.BF16)
    linear = [part for part in build_model(BERT, workload()).modules() if isinstance(part, torch.nn.Linear)]
    expected = sum(parameter.numel() * 2 for part in linear for parameter in part.parameters())
    copies = [block for block in found.timeline.blocks if block.category is Category.AUTOCAST_COPIES]
    assert sum(block.bytes for block in copies) == expected * 2  # two steps
    assert {block.dtype for block in copies} == {"bfloat16"}


def test_without_autocast_there_are_no_copies() -> None:
    assert breakdown_of(examine()).autocast_copies == 0


def test_a_directorys_own_weights_are_loaded(tmp_path: Path) -> None:
    model: Any = build_model(BERT, workload())
    make_up_weights(model, seed=7)
    model.base_model.save_pretrained(tmp_path)  # the encoder alone, as most checkpoints are
    subject = real_subject(BERT, workload(model=str(tmp_path)))
    assert not subject.made_up
    made = (
        f"weights from {tmp_path / 'model.safetensors'}; not in it, and initialised: classifier.bias, classifier.weight"
    )
    assert subject.weights == made
    loaded = subject.model.state_dict()
    for name, value in model.base_model.state_dict().items():
        assert torch.equal(loaded[f"bert.{name}"], value)


def test_a_directory_without_weights_has_made_up_ones(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(BERT), encoding="utf-8")
    assert real_subject(BERT, workload(model=str(tmp_path))).made_up


def test_broken_weights_are_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(BERT), encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(InputError, match="cannot be loaded") as caught:
        real_subject(BERT, workload(model=str(tmp_path)))
    assert str(tmp_path / "model.safetensors") in caught.value.what


class Greedy(torch.nn.Module):
    """Asks for more than any machine has."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, _: torch.Tensor) -> torch.Tensor:
        return self.weight * torch.empty(1 << 50).sum()


class Clumsy(Greedy):
    """Fails in its own code."""

    def forward(self, _: torch.Tensor) -> torch.Tensor:
        raise ValueError("my own mistake")


@pytest.mark.parametrize(
    ("model", "complaint"),
    [
        (Greedy, "this machine ran out of memory"),
        (Clumsy, "the model's code refuses the training step, at test_cpu.py:"),
    ],
)
def test_a_step_that_cannot_be_run_is_one_clear_error(
    monkeypatch: pytest.MonkeyPatch, model: type[torch.nn.Module], complaint: str
) -> None:
    made = user_models.UserModel(model(), lambda wanted, seed: {"0": torch.ones(2, 8, dtype=torch.long)})
    monkeypatch.setattr(user_models, "load", lambda name, wanted: made)
    with pytest.raises(MeasureError, match=complaint) as caught:
        run_on_cpu(workload(model="a:b"), host_device(), {"factory": "a:b"}, "by hand")
    assert caught.value.why
