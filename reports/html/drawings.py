"""The drawings of the page, those for which the diagnosis has what they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from memdoctor.records import Diagnosis
from memdoctor.reports.charts.allocator import AllocatorState, allocator_at_peak
from memdoctor.reports.charts.batch_map import BatchMap, batch_map_of
from memdoctor.reports.html.svg.capacity import capacity_bar
from memdoctor.reports.html.svg.modules import modules_icicle
from memdoctor.reports.html.svg.timeline import timeline_chart, timeline_data


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawings:
    """SVG of each chart, ``None`` where it has nothing to show; ``timeline_data`` is for the one that zooms."""

    capacity: Markup | None = None
    timeline: Markup | None = None
    timeline_data: Any = None
    modules: Markup | None = None
    batches: BatchMap | None = None
    allocator: AllocatorState | None = None


def drawings_of(diagnosis: Diagnosis) -> Drawings:
    """Draw them."""
    return Drawings(
        capacity=capacity_bar(diagnosis),
        timeline=timeline_chart(diagnosis),
        timeline_data=timeline_data(diagnosis),
        modules=modules_icicle(diagnosis),
        batches=batch_map_of(diagnosis),
        allocator=allocator_at_peak(diagnosis),
    )
