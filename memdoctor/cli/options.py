"""Options that several commands share: the same word everywhere, by Hugging Face's names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import rich_click as click

from memdoctor.records import Attention, Dtype, Loop, Precision, Task

_F = TypeVar("_F", bound=Callable[..., Any])
POSITIVE = click.IntRange(min=1)


class Seconds(click.FloatRange):
    """A range that nan is not in; every comparison with it is false, those of the range too."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail("nan is no number.", param, ctx)
        return number


WORKLOAD = (
    click.option(
        "--model", "-m", metavar="NAME", required=True,
        help="A hub name, a directory, a config.json, or your own package.module:factory.",
    ),
    click.option("--task", type=click.Choice([task.value for task in Task]), help="The head on the encoder."),
    click.option("--num-labels", type=POSITIVE, help="Labels of the head; choices for multiple-choice."),
    click.option(
        "-b", "--batch-size", "--per-device-train-batch-size", "batch_size", type=POSITIVE,
        help="Per-device batch size.",
    ),
    click.option("-s", "--seq-length", "--max-seq-length", "seq_length", type=POSITIVE, help="Tokens in a sequence."),
    click.option("--gradient-accumulation-steps", type=POSITIVE, help="Micro-batches in an optimizer step."),
    click.option("--optim", "optimizer", metavar="NAME", help="The Trainer's name of the optimizer."),
    click.option("--optim-args", metavar="TEXT", help="As in TrainingArguments, e.g. 'momentum=0.9'."),
    click.option(
        "--optim-target-modules", multiple=True, metavar="NAME", help="Modules for GaLore and APOLLO. Repeatable."
    ),
    click.option("--fp16/--no-fp16", "fp16", default=None, help="Autocast to fp16, with loss scaling."),
    click.option("--bf16/--no-bf16", "bf16", default=None, help="Autocast to bf16."),
    click.option(
        "--precision", type=click.Choice([precision.value for precision in Precision]), help="The same in one word."
    ),
    click.option(
        "--dtype", type=click.Choice([dtype.value for dtype in Dtype]),
        help="What the weights are stored in, as in from_pretrained.",
    ),
    click.option(
        "--gradient-checkpointing/--no-gradient-checkpointing",
        "--activation-checkpointing/--no-activation-checkpointing",
        "gradient_checkpointing", default=None, help="Recompute activations in backward.",
    ),
    click.option("--use-reentrant/--no-use-reentrant", default=None, help="The kind of checkpointing."),
    click.option("--every-n-layers", type=POSITIVE, help="Checkpoint every n-th layer only."),
    click.option(
        "--attn-implementation", "--attention", "attention",
        type=click.Choice([*(kind.value for kind in Attention), "flash_attention_2"]), help="As in from_pretrained.",
    ),
    click.option("--padded/--no-padded", default=None, help="Whether rows of the batch are padded."),
    click.option("--max-grad-norm", type=click.FloatRange(min=0), help="Clip gradients to this norm; 0: do not."),
    click.option("--label-smoothing-factor", type=click.FloatRange(0, 1, max_open=True), help="As in the Trainer."),
    click.option("--torch-empty-cache-steps", type=POSITIVE, help="Empty the cache every n steps, after forward."),
    click.option(
        "--group-by-length/--no-group-by-length", default=None, expose_value=False,
        help="No effect: what is probed is the longest batch.",
    ),
    click.option("--forward-passes", type=POSITIVE, help="Calls of the model on a batch before its backward."),
    click.option(
        "--loop", type=click.Choice([loop.value for loop in Loop]),
        help="The Trainer's loop, or one by hand that keeps the model's outputs.",
    ),
    click.option(
        "--set-to-none/--no-set-to-none", "zero_grad_set_to_none", default=None, help="What zero_grad does."
    ),
    click.option("--lora-rank", type=click.IntRange(min=0), help="Train LoRA adapters of this rank (needs peft)."),
    click.option("--lora-dropout", type=click.FloatRange(0, 1, max_open=True), help="Dropout before the adapters."),
    click.option("--lora-target-modules", multiple=True, metavar="NAME", help="Modules to adapt. Repeatable."),
    click.option("--freeze", multiple=True, metavar="PATTERN", help="Parameters not to train, e.g. '*embeddings*'."),
    click.option("--eval/--no-eval", "evaluate", default=None, help="Evaluate after the step, as the Trainer does."),
    click.option(
        "--eval-batch-size", "--per-device-eval-batch-size", "eval_batch_size", type=POSITIVE,
        help="Per-device batch size of evaluation.",
    ),
    click.option("--eval-samples", type=POSITIVE, help="Samples to evaluate: their predictions stay on the GPU."),
    click.option("--eval-accumulation-steps", type=POSITIVE, help="Move predictions to the host every n batches."),
    click.option("--prediction-loss-only", is_flag=True, default=None, help="Keep no predictions in evaluation."),
    click.option("--output-hidden-states", is_flag=True, default=None, help="Return (and gather) all hidden states."),
    click.option(
        "--strategy", type=click.Choice(["single", "ddp", "fsdp", "zero1", "zero2", "zero3"]),
        help="How GPUs share the work; only single can be probed yet.",
    ),
    click.option("--world-size", type=POSITIVE, help="GPUs that train together."),
)  # fmt: skip
DEVICE = (
    click.option("--gpu", metavar="NAME", help="T4, A100-40GB, RTX3090 ...: see memdoctor gpus."),
    click.option("--memory", metavar="SIZE", help='The card has this much instead, e.g. "8 GiB".'),
    click.option(
        "--backend", type=click.Choice(["auto", "gpu", "simulated", "cpu"]), default="auto", show_default=True,
        help="Where the step runs.",
    ),
    click.option(
        "--cuda-alloc-conf", "alloc_conf", metavar="TEXT",
        help="PYTORCH_CUDA_ALLOC_CONF, e.g. expandable_segments:True.",
    ),
    click.option("--offline", is_flag=True, help="Do not ask the model hub."),
    click.option(
        "--time-limit", type=Seconds(min=0, min_open=True), default=300.0, show_default=True,
        metavar="SECONDS", help="For one probe.",
    ),
)  # fmt: skip
# Commands need not know of it: where a bug is told, sys.argv says whether it was given.
VERBOSE = click.option(
    "-v", "--verbose", is_flag=True, expose_value=False, help="Show the traceback of an internal error."
)
OUTPUT = (
    click.option(
        "-o", "--output", "outputs", type=click.Path(path_type=Path), multiple=True, metavar="PATH",
        help="Write here too; the suffix decides the format. Repeatable.",
    ),
    click.option("--json", "as_json", is_flag=True, help="JSON on standard output, and nothing else there."),
    click.option("-f", "--force", is_flag=True, help="Overwrite files."),
    click.option("-q", "--quiet", is_flag=True, help="No progress."),
    VERBOSE,
)  # fmt: skip
AS_JSON = click.option("--json", "as_json", is_flag=True, help="JSON on standard output.")
LISTING = (
    click.argument("pattern", required=False),
    AS_JSON,
    click.option("--sources", is_flag=True, help="Where each entry's facts come from."),
    VERBOSE,
)
_OF_EVALUATION = ("eval_batch_size", "eval_samples", "eval_accumulation_steps", "prediction_loss_only")
TOP = (click.option("--top", type=POSITIVE, help="List this many of the largest tensors at the peak."),)


