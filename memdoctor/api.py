"""memdoctor from Python and in notebooks: the commands as functions, and their results as reports.

A result is the record with everything in it (``d.peak``, ``d.breakdown``, ``d.plan``) and, around it, what makes of it
files, frames and views. The records themselves know nothing of reports: layers point one way.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from memdoctor.errors import InputError, UsageError
from memdoctor.records import (
    Attention,
    Diagnosis,
    Difference,
    Dtype,
    Examination,
    Fit,
    Loop,
    Precision,
    Task,
    Verification,
    Workload,
)

__all__ = ["Report", "compare", "diagnose", "examine", "fit", "load"]

_DEVICE = ("gpu", "memory", "backend", "offline", "alloc_conf")
_ALIASES = {
    "per_device_train_batch_size": "batch_size", "max_seq_length": "seq_length", "optim": "optimizer",
    "attn_implementation": "attention", "activation_checkpointing": "gradient_checkpointing",
    "per_device_eval_batch_size": "eval_batch_size", "cuda_alloc_conf": "alloc_conf",
}  # fmt: skip
_KINDS: dict[str, type[StrEnum]] = {
    "task": Task, "dtype": Dtype, "loop": Loop, "attention": Attention, "precision": Precision,
}  # fmt: skip
_LISTS = ("freeze", "lora_target_modules", "optim_target_modules")
_RUNNING = ("time_limit", "progress", "use_cache")


@dataclass(frozen=True, slots=True)
class Report:
    """A result. All of its record's fields are its own: ``report.peak.reserved_bytes``.

    ``shown`` is what views show; for an examination that is what it says by itself, else the record.
    """

    record: Diagnosis | Examination | Fit | Difference | Verification
    shown: Diagnosis | Fit | Difference | Verification

    def __getattr__(self, name: str) -> Any:
        """A field of the record, or of what is concluded from it."""
        for of in (object.__getattribute__(self, "record"), object.__getattribute__(self, "shown")):
            if not name.startswith("_") and hasattr(of, name):
                return getattr(of, name)
        raise AttributeError(f"a {type(self.record).__name__.lower()} has no {name}")

    def to_dict(self) -> dict[str, Any]:
        """The document that ``--json`` prints."""
        from memdoctor.reports.documents import document_of

        return document_of(self.record)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write it to ``path``; the end of the name decides the format, as with ``-o``. Returns the path.

        Raises:
            UsageError: there is no such format, or not of this kind of report.
            InputError: the file exists (without ``force``), or cannot be written.
        """
        from memdoctor.reports.formats import format_of, suffixes_of
        from memdoctor.storage import check_writable, write_content

        file = Path(path)
        check_writable(file, force=force)
        found = format_of(file.name)
        if found is None or type(self.shown) not in found.renderers:
            raise UsageError(
                f"cannot write {file}", why="there is no such format of this report",
                hint=f"a name that ends in {', '.join(suffixes_of(type(self.shown)))}",
            )  # fmt: skip
        write_content(file, found.renderers[type(self.shown)](self.shown, self.to_dict()), force=force)
        return file

    def to_json(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write JSON, whatever the name of the file."""
        from memdoctor.storage import write_document

        write_document(Path(path), self.to_dict(), force=force)
        return Path(path)

    def to_html(self, path: str | os.PathLike[str] | None = None, *, force: bool = False) -> str:
        """The page as text; written to ``path`` where one is given."""
        return self._text(".html", path, force=force)

    def to_markdown(self, path: str | os.PathLike[str] | None = None, *, force: bool = False) -> str:
        """Markdown as text; written to ``path`` where one is given."""
        return self._text(".md", path, force=force)

    def to_csv(self, path: str | os.PathLike[str] | None = None, *, force: bool = False) -> str:
        """The tidy table as text; written to ``path`` where one is given."""
        return self._text(".csv", path, force=force)

    def to_png(self, path: str | os.PathLike[str] | None = None, *, force: bool = False) -> bytes:
        """The picture; written to ``path`` where one is given."""
        return self._bytes(".png", path, force=force)

    def to_svg(self, path: str | os.PathLike[str] | None = None, *, force: bool = False) -> str:
        """The picture as SVG; written to ``path`` where one is given."""
        return self._text(".svg", path, force=force)

    def to_frame(self) -> Any:
        """The tidy table that CSV has, as a pandas frame; sizes are whole bytes."""
        from memdoctor.reports.tidy import frame_of

        return frame_of(self.to_csv())

    def redacted(self) -> Report:
        """Without paths, host and user names, and models that are local paths."""
        from memdoctor.reports.redaction import redacted_here

        return Report(*redacted_here((self.record, self.shown)))

    def show(self) -> None:
        """Show it: in a notebook as there, else as on the terminal."""
        from memdoctor.reports.notebook import display_in_notebook
        from memdoctor.reports.views import print_report

        if not display_in_notebook(self):
            print_report(self.shown)

    def __repr__(self) -> str:
        """What it says, in a line."""
        from memdoctor.reports.notebook import in_a_line

        return f"<memdoctor {type(self.record).__name__.lower()}: {in_a_line(self.shown)}>"

    def _repr_html_(self) -> str:
        """For notebooks: no script, nothing fetched."""
        from memdoctor.reports.notebook import fragment

        return fragment(self.shown)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """The same as HTML, Markdown and text."""
        del include, exclude
        return {"text/html": self._repr_html_(), "text/markdown": self.to_markdown(), "text/plain": repr(self)}

    def _text(self, suffix: str, path: str | os.PathLike[str] | None, *, force: bool) -> str:
        return self._bytes(suffix, path, force=force).decode()

    def _bytes(self, suffix: str, path: str | os.PathLike[str] | None, *, force: bool) -> bytes:
        from memdoctor.reports.formats import format_of
        from memdoctor.storage import write_bytes

        found = format_of(suffix)
        if found is None or type(self.shown) not in found.renderers:
            raise UsageError(f"there is no {suffix} of a {type(self.shown).__name__.lower()}")
        content = found.renderers[type(self.shown)](self.shown, self.to_dict())
        if path is not None:
            write_bytes(Path(path), content, force=force)
        return content


def diagnose(model: str, *, claims: bool = False, **settings: Any) -> Report:
    """As ``memdoctor diagnose``; settings by the options' names: ``batch_size=32, fp16=True, gpu="T4"``.

    Raises:
        UsageError: a setting that there is not, or that is out of range.
        InputError: an unknown model or GPU.
        MeasureError: the step could not be probed.
    """
    from memdoctor import doctor

    case, running = _asked(model, settings)
    found = doctor.diagnose(doctor.open_case(**case), claims=claims, **running)
    return Report(found, found)


def examine(model: str, **settings: Any) -> Report:
    """As ``memdoctor probe``: one step of one workload. Settings and errors as those of :func:`diagnose`."""
    from memdoctor import doctor

    case, running = _asked(model, settings)
    examination = doctor.probe(doctor.open_case(**case), **running).runs[0]
    return Report(examination, doctor.conclude(examination))


def fit(model: str, *, lengths: tuple[int, ...] = (), gpus: tuple[str, ...] | None = None, **settings: Any) -> Report:
    """As ``memdoctor fit``: the largest batch for each of ``lengths``, or over ``gpus`` (none: the usual ones)."""
    from memdoctor import doctor

    case, running = _asked(model, settings)
    plans = gpus is None and ("batch_size" in case or "gradient_accumulation_steps" in case)
    found = doctor.fit(doctor.open_case(**case), lengths=lengths, cards=gpus, plans=plans, **running)
    return Report(found, found)


def compare(a: Report | str | os.PathLike[str], b: Report | str | os.PathLike[str]) -> Report:
    """As ``memdoctor compare``: what ``b`` holds more than ``a``; reports, or the files that hold them.

    Raises:
        InputError: one of them is no diagnosis or examination.
    """
    from memdoctor.difference import difference_of

    sides = [side if isinstance(side, Report) else load(side) for side in (a, b)]
    shown = [side.shown for side in sides]
    first, second = shown
    if not isinstance(first, Diagnosis) or not isinstance(second, Diagnosis):
        raise InputError("only diagnoses and examinations can be compared")
    names = tuple("AB"[n] if isinstance(side, Report) else Path(side).name for n, side in enumerate((a, b)))
    found = difference_of(first, second, names=(names[0], names[1]))
    return Report(found, found)


def load(path: str | os.PathLike[str]) -> Report:
    """A saved report of any kind.

    Raises:
        InputError: not there, broken, or written by a newer memdoctor.
    """
    from memdoctor import doctor
    from memdoctor.reports.documents import read_report
    from memdoctor.storage import load_examination, read_document

    file = Path(path)
    shown = read_report(file, doctor.conclude)
    is_examination = read_document(file)["kind"] == "examination"
    return Report(load_examination(file) if is_examination else shown, shown)


def _asked(model: str, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of ``open_case``, and those of running it."""
    workload = {item.name for item in fields(Workload)} - {"model"}
    known = {*workload, *_DEVICE, *_ALIASES, *_RUNNING, "fp16", "bf16"}
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise UsageError(f"there is no setting {name}", hint=f"did you mean {near[0]}?" if near else "")
    named = {_ALIASES.get(name, name): value for name, value in settings.items()}
    precisions = [name for name in ("fp16", "bf16") if named.pop(name, None)]
    if len(precisions) > 1 or (precisions and named.get("precision") not in (None, *precisions)):
        raise UsageError(f"{' and '.join(['precision', *precisions])} contradict each other")
    if precisions:
        named["precision"] = precisions[0]
    running = {name: named.pop(name) for name in _RUNNING if name in named}
    return {"model": model, **{name: _value(name, value) for name, value in named.items()}}, running


def _value(name: str, value: Any) -> Any:
    if name in _LISTS and value is not None:
        return (value,) if isinstance(value, str) else tuple(value)
    if name not in _KINDS or value is None:
        return value
    try:
        return _KINDS[name](value)
    except ValueError as error:
        raise UsageError(f"{name} cannot be {value!r}", hint=f"one of {', '.join(_KINDS[name])}") from error
