"""From a name of the Trainer's to an optimizer over a model."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import nn

from memdoctor.errors import InputError
from memdoctor.probes.optimizers.arguments import parse_optim_args
from memdoctor.probes.optimizers.builtin import BUILTIN, build_builtin
from memdoctor.probes.optimizers.groups import one_group, parameter_groups
from memdoctor.probes.optimizers.later import bring_forward
from memdoctor.probes.optimizers.names import BITSANDBYTES, OPTIMIZERS, TORCHAO, require, updates_in_backward
from memdoctor.probes.optimizers.trainer import create_optimizer


def build_optimizer(
    name: str,
    model: nn.Module,
    *,
    optim_args: str = "",
    target_modules: Sequence[str] = (),
    gradient_accumulation_steps: int = 1,
    loss_scaling: bool = False,
    grouped: bool = True,
) -> torch.optim.Optimizer:
    """The optimizer called ``name``, as the Trainer builds it for ``model``, which is on its device.

    ``optim_args`` and ``target_modules`` are those of TrainingArguments; ``loss_scaling`` says that a GradScaler
    is at work (fp16); without ``grouped`` an optimizer of torch that has no ``optim_args`` takes all parameters in
    one group. The optimizer is ready for its first step, and does in its second what it does now and then.

    Raises:
        InputError: no such optimizer, one that cannot be simulated, an absent library, or arguments that the
            Trainer refuses.
    """
    require(name)
    arguments = parse_optim_args(optim_args)
    if loss_scaling and updates_in_backward(name):
        raise InputError(
            f"optimizer {name!r} does not train in fp16",
            why="it updates weights in backward, before the Trainer's gradient scaler has unscaled their gradients",
            hint="bf16 or fp32",
        )
    if name in BUILTIN and not arguments:
        return build_builtin(name, parameter_groups(model) if grouped else one_group(model))
    _forget_earlier(name)
    try:
        optim_args = ",".join(f"{key}={value}" for key, value in arguments.items())
        optimizer = create_optimizer(name, model, optim_args, target_modules, gradient_accumulation_steps)
        if OPTIMIZERS[name] is TORCHAO and "block_size" in arguments:
            raise TypeError("it hands block_size on as a text, which torchao's first step does not take")
    except (TypeError, ValueError, KeyError, NotImplementedError, re.error) as error:
        raise InputError(f"the Trainer refuses these settings of optimizer {name!r}", why=str(error)) from error
    bring_forward(optimizer)
    return _as_accelerate_prepares(name, optimizer)


def _forget_earlier(name: str) -> None:
    """Which parameters stay in 32 bits is kept for the process, by ``id``: an earlier model's may be taken for ours."""
    if OPTIMIZERS[name] is BITSANDBYTES:
        from bitsandbytes.functional import GlobalPageManager
        from bitsandbytes.optim.optimizer import GlobalOptimManager

        GlobalOptimManager.get_instance().initialize()
        GlobalPageManager.get_instance().initialize()


def _as_accelerate_prepares(name: str, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    if name in ("lomo", "adalomo"):  # AcceleratedOptimizer.step does nothing for them
        optimizer.step = lambda closure=None: None  # type: ignore[method-assign,assignment]  # no-op
    for group in optimizer.param_groups:  # AcceleratedOptimizer puts the state dictionary on the device
        if isinstance(group.get("lr"), torch.Tensor):
            group["lr"] = group["lr"].to(group["params"][0].device)
    switch = getattr(optimizer, "train", None)
    if callable(switch):  # schedule-free optimizers: Trainer.training_step calls it before each forward
        switch()
    return optimizer
