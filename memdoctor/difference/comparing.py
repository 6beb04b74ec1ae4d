"""What is not the same in two diagnoses: by part, phase, module, tensor and setting. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from enum import Enum
from typing import Any, Literal

from memdoctor.analysis import alike
from memdoctor.difference.wording import cautions_of, sentence_of
from memdoctor.records import (
    Breakdown,
    Category,
    Diagnosis,
    Difference,
    Growth,
    ModuleGrowth,
    ModuleUse,
    PhaseGrowth,
    PhaseUse,
    Setting,
    Side,
    TensorGroup,
    TensorGrowth,
    Tensors,
)

ENVIRONMENT = (
    "mode", "torch", "transformers", "attention_kernels", "cuda", "driver", "python", "memdoctor", "model_source",
)  # fmt: skip
"""What differs of the environment is told in this order; what a side does not know is no difference."""
DEVICE = (
    "name", "total_bytes", "compute_capability", "context_bytes", "other_processes_bytes", "alloc_conf",
    "context_error_bytes",
)  # fmt: skip
Of = Literal["environment", "workload", "device"]


def difference_of(a: Diagnosis, b: Diagnosis, *, names: tuple[str, str] = ("A", "B")) -> Difference:
    """B beside A; ``names`` are what their files are called."""
    left, right = (_side(diagnosis, name) for diagnosis, name in zip((a, b), names, strict=True))
    made = Difference(
        a=left,
        b=right,
        sentence="",
        cautions=(),
        settings=tuple(_settings(left, right)),
        figures=tuple(_figures(left, right)),
        parts=tuple(_parts(left.breakdown, right.breakdown)),
        phases=_phases(a.phases, b.phases),
        modules=_modules(a.modules, b.modules),
        tensors=_tensors(a.tensors, b.tensors),
    )
    return replace(made, sentence=sentence_of(made), cautions=tuple(cautions_of(made)))


def _side(diagnosis: Diagnosis, name: str) -> Side:
    return Side(
        name=name, workload=diagnosis.workload, device=diagnosis.device, provenance=diagnosis.provenance,
        peak=diagnosis.peak, breakdown=diagnosis.breakdown, fits=diagnosis.fits,
        headroom_bytes=diagnosis.verdict.headroom_bytes,
        cut_short=diagnosis.ran_out is not None and diagnosis.provenance.mode == "measured",
    )  # fmt: skip


def _settings(a: Side, b: Side) -> Iterator[Setting]:
    known = [name for name in ENVIRONMENT if getattr(a.provenance, name) and getattr(b.provenance, name)]
    if a.workload.model != b.workload.model:  # which then have sources of their own
        known = [name for name in known if name != "model_source"]
    yield from _unlike("environment", a.provenance, b.provenance, known)
    yield from _unlike("workload", a.workload, b.workload, (field.name for field in fields(a.workload)))
    yield from _unlike("device", a.device, b.device, DEVICE)


def _unlike(of: Of, a: Any, b: Any, names: Iterable[str]) -> Iterator[Setting]:
    for name in names:
        left, right = _plain(getattr(a, name)), _plain(getattr(b, name))
        if left != right:
            yield Setting(of=of, name=name, a=left, b=right)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _growth(name: str, a: int, b: int) -> Growth:
    return Growth(name=name, a_bytes=a, b_bytes=b, delta_bytes=b - a)


def _figures(a: Side, b: Side) -> Iterator[Growth]:
    for name in ("allocated", "max_memory_allocated", "reserved", "device"):
        yield _growth(name, getattr(a.peak, f"{name}_bytes"), getattr(b.peak, f"{name}_bytes"))
    yield _growth("headroom", a.headroom_bytes, b.headroom_bytes)


def _parts(a: Breakdown, b: Breakdown) -> Iterator[Growth]:
    for (name, left), (_, right) in zip(a.items(), b.items(), strict=True):
        yield _growth(name, left, right)


def _phases(a: Iterable[PhaseUse], b: Iterable[PhaseUse]) -> tuple[PhaseGrowth, ...]:
    """Aligned by step, name and how often that came before; those that one side does not have come last."""
    left, right = _occurrences(a), _occurrences(b)
    found = [
        PhaseGrowth(
            step=key[0], name=key[1], occurrence=key[2], a_bytes=left.get(key), b_bytes=right.get(key),
            delta_bytes=right[key] - left[key] if key in left and key in right else None,
        )
        for key in dict.fromkeys((*left, *right))
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda phase: (phase.delta_bytes is None, -abs(phase.delta_bytes or 0))))


def _occurrences(phases: Iterable[PhaseUse]) -> dict[tuple[int, str, int], int]:
    seen: Counter[tuple[int, str]] = Counter()
    peaks = {}
    for phase in phases:
        seen[phase.step, phase.name] += 1
        peaks[phase.step, phase.name, seen[phase.step, phase.name]] = phase.peak_allocated_bytes
    return peaks


def _modules(a: Iterable[ModuleUse], b: Iterable[ModuleUse]) -> tuple[ModuleGrowth, ...]:
    left, right = ({use.path: use for use in uses} for uses in (a, b))
    found = []
    for path in left.keys() | right.keys():
        before, after = left.get(path, ModuleUse(path=path)), right.get(path, ModuleUse(path=path))
        deltas = {one.value: getattr(after, one.value) - getattr(before, one.value) for one in Category}
        by_category = {name: delta for name, delta in deltas.items() if delta}
        if by_category:
            found.append(
                ModuleGrowth(
                    path=path, a_bytes=before.total, b_bytes=after.total, delta_bytes=after.total - before.total,
                    by_category=by_category,
                )
            )  # fmt: skip
    return tuple(sorted(found, key=lambda module: (-abs(module.delta_bytes), module.path)))


def layers_together(modules: Iterable[ModuleGrowth]) -> tuple[ModuleGrowth, ...]:
    """The modules with those that differ only in the number of their layer as one, the largest difference first."""
    paths: dict[str, list[ModuleGrowth]] = {}
    for module in modules:
        paths.setdefault(alike(module.path), []).append(module)
    found = [_together(path, members) for path, members in paths.items()]
    return tuple(sorted(found, key=lambda module: (-abs(module.delta_bytes), module.path)))


def _together(path: str, members: list[ModuleGrowth]) -> ModuleGrowth:
    by_category: Counter[str] = Counter()
    for member in members:
        by_category.update(member.by_category)
    return ModuleGrowth(
        path=path if len(members) > 1 else members[0].path,
        a_bytes=sum(member.a_bytes for member in members),
        b_bytes=sum(member.b_bytes for member in members),
        delta_bytes=sum(member.delta_bytes for member in members),
        by_category={name: delta for name, delta in by_category.items() if delta},
    )


_Kind = tuple[Category, str, str]  # and module, op
_Form = tuple[str, tuple[int, ...]]  # dtype and shape


def _tensors(a: Iterable[TensorGroup], b: Iterable[TensorGroup]) -> tuple[TensorGrowth, ...]:
    """Those alike in all but number are one; of the rest, those of one operator in one module, largest with largest."""
    left, right = _by_kind(a), _by_kind(b)
    names = _names((*a, *b))
    found = []
    for kind in left.keys() | right.keys():
        for before, after in _paired(left.get(kind, {}), right.get(kind, {})):
            if before != after:
                delta = (after.bytes if after else 0) - (before.bytes if before else 0)
                found.append(
                    TensorGrowth(category=kind[0], module=names[kind], op=kind[2], a=before, b=after, delta_bytes=delta)
                )
    return tuple(sorted(found, key=_largest_difference_first))


def _largest_difference_first(growth: TensorGrowth) -> tuple[Hashable, ...]:
    one = growth.b or growth.a
    assert one is not None
    return -abs(growth.delta_bytes), growth.module, growth.op, growth.category.value, one.dtype, one.shape


def _by_kind(groups: Iterable[TensorGroup]) -> dict[_Kind, dict[_Form, Tensors]]:
    """Where they were born makes no difference, nor in which layer: of two sides, one may keep a single layer's."""
    found: dict[_Kind, dict[_Form, Tensors]] = {}
    for group in groups:
        forms = found.setdefault(_kind(group), {})
        form = (group.dtype, group.shape)
        before = forms.get(form, Tensors(dtype=group.dtype, shape=group.shape, count=0, bytes=0))
        forms[form] = replace(before, count=before.count + group.count, bytes=before.bytes + group.bytes)
    return found


