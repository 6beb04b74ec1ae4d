"""The Trainer's optimizers as a loop written by hand makes them, and as DeepSpeed calls them."""

from __future__ import annotations

import ast

LEARNING_RATE = "5e-5"
"""TrainingArguments.learning_rate, for want of the user's own."""

# By the Trainer's names: module, class and what the Trainer gives it (transformers/trainer_optimizer.py).
CLASSES: dict[str, tuple[str, str, str]] = {
    "adamw_torch": ("torch", "torch.optim.AdamW", ""),
    "adamw_torch_fused": ("torch", "torch.optim.AdamW", "fused=True"),
    "sgd": ("torch", "torch.optim.SGD", ""),
    "adagrad": ("torch", "torch.optim.Adagrad", ""),
    "rmsprop": ("torch", "torch.optim.RMSprop", ""),
    "adafactor": ("transformers", "transformers.Adafactor", "scale_parameter=False, relative_step=False"),
    "adamw_8bit": ("bitsandbytes", "bitsandbytes.optim.AdamW8bit", ""),
    "adamw_bnb_8bit": ("bitsandbytes", "bitsandbytes.optim.AdamW8bit", ""),
    "paged_adamw_8bit": ("bitsandbytes", "bitsandbytes.optim.PagedAdamW8bit", ""),
    "paged_adamw_32bit": ("bitsandbytes", "bitsandbytes.optim.PagedAdamW32bit", ""),
    "ademamix": ("bitsandbytes", "bitsandbytes.optim.AdEMAMix", ""),
    "ademamix_8bit": ("bitsandbytes", "bitsandbytes.optim.AdEMAMix8bit", ""),
    "paged_ademamix_8bit": ("bitsandbytes", "bitsandbytes.optim.PagedAdEMAMix8bit", ""),
    "paged_ademamix_32bit": ("bitsandbytes", "bitsandbytes.optim.PagedAdEMAMix32bit", ""),
    "lion_8bit": ("bitsandbytes", "bitsandbytes.optim.Lion8bit", ""),
    "lion_32bit": ("bitsandbytes", "bitsandbytes.optim.Lion32bit", ""),
    "paged_lion_8bit": ("bitsandbytes", "bitsandbytes.optim.PagedLion8bit", ""),
    "paged_lion_32bit": ("bitsandbytes", "bitsandbytes.optim.PagedLion32bit", ""),
    "rmsprop_bnb_8bit": ("bitsandbytes", "bitsandbytes.optim.RMSprop8bit", ""),
    "rmsprop_bnb_32bit": ("bitsandbytes", "bitsandbytes.optim.RMSprop32bit", ""),
}
# DeepSpeed has its own Adam (params may ask for torch's) and Lion, and takes other types from torch.optim
# (runtime/engine.py, _configure_basic_optimizer).
DEEPSPEED: dict[str, dict[str, object]] = {
    "adamw_torch": {"type": "AdamW", "params": {"torch_adam": True}},
    "adamw_torch_fused": {"type": "AdamW"},
    "lion_32bit": {"type": "Lion"},
    "sgd": {"type": "SGD"},
    "adagrad": {"type": "Adagrad"},
    "rmsprop": {"type": "RMSprop"},
}


def optimizer_lines(name: str, optim_args: str) -> tuple[str, ...]:
    """Import and construction; nothing where a loop written by hand would need more than that, or arguments of text."""
    if name not in CLASSES:
        return ()
    module, kind, settings = CLASSES[name]
    given = _arguments(optim_args)
    if given is None:
        return ()
    arguments = ["model.parameters()", f"lr={LEARNING_RATE}", *filter(None, (settings, given))]
    return f"import {module}", f"optimizer = {kind}({', '.join(arguments)})"


def _arguments(optim_args: str) -> str | None:
    """``momentum=0.9,nesterov=true`` as keywords of Python; None where a value is neither number nor truth value."""
    keywords = []
    for part in filter(None, optim_args.replace(" ", "").split(",")):
        name, _, value = part.partition("=")
        value = {"true": "True", "false": "False"}.get(value.lower(), value)
        try:
            ast.literal_eval(value)
        except (ValueError, SyntaxError):
            return None
        keywords.append(f"{name}={value}")
    return ", ".join(keywords)
