"""Options that say what is to be trained, by Hugging Face's names, in the panels of ``--help``."""

from __future__ import annotations

from functools import partial
from typing import Any

import rich_click as click

from memdoctor.records import Attention, Dtype, Precision, Task

POSITIVE = click.IntRange(min=1)
_COUNT: dict[str, Any] = {"type": POSITIVE, "metavar": "N"}
_PART: dict[str, Any] = {"type": click.FloatRange(0, 1, max_open=True), "metavar": "SHARE"}

_model = partial(click.option, panel="Model and batch")
_step = partial(click.option, panel="Training step")
_memory = partial(click.option, panel="Precision and memory")
_optimizer = partial(click.option, panel="Optimizer")
_trained = partial(click.option, panel="What is trained")
_evaluation = partial(click.option, panel="Evaluation")

WORKLOAD = (
    _model(
        "--model", "-m", metavar="NAME", required=True,
        help="A hub name, a directory, a config.json, or your own package.module:factory.",
    ),
    _model("--task", type=click.Choice([task.value for task in Task]), metavar="HEAD", help=(
        f"The head on the encoder: {', '.join(task.value for task in Task)}."
    )),
    _model("--num-labels", **_COUNT, help="Labels of the head; choices for multiple-choice."),
    _model(
        "-b", "--batch-size", "--per-device-train-batch-size", "batch_size", **_COUNT,
        help="Per-device batch size.",
    ),
    _model("-s", "--seq-length", "--max-seq-length", "seq_length", **_COUNT, help="Tokens in a sequence."),
    _model("--padded/--no-padded", default=None, help="Whether rows of the batch are padded."),
    _model(
        "--group-by-length/--no-group-by-length", default=None, expose_value=False,
        help="No effect: what is probed is the longest batch.",
    ),
    _memory("--fp16/--no-fp16", "fp16", default=None, help="Autocast to fp16, with loss scaling."),
    _memory("--bf16/--no-bf16", "bf16", default=None, help="Autocast to bf16."),
    _memory(
        "--precision", type=click.Choice([item.value for item in Precision]), metavar="WORD",
        help="The same in one word: fp32, fp16 or bf16.",
    ),
    _memory(
        "--dtype", type=click.Choice([dtype.value for dtype in Dtype]), metavar="TYPE",
        help="What the weights are stored in: float32, float16 or bfloat16.",
    ),
    _memory(
        "--gradient-checkpointing/--no-gradient-checkpointing",
        "--activation-checkpointing/--no-activation-checkpointing",
        "gradient_checkpointing", default=None, help="Recompute activations in backward.",
    ),
    _memory("--use-reentrant/--no-use-reentrant", default=None, help="The kind of checkpointing."),
    _memory("--every-n-layers", **_COUNT, help="Checkpoint every n-th layer only."),
    _memory(
        "--attn-implementation", "--attention", "attention",
        type=click.Choice([*(kind.value for kind in Attention), "flash_attention_2"]), metavar="KIND",
        help="As in from_pretrained: eager or sdpa.",
    ),
    _memory("--torch-empty-cache-steps", **_COUNT, help="Empty the cache every n steps, after forward."),
    _optimizer(
        "--optim", "--optimizer", "optimizer", metavar="NAME",
        help="The Trainer's name, e.g. adamw_torch_fused, adafactor, adamw_bnb_8bit.",
    ),
    _optimizer("--optim-args", metavar="TEXT", help="As in TrainingArguments, e.g. 'momentum=0.9'."),
    _optimizer(
        "--optim-target-modules", multiple=True, metavar="NAME", help="Modules for GaLore and APOLLO. Repeatable."
    ),
    _optimizer(
        "--max-grad-norm", type=click.FloatRange(min=0), metavar="NORM",
        help="Clip gradients to this norm; 0: only take it, as the Trainer does for its log.",
    ),
    _step("--gradient-accumulation-steps", **_COUNT, help="Micro-batches in an optimizer step."),
    _step("--label-smoothing-factor", **_PART, help="As in the Trainer."),
    _step("--forward-passes", **_COUNT, help="Calls of the model on a batch before its one backward."),
    _step(
        "--loop", metavar="LOOP",
        help="trainer; custom: by hand, which keeps the model's outputs; or, to verify it, your own module:function.",
    ),
    _step(
        "--set-to-none/--no-set-to-none", "--zero-grad-set-to-none/--no-zero-grad-set-to-none", "zero_grad_set_to_none",
        default=None, help="What zero_grad does.",
    ),
    _step(
        "--strategy", type=click.Choice(["single", "ddp", "fsdp", "zero1", "zero2", "zero3"]), metavar="KIND",
        help="How GPUs share the work: single, ddp, fsdp, zero1 to zero3. Only single can be probed yet.",
    ),
    _step("--world-size", **_COUNT, help="GPUs that train together."),
    _trained("--freeze", multiple=True, metavar="PATTERN", help="Parameters not to train, e.g. '*embeddings*'."),
    _trained("--lora-rank", type=click.IntRange(min=0), metavar="N", help="Train LoRA adapters of this rank."),
    _trained("--lora-dropout", **_PART, help="Dropout before the adapters."),
    _trained("--lora-target-modules", multiple=True, metavar="NAME", help="Modules to adapt. Repeatable."),
    _evaluation("--eval/--no-eval", "evaluate", default=None, help="Evaluate after the step, as the Trainer does."),
    _evaluation(
        "--eval-batch-size", "--per-device-eval-batch-size", "eval_batch_size", **_COUNT,
        help="Per-device batch size of evaluation.",
    ),
    _evaluation("--eval-samples", **_COUNT, help="Samples to evaluate: their predictions stay on the GPU."),
    _evaluation("--eval-accumulation-steps", **_COUNT, help="Move predictions to the host every n batches."),
    _evaluation("--prediction-loss-only", is_flag=True, default=None, help="Keep no predictions."),
    _evaluation("--output-hidden-states", is_flag=True, default=None, help="Return, and gather, all hidden states."),
)  # fmt: skip
OF_EVALUATION = ("eval_batch_size", "eval_samples", "eval_accumulation_steps", "prediction_loss_only")
"""Options that ask for evaluation by being given."""