def _kind(group: TensorGroup) -> _Kind:
    return group.category, alike(group.module), group.op


def _names(groups: Iterable[TensorGroup]) -> dict[_Kind, str]:
    """A module's own name where both sides mean the same one, else that with ``*`` for the layer."""
    modules: dict[_Kind, set[str]] = {}
    for group in groups:
        modules.setdefault(_kind(group), set()).add(group.module)
    return {kind: next(iter(names)) if len(names) == 1 else kind[1] for kind, names in modules.items()}


def _paired(a: Mapping[_Form, Tensors], b: Mapping[_Form, Tensors]) -> Iterator[tuple[Tensors | None, Tensors | None]]:
    """The same form with itself; the others of one type with each other, then whatever is left."""
    left, right = dict(a), dict(b)
    for form in a.keys() & b.keys():
        yield left.pop(form), right.pop(form)
    for same_type in (True, False):
        for form, before in sorted(left.items(), key=_largest_first):
            others = sorted(right.items(), key=_largest_first)
            other = next((found for found, _ in others if found[0] == form[0] or not same_type), None)
            if other is not None:
                del left[form]
                yield before, right.pop(other)
    yield from ((before, None) for before in left.values())
    yield from ((None, after) for after in right.values())


def _largest_first(item: tuple[_Form, Tensors]) -> tuple[Hashable, ...]:
    return -item[1].bytes, item[0]
