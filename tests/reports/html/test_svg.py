"""The drawings: their geometry by hand, well-formed, the same each time, and safe whatever the names are."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest

from memdoctor.doctor import conclude
from memdoctor.records import Budget, Diagnosis, ModuleUse, RanOut
from memdoctor.reports.html.page import render
from memdoctor.reports.html.svg.capacity import capacity_bar
from memdoctor.reports.html.svg.element import NARROW, WIDE
from memdoctor.reports.html.svg.modules import modules_icicle, tree_of
from memdoctor.reports.html.svg.timeline import timeline_chart, timeline_data
from memdoctor.reports.palette import COLOURS, on
from memdoctor.units import format_bytes

DRAWINGS = (capacity_bar, timeline_chart, modules_icicle)
GIB = 1 << 30


def parsed(drawn: object) -> list[ET.Element]:
    """The pictures of a drawing, the wide one first."""
    return list(ET.fromstring(f"<all>{drawn}</all>"))


@pytest.fixture
def small(new_recording: Callable[[], Any]) -> Diagnosis:
    """Ten GiB of a card: 2 of parameters, 6 of activations at the peak, which is event 1 of 4."""
    tape = new_recording()
    tape.phase(0, "setup")
    tape.birth(2 * GIB, "parameters", module="net")
    tape.phase(1, "forward")
    kept = tape.birth(6 * GIB, module="net.layer.0")
    tape.phase(1, "backward")
    gradient = tape.birth(1 * GIB, "gradients")
    tape.death(kept)
    tape.death(gradient)
    return conclude(tape.examination(total=10 * GIB, context=1 * GIB))


@pytest.mark.parametrize("draw", DRAWINGS)
def test_each_is_well_formed_names_itself_and_is_the_same_each_time(
    real: Diagnosis, draw: Callable[[Diagnosis], object]
) -> None:
    drawn = draw(real)
    assert drawn == draw(real)
    pictures = parsed(drawn)
    assert [picture.get("class") for picture in pictures] == ["wide", "narrow"]
    for picture, width in zip(pictures, (WIDE, NARROW), strict=True):
        assert picture.get("viewBox", "").split()[2] == str(width)
        assert len(picture.get("aria-label", "")) > 20
        assert not [e for e in picture.iter() if "style" in e.attrib or any(name.startswith("on") for name in e.attrib)]


def test_the_parts_of_the_bar_sum_to_the_card(small: Diagnosis) -> None:
    for picture, width in zip(parsed(capacity_bar(small)), (WIDE, NARROW), strict=True):
        boxes = [(float(e.get("x", 0)), float(e.get("width", 0))) for e in picture.iter("rect")]
        # 2 parameters, 1 gradients, 6 activations, 1 context; nothing is free
        tenth = width / 10
        expected = [(0, 2 * tenth), (2 * tenth, tenth), (3 * tenth, 6 * tenth), (9 * tenth, tenth), (width, 0)]
        assert [x for x, _ in boxes] == pytest.approx([x for x, _ in expected], abs=0.011)
        assert [w for _, w in boxes] == pytest.approx([w for _, w in expected], abs=0.011)
        (line,) = list(picture.iter("line"))
        assert line.get("class") == "capacity"


def test_what_is_missing_goes_on_beyond_the_card(real: Diagnosis) -> None:
    picture, _ = parsed(capacity_bar(real))
    (missing,) = [e for e in picture.iter("rect") if e.get("class") == "missing"]
    free, total = real.breakdown.free, real.device.total_bytes
    assert free < 0
    assert float(missing.get("width", 0)) == pytest.approx(WIDE * -free / (total - free), abs=0.01)
    assert float(missing.get("x", 0)) == pytest.approx(WIDE * total / (total - free), abs=0.01)


def test_budgets_have_their_line(small: Diagnosis) -> None:
    budget = Budget(name="ours", metric="peak_reserved", limit_bytes=5 * GIB, value_bytes=9 * GIB, status="exceeded")
    picture, _ = parsed(capacity_bar(replace(small, budgets=(budget,))))
    (line,) = [e for e in picture.iter("line") if e.get("class") == "budget"]
    assert float(line.get("x1", 0)) == WIDE / 2
    assert "budget ours: 5.00 GiB" in [e.text for e in picture.iter("text")]


def test_each_budget_has_a_row_of_its_own_and_one_beyond_the_bar_says_so(small: Diagnosis) -> None:
    sizes = {"a": 2, "b": 3, "c": 8, "d": 40, "x" * 10_000: 7}  # GiB, of a card of 10
    budgets = tuple(
        Budget(name=name, metric="device_peak", limit_bytes=size * GIB, value_bytes=1, status="exceeded")
        for name, size in sizes.items()
    )
    for picture, width in zip(parsed(capacity_bar(replace(small, budgets=budgets))), (WIDE, NARROW), strict=True):
        told = [(e.text or "", float(e.get("y", 0))) for e in picture.iter("text") if "budget " in (e.text or "")]
        assert [words.split(":")[0][7:8] for words, _ in told] == ["b", "a", "x", "c", "d"]
        first = told[0][1]
        assert [y for _, y in told] == [first, first + 16, first + 32, first + 48, first + 64]
        assert told[-1][0] == "budget d: 40.00 GiB, beyond \u2192"
        assert max(len(words) for words, _ in told) < 60
        lines = [float(e.get("x1", 0)) for e in picture.iter("line") if e.get("class") == "budget"]
        assert lines == [width * tenths / 10 for tenths in (3, 2, 7, 8)]


def test_what_is_missing_is_told_in_words(real: Diagnosis) -> None:
    missing = f"{format_bytes(-real.breakdown.free)} missing"
    for picture in parsed(capacity_bar(real)):
        assert [e.text for e in picture.iter("text") if missing in (e.text or "")]


def test_a_chart_with_a_link_in_it_is_no_image(real: Diagnosis) -> None:
    assert [picture.get("role") for picture in parsed(timeline_chart(real))] == ["group", "group"]
    assert [picture.get("role") for picture in parsed(capacity_bar(real))] == ["img", "img"]


def test_the_peak_is_marked_where_it_is_and_leads_to_its_tensors(small: Diagnosis) -> None:
    picture, _ = parsed(timeline_chart(small))
    (link,) = list(picture.iter("a"))
    assert link.get("href") == "#peak-tensors"
    (dot,) = list(link.iter("circle"))
    left, right = 62, WIDE - 6
    assert float(dot.get("cx", 0)) == pytest.approx(left + (right - left) * 2 / 5, abs=0.01)
    bottom, top, highest = 320 - 22, 34, int(1.06 * 9 * GIB)
    assert float(dot.get("cy", 0)) == pytest.approx(bottom - (bottom - top) * 9 * GIB / highest, abs=0.01)


def test_a_thinned_timeline_says_so_and_one_that_is_not_does_too(real: Diagnosis, small: Diagnosis) -> None:
    assert real.timeline is not None
    said = [e.text or "" for e in parsed(timeline_chart(real))[0].iter("text")]
    assert [text for text in said if f"of {len(real.timeline.events):,} events, each the highest" in text]
    assert "5 events, one after another" in [e.text for e in parsed(timeline_chart(small))[0].iter("text")]


def test_where_memory_ran_out_is_marked(new_recording: Callable[[], Any]) -> None:
    tape = new_recording()
    tape.phase(1, "forward")
    tape.birth(100)
    tape.birth(100)
    ran_out = conclude(tape.examination(outcome=RanOut(requested_bytes=100, free_bytes=1, event=1)))
    picture, _ = parsed(timeline_chart(ran_out))
    (line,) = [e for e in picture.iter("line") if e.get("class") == "stop"]
    assert float(line.get("x1", 0)) == pytest.approx(62 + (WIDE - 68) / 2, abs=0.01)


def test_the_data_that_zooms_sums_to_what_is_in_use(real: Diagnosis) -> None:
    data = timeline_data(real)
    assert data is not None
    assert real.timeline is not None
    in_use = real.timeline.in_use()
    summed = [sum(series["bytes"][at] for series in data["series"]) for at in range(len(data["events"]))]
    assert summed == [in_use[event] for event in data["events"]]
    assert data["peak"] in data["events"]
    assert in_use[data["peak"]] == real.peak.allocated_bytes


def test_a_file_without_a_timeline_has_no_chart_of_it(real: Diagnosis) -> None:
    assert timeline_chart(replace(real, timeline=None)) is None
    assert timeline_data(replace(real, timeline=None)) is None


def test_who_wrote_the_chart_that_zooms_is_told_where_it_is(real: Diagnosis) -> None:
    notice = (files("memdoctor.reports.html") / "static" / "uPlot.LICENSE").read_text(encoding="utf-8")
    assert notice.strip() in render(real).decode()
    assert "uPlot" not in render(replace(real, timeline=None)).decode().partition("</style>")[2].partition("<body>")[2]


def test_modules_of_no_size_are_not_drawn(real: Diagnosis) -> None:
    uses = (ModuleUse(path="net", activations=3), ModuleUse(path="net.empty"))
    picture, _ = parsed(modules_icicle(replace(real, modules=uses)))
    assert [e.findtext("title") for e in picture.iter("rect")] == [
        "all: 3 B (activations 3 B)",
        "net: 3 B (activations 3 B)",
    ]
    assert modules_icicle(replace(real, modules=uses[1:])) is None


def test_modules_hold_what_is_in_them() -> None:
    uses = (
        ModuleUse(path="", parameters=5), ModuleUse(path="net", activations=1),
        ModuleUse(path="net.layer.10", activations=20), ModuleUse(path="net.layer.2", gradients=30),
    )  # fmt: skip
    root = tree_of(uses)
    assert root.total == 56
    assert root.inner["net"].total == 51
    assert root.inner["net"].inner["layer"].inner["10"].total == 20
    assert root.inner["(no module)"].total == 5


def test_layers_stand_in_their_order_and_as_wide_as_what_they_hold(real: Diagnosis) -> None:
    uses = (ModuleUse(path="layer.10", activations=30), ModuleUse(path="layer.2", activations=10))
    picture, _ = parsed(modules_icicle(replace(real, modules=uses)))
    boxes = [(e.findtext("title"), float(e.get("x", 0)), float(e.get("width", 0))) for e in picture.iter("rect")]
    quarter = WIDE / 4
    assert [box[1:] for box in boxes] == [(0, WIDE), (0, WIDE), (0, quarter), (quarter, 3 * quarter)]
    assert [str(box[0]).partition(":")[0] for box in boxes] == ["all", "layer", "layer.2", "layer.10"]


def test_every_box_says_below_its_name_what_it_holds(real: Diagnosis) -> None:
    uses = (ModuleUse(path="net", activations=30, parameters=10),)
    picture, _ = parsed(modules_icicle(replace(real, modules=uses)))
    strips = {e.get("fill"): e.get("d") for e in picture.iter("path")}
    quarter = WIDE / 4
    assert strips == {
        COLOURS["parameters"]: f"M0.0 21.5h{quarter:.1f}v6h-{quarter:.1f}zM0.0 49.5h{quarter:.1f}v6h-{quarter:.1f}z",
        COLOURS["activations"]: (
            f"M{quarter:.1f} 21.5h{3 * quarter:.1f}v6h-{3 * quarter:.1f}z"
            f"M{quarter:.1f} 49.5h{3 * quarter:.1f}v6h-{3 * quarter:.1f}z"
        ),
    }


@pytest.mark.parametrize(("layers", "boxes"), [(96, 291), (400, 4)])
def test_of_very_many_modules_the_deepest_and_the_thinnest_are_told_together(
    real: Diagnosis, layers: int, boxes: int
) -> None:
    inner = ("attention.output", "intermediate.dense")
    uses = tuple(ModuleUse(path=f"net.layer.{n}.{name}", activations=1) for n in range(layers) for name in inner)
    picture, _ = parsed(modules_icicle(replace(real, modules=uses)))
    titles = [e.findtext("title") or "" for e in picture.iter("rect")]
    # 96: all, net, layer, 96 layers and 192 parts, not the level below; 400 layers are too thin for 400 boxes
    assert len(titles) == boxes
    assert any(title.startswith("400 more modules: 800 B") for title in titles) == (layers == 400)


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a\"b'c&d", "\u202eevil", "x" * 10_000, "a." * 5_000])
def test_names_are_harmless_and_have_an_end(real: Diagnosis, name: str) -> None:
    group = replace(real.tensors[0], module=name)
    attacked = replace(real, modules=(ModuleUse(path=name, activations=5),), tensors=(group,))
    drawn = str(modules_icicle(attacked))
    assert len(drawn) < 20_000
    assert "<script" not in drawn
    assert "\u202e" not in drawn
    parsed(drawn)


def test_text_on_every_colour_has_the_contrast_that_people_need() -> None:
    def luminance(colour: str) -> float:
        channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for colour in COLOURS.values():
        high, low = sorted((luminance(colour), luminance(on(colour))), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, colour
