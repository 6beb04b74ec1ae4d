"""The formats of files, by suffix: which there are, of which reports, and who renders them.

A renderer takes the report and the document that is its JSON, and gives the bytes of a file. What a renderer needs is
imported when it is called: nobody waits for matplotlib who asked for JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memdoctor.records import Diagnosis, Fit, Verification

Report = Diagnosis | Fit | Verification
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


def _snapshot(report: Report, document: Document) -> bytes:
    from memdoctor.reports.handover.snapshot import snapshot_pickle

    assert isinstance(report, Diagnosis)
    return snapshot_pickle(report, document)


def _trace(report: Report, document: Document) -> bytes:
    from memdoctor.reports.handover.trace import trace_json

    assert isinstance(report, Diagnosis)
    return trace_json(report, document)


FORMATS = (
    Format(".pickle", "memory snapshot for PyTorch's memory viewer", {Diagnosis: _snapshot}),
    Format("trace.json.gz", "Chrome trace, compressed", {Diagnosis: _trace}),
    Format("trace.json", "Chrome trace, for Perfetto", {Diagnosis: _trace}),
    Format(".json.gz", "JSON, compressed", dict.fromkeys((Diagnosis, Fit, Verification), _json)),
    Format(".json", "JSON", dict.fromkeys((Diagnosis, Fit, Verification), _json)),
)
"""Every format; of two suffixes that a name ends in, the first is meant."""

Figures = Callable[[Diagnosis], Iterator[tuple[str, bytes]]]
"""Each figure of a diagnosis alone: the name of its file, and its bytes."""


def format_of(name: str) -> Format | None:
    """The format of a file of this name; ``None``: there is none."""
    return next((one for one in FORMATS if name.endswith(one.suffix)), None)


def suffixes_of(kind: type) -> tuple[str, ...]:
    """The suffixes that this kind of report can be written under."""
    return tuple(one.suffix for one in FORMATS if kind in one.renderers)
