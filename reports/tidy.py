"""Reports as one tidy table in CSV: a row a figure, in long form. docs/reports.md has the columns.

Within one ``kind`` all rows say the same sort of thing; bytes are whole numbers. Spreadsheets take text that begins
like a formula for one, so such text begins with an apostrophe.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from memdoctor.levers.wording import in_words
from memdoctor.records import Breakdown, Category, Diagnosis, Difference, Edge, Fit, Peak, Plan, Verification

DIAGNOSIS_COLUMNS = (
    "kind", "name", "category", "bytes", "step", "occurrence", "count", "dtype", "shape", "op", "phase", "fits", "mode",
)  # fmt: skip
DIFFERENCE_COLUMNS = (
    "kind", "name", "category", "a_bytes", "b_bytes", "delta_bytes", "step", "occurrence", "op", "a_count", "a_dtype",
    "a_shape", "b_count", "b_dtype", "b_shape", "a", "b",
)  # fmt: skip
FIT_COLUMNS = (
    "kind", "name", "gpu", "seq_length", "batch_size", "fits", "largest_batch", "allocated_bytes", "reserved_bytes",
    "device_bytes", "why_not",
)  # fmt: skip
VERIFICATION_COLUMNS = ("kind", "name", "status", "value", "tolerance", "bytes", "step")
_WHOLE = {"step", "count", "occurrence", "seq_length", "batch_size", "largest_batch", "a_count", "b_count"}
_LONGEST = 32_000  # characters of a cell; Excel takes 32,767
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

_Row = Mapping[str, Any]


def diagnosis_csv(diagnosis: Diagnosis) -> bytes:
    """Peak, parts, phases, modules, tensors, toggles and plan."""
    return _csv(_diagnosis_rows(diagnosis), DIAGNOSIS_COLUMNS)


def _diagnosis_rows(diagnosis: Diagnosis) -> Iterator[_Row]:
    own = {"fits": diagnosis.fits, "mode": diagnosis.provenance.mode, "step": diagnosis.peak.step}
    yield from _peak("peak", "", diagnosis.peak, own)
    yield from _parts("part", "", diagnosis.breakdown, own)
    came: Counter[tuple[int, str]] = Counter()
    for phase in diagnosis.phases:
        came[phase.step, phase.name] += 1
        of = {"step": phase.step, "occurrence": came[phase.step, phase.name]}
        yield from _parts("phase", phase.name, phase.breakdown, of)
        for category, size in (("peak", phase.peak_allocated_bytes), ("end", phase.end_allocated_bytes)):
            yield {"kind": "phase_total", "name": phase.name, "category": category, "bytes": size, **of}
    for module in diagnosis.modules:
        held = ((one.value, getattr(module, one.value)) for one in Category)
        yield from ({"kind": "module", "name": module.path, "category": name, "bytes": n} for name, n in held if n)
    for group in diagnosis.tensors:
        yield {
            "kind": "tensor", "name": group.module, "category": group.category.value, "bytes": group.bytes,
            "count": group.count, "dtype": group.dtype, "shape": _shape(group.shape), "op": group.op,
            "phase": group.phase,
        }  # fmt: skip
    for toggle in diagnosis.toggles:
        how = {"fits": toggle.fits, "mode": toggle.mode, "step": toggle.peak.step}
        name = in_words(toggle.change)
        yield from _parts("toggle", name, toggle.breakdown, {**how, "phase": toggle.peak.phase})
        yield from _peak("toggle_total", name, toggle.peak, how)
        yield {"kind": "toggle_total", "name": name, "category": "saves", "bytes": toggle.saves_bytes, **how}
    for entry in diagnosis.plan:
        yield from _plan(entry)


def _plan(entry: Plan) -> Iterator[_Row]:
    of, name = {"fits": entry.fits, "mode": entry.mode, "step": entry.peak.step}, in_words(entry.change)
    yield from _peak("plan", name, entry.peak, of)
    yield {"kind": "plan", "name": name, "category": "saves", "bytes": entry.saves_bytes, **of}


def _peak(kind: str, name: str, peak: Peak, more: _Row) -> Iterator[_Row]:
    for figure in ("allocated", "max_memory_allocated", "reserved", "device"):
        size = getattr(peak, f"{figure}_bytes")
        yield {"kind": kind, "name": name, "category": figure, "bytes": size, "phase": peak.phase, **more}


def _parts(kind: str, name: str, parts: Breakdown, more: _Row) -> Iterator[_Row]:
    for part, size in parts.items():
        yield {"kind": kind, "name": name, "category": part, "bytes": size, **more}


def difference_csv(difference: Difference) -> bytes:
    """Figures, parts, phases, modules by category, tensors and settings of both."""
    return _csv(_difference_rows(difference), DIFFERENCE_COLUMNS)


def _difference_rows(difference: Difference) -> Iterator[_Row]:
    for kind, growths in (("peak", difference.figures), ("part", difference.parts)):
        for growth in growths:
            yield {"kind": kind, "category": growth.name, **_sizes(growth.a_bytes, growth.b_bytes)}
    for phase in difference.phases:
        yield {
            "kind": "phase", "name": phase.name, "category": "peak", "step": phase.step,
            "occurrence": phase.occurrence, **_sizes(phase.a_bytes, phase.b_bytes),
        }  # fmt: skip
    for module in difference.modules:
        yield {"kind": "module_total", "name": module.path, **_sizes(module.a_bytes, module.b_bytes)}
        for category, delta in module.by_category.items():
            yield {"kind": "module", "name": module.path, "category": category, "delta_bytes": delta}
    for group in difference.tensors:
        a, b = group.a, group.b
        yield {
            "kind": "tensor", "name": group.module, "category": group.category.value, "op": group.op,
            **_sizes(a.bytes if a else 0, b.bytes if b else 0),
            **{
                f"{side}_{name}": _shape(tensors.shape) if name == "shape" else getattr(tensors, name)
                for side, tensors in (("a", a), ("b", b)) if tensors
                for name in ("count", "dtype", "shape")
            },
        }  # fmt: skip
    for setting in difference.settings:
        yield {"kind": "setting", "name": setting.name, "category": setting.of, "a": setting.a, "b": setting.b}


def _sizes(a: int | None, b: int | None) -> _Row:
    return {"a_bytes": a, "b_bytes": b, "delta_bytes": None if a is None or b is None else b - a}


def fit_csv(fit: Fit) -> bytes:
    """Every batch that was probed at each length and setting; or every card and setting; and the plan."""
    return _csv(_fit_rows(fit), FIT_COLUMNS)


def _fit_rows(fit: Fit) -> Iterator[_Row]:
    for cell in fit.cells:
        of = {
            "kind": "length", "name": in_words(cell.change), "gpu": fit.device.name, "seq_length": cell.seq_length,
            "why_not": cell.why_not or None,
        }  # fmt: skip
        yield from _trials(of, cell.edge)
    length = fit.workload.seq_length
    for card in fit.cards:
        of = {"gpu": card.gpu, "seq_length": length}
        for setting in card.settings:
            yield {
                **of, "kind": "card", "name": in_words(setting.change), "batch_size": fit.workload.batch_size,
                "fits": setting.fits, "why_not": setting.why_not or None, **_peaks(setting.peak),
            }  # fmt: skip
        if card.edge is not None:
            yield from _trials({**of, "kind": "card_batch"}, card.edge)
    for entry in fit.wanted.plan if fit.wanted else ():
        yield {
            "kind": "plan", "name": in_words(entry.change), "gpu": fit.device.name, "fits": entry.fits,
            "seq_length": entry.change.get("seq_length", length), "batch_size": entry.change.get("batch_size"),
            **_peaks(entry.peak),
        }  # fmt: skip


def _trials(of: _Row, edge: Edge | None) -> Iterator[_Row]:
    if edge is None:
        yield of
        return
    for trial in edge.trials:
        yield {
            **of, "batch_size": trial.batch_size, "fits": trial.fits, "largest_batch": edge.largest_batch or 0,
            **_peaks(trial.peak),
        }  # fmt: skip


def _peaks(peak: Peak | None) -> _Row:
    names = ("allocated_bytes", "reserved_bytes", "device_bytes")
    return {} if peak is None else {name: getattr(peak, name) for name in names}


def verification_csv(found: Verification) -> bytes:
    """The checks, the parts of each accumulated peak, and the loss of each step."""
    return _csv(_verification_rows(found), VERIFICATION_COLUMNS)


def _verification_rows(found: Verification) -> Iterator[_Row]:
    for check in found.checks:
        yield {
            "kind": "check", "name": check.id, "status": check.status.value, "value": check.value,
            "tolerance": check.tolerance,
        }  # fmt: skip
    for peak in found.peaks:
        yield {"kind": "accumulated_peak", "name": peak.phase, "bytes": peak.accumulated_peak_bytes}
    for step, loss in enumerate(found.losses, start=1):
        yield {"kind": "loss", "step": step, "value": loss}


def _shape(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape))


def _csv(rows: Iterable[_Row], columns: tuple[str, ...]) -> bytes:
    import pandas as pd

    frame = pd.DataFrame([{name: _cell(row.get(name)) for name in columns} for row in rows], columns=list(columns))
    whole = [name for name in columns if name in _WHOLE or name.endswith("bytes")]
    frame = frame.astype(dict.fromkeys(whole, "Int64"))
    written = frame.to_csv(index=False, lineterminator="\n").encode("utf-8", "replace")
    assert isinstance(written, bytes)
    return written


def _cell(value: Any) -> Any:
    """A number as it is; text on one line, without control characters, and no formula."""
    if isinstance(value, tuple):
        value = ", ".join(map(str, value))
    if not isinstance(value, str):
        return value
    said = "".join(character if character.isprintable() else "?" for character in value)
    said = said if len(said) <= _LONGEST else f"{said[: _LONGEST // 2]}...{said[-_LONGEST // 2 :]}"
    return f"'{said}" if said.startswith(_FORMULA) else said


def frame_of(text: str) -> Any:
    """The table as a pandas frame; whole numbers stay whole where some are missing."""
    import pandas as pd

    return pd.read_csv(io.StringIO(text), dtype_backend="numpy_nullable")
