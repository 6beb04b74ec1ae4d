"""Pictures: what is drawn is what the diagnosis says, the bytes are the same each time, and no name breaks them."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from memdoctor.doctor import conclude
from memdoctor.records import Budget, Diagnosis, Difference, Fit, ModuleUse
from memdoctor.reports.charts.batch_map import batch_map_of
from memdoctor.reports.charts.stack import stack_of
from memdoctor.reports.documents import diagnosis_document
from memdoctor.reports.figures import (
    bar,
    diagnosis_png,
    diagnosis_svg,
    difference_png,
    figures_of,
    fit_png,
    fit_svg,
    parts,
)
from memdoctor.reports.figures.canvas import figure_alone
from memdoctor.reports.figures.drawing import style
from memdoctor.storage import write_document

HOSTILE = [
    "$x^2$ \\frac{",
    "<script>alert(1)</script>",
    "\u202eevil",
    "\x00\x07",
    "模型🤗",
    "x" * 10_000,
    "a\nb",
    "%s{}",
]
PNG = b"\x89PNG\r\n\x1a\n"


def drawn(draw: Callable[..., None], *given: Any) -> Any:
    """The axes after something was drawn on them."""
    axes = Figure().add_subplot()
    with style():
        draw(axes, *given)
    return axes


def size_of(png: bytes) -> tuple[int, int]:
    """Width and height in pixels, from the header."""
    assert png.startswith(PNG)
    return int.from_bytes(png[16:20]), int.from_bytes(png[20:24])


def test_the_canvas_is_as_wide_as_a_comment_and_no_taller_than_a_screen_or_two(real: Diagnosis) -> None:
    width, height = size_of(diagnosis_png(real))
    assert width == 1800
    assert 900 < height < 2400


def test_the_parts_of_the_bar_sum_to_the_card(real: Diagnosis) -> None:
    fits = replace(
        real, verdict=replace(real.verdict, fits=True, headroom_bytes=7),
        breakdown=replace(real.breakdown, free=7, activations=real.breakdown.activations + real.breakdown.free - 7),
        peak=replace(real.peak, **{
            name: getattr(real.peak, name) + real.breakdown.free - 7
            for name in ("allocated_bytes", "max_memory_allocated_bytes", "reserved_bytes", "device_bytes")
        }),
    )  # fmt: skip
    for diagnosis in (real, fits):
        axes = drawn(bar.capacity, diagnosis)
        widths = [int(patch.get_width()) for patch in axes.patches]
        held = [size for name, size in diagnosis.breakdown.items() if size and name != "free"]
        assert widths == [*held, abs(diagnosis.breakdown.free)]
        assert sum(held) + diagnosis.breakdown.free == diagnosis.device.total_bytes


def test_budgets_are_lines_of_the_bar(real: Diagnosis) -> None:
    budget = Budget(name="ours", metric="peak_reserved", limit_bytes=1 << 33, value_bytes=1, status="kept")
    axes = drawn(bar.capacity, replace(real, budgets=(budget,)))
    assert [list(line.get_xdata()) for line in axes.lines] == [[real.device.total_bytes] * 2, [1 << 33] * 2]
    assert any("ours: 8.00 GiB" in text.get_text() for text in axes.texts)


def test_the_timeline_marks_the_peak_and_where_memory_ran_out(real: Diagnosis) -> None:
    assert real.timeline is not None
    assert real.ran_out is not None
    axes = drawn(parts.timeline, real, stack_of(real.timeline))
    marks = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if line.get_marker() == "o"]
    in_use = real.timeline.in_use()
    assert marks == [(in_use.index(max(in_use)), real.peak.allocated_bytes)]
    assert real.ran_out.event in [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == ":"]


def test_every_toggle_has_its_bar_and_says_whether_it_fits(real: Diagnosis) -> None:
    axes = drawn(parts.toggles, real)
    wanted = [real.peak.reserved_bytes, *(toggle.peak.reserved_bytes for toggle in real.toggles)]
    assert [int(bar.get_width()) for bar in axes.patches] == wanted
    told = [text.get_text().strip() for text in axes.texts if "PyTorch can have" not in text.get_text()]
    assert "PyTorch can have 14.44 GiB: the line" in [text.get_text() for text in axes.texts]
    assert [words[-1] for words in told] == ["✗", *("✓" if one.fits else "✗" for one in real.toggles)]


def test_modules_are_stacked_by_category(real: Diagnosis) -> None:
    axes = drawn(parts.modules, replace(real, modules=(ModuleUse(path="net", parameters=3, activations=4),)))
    assert sorted(int(bar.get_width()) for bar in axes.patches) == [0, 0, 0, 0, 0, 0, 3, 4]


def test_the_map_has_a_cell_for_each_batch_and_length(real: Diagnosis) -> None:
    found = batch_map_of(real)
    assert found is not None
    assert len(found.rows) == 3
    cells = sum(cell is not None for _, row in found.rows for cell in row)
    axes = drawn(parts.batches, found)
    assert len(axes.patches) == cells + 1  # one is outlined
    assert len(axes.texts) == cells


def test_each_figure_alone_as_png_and_svg(real: Diagnosis) -> None:
    files = dict(figures_of(real))
    names = ("capacity", "timeline", "toggles", "modules", "batches")
    assert list(files) == [f"{name}.{kind}" for name in names for kind in ("png", "svg")]
    for name, content in files.items():
        if name.endswith("png"):
            assert size_of(content)[0] == 1800
        else:
            assert ET.fromstring(content).tag.endswith("svg")


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_breaks_a_picture_or_is_taken_for_mathematics(
    real: Diagnosis, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    attacked = replace(
        real, workload=replace(real.workload, model=name), modules=(ModuleUse(path=name, activations=5),),
        budgets=(Budget(name=name, metric="peak_reserved", limit_bytes=5, value_bytes=2, status="exceeded"),),
    )  # fmt: skip
    assert size_of(diagnosis_png(attacked))[0] == 1800
    assert dict(figures_of(attacked))["modules.png"].startswith(PNG)
    ET.fromstring(diagnosis_svg(attacked))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_breaks_the_picture_of_a_fit(real: Diagnosis, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    fit = Fit(
        workload=replace(real.workload, model=name), device=replace(real.device, name=name),
        provenance=real.provenance,
    )  # fmt: skip
    assert size_of(fit_png(fit))[0] == 1800
    ET.fromstring(fit_svg(fit))
    assert capfd.readouterr() == ("", "")


def test_what_is_not_there_is_left_out(real: Diagnosis) -> None:
    bare = replace(real, timeline=None, toggles=(), plan=(), scaling=None, modules=(), checklist=())
    assert size_of(diagnosis_png(bare))[1] < size_of(diagnosis_png(real))[1]
    assert list(dict(figures_of(bare))) == ["capacity.png", "capacity.svg"]


def test_one_tensor_is_enough(new_recording: Callable[[], Any]) -> None:
    tape = new_recording()
    tape.phase(1, "forward")
    tape.birth(1)
    assert size_of(diagnosis_png(conclude(tape.examination())))[0] == 1800


def test_a_difference_has_its_picture(difference: Difference) -> None:
    assert size_of(difference_png(difference))[0] == 1800
    axes = drawn(parts.growth, difference)
    grown = [part.delta_bytes for part in difference.parts if part.delta_bytes and part.name != "free"]
    assert [int(bar.get_width()) for bar in axes.patches] == grown


def test_the_command_writes_the_same_bytes_in_every_process_without_torch(real: Diagnosis, tmp_path: Path) -> None:
    saved = tmp_path / "d.json"
    write_document(saved, diagnosis_document(real), force=False)
    written = []
    for seed in ("1", "2"):
        out = tmp_path / seed
        command = [
            sys.executable, "-X", "importtime", "-m", "memdoctor", "report", str(saved), "-o", f"{out}/",
            "-o", f"{out}.png", "-o", f"{out}.svg",
        ]  # fmt: skip
        unwritable = {"MPLCONFIGDIR": f"{os.devnull}/none", "PYTHONHASHSEED": seed}
        ran = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **unwritable})
        own = [line for line in ran.stderr.splitlines() if not line.startswith("import time:")]
        assert all(line.startswith("wrote ") for line in own), own
        assert "| torch\n" not in ran.stderr
        files = [*sorted(out.iterdir()), Path(f"{out}.png"), Path(f"{out}.svg")]
        written.append([path.read_bytes() for path in files])
    assert written[0] == written[1]
    assert len(written[0]) == 12


def test_no_name_of_a_module_that_has_room_is_cut(real: Diagnosis) -> None:
    with style():
        (axes,) = figure_alone(real, "modules").axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == [use.path or "(no module)" for use in real.modules[: parts.MOST_MODULES]]
    assert max(map(len, labels)) > 50


def test_a_figure_without_categories_has_no_key_of_them(real: Diagnosis) -> None:
    names = ("capacity", "timeline", "toggles", "modules", "batches")
    keys = {name: bool(figure_alone(real, name).legends) for name in names}
    assert keys == {"capacity": True, "timeline": True, "toggles": False, "modules": True, "batches": False}
