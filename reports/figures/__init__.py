"""Pictures, drawn by matplotlib: the whole of a report on one canvas, and each figure alone."""

from memdoctor.reports.figures import loading  # first: nothing else may import matplotlib
from memdoctor.reports.figures.canvas import (
    diagnosis_png,
    diagnosis_svg,
    difference_png,
    difference_svg,
    figures_of,
    fit_png,
    fit_svg,
)

__all__ = [
    "diagnosis_png",
    "diagnosis_svg",
    "difference_png",
    "difference_svg",
    "figures_of",
    "fit_png",
    "fit_svg",
    "loading",
]
