"""The training step beside the real Trainer of transformers, on real CPU tensors: the same births and deaths, in order.

The Trainer runs its own loop, accelerate its own data loader and optimizer; the tracker only watches. What it does
beside the step (shuffling) makes a few tensors of its own, which are left out by their operator.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count, groupby
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from memdoctor.probes.adapting import adapt
from memdoctor.probes.batches import make_batch
from memdoctor.probes.job import Batch, Job
from memdoctor.probes.models import build_model
from memdoctor.probes.modules import ModuleClock
from memdoctor.probes.optimizers.groups import parameter_groups
from memdoctor.probes.step import train
from memdoctor.probes.tracker import Tracker, watching
from memdoctor.records import Attention, PhaseName, Precision, Task, Workload

pytest.importorskip("accelerate", reason="the Trainer needs accelerate")
if tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 3):
    pytest.skip("the Trainer before 5.3 makes a new running loss each time, of 4 bytes", allow_module_level=True)

BERT = {
    "model_type": "bert", "vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 32, "max_position_embeddings": 40, "hidden_dropout_prob": 0.1,
}  # fmt: skip
ROWS, LENGTH, STEPS = 3, 16, 2
F32 = 4
SHUFFLING = {"aten.randperm.generator", "aten.empty.memory_format"}  # draws a seed and an order

Lives = list[tuple[str, int]]
"""Births and deaths: the operator that made the storage, and its bytes, negative for a death."""


class Watching:
    """Phases are told to the tracker, and nothing else."""

    def __init__(self, tracker: Tracker, clock: ModuleClock) -> None:
        self.tracker, self.clock = tracker, clock
        self.cache_emptied = 0

    def begin(self, step: int, name: PhaseName) -> None:
        self.clock.leave()
        self.tracker.begin(step, name)

    def inputs(self, batch: Batch) -> None:
        pass

    def gradients(self, model: torch.nn.Module) -> None:
        pass

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> None:
        pass

    def empty_cache(self) -> None:
        self.cache_emptied += 1


@contextmanager
def recorded(model: torch.nn.Module) -> Iterator[tuple[Tracker, ModuleClock]]:
    clock = ModuleClock()
    tracker = Tracker("cpu", clock)
    gc.collect()
    gc.disable()  # it runs when it likes
    try:
        with tracker, watching(tracker, clock, model):
            tracker.begin(0, PhaseName.SETUP)
            yield tracker, clock
            tracker.finish()
    finally:
        gc.enable()


def lives(tracker: Tracker) -> Lives:
    """All but the first, which is the running loss, made by torch.zeros here and by torch.tensor there."""
    of = [(event.block, tracker.blocks[event.block].op, event.delta_bytes) for event in tracker.events]
    return [(op, nbytes) for block, op, nbytes in of if block and op not in SHUFFLING and not compares(op, nbytes)]


def compares(op: str, nbytes: int) -> bool:
    """Accelerate makes a tensor of a prediction's shape, and asks whether it is that of the other processes'."""
    return (op == "aten.lift_fresh.default" and abs(nbytes) > F32) or (op == "aten.eq.Scalar" and abs(nbytes) == 1)


def workload(**settings: Any) -> Workload:
    return Workload(model="small", batch_size=ROWS, seq_length=LENGTH, **{"attention": Attention.SDPA, **settings})


def build(wanted: Workload) -> tuple[Any, list[Batch]]:
    """A model, and as many batches as two steps take and more."""
    model: Any = adapt(build_model(BERT, wanted), wanted)
    for parameter in model.parameters():  # what is built has no values; a loss that is no number takes another path
        parameter.data.fill_(0.01)
    return model, [make_batch(model, model.config, wanted, seed) for seed in range(20)]


def ours(wanted: Workload) -> Lives:
    model, batches = build(wanted)
    numbers = count()
    optimizer = torch.optim.AdamW([group for group in parameter_groups(model) if group["params"]], lr=1e-5)

    def autocast() -> AbstractContextManager[Any]:
        half = wanted.precision is Precision.BF16
        return torch.autocast("cpu", dtype=torch.bfloat16) if half else nullcontext()

    scaler = torch.amp.GradScaler("cpu", enabled=False)
    job = Job(wanted, model, optimizer, lambda rows: batches[next(numbers)], autocast, scaler)
    with recorded(model) as (tracker, clock):
        train(job, Watching(tracker, clock), STEPS)
    return lives(tracker)


class Stop(Exception):
    """The recording ends in the middle of the Trainer's loop, while its variables are what they are."""


