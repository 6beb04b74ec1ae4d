"""The drawings of the page, those for which the diagnosis has what they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from memdoctor.records import Diagnosis


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawings:
    """SVG of each chart, ``None`` where it has nothing to show; ``timeline_data`` is for the one that zooms."""

    capacity: Markup | None = None
    timeline: Markup | None = None
    timeline_data: Any = None
    modules: Markup | None = None
    batches: Markup | None = None
    segments: Markup | None = None


def drawings_of(diagnosis: Diagnosis) -> Drawings:
    """Draw them."""
    return Drawings()
