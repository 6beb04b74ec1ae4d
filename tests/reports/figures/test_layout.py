"""Panels stand one below the other; nothing that is written leaves the canvas or lies on something else."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from memdoctor.records import Budget, Diagnosis, ModuleUse
from memdoctor.reports.figures.canvas import canvas_of, figure_alone
from memdoctor.reports.figures.drawing import style

LIMIT = 1 << 33
LONG = "W$" * 5000


def written(figure: Figure) -> list[tuple[str, Bbox]]:
    """Every text that is seen, and where, in pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    texts = [each for each in figure.findobj(Text) if each.get_visible() and each.get_text().strip()]
    return [(each.get_text(), Text.get_window_extent(each, renderer)) for each in texts]


def attacked(real: Diagnosis) -> Diagnosis:
    """With names as long as there are, and two budgets side by side."""
    budget = Budget(name=LONG, metric="peak_reserved", limit_bytes=LIMIT, value_bytes=1, status="kept")
    return replace(
        real, workload=replace(real.workload, model=LONG), device=replace(real.device, name=LONG),
        verdict=replace(real.verdict, sentence=LONG), modules=(ModuleUse(path=LONG, activations=5),),
        budgets=(budget, replace(budget, limit_bytes=LIMIT + 1)),
    )  # fmt: skip


def held_to_the_canvas(figure: Figure) -> None:
    """Every text within the canvas, none on another."""
    with style():
        found = written(figure)
    across, up = figure.bbox.width, figure.bbox.height
    for words, box in found:
        assert box.x0 >= 0, words
        assert box.x1 <= across, words
        assert box.y0 >= 0, words
        assert box.y1 <= up, words
    for (one, a), (other, b) in combinations(found, 2):
        inner = Bbox.intersection(a.padded(-1), b.padded(-1))
        assert inner is None, (one[:60], other[:60])


def test_the_canvas_has_everything_in_its_place(real: Diagnosis) -> None:
    held_to_the_canvas(canvas_of(real))
    held_to_the_canvas(canvas_of(attacked(real)))


def test_each_figure_alone_has_everything_in_its_place(real: Diagnosis) -> None:
    for name in ("capacity", "timeline", "toggles", "modules", "batches"):
        held_to_the_canvas(figure_alone(attacked(real), name))


def test_a_canvas_without_a_timeline_says_why(real: Diagnosis) -> None:
    with style():
        said = [words for words, _ in written(canvas_of(replace(real, timeline=None)))]
    assert any("No timeline to draw: the file was written by memdoctor 0.1" in words for words in said)
    with style():
        assert not any("No timeline" in words for words, _ in written(canvas_of(real)))


def test_the_sizes_in_the_key_and_what_is_free_are_those_of_the_breakdown(real: Diagnosis) -> None:
    with style():
        key = [text.get_text() for legend in canvas_of(real).legends for text in legend.get_texts()]
    held = [name.replace("_", " ") for name, size in real.breakdown.items() if size and name != "free"]
    assert [words for words in key if words.rsplit(" ", 2)[0] in held] == [
        words for words in key if not words.endswith(" 0 B")
    ]
    assert len(key) == len(set(key)) >= len(held)