class AtTheEnd(transformers.TrainerCallback):
    """Ends the recording when the last step is over, and what follows it."""

    def __init__(self, tracker: Tracker, event: str) -> None:
        self.tracker, self.lives = tracker, Lives()
        setattr(self, event, self._stop)

    def _stop(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        if state.global_step == STEPS:
            self.lives = lives(self.tracker)
            raise Stop


def theirs(wanted: Workload, folder: Path, **arguments: Any) -> Lives:
    model, batches = build(wanted)
    numbers = count()
    settings: Mapping[str, Any] = {
        "per_device_train_batch_size": ROWS, "per_device_eval_batch_size": wanted.eval_batch_size, "max_steps": STEPS,
        "gradient_accumulation_steps": wanted.gradient_accumulation_steps, "max_grad_norm": wanted.max_grad_norm,
        "label_smoothing_factor": wanted.label_smoothing_factor, "bf16": wanted.precision is Precision.BF16,
        "optim": "adamw_torch", "learning_rate": 1e-5, "weight_decay": 0.0, "use_cpu": True, "report_to": [],
        "disable_tqdm": True, "logging_strategy": "no", "save_strategy": "no", "dataloader_pin_memory": False,
    }  # fmt: skip
    trainer = transformers.Trainer(
        model=model, args=transformers.TrainingArguments(str(folder), **{**settings, **arguments}),
        train_dataset=list(range(1000)), eval_dataset=list(range(wanted.eval_samples)),
        data_collator=lambda items: dict(batches[next(numbers)]), compute_metrics=lambda predictions: {},
    )  # fmt: skip
    with recorded(model) as (tracker, _):
        end = AtTheEnd(tracker, "on_evaluate" if wanted.evaluate else "on_step_end")
        trainer.add_callback(end)
        with pytest.raises(Stop):
            trainer.train()
    return end.lives


STEPS_OF_ALL_KINDS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "accumulation": {"gradient_accumulation_steps": 2},
    "no clipping": {"max_grad_norm": 0.0},
    "eager attention": {"attention": Attention.EAGER},
    "padding": {"padded": True},
    "bf16": {"precision": Precision.BF16},
    "label smoothing": {"label_smoothing_factor": 0.1},
    "frozen embeddings": {"freeze": ("*embeddings*",)},
    **{
        task.value: {"task": task} for task in Task if task not in (Task.BASE, Task.SEQ2SEQ_LM)
    },  # without a loss, or a head
}


@pytest.mark.parametrize("settings", STEPS_OF_ALL_KINDS.values(), ids=STEPS_OF_ALL_KINDS)
def test_the_step_is_the_trainers(settings: dict[str, Any], tmp_path: Path) -> None:
    wanted = workload(**settings)
    seen, expected = ours(wanted), theirs(wanted, tmp_path)
    assert len(expected) > 500
    same(seen, expected, wanted.precision)


def same(seen: Lives, expected: Lives, precision: Precision) -> None:
    """Alike until the Trainer was stopped; what our loop keeps dies when it returns."""
    step, end = seen[: len(expected)], seen[len(expected) :]
    assert all(nbytes < 0 for _, nbytes in end)
    assert sum(nbytes for _, nbytes in end) > -2000
    if precision is Precision.BF16:
        assert in_any_order(step) == in_any_order(expected)
    else:
        assert step == expected


def in_any_order(events: Lives) -> list[Lives]:
    """Deaths with no birth between them sorted: autocast drops its copies in the order of their addresses."""
    runs = groupby(events, key=lambda event: event[1] > 0)
    return [list(run) if born else sorted(run) for born, run in runs]


EVALUATIONS: dict[str, dict[str, Any]] = {
    "all predictions stay": {},
    "moved after each batch": {"eval_accumulation_steps": 1},
    "moved after two batches": {"eval_accumulation_steps": 2},
    "the loss only": {"prediction_loss_only": True},
    "hidden states": {"output_hidden_states": True},
    "masked language modelling": {"task": Task.MASKED_LM},
    "question answering": {"task": Task.QUESTION_ANSWERING},
    "label smoothing": {"label_smoothing_factor": 0.1},
    "bf16": {"precision": Precision.BF16},
}


def copied(tensors: Any) -> Any:
    """What is on the host is another tensor than what was on the GPU; on the CPU numpy would share it."""
    return type(tensors)(map(copied, tensors)) if isinstance(tensors, tuple) else tensors.numpy().copy()


@pytest.mark.parametrize("settings", EVALUATIONS.values(), ids=EVALUATIONS)
def test_evaluation_is_the_trainers(settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers.trainer_pt_utils, "nested_numpify", copied)
    wanted = workload(evaluate=True, eval_batch_size=ROWS, eval_samples=5 * ROWS, **settings)
    expected = theirs(
        wanted, tmp_path, eval_strategy="steps", eval_steps=STEPS, prediction_loss_only=wanted.prediction_loss_only,
        eval_accumulation_steps=wanted.eval_accumulation_steps,
    )  # fmt: skip
    seen = ours(wanted)
    assert len(expected) > 500
    same(seen, expected, wanted.precision)
