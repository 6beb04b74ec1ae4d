"""The catalogue's data files, read once and only when asked for."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from memdoctor.catalogue.entries import GpuEntry, ModelEntry
from memdoctor.records import Rates


@cache
def models() -> tuple[ModelEntry, ...]:
    """All checkpoints of ``models.toml``, in its order."""
    return tuple(_model(table) for table in _tables("models.toml", "model"))


@cache
def gpus() -> tuple[GpuEntry, ...]:
    """All GPUs of ``gpus.toml``, in its order."""
    return tuple(_gpu(table) for table in _tables("gpus.toml", "gpu"))


def _model(table: dict[str, Any]) -> ModelEntry:
    # TOML has no null: an absent maximum means that there is none.
    fields = {"max_seq_length": None, **_with_aliases(table)}
    return ModelEntry(**{**fields, "config": MappingProxyType(table["config"])})


def _gpu(table: dict[str, Any]) -> GpuEntry:
    # An absent rate: no faster in that type than in fp32.
    rates = Rates(**{"fp16_tflops": None, "bf16_tflops": None, **table["rates"]})
    return GpuEntry(**{**_with_aliases(table), "rates": rates})


def _with_aliases(table: dict[str, Any]) -> dict[str, Any]:
    return {**table, "aliases": tuple(table["aliases"])}


def _tables(file_name: str, key: str) -> list[dict[str, Any]]:
    with files("memdoctor.catalogue").joinpath(file_name).open("rb") as file:
        tables: list[dict[str, Any]] = tomllib.load(file)[key]
    return tables
