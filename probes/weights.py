"""A model's own weights, where it is a local directory that holds them. Nothing is downloaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from memdoctor.errors import InputError
from memdoctor.probes.models import auto_class_of, build_config
from memdoctor.records import Workload

# SAFE_WEIGHTS_NAME and its kin in transformers/utils/__init__.py, in the order in which from_pretrained looks.
_FILES = (
    "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json",
)  # fmt: skip
_MOST_NAMED = 3


def weights_in(model: str) -> Path | None:
    """The file of weights in the directory that ``model`` names; ``None`` where it is none, or holds none."""
    try:
        directory = Path(model).expanduser()
        return next((directory / name for name in _FILES if directory.is_dir() and (directory / name).is_file()), None)
    except (OSError, RuntimeError, ValueError):  # too long, no such home, a null byte
        return None


def load_model(config: Mapping[str, Any], workload: Workload, file: Path) -> tuple[torch.nn.Module, str]:
    """The model with the weights beside ``file``, as ``from_pretrained`` loads it, and a sentence about them.

    What the file does not hold (mostly a new head) is initialised as the model's class does, with a fixed seed.

    Raises:
        InputError: the weights cannot be read, or the model has no such head or attention.
    """
    built = build_config(config, workload)
    auto = auto_class_of(built, workload)
    wanted = {} if workload.attention is None else {"attn_implementation": workload.attention.value}
    torch.manual_seed(0)
    try:
        model, told = auto.from_pretrained(
            str(file.parent), config=built, dtype=getattr(torch, workload.dtype.value), local_files_only=True,
            ignore_mismatched_sizes=True, output_loading_info=True, **wanted,
        )  # fmt: skip
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"the weights in {file} cannot be loaded", why=why, hint="check the file") from error
    assert isinstance(model, torch.nn.Module)
    return model, f"weights from {file}{_made(told)}"


def _made(told: Mapping[str, Any]) -> str:
    mismatched = [item[0] if isinstance(item, (tuple, list)) else item for item in told.get("mismatched_keys", ())]
    new = sorted({*told.get("missing_keys", ()), *mismatched})
    if not new:
        return ""
    more = f" and {len(new) - _MOST_NAMED} more" if len(new) > _MOST_NAMED else ""
    return f"; not in it, and initialised: {', '.join(new[:_MOST_NAMED])}{more}"
