"""The planner: the changes that make a target fit, each probed, in the order of what they cost."""

from __future__ import annotations

from memdoctor.planning.clock import Clock
from memdoctor.planning.edges import EdgeSearch, edge_search, predicted_edge, run_searches
from memdoctor.planning.entries import Patcher, Writer
from memdoctor.planning.forecast import Forecasts, Prober, Subject
from memdoctor.planning.search import Found, Search
from memdoctor.planning.settings import Setting, mixed_precision

__all__ = [
    "Clock",
    "EdgeSearch",
    "Forecasts",
    "Found",
    "Patcher",
    "Prober",
    "Search",
    "Setting",
    "Subject",
    "Writer",
    "edge_search",
    "mixed_precision",
    "predicted_edge",
    "run_searches",
]
