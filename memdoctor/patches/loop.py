"""Python of a training loop written by hand: ``model``, ``dataset``, ``loader`` and ``optimizer`` are the user's."""

from __future__ import annotations

from collections.abc import Iterator

from memdoctor.matrix import UPDATES_IN_BACKWARD
from memdoctor.patches.edit import Edit, snippet
from memdoctor.patches.optimizers import optimizer_lines
from memdoctor.records import Precision, Task, Workload

OF_THE_LOOP = frozenset({
    "precision", "gradient_accumulation_steps", "max_grad_norm", "label_smoothing_factor", "torch_empty_cache_steps",
    "zero_grad_set_to_none",
})  # fmt: skip
"""Fields that are said inside the loop, which is then written whole."""

_AUTOCAST = {Precision.FP16: "float16", Precision.BF16: "bfloat16"}
# Tasks whose loss is one cross entropy over logits and labels of the same positions.
_SMOOTHED = (Task.SEQUENCE_CLASSIFICATION, Task.TOKEN_CLASSIFICATION, Task.MASKED_LM)


def torch_lines(edit: Edit) -> str:
    """What is made before the loop, where it is changed; and the loop, where something in it is."""
    lines = list(_setup(edit))
    if OF_THE_LOOP & edit.changed and _writable(edit.after):
        lines += _loop(edit.after)
    return snippet(lines)


def _setup(edit: Edit) -> Iterator[str]:
    if edit.says_checkpointing:
        yield _checkpointing(edit)
    if {"optimizer", "optim_args"} & edit.changed:
        yield from optimizer_lines(edit.after.optimizer, edit.after.optim_args)
    if {"batch_size", "eval_batch_size"} & edit.changed:
        yield "from torch.utils.data import DataLoader"
    if "batch_size" in edit.changed:
        yield f"loader = DataLoader(dataset, batch_size={edit.after.batch_size}, shuffle=True)"
    if "eval_batch_size" in edit.changed:
        yield f"eval_loader = DataLoader(eval_dataset, batch_size={edit.after.eval_batch_size})"


def _checkpointing(edit: Edit) -> str:
    if not edit.after.gradient_checkpointing:
        return f"model.{edit.checkpointing}_disable()"
    every = f", every_n_layers={edit.after.every_n_layers}" if edit.after.every_n_layers > 1 else ""
    options = f'{edit.checkpointing}_kwargs={{"use_reentrant": {edit.after.use_reentrant}}}'
    return f"model.{edit.checkpointing}_enable({options}{every})"


def _writable(after: Workload) -> bool:
    smoothed = after.label_smoothing_factor > 0 and after.task not in _SMOOTHED
    return not smoothed and after.optimizer not in UPDATES_IN_BACKWARD  # theirs is another loop


def _loop(after: Workload) -> Iterator[str]:
    """One epoch. The indentation is that of the loop's body."""
    steps, scaled = after.gradient_accumulation_steps, after.precision is Precision.FP16
    yield "import torch"
    yield "device = next(model.parameters()).device"
    if scaled:
        yield "scaler = torch.amp.GradScaler(device.type)"
    yield "for step, batch in enumerate(loader, start=1):"
    yield "    batch = {name: tensor.to(device) for name, tensor in batch.items()}"
    yield from _forward(after)
    if after.torch_empty_cache_steps is not None:
        yield f"    if step % {after.torch_empty_cache_steps * steps} == 0:"
        yield "        torch.cuda.empty_cache()"
    yield f"    {'scaler.scale(loss)' if scaled else 'loss'}.backward()"
    indent = "    "
    if steps > 1:
        yield f"    if step % {steps} == 0:"
        indent = "        "
    yield from (indent + line for line in _step(after, scaled=scaled))


def _forward(after: Workload) -> Iterator[str]:
    part = f" / {after.gradient_accumulation_steps}" if after.gradient_accumulation_steps > 1 else ""
    indent = "    "
    if after.precision in _AUTOCAST:
        yield f"    with torch.autocast(device.type, dtype=torch.{_AUTOCAST[after.precision]}):"
        indent = "        "
    if not after.label_smoothing_factor:
        yield f"{indent}loss = model(**batch).loss{part}"
        return
    yield f"{indent}logits = model(**batch).logits.flatten(0, -2)"
    yield f"{indent}loss = torch.nn.functional.cross_entropy("
    yield f'{indent}    logits, batch["labels"].flatten(), label_smoothing={after.label_smoothing_factor}'
    yield f"{indent}){part}"


def _step(after: Workload, *, scaled: bool) -> Iterator[str]:
    if after.max_grad_norm:
        if scaled:
            yield "scaler.unscale_(optimizer)"
        yield f"torch.nn.utils.clip_grad_norm_(model.parameters(), {after.max_grad_norm})"
    yield "scaler.step(optimizer)" if scaled else "optimizer.step()"
    if scaled:
        yield "scaler.update()"
    yield f"optimizer.zero_grad(set_to_none={after.zero_grad_set_to_none})"
