"""The two records of the catalogue: a checkpoint and a GPU, each with where its facts come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from memdoctor.records import Device, Rates

ConfigValue: TypeAlias = bool | int | float | str | list[int] | list[str]
"""A value of ``config.json`` that determines shapes or saved tensors."""


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A checkpoint of the hub: enough of its ``config.json`` to rebuild the model without weights."""

    name: str
    aliases: tuple[str, ...]
    model_type: str
    config: Mapping[str, ConfigValue] = field(hash=False)
    max_seq_length: int | None
    """The longest input in tokens that the positions allow; None where nothing bounds it."""
    parameters: int
    """Elements in the parameters of ``AutoModel``, the model without a head."""
    parameters_sequence_classification: int
    """The same with the head of ``AutoModelForSequenceClassification`` for two labels."""
    source: str


@dataclass(frozen=True, slots=True)
class GpuEntry:
    """A GPU as memory sees it. The source of each figure says how far to trust it."""

    name: str
    aliases: tuple[str, ...]
    total_bytes: int
    """What CUDA reports, not the size on the box; the lowest reading found, since drivers differ."""
    total_source: str
    compute_capability: str
    context_bytes: int
    """Context and libraries of one PyTorch process, beyond what the caching allocator has reserved."""
    context_error_bytes: int
    """Half the width of the band around ``context_bytes`` that holds the readings known."""
    context_source: str
    rates: Rates
    """How fast it computes and moves bytes, as its data sheet has it."""

    @property
    def device(self) -> Device:
        """The card to itself, with the allocator's default settings."""
        return Device(
            name=self.name, total_bytes=self.total_bytes, compute_capability=self.compute_capability,
            context_bytes=self.context_bytes, context_error_bytes=self.context_error_bytes,
            context_source=self.context_source, source=f"catalogue: {self.total_source}",
        )  # fmt: skip
