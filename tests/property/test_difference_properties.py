"""Whatever two runs held, what they differ by sums to what their totals differ by."""

from __future__ import annotations

from hypothesis import given, strategies as st
from recordings import Recording

from memdoctor.difference import difference_of
from memdoctor.doctor import conclude
from memdoctor.records import Category, Diagnosis

MODULES = ("", "net", "net.layer.0.act", "net.layer.1.act", "other.layer.10")
TENSOR = st.tuples(
    st.integers(1, 900), st.sampled_from([one.value for one in Category]), st.sampled_from(MODULES),
    st.sampled_from(["aten.gelu.default", "aten.mm.default"]), st.sampled_from(["float32", "float16"]),
    st.sampled_from([(2, 3), (4, 3), ()]), st.booleans(),
)  # fmt: skip


@st.composite
def diagnoses(draw: st.DrawFn) -> Diagnosis:
    """What is concluded from a run of a few tensors, some of which die at once, on a card of some size."""
    tape = Recording()
    for number, name in enumerate(draw(st.lists(st.sampled_from(["forward", "backward"]), min_size=1, max_size=3))):
        tape.phase(1 + number // 2, name)
        for size, category, module, op, dtype, shape, dies in draw(st.lists(TENSOR, min_size=1, max_size=6)):
            block = tape.birth(size, category, module=module, op=op, dtype=dtype, shape=shape, allocated=size + 12)
            if dies:
                tape.death(block)
    return conclude(tape.examination(total=draw(st.integers(2_000, 30_000)), context=draw(st.integers(0, 1_000))))


@given(diagnoses(), diagnoses())
def test_differences_sum_to_those_of_the_totals(a: Diagnosis, b: Diagnosis) -> None:
    found = difference_of(a, b)
    allocated = b.peak.allocated_bytes - a.peak.allocated_bytes
    parts = {part.name: part.delta_bytes for part in found.parts}
    assert len(parts) == 12
    assert sum(parts.values()) == b.device.total_bytes - a.device.total_bytes
    assert sum(parts[category.value] for category in Category) == allocated
    held = sum(delta for name, delta in parts.items() if name not in ("free", "context", "other_processes"))
    assert held == b.peak.reserved_bytes - a.peak.reserved_bytes
    assert sum(module.delta_bytes for module in found.modules) == allocated
    assert sum(tensor.delta_bytes for tensor in found.tensors) == allocated
    for category in Category:
        assert sum(module.by_category.get(category.value, 0) for module in found.modules) == parts[category.value]
        of_it = [tensor.delta_bytes for tensor in found.tensors if tensor.category is category]
        assert sum(of_it) == parts[category.value]


@given(diagnoses(), diagnoses())
def test_turned_around_every_difference_has_the_other_sign(a: Diagnosis, b: Diagnosis) -> None:
    one, other = difference_of(a, b), difference_of(b, a)
    assert [part.delta_bytes for part in one.parts] == [-part.delta_bytes for part in other.parts]
    by_path = {module.path: module.delta_bytes for module in one.modules}
    assert {module.path: -module.delta_bytes for module in other.modules} == by_path
    assert sorted(t.delta_bytes for t in one.tensors) == sorted(-t.delta_bytes for t in other.tensors)


@given(diagnoses())
def test_beside_itself_nothing_differs(a: Diagnosis) -> None:
    assert difference_of(a, a).same
