"""The ``memdoctor`` command that probes a workload, by the options of ``memdoctor/cli``; a test has it parsed there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from memdoctor.records import Precision, Workload

# Options with a value, in the order of --help; --model, --batch-size and --seq-length are always said.
VALUED = {
    "task": "--task", "num_labels": "--num-labels", "dtype": "--dtype", "every_n_layers": "--every-n-layers",
    "attention": "--attn-implementation", "torch_empty_cache_steps": "--torch-empty-cache-steps",
    "optimizer": "--optim", "optim_args": "--optim-args", "max_grad_norm": "--max-grad-norm",
    "gradient_accumulation_steps": "--gradient-accumulation-steps",
    "label_smoothing_factor": "--label-smoothing-factor", "forward_passes": "--forward-passes", "loop": "--loop",
    "strategy": "--strategy", "world_size": "--world-size", "lora_rank": "--lora-rank",
    "lora_dropout": "--lora-dropout", "eval_batch_size": "--eval-batch-size", "eval_samples": "--eval-samples",
    "eval_accumulation_steps": "--eval-accumulation-steps",
}  # fmt: skip
FLAGS = {
    "padded": ("--padded", "--no-padded"),
    "gradient_checkpointing": ("--gradient-checkpointing", "--no-gradient-checkpointing"),
    "use_reentrant": ("--use-reentrant", "--no-use-reentrant"),
    "zero_grad_set_to_none": ("--set-to-none", "--no-set-to-none"),
    "evaluate": ("--eval", "--no-eval"),
    "prediction_loss_only": ("--prediction-loss-only", ""),
    "output_hidden_states": ("--output-hidden-states", ""),
}
REPEATED = {
    "freeze": "--freeze", "optim_target_modules": "--optim-target-modules",
    "lora_target_modules": "--lora-target-modules",
}  # fmt: skip
_ASKS_FOR_EVALUATION = ("eval_batch_size", "eval_samples", "eval_accumulation_steps", "prediction_loss_only")


def command_line(workload: Workload, *, gpu: str | None, memory: str | None, alloc_conf: str, command: str) -> str:
    """The command for a shell; of the settings, those that differ from what is assumed where nothing is said."""
    words = ["memdoctor", command, "-m", workload.model, "-b", str(workload.batch_size), "-s", str(workload.seq_length)]
    words += _settings(workload)
    for option, value in (("--gpu", gpu), ("--memory", memory), ("--cuda-alloc-conf", alloc_conf)):
        words += [option, value] if value else []
    return shlex.join(words)


def _settings(workload: Workload) -> Iterator[str]:
    usual = Workload(model=workload.model)
    if workload.precision is not Precision.FP32:
        yield f"--{workload.precision}"
    for name, (on, off) in FLAGS.items():
        if getattr(workload, name) != getattr(usual, name):
            yield on if getattr(workload, name) else off
    asking = any(getattr(workload, name) != getattr(usual, name) for name in _ASKS_FOR_EVALUATION)
    if asking and not workload.evaluate:
        yield FLAGS["evaluate"][1]  # their being said asks for evaluation
    for name, option in VALUED.items():
        if getattr(workload, name) != getattr(usual, name):
            yield from (option, str(getattr(workload, name)))
    for name, option in REPEATED.items():
        for value in getattr(workload, name):
            yield from (option, value)
