"""A case for every field of a Workload that can be said in the user's own configuration."""

from __future__ import annotations

from typing import Any

import pytest

Case = tuple[dict[str, Any], dict[str, Any]]
"""What is trained beside the defaults, and the change."""

CHECKPOINTED = {"gradient_checkpointing": True}
LORA = {"lora_rank": 8}
CASES: dict[str, Case] = {
    "model": ({}, {"model": "distilbert-base-uncased"}),
    "task": ({"num_labels": 9}, {"task": "token-classification"}),
    "num_labels": ({}, {"num_labels": 5}),
    "batch_size": ({}, {"batch_size": 4}),
    "seq_length": ({}, {"seq_length": 128}),
    "padded": ({}, {"padded": True}),
    "precision": ({}, {"precision": "fp16"}),
    "dtype": ({}, {"dtype": "bfloat16"}),
    "attention": ({}, {"attention": "sdpa"}),
    "gradient_checkpointing": ({}, {"gradient_checkpointing": True}),
    "use_reentrant": (CHECKPOINTED, {"use_reentrant": True}),
    "every_n_layers": (CHECKPOINTED, {"every_n_layers": 2}),
    "optimizer": ({}, {"optimizer": "adamw_bnb_8bit"}),
    "optim_args": ({"optimizer": "sgd"}, {"optim_args": "momentum=0.9, nesterov=true"}),
    "optim_target_modules": ({"optimizer": "galore_adamw"}, {"optim_target_modules": ["attention", "mlp"]}),
    "gradient_accumulation_steps": ({}, {"gradient_accumulation_steps": 8}),
    "max_grad_norm": ({}, {"max_grad_norm": 0.5}),
    "label_smoothing_factor": ({}, {"label_smoothing_factor": 0.1}),
    "torch_empty_cache_steps": ({}, {"torch_empty_cache_steps": 4}),
    "zero_grad_set_to_none": ({"loop": "custom"}, {"zero_grad_set_to_none": False}),
    "freeze": ({}, {"freeze": ["*embeddings*", "encoder.layer.[01].*"]}),
    "lora_rank": ({}, {"lora_rank": 8}),
    "lora_dropout": (LORA, {"lora_dropout": 0.1}),
    "lora_target_modules": (LORA, {"lora_target_modules": ["query", "value"]}),
    "evaluate": ({}, {"evaluate": True}),
    "eval_batch_size": ({"evaluate": True}, {"eval_batch_size": 2}),
    "eval_samples": ({"evaluate": True}, {"eval_samples": 1000}),
    "eval_accumulation_steps": ({"evaluate": True}, {"eval_accumulation_steps": 1}),
    "prediction_loss_only": ({"evaluate": True}, {"prediction_loss_only": True}),
    "output_hidden_states": ({}, {"output_hidden_states": True}),
}
# The way back, several things at once, and names that a shell or Python would read otherwise.
MORE: dict[str, Case] = {
    "checkpointing off": (CHECKPOINTED, {"gradient_checkpointing": False}),
    "fp16 off": ({"precision": "fp16"}, {"precision": "fp32"}),
    "fp16 to bf16": ({"precision": "fp16"}, {"precision": "bf16"}),
    "bf16 off": ({"precision": "bf16"}, {"precision": "fp32"}),
    "weights in fp32": ({"dtype": "bfloat16"}, {"dtype": "float32"}),
    "nothing frozen": ({"freeze": ["*embeddings*"]}, {"freeze": []}),
    "LoRA off": (LORA, {"lora_rank": 0}),
    "no evaluation": ({"evaluate": True, "eval_batch_size": 2}, {"evaluate": False}),
    "no emptying": ({"torch_empty_cache_steps": 4}, {"torch_empty_cache_steps": None}),
    "no optim_args": ({"optimizer": "sgd", "optim_args": "momentum=0.9"}, {"optim_args": ""}),
    "no clipping": ({}, {"max_grad_norm": 0.0}),
    "minimal": (
        {"batch_size": 32},
        {"batch_size": 2, "gradient_accumulation_steps": 8, "precision": "fp16", "gradient_checkpointing": True},
    ),
    "by hand": (
        {"loop": "custom", "optimizer": "adamw_torch"},
        {"precision": "bf16", "gradient_accumulation_steps": 4, "label_smoothing_factor": 0.1, "batch_size": 1},
    ),
    "choices": ({"task": "multiple-choice", "num_labels": 4}, {"num_labels": 2, "lora_rank": 4}),
    "all linear": ({"task": "causal-lm"}, {"lora_rank": 4, "lora_target_modules": ["all-linear"]}),
    "a name with a quote": ({"model": "/data/my 'best' \"bert\""}, {"attention": "eager", "freeze": ["it's *"]}),
    "a model of the user's own": ({"model": "package.module:make"}, {"dtype": "float16", "batch_size": 2}),
    "passes": ({"forward_passes": 2, "zero_grad_set_to_none": False, "use_reentrant": True}, {"batch_size": 2}),
    "evaluation said and off": ({"eval_samples": 7, "prediction_loss_only": True}, {"batch_size": 2}),
}  # fmt: skip


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``case``: every one of them."""
    if "case" in metafunc.fixturenames:
        every = {**CASES, **MORE}
        metafunc.parametrize("case", every.values(), ids=every.keys())


@pytest.fixture(scope="session")
def cases() -> dict[str, Case]:
    """A case a field."""
    return CASES
