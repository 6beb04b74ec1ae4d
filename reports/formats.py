"""The formats of files, by suffix: which there are, of which reports, and who renders them.

A renderer takes the report and the document that is its JSON, and gives the bytes of a file. What a renderer needs is
imported when it is called: nobody waits for matplotlib who asked for JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from memdoctor.records import Diagnosis, Difference, Fit, Verification

Report = Diagnosis | Difference | Fit | Verification
"""What commands write to files."""
Document = Mapping[str, Any]
Renderer = Callable[[Any, Document], bytes]


@dataclass(frozen=True, slots=True)
class Format:
    """One format: the ``suffix`` of its files, and a renderer for each kind of report that it can hold."""

    suffix: str
    name: str
    renderers: Mapping[type, Renderer]


def _json(_report: Report, document: Document) -> bytes:
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def _rendered(module: str, function: str) -> Renderer:
    """That function of a module, imported when it is called."""

    def render(report: Report, _document: Document) -> bytes:
        rendered = getattr(import_module(f"memdoctor.reports.{module}"), function)(report)
        assert isinstance(rendered, bytes)
        return rendered

    return render


_EVERY = (Diagnosis, Difference, Fit, Verification)
_DRAWN = (Diagnosis, Difference, Fit)

_SNAPSHOT, _TRACE = _rendered("handover.snapshot", "snapshot_pickle"), _rendered("handover.trace", "trace_json")

FORMATS = (
    Format(".pickle", "memory snapshot for PyTorch's memory viewer", {Diagnosis: _SNAPSHOT}),
    Format("trace.json.gz", "Chrome trace, compressed", {Diagnosis: _TRACE}),
    Format("trace.json", "Chrome trace, for Perfetto", {Diagnosis: _TRACE}),
    Format(".json.gz", "JSON, compressed", dict.fromkeys(_EVERY, _json)),
    Format(".json", "JSON", dict.fromkeys(_EVERY, _json)),
    Format(".md", "Markdown", {one: _rendered("markdown", f"{one.__name__.lower()}_markdown") for one in _EVERY}),
    Format(
        ".html",
        "HTML",
        {Diagnosis: _rendered("html.page", "render"), Difference: _rendered("html.page", "render_difference")},
    ),
    Format(".png", "PNG", {one: _rendered("figures", f"{one.__name__.lower()}_png") for one in _DRAWN}),
    Format(".svg", "SVG", {one: _rendered("figures", f"{one.__name__.lower()}_svg") for one in _DRAWN}),
    Format(".csv", "CSV", {one: _rendered("tidy", f"{one.__name__.lower()}_csv") for one in _EVERY}),
)
"""Every format; of two suffixes that a name ends in, the first is meant."""


def figures_of(diagnosis: Diagnosis) -> Iterator[tuple[str, bytes]]:
    """Each figure of a diagnosis alone: the name of its file, and its bytes."""
    from memdoctor.reports.figures import figures_of as drawn

    return drawn(diagnosis)


def format_of(name: str) -> Format | None:
    """The format of a file of this name; ``None``: there is none."""
    lower = name.lower()
    return next((one for one in FORMATS if lower.endswith(one.suffix) and _whole(lower, one.suffix)), None)


def _whole(name: str, suffix: str) -> bool:
    """Whether it ends in that word, and not in one that only ends so: ``trace.json``, ``a.trace.json``."""
    return suffix.startswith(".") or name == suffix or name.endswith(f".{suffix}")


def suffixes_of(kind: type) -> tuple[str, ...]:
    """The suffixes that this kind of report can be written under."""
    return tuple(one.suffix for one in FORMATS if kind in one.renderers)
