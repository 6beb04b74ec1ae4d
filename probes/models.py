"""The real model class for a workload, built with made-up weights on the CPU: memory needs shapes, not values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import initialization
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from memdoctor.errors import InputError
from memdoctor.records import Attention, Task, Workload

_AUTO_CLASSES: dict[Task, Any] = {
    Task.SEQUENCE_CLASSIFICATION: modeling_auto.AutoModelForSequenceClassification,
    Task.TOKEN_CLASSIFICATION: modeling_auto.AutoModelForTokenClassification,
    Task.QUESTION_ANSWERING: modeling_auto.AutoModelForQuestionAnswering,
    Task.MULTIPLE_CHOICE: modeling_auto.AutoModelForMultipleChoice,
    Task.MASKED_LM: modeling_auto.AutoModelForMaskedLM,
    Task.CAUSAL_LM: modeling_auto.AutoModelForCausalLM,
    Task.SEQ2SEQ_LM: modeling_auto.AutoModelForSeq2SeqLM,
    Task.NEXT_SENTENCE: modeling_auto.AutoModelForNextSentencePrediction,
    Task.BASE: modeling_auto.AutoModel,
}


def build_config(config: Mapping[str, Any], workload: Workload) -> Any:
    """The config object for these config.json facts and this workload.

    Raises:
        InputError: the model type is unknown to the installed transformers.
    """
    facts = {key: value for key, value in config.items() if key not in ("model_type", "architectures", "dtype")}
    model_type = str(config.get("model_type"))
    if model_type not in CONFIG_MAPPING:
        raise _unknown_type(config, workload)
    try:
        built = CONFIG_MAPPING[model_type](**facts)
    except Exception as error:
        raise _unbuildable(workload, error) from error
    if workload.task in (Task.SEQUENCE_CLASSIFICATION, Task.TOKEN_CLASSIFICATION):
        built.num_labels = workload.num_labels
    built.use_cache = False
    if workload.output_hidden_states:
        built.output_hidden_states = True
    built.architectures = config.get("architectures") or []  # chooses where a head has several classes (Funnel)
    _complete_token_ids(built)
    return built


def _unknown_type(config: Mapping[str, Any], workload: Workload) -> InputError:
    what = f"model type {config.get('model_type')!r} of {workload.model} is unknown to the installed transformers"
    if not config.get("auto_map"):
        return InputError(what, hint="upgrade transformers, or check model_type in the model's config.json")
    return InputError(
        what,
        why="its code is in its own repository (auto_map), for trust_remote_code=True; memdoctor runs no such code",
        hint="a model of the same size and kind that transformers has itself",
    )


def _complete_token_ids(built: Any) -> None:
    """The token ids that every training script sets where config.json does not: padding, and where a decoder starts.

    Decoders are trained with the end of text as padding; T5 starts decoding with padding. No shape depends on them.
    """
    if getattr(built, "pad_token_id", None) is None:
        end = getattr(built, "eos_token_id", None)
        end = end[0] if isinstance(end, list) and end else end
        known = isinstance(end, int) and 0 <= end < getattr(built, "vocab_size", 0)
        built.pad_token_id = end if known else 0
    if built.is_encoder_decoder and getattr(built, "decoder_start_token_id", None) is None:
        built.decoder_start_token_id = built.pad_token_id


def build_model(config: Mapping[str, Any], workload: Workload) -> torch.nn.Module:
    """The model on the current default device, its head, attention and ``dtype`` as the workload says.

    Weights are allocated and not initialised. Works inside a fake mode.

    Raises:
        InputError: the config cannot be built, or the model has no such task head or attention implementation.
    """
    built = build_config(config, workload)
    model = _instantiate(auto_class_of(built, workload), built, workload)
    model.tie_weights()
    assert isinstance(model, torch.nn.Module)
    return model


def auto_class_of(built: Any, workload: Workload) -> Any:
    """The Auto class of transformers that makes the workload's head on a model of this config object.

    Raises:
        InputError: the model has no such head.
    """
    auto = _AUTO_CLASSES[workload.task]
    if type(built) not in auto._model_mapping:
        raise InputError(
            f"{workload.model} ({built.model_type}) has no {workload.task.value} head in transformers",
            hint=f"--task with one of: {', '.join(_tasks_of(type(built)))}",
        )
    return auto


def _instantiate(auto: Any, built: Any, workload: Workload) -> Any:
    wanted = {} if workload.attention is None else {"attn_implementation": workload.attention.value}
    try:
        with initialization.no_init_weights():
            return auto.from_config(built, dtype=getattr(torch, workload.dtype.value), **wanted)
    except Exception as error:
        if workload.attention is None or not isinstance(error, (ValueError, ImportError)):
            raise _unbuildable(workload, error) from error
        raise InputError(
            f"{workload.model} has no {workload.attention.value} attention in transformers",
            why=str(error).strip().partition(". ")[0],
            hint="leave --attn-implementation out, or --attn-implementation eager",
        ) from error


def _unbuildable(workload: Workload, error: Exception) -> InputError:
    why = " ".join(f"{type(error).__name__}: {error}".split())
    return InputError(f"{workload.model} cannot be built from its config.json", why=why, hint="check its values")


def attention_of(model: Any) -> Attention | None:
    """The attention implementation that the model was built with; ``None`` where it is no model of transformers."""
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "_attn_implementation"):
        return None
    return Attention(config._attn_implementation or "eager")


def _tasks_of(config_class: type) -> list[str]:
    return [task.value for task, auto in _AUTO_CLASSES.items() if config_class in auto._model_mapping]
