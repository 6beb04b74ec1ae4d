"""memdoctor from Python: the same answers as the commands, in every form, and light to import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import memdoctor
from memdoctor.errors import InputError, UsageError
from memdoctor.records import Diagnosis, Examination

TINY = {"batch_size": 2, "seq_length": 32, "gpu": "T4", "backend": "simulated", "use_cache": False}


@pytest.fixture(scope="module")
def diagnosed() -> memdoctor.Report:
    """One of a small model, which is made once."""
    return memdoctor.diagnose("prajjwal1/bert-tiny", fp16=True, **TINY)


@pytest.fixture(scope="module")
def examined() -> memdoctor.Report:
    """One step of it."""
    return memdoctor.examine("prajjwal1/bert-tiny", **TINY)


def test_importing_it_imports_nothing_heavy() -> None:
    script = (
        "import sys, memdoctor; memdoctor.load; "
        "print([name for name in ('torch', 'transformers', 'pandas', 'matplotlib', 'click') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]"


def test_a_diagnosis_has_all_of_its_record(diagnosed: memdoctor.Report) -> None:
    assert isinstance(diagnosed.record, Diagnosis)
    assert diagnosed.fits is True
    assert diagnosed.workload.precision.value == "fp16"
    assert sum(size for _, size in diagnosed.breakdown.items()) == diagnosed.device.total_bytes
    assert diagnosed.peak == diagnosed.record.peak
    with pytest.raises(AttributeError, match="a diagnosis has no pek"):
        _ = diagnosed.pek


def test_an_examination_says_what_follows_from_it(examined: memdoctor.Report) -> None:
    assert isinstance(examined.record, Examination)
    assert examined.peak.allocated_bytes == max(examined.record.timeline.in_use())
    assert examined.to_dict()["kind"] == "examination"


@pytest.mark.parametrize("suffix", ["html", "md", "csv", "json", "json.gz", "svg", "png", "pickle", "trace.json"])
def test_it_is_saved_in_every_format_and_overwrites_nothing(
    diagnosed: memdoctor.Report, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"report.{suffix}"
    assert diagnosed.save(path) == path
    assert path.stat().st_size > 1000
    with pytest.raises(InputError, match="exists"):
        diagnosed.save(path)
    diagnosed.save(path, force=True)


def test_a_format_that_there_is_not_is_one_clear_error(diagnosed: memdoctor.Report, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write") as raised:
        diagnosed.save(tmp_path / "report.docx")
    assert ".html" in raised.value.hint
    assert list(tmp_path.iterdir()) == []


def test_texts_and_the_picture_come_without_a_file_too(diagnosed: memdoctor.Report, tmp_path: Path) -> None:
    assert diagnosed.to_html().startswith("<!doctype html>")
    assert diagnosed.to_markdown(tmp_path / "r.md") == (tmp_path / "r.md").read_text(encoding="utf-8")
    assert diagnosed.to_png().startswith(b"\x89PNG")
    assert "<svg" in diagnosed.to_svg()
    assert json.loads(diagnosed.to_json(tmp_path / "any.name").read_text()) == json.loads(
        json.dumps(diagnosed.to_dict())
    )


def test_the_frame_has_the_bytes_as_whole_numbers(diagnosed: memdoctor.Report) -> None:
    frame = diagnosed.to_frame()
    parts = frame[frame.kind == "part"]
    assert int(parts.bytes.sum()) == diagnosed.device.total_bytes


def test_what_was_saved_is_loaded_as_it_was(
    diagnosed: memdoctor.Report, examined: memdoctor.Report, tmp_path: Path
) -> None:
    for report in (diagnosed, examined):
        path = report.save(tmp_path / f"{type(report.record).__name__}.json", force=True)
        assert memdoctor.load(path) == report


def test_two_are_compared_as_reports_or_as_files(
    diagnosed: memdoctor.Report, examined: memdoctor.Report, tmp_path: Path
) -> None:
    difference = memdoctor.compare(examined.save(tmp_path / "before.json"), diagnosed)
    assert difference.a.name == "before.json"
    assert difference.b.name == "B"
    delta = diagnosed.peak.reserved_bytes - examined.peak.reserved_bytes
    assert difference.figure("reserved").delta_bytes == delta
    assert difference.to_html().startswith("<!doctype html>")
    with pytest.raises(InputError, match="only diagnoses"):
        memdoctor.compare(difference, diagnosed)


def test_the_largest_batch_is_found(tmp_path: Path) -> None:
    found = memdoctor.fit("prajjwal1/bert-tiny", lengths=(32,), memory="1 GiB", backend="simulated", use_cache=False)
    assert found.cells[0].edge.largest_batch > 100
    assert found.save(tmp_path / "fit.png").stat().st_size > 1000
    assert "fit" in repr(found)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"batchsize": 3}, "there is no setting batchsize"),
        ({"fp16": True, "bf16": True}, "fp16 and bf16 contradict"),
        ({"fp16": True, "precision": "fp32"}, "contradict"),
        ({"attn_implementation": "magic"}, "attention cannot be 'magic'"),
    ],
)
def test_a_wrong_setting_is_one_clear_error(settings: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        memdoctor.diagnose("prajjwal1/bert-tiny", **settings)


def test_hugging_face_s_names_are_known_too(examined: memdoctor.Report) -> None:
    again = memdoctor.examine(
        "prajjwal1/bert-tiny", per_device_train_batch_size=2, max_seq_length=32, gpu="T4", backend="simulated",
        use_cache=False, optim="adamw_torch_fused", freeze=[],
    )  # fmt: skip
    assert again.peak == examined.peak


def test_a_notebook_shows_it_without_scripts_and_with_nothing_fetched(diagnosed: memdoctor.Report) -> None:
    for report in (diagnosed, memdoctor.compare(diagnosed, diagnosed)):
        html = report._repr_html_()
        assert "<script" not in html
        assert "http" not in html
        assert html.count("<svg") >= 2
        bundle = report._repr_mimebundle_()
        assert set(bundle) == {"text/html", "text/markdown", "text/plain"}
        assert bundle["text/plain"].startswith("<memdoctor di")


def test_shown_outside_a_notebook_it_is_the_terminal_s_view(
    diagnosed: memdoctor.Report, capsys: pytest.CaptureFixture[str]
) -> None:
    diagnosed.show()
    assert capsys.readouterr().out.startswith("Fits")


def test_redacted_it_is_the_same_but_for_what_is_private(diagnosed: memdoctor.Report) -> None:
    assert diagnosed.redacted().peak == diagnosed.peak
