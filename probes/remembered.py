"""Contexts that were measured on this machine, in one JSON file in the user's cache directory.

Nothing depends on it: a file that is broken, foreign or of a newer version counts as empty, and one that cannot be
written is told and no more.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from memdoctor.errors import InputError
from memdoctor.probes.context import Context
from memdoctor.probes.nvml import driver_version
from memdoctor.probes.places import cache_directory
from memdoctor.probes.torch_build import torch_build
from memdoctor.storage import SCHEMA_VERSION, read_document, write_document

KIND = "contexts"
_MOST_ENTRIES = 200  # cards, drivers and releases of torch that one machine has seen; the oldest are forgotten


@dataclass(frozen=True, slots=True)
class Setting:
    """What a context depends on: the GPU's name, the driver, torch's CUDA, and torch."""

    gpu: str
    driver: str
    cuda: str
    torch: str


@dataclass(frozen=True, slots=True)
class Remembered:
    """A context that was measured, and where."""

    setting: Setting
    context: Context


def setting_here(gpu: str) -> Setting | None:
    """The setting of this GPU (by NVML's name) on this machine; ``None`` without a driver, or a torch for CUDA."""
    driver, build = driver_version(), torch_build()
    if driver is None or build is None or not isinstance(build.cuda, str):
        return None
    return Setting(gpu=gpu, driver=driver, cuda=build.cuda, torch=build.version)


def remember(setting: Setting, context: Context, environ: Mapping[str, str] = os.environ) -> str | None:
    """Keep a measured context, in the place of an earlier one of the same setting; why it could not be kept, if so."""
    path = cache_file(environ)
    if path is None:
        return "there is no directory for caches"
    others = [entry for entry in remembered(environ) if entry.setting != setting]
    entries = [*others, Remembered(setting, context)][-_MOST_ENTRIES:]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {"schema_version": SCHEMA_VERSION, "kind": KIND, "contexts": [asdict(entry) for entry in entries]}
        write_document(path, document, force=True)
    except InputError as error:
        return f"{error.what}: {error.why}"
    except OSError as error:
        return f"cannot write {path}: {error.strerror or error}"
    return None


def recall(setting: Setting, environ: Mapping[str, str] = os.environ) -> Context | None:
    """The context of this card and driver: measured with this torch and CUDA, else, and it says so, with another."""
    near = [entry for entry in remembered(environ) if _same_card(entry.setting, setting)]
    if not near:
        return None
    exact = next((entry for entry in near if entry.setting == setting), None)
    if exact is not None:
        return exact.context
    latest = near[-1]
    other = f"{latest.context.source}; with torch {latest.setting.torch}, CUDA {latest.setting.cuda}"
    return Context(latest.context.context_bytes, latest.context.error_bytes, other)


def remembered(environ: Mapping[str, str] = os.environ) -> tuple[Remembered, ...]:
    """All contexts that are kept, in the order in which they were measured."""
    path = cache_file(environ)
    if path is None:
        return ()
    try:
        document = read_document(path)
    except InputError:
        return ()
    entries = document.get("contexts") if document["kind"] == KIND else None
    read = [_read(entry) for entry in entries] if isinstance(entries, list) else []
    return tuple(entry for entry in read if entry is not None)


def cache_file(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The file, in the user's cache directory."""
    directory = cache_directory(environ)
    return None if directory is None else directory / "contexts.json"


def _same_card(one: Setting, other: Setting) -> bool:
    return (one.gpu, one.driver) == (other.gpu, other.driver)


def _read(entry: Any) -> Remembered | None:
    """An entry of the file, or ``None`` where it is none, or a figure that cannot be."""
    try:
        setting, context = Setting(**entry["setting"]), Context(**entry["context"])
    except (TypeError, KeyError):
        return None
    texts = (*asdict(setting).values(), context.source)
    counts = (context.context_bytes, context.error_bytes)
    sound = all(type(text) is str for text in texts) and all(type(count) is int and count >= 0 for count in counts)
    return Remembered(setting, context) if sound and context.context_bytes > 0 else None