def options(*groups: tuple[Callable[[Any], Any], ...]) -> Callable[[_F], _F]:
    """Decorate a command with groups of options, in the order given."""

    def decorate(function: _F) -> _F:
        for option in reversed([option for group in groups for option in group]):
            function = option(function)
        return function

    return decorate


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked of a command that probes: the case to open, and what to do with the result."""

    case: Mapping[str, Any]  # the arguments of doctor.open_case
    time_limit: float
    outputs: tuple[Path, ...]
    as_json: bool
    force: bool
    quiet: bool
    top: int

    @property
    def model(self) -> str:
        """The model's name as it was typed."""
        return str(self.case["model"])


def asked(given: dict[str, Any]) -> Asked:
    """From the options of :data:`WORKLOAD`, :data:`DEVICE`, :data:`OUTPUT` and :data:`TOP`.

    Raises:
        click.UsageError: two options that contradict each other.
    """
    rest = dict(given)
    doing = {name: rest.pop(name) for name in ("time_limit", "outputs", "as_json", "force", "quiet")}
    top = rest.pop("top") or 0
    case = {name: rest.pop(name) for name in ("model", "gpu", "memory", "backend", "offline", "alloc_conf")}
    return Asked(case={**case, **_settings(rest)}, top=top, **doing)


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    """Fields of a Workload; what was not said is ``None``."""
    settings = {name: value for name, value in given.items() if name not in ("fp16", "bf16")}
    settings["precision"] = _precision(given)
    for name, kind in (("task", Task), ("dtype", Dtype), ("loop", Loop)):
        settings[name] = kind(given[name]) if given[name] else None
    if given["evaluate"] is None and any(given[name] is not None for name in _OF_EVALUATION):
        settings["evaluate"] = True
    if given["attention"] == "flash_attention_2":
        raise click.UsageError(
            "--attn-implementation flash_attention_2 cannot be simulated: its operators are a package of their own. "
            "sdpa runs flash attention from compute capability 8.0 on in fp16 and bf16, and saves the same tensors."
        )
    settings["attention"] = Attention(given["attention"]) if given["attention"] else None
    for name in ("freeze", "lora_target_modules", "optim_target_modules"):
        settings[name] = tuple(given[name]) or None
    return settings


def _precision(given: dict[str, Any]) -> Precision | None:
    said = {Precision(given["precision"])} if given["precision"] else set()
    said |= {kind for kind in (Precision.FP16, Precision.BF16) if given[kind.value]}
    denied = {kind for kind in (Precision.FP16, Precision.BF16) if given[kind.value] is False}
    for kind in said & denied:
        raise click.UsageError(f"--precision {kind} and --no-{kind} contradict each other: choose one.")
    if len(said) > 1:
        names = ["--precision fp32" if kind is Precision.FP32 else f"--{kind}" for kind in sorted(said)]
        raise click.UsageError(f"{' and '.join(names)} contradict each other: choose one.")
    if said:
        return said.pop()
    return Precision.FP32 if False in (given["fp16"], given["bf16"]) else None
