"""Keywords of ``TrainingArguments``, a line each, to be pasted between its parentheses."""

from __future__ import annotations

from collections.abc import Iterator

from memdoctor.patches.edit import Edit, literal
from memdoctor.records import Loop, Precision

# Fields of a Workload and what TrainingArguments calls them since transformers 5.0; a test asks the installed class.
KEYWORDS = {
    "batch_size": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "optimizer": "optim",
    "max_grad_norm": "max_grad_norm",
    "label_smoothing_factor": "label_smoothing_factor",
    "torch_empty_cache_steps": "torch_empty_cache_steps",
    "eval_batch_size": "per_device_eval_batch_size",
    "eval_accumulation_steps": "eval_accumulation_steps",
    "prediction_loss_only": "prediction_loss_only",
}


def trainer_lines(edit: Edit) -> str:
    """The keywords that say the change; what no longer applies is turned off. Empty for a loop written by hand."""
    if edit.after.loop is Loop.CUSTOM:
        return ""
    return "\n".join(f"{name}={value}," for name, value in _keywords(edit))


def _keywords(edit: Edit) -> Iterator[tuple[str, str]]:
    after = edit.after
    for name, keyword in KEYWORDS.items():
        if name in edit.changed:
            yield keyword, literal(getattr(after, name))
    for name in ("optim_args", "optim_target_modules"):
        if name in edit.changed:
            yield name, literal(getattr(after, name) or None)
    for precision in (Precision.FP16, Precision.BF16):
        if "precision" in edit.changed and precision in (edit.before.precision, after.precision):
            yield precision.value, literal(after.precision is precision)
    yield from _checkpointing(edit)
    if "evaluate" in edit.changed:
        yield "eval_strategy", literal("epoch" if after.evaluate else "no")


def _checkpointing(edit: Edit) -> Iterator[tuple[str, str]]:
    if not edit.says_checkpointing:
        return
    yield edit.checkpointing, literal(edit.after.gradient_checkpointing)
    if edit.after.gradient_checkpointing:
        options = [f'"use_reentrant": {edit.after.use_reentrant}']
        if edit.after.every_n_layers > 1:
            options.append(f'"every_n_layers": {edit.after.every_n_layers}')
        yield f"{edit.checkpointing}_kwargs", f"{{{', '.join(options)}}}"
