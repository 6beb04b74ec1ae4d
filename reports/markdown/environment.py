"""What was run, on what, and with what: the last part of every document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from enum import Enum

from memdoctor.difference import in_words
from memdoctor.records import Device, Provenance, Workload
from memdoctor.reports.markdown.blocks import details, items, table
from memdoctor.reports.markdown.text import code, text
from memdoctor.units import format_bytes

_ALWAYS = {"model", "task", "batch_size", "seq_length", "precision", "optimizer", "attention"}


def environment(
    workload: Workload, device: Device, provenance: Provenance, assumed: Sequence[str] = (), *, summary: str = ""
) -> str:
    """The settings that are not the default ones, the device, and the versions."""
    rows = [(code(name), text(value, 300)) for name, value in _facts(workload, device, provenance)]
    said = items([f"assumed: {text(', '.join(assumed))}"]) if assumed else ""
    return details(summary or "Environment and settings", table(("", ""), rows, most=100), said)


def _facts(workload: Workload, device: Device, provenance: Provenance) -> Iterator[tuple[str, str]]:
    for field in fields(workload):
        value = getattr(workload, field.name)
        if field.name in _ALWAYS or value != field.default:
            yield field.name, in_words(value.value if isinstance(value, Enum) else value)
    yield "device", f"{device.name}, {format_bytes(device.total_bytes)}, compute capability {device.compute_capability}"
    yield "context", f"{format_bytes(device.context_bytes)} ({device.context_source})"
    if device.alloc_conf:
        yield "alloc_conf", device.alloc_conf
    for name in (
        "mode", "torch", "transformers", "python", "memdoctor", "cuda", "driver", "attention_kernels", "model_source",
        "created", "notes",
    ):  # fmt: skip
        if value := getattr(provenance, name):
            yield name, in_words(value)
