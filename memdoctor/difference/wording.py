"""A difference in words: one sentence, and what stands in its way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from memdoctor.analysis import alike
from memdoctor.names import cut
from memdoctor.records import Category, Difference, Growth, Side, TensorGrowth, Tensors
from memdoctor.units import format_bytes

LONGEST_VALUE = 60  # characters; sources of models are longer
_WORTH_SAYING = 10  # percent of the largest difference
_MOST_ALONG, _MOST_AGAINST = 2, 1
_CATEGORIES = {category.value for category in Category}


def signed(delta: int) -> str:
    """A difference with its sign: ``+3.10 GiB``."""
    return f"{'+' if delta > 0 else ''}{format_bytes(delta)}"


def sentence_of(difference: Difference) -> str:
    """How much more or less B needs, whether that changes what fits, and what it is."""
    reserved = difference.figure("reserved")
    if difference.same_memory:
        needs = f"B needs what A needs ({format_bytes(reserved.b_bytes)} reserved), byte for byte"
        return f"No difference: {needs}{'' if difference.same else ', though settings are not the same'}."
    return f"{_how_much(reserved)}{_what_fits(difference.a, difference.b)}{_what_it_is(difference)}."


def _how_much(reserved: Growth) -> str:
    before, after = format_bytes(reserved.a_bytes), format_bytes(reserved.b_bytes)
    if not reserved.delta_bytes:
        return f"B needs as much as A ({after} reserved)"
    more = "more" if reserved.delta_bytes > 0 else "less"
    return f"B needs {format_bytes(abs(reserved.delta_bytes))} {more} than A ({before} -> {after} reserved)"


def _what_fits(a: Side, b: Side) -> str:
    match a.fits, b.fits:
        case True, False:
            return " and does not fit, where A does"
        case False, True:
            return " and fits, where A does not"
        case False, False:
            return "; neither fits"
    return ""


def _what_it_is(difference: Difference) -> str:
    """The parts that differ most, those that make the sum first; and of the first, where in the model most of it is."""
    parts = sorted(_held(difference), key=lambda part: -abs(part.delta_bytes))
    if not parts:
        return "; the peak is the same, other phases, modules or tensors differ"
    sign = 1 if difference.figure("reserved").delta_bytes >= 0 else -1
    worth = [part for part in parts if 100 * abs(part.delta_bytes) >= _WORTH_SAYING * abs(parts[0].delta_bytes)]
    along = [part for part in worth if part.delta_bytes * sign > 0]
    told = [*along[:_MOST_ALONG], *[part for part in worth if part not in along][:_MOST_AGAINST]]
    words = [f"{part.name.replace('_', ' ')} {signed(part.delta_bytes)}" for part in told]
    words[0] += _where(difference, told[0])
    return f": {', '.join(words)}"


def _held(difference: Difference) -> list[Growth]:
    """The parts that differ, without what is free, which the others leave."""
    return [part for part in difference.parts if part.delta_bytes and part.name != "free"]


def _where(difference: Difference, part: Growth) -> str:
    """The smallest part of the model that more than half of the difference is in, and the tensors that make most."""
    if part.name not in _CATEGORIES:
        return ""
    inside: Counter[str] = Counter()
    for module in difference.modules:
        delta = module.by_category.get(part.name, 0)
        for prefix in _prefixes(alike(module.path)):
            inside[prefix] += delta
    sign = 1 if part.delta_bytes > 0 else -1
    most = [prefix for prefix, delta in inside.items() if 2 * sign * delta > abs(part.delta_bytes)]
    place = max(most, key=lambda prefix: (prefix.count("."), sign * inside[prefix], prefix), default="")
    tensors = _tensors(difference, part.name, place, sign)
    said = f", mostly {cut(place)}" if place else ""
    return f"{said} ({tensors})" if tensors else said


def _prefixes(path: str) -> Iterator[str]:
    names = path.split(".") if path else []
    return (".".join(names[:end]) for end in range(1, len(names) + 1))


def _tensors(difference: Difference, category: str, module: str, sign: int) -> str:
    inside = (
        growth
        for growth in difference.tensors
        if growth.category == category
        and growth.delta_bytes * sign > 0
        and f"{alike(growth.module)}.".startswith(f"{module}." if module else "")
    )
    largest = next(inside, None)
    return "" if largest is None else tensors_in_words(largest)


def tensors_in_words(growth: TensorGrowth) -> str:
    """What the tensors are in B and were in A: ``12 x 16x512x768 float32, was 12 x 8x512x768``."""
    if growth.b is None:
        assert growth.a is not None
        return f"no more {_form(growth.a)}"
    if growth.a is None:
        return f"new {_form(growth.b)}"
    same_type = growth.a.dtype == growth.b.dtype
    return f"{_form(growth.b)}, was {_form(growth.a, dtype=not same_type)}"


def _form(tensors: Tensors, *, dtype: bool = True) -> str:
    shape = "x".join(map(str, tensors.shape)) or "scalar"
    return f"{tensors.count} x {cut(shape)}{f' {cut(tensors.dtype)}' if dtype else ''}"


def cautions_of(difference: Difference) -> Iterator[str]:
    """What keeps A and B from being two of the same: environments that differ, then figures that are not whole."""
    environment = difference.settings_of("environment")
    if environment:
        unlike = "; ".join(f"{_words(one.name)} {in_words(one.a)} -> {in_words(one.b)}" for one in environment)
        yield f"The environments differ: {unlike}."
    for name, side in (("A", difference.a), ("B", difference.b)):
        if side.cut_short:
            yield f"{name} was measured up to where memory ran out: what it needs is more than its peak."


def in_words(value: object) -> str:
    """The value of a setting as one reads it; several are set apart by commas, and long ones are cut."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return cut(", ".join(map(str, value)) if isinstance(value, tuple) else str(value), LONGEST_VALUE) or "nothing"


def _words(name: str) -> str:
    return name.replace("_", " ")
