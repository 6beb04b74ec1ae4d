"""``memdoctor gpus``: what the catalogue knows of GPUs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import rich_click as click

from memdoctor.cli.options import LISTING, options
from memdoctor.cli.output import print_json

if TYPE_CHECKING:
    from memdoctor.catalogue import GpuEntry


@click.command("gpus")
@options(LISTING)
def command(pattern: str | None, as_json: bool, sources: bool) -> None:
    """The GPUs that the catalogue knows; with PATTERN, those whose name contains it."""
    from memdoctor.catalogue import gpus
    from memdoctor.reports.tables import print_table

    found = [entry for entry in gpus() if pattern is None or pattern.lower() in entry.name.lower()]
    if as_json:
        print_json({"gpus": [dataclasses.asdict(entry) for entry in found]})
        return
    print_table(COLUMNS, [_row(entry) for entry in found], keep=len(COLUMNS) if sources else len(COLUMNS) - 1)


COLUMNS = ("name", "total for CUDA", "capability", "context MiB", "fp32 TFLOP/s", "fp16", "bf16", "GB/s", "source")


def _row(entry: GpuEntry) -> tuple[str, ...]:
    from memdoctor.reports.tables import symbol
    from memdoctor.units import MIB, format_bytes

    rates = entry.rates
    context = f"{entry.context_bytes / MIB:.0f} {symbol('±', '+-')} {entry.context_error_bytes / MIB:.0f}"
    return (
        entry.name, format_bytes(entry.total_bytes), entry.compute_capability, context,
        _rate(rates.fp32_tflops), _rate(rates.fp16_tflops), _rate(rates.bf16_tflops), f"{rates.bandwidth_gb_s:.0f}",
        f"total: {entry.total_source}; context: {entry.context_source}; rates: {rates.source}",
    )  # fmt: skip


def _rate(tflops: float | None) -> str:
    """Three digits or more; a dash where the card is no faster in the type than in fp32."""
    if tflops is None:
        return "-"
    return f"{tflops:.0f}" if tflops >= 100 else f"{tflops:.1f}"
