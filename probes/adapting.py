"""What is done to a model that is built, before it is trained: LoRA, activation checkpointing, frozen parameters."""

from __future__ import annotations

import inspect
from fnmatch import fnmatch
from typing import Any

import torch

from memdoctor.errors import InputError
from memdoctor.probes.moving import movable
from memdoctor.records import Task, Workload

# peft.TaskType; a model of one of these keeps its new head trainable by itself.
_PEFT_TASKS = {
    Task.SEQUENCE_CLASSIFICATION: "SEQ_CLS", Task.TOKEN_CLASSIFICATION: "TOKEN_CLS",
    Task.QUESTION_ANSWERING: "QUESTION_ANS", Task.BASE: "FEATURE_EXTRACTION", Task.CAUSAL_LM: "CAUSAL_LM",
    Task.SEQ2SEQ_LM: "SEQ_2_SEQ_LM",
}  # fmt: skip
# Heads that come with the checkpoint, and stay frozen under LoRA.
_PRETRAINED_HEADS = (Task.MASKED_LM, Task.NEXT_SENTENCE)


def adapt(model: torch.nn.Module, workload: Workload) -> torch.nn.Module:
    """The model with the workload's LoRA, checkpointing and frozen parameters, in the order in which scripts do it.

    Raises:
        InputError: the model has no such switch or module, nothing is left to train, or peft is not installed.
    """
    if workload.lora_rank:
        model = _with_lora(model, workload)
    if workload.gradient_checkpointing:
        _checkpoint(model, workload)
    _freeze(model, workload)
    return model


def base_of(model: Any) -> Any:
    """The model inside the wrapper that peft puts around it; its signature and config are those of interest."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _with_lora(model: Any, workload: Workload) -> torch.nn.Module:
    try:
        import peft
    except ImportError as error:
        what = "LoRA needs peft, which is not installed"
        raise InputError(
            what, why=str(error), hint="pip install peft, which memdoctor's extra [peft] asks for"
        ) from error
    targets = list(workload.lora_target_modules)
    ours = hasattr(model, "config")  # a module of the user's own has its tasks and heads to itself
    config = peft.LoraConfig(
        r=workload.lora_rank,
        lora_dropout=workload.lora_dropout,
        target_modules="all-linear" if targets == ["all-linear"] else targets or None,
        task_type=_PEFT_TASKS.get(workload.task) if ours else None,
        modules_to_save=_new_head(model, workload) if ours else None,
    )
    try:
        with movable():
            adapted = peft.get_peft_model(model, config)
    except ValueError as error:
        named = sorted({name.rpartition(".")[2] for name, part in model.named_modules() if _is_linear(part)})
        raise InputError(
            f"LoRA finds nothing to adapt in {workload.model}",
            why=" ".join(str(error).split()),
            hint=f"--lora-target-modules with one of: {', '.join(named)}",
        ) from error
    assert isinstance(adapted, torch.nn.Module)
    return adapted


def _new_head(model: Any, workload: Workload) -> list[str] | None:
    """Heads that peft does not know of and that fine-tuning starts anew; they must be trained beside the adapters."""
    if workload.task in _PEFT_TASKS or workload.task in _PRETRAINED_HEADS:
        return None
    base = getattr(model, "base_model_prefix", "")
    return [name for name, part in model.named_children() if name != base and any(True for _ in part.parameters())]


def _is_linear(module: torch.nn.Module) -> bool:
    return isinstance(module, torch.nn.Linear)


def _checkpoint(model: Any, workload: Workload) -> None:
    enable = getattr(model, "activation_checkpointing_enable", None)  # transformers 5.23
    enable = enable or getattr(model, "gradient_checkpointing_enable", None)
    if enable is None:
        raise InputError(
            f"{workload.model} has no switch for activation checkpointing",
            why="it has no method activation_checkpointing_enable, as models of transformers do",
            hint="call torch.utils.checkpoint in the model itself, and leave --gradient-checkpointing out",
        )
    parameters = inspect.signature(enable).parameters
    options: dict[str, Any] = {next(iter(parameters)): {"use_reentrant": workload.use_reentrant}}
    if workload.every_n_layers > 1:
        if "every_n_layers" not in parameters:
            raise InputError(
                "--every-n-layers is not known to the installed transformers",
                hint="a newer transformers: 5.17 has it, 5.0 has not",
            )
        options["every_n_layers"] = workload.every_n_layers
    try:
        enable(**options)
    except ValueError as error:
        raise InputError(
            f"{workload.model} cannot checkpoint its activations", why=str(error), hint="--no-gradient-checkpointing"
        ) from error


def _freeze(model: torch.nn.Module, workload: Workload) -> None:
    for pattern in workload.freeze:
        matched = [parameter for name, parameter in model.named_parameters() if fnmatch(name, pattern)]
        if not matched:
            example = next(iter(model.named_parameters()))[0]
            raise InputError(
                f"--freeze {pattern!r} matches no parameter of {workload.model}",
                hint=f"a shell pattern over names like {example!r}, e.g. '*embeddings*'",
            )
        for parameter in matched:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        why = "--freeze matches every parameter" if workload.freeze else "no parameter requires a gradient"
        raise InputError(f"nothing is left to train: {why}", hint="freeze fewer of them")
