"""What two runs differ by, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from recordings import Recording

from memdoctor.difference import difference_of, layers_together, tensors_in_words
from memdoctor.doctor import conclude
from memdoctor.records import Diagnosis, Difference, Examination, RanOut, Setting, TensorGrowth


def run(
    batch: int, *, layers: int = 2, dtype: str = "float32", width: int = 4, checkpointing: bool = False
) -> Diagnosis:
    """One step of ``layers`` layers, each of which keeps ``batch`` rows of 10, or with checkpointing the last alone."""
    tape = Recording()
    tape.phase(1, "forward")
    for layer in range(layers):
        tape.birth(400, "parameters", module=f"net.layer.{layer}", dtype="float32", shape=(100,))
        if layer == layers - 1 or not checkpointing:
            size = batch * 10 * width
            tape.birth(size, module=f"net.layer.{layer}.act", op="aten.gelu.default", dtype=dtype, shape=(batch, 10))
    return conclude(tape.examination(batch_size=batch))


def deltas(difference: Difference) -> dict[str, int]:
    """The parts that are not the same."""
    return {part.name: part.delta_bytes for part in difference.parts if part.delta_bytes}


def test_a_run_beside_itself_is_no_difference() -> None:
    found = difference_of(run(2), run(2))
    assert found.same
    assert (found.settings, found.modules, found.tensors, found.cautions) == ((), (), (), ())
    assert found.sentence == "No difference: B needs what A needs (960 B reserved), byte for byte."


def test_a_larger_batch_is_told_by_part_phase_module_and_tensor() -> None:
    found = difference_of(run(2), run(5))
    assert deltas(found) == {"activations": 240, "free": -240}
    assert found.figure("reserved").delta_bytes == found.figure("device").delta_bytes == 240
    assert found.figure("headroom").delta_bytes == -240
    assert [(phase.name, phase.a_bytes, phase.b_bytes, phase.delta_bytes) for phase in found.phases] == [
        ("forward", 960, 1200, 240)
    ]
    assert [(module.path, module.by_category) for module in found.modules] == [
        ("net.layer.0.act", {"activations": 120}), ("net.layer.1.act", {"activations": 120})
    ]  # fmt: skip
    (tensors,) = found.tensors
    assert (tensors.module, tensors.delta_bytes) == ("net.layer.*.act", 240)
    assert tensors_in_words(tensors) == "2 x 5x10 float32, was 2 x 2x10"
    assert found.settings == (Setting(of="workload", name="batch_size", a=2, b=5),)
    assert found.sentence == (
        "B needs 240 B more than A (960 B -> 1.17 KiB reserved): activations +240 B, mostly net.layer.*.act "
        "(2 x 5x10 float32, was 2 x 2x10)."
    )


def test_layers_are_told_together() -> None:
    (module,) = layers_together(difference_of(run(2), run(5)).modules)
    assert (module.path, module.a_bytes, module.b_bytes, module.delta_bytes) == ("net.layer.*.act", 160, 400, 240)
    assert module.by_category == {"activations": 240}


def test_another_type_is_the_same_tensor_in_another_size() -> None:
    (tensors,) = difference_of(run(2), run(2, dtype="float16", width=2)).tensors
    assert tensors_in_words(tensors) == "2 x 2x10 float16, was 2 x 2x10 float32"
    assert tensors.delta_bytes == -80


def test_one_layer_of_checkpointing_is_set_against_all_of_them() -> None:
    (tensors,) = difference_of(run(2, layers=3), run(2, layers=3, checkpointing=True)).tensors
    assert (tensors.module, tensors.delta_bytes) == ("net.layer.*.act", -160)
    assert tensors_in_words(tensors) == "1 x 2x10 float32, was 3 x 2x10"


def test_what_only_one_has_is_new_or_gone(new_recording: Callable[[], Recording]) -> None:
    tape = new_recording()
    tape.phase(1, "forward")
    tape.birth(100, "workspace", module="net", op="cublas")
    (gone, *rest) = sorted(difference_of(run(2), conclude(tape.examination())).tensors, key=_by_category)
    assert (gone.b, gone.delta_bytes, tensors_in_words(gone)) == (None, -160, "no more 2 x 2x10 float32")
    assert tensors_in_words(rest[-1]) == "new 1 x 100 uint8"


def _by_category(growth: TensorGrowth) -> str:
    return growth.category.value


def test_tensors_of_one_operator_are_paired_by_size(new_recording: Callable[[], Recording]) -> None:
    def kept(*shapes: tuple[int, int]) -> Diagnosis:
        tape = new_recording()
        tape.phase(1, "forward")
        for shape in shapes:
            tape.birth(shape[0] * shape[1], module="net", shape=shape)
        return conclude(tape.examination())

    found = difference_of(kept((2, 100), (2, 10), (7, 7)), kept((4, 10), (4, 100), (7, 7)))
    assert [(one.a and one.a.shape, one.b and one.b.shape) for one in found.tensors] == [
        ((2, 100), (4, 100)), ((2, 10), (4, 10)),
    ]  # fmt: skip


def test_phases_are_aligned_by_how_often_they_came(new_recording: Callable[[], Recording]) -> None:
    def micro_steps(*sizes: int) -> Diagnosis:
        tape = new_recording()
        for size in sizes:
            tape.phase(1, "forward")
            tape.death(tape.birth(size))
        return conclude(tape.examination(gradient_accumulation_steps=len(sizes)))

    found = difference_of(micro_steps(100), micro_steps(100, 300))
    assert [(one.occurrence, one.a_bytes, one.b_bytes, one.delta_bytes) for one in found.phases] == [
        (1, 100, 100, 0), (2, None, 300, None),
    ]  # fmt: skip
    assert not found.same_memory


def test_another_environment_is_said_first_and_in_order(two_steps: Examination) -> None:
    measured = replace(
        two_steps.provenance, torch="2.14.1", mode="measured", attention_kernels=("flash",), cuda="13", seconds=9.0
    )
    found = difference_of(conclude(two_steps), conclude(replace(two_steps, provenance=measured)))
    (caution,) = found.cautions
    assert caution == (
        "The environments differ: mode simulated -> measured; torch 2.13.0 -> 2.14.1; attention kernels eager -> flash."
    )
    assert found.same_memory
    assert not found.same
    assert "though settings are not the same" in found.sentence


def test_what_ran_out_when_measured_is_not_all_that_it_needs(two_steps: Examination) -> None:
    stopped = replace(
        two_steps,
        provenance=replace(two_steps.provenance, mode="measured"),
        outcome=RanOut(1, 0, len(two_steps.timeline.events) - 1),
    )
    found = difference_of(conclude(two_steps), conclude(stopped))
    assert found.cautions[-1] == "B was measured up to where memory ran out: what it needs is more than its peak."


@pytest.mark.parametrize(("fits", "told"), [
    ((True, False), "and does not fit, where A does"), ((False, True), "and fits, where A does not"),
    ((False, False), "; neither fits"),
])  # fmt: skip
def test_what_fits_is_part_of_the_verdict(
    holding: Callable[..., Examination], fits: tuple[bool, bool], told: str
) -> None:
    sides = [conclude(holding({"activations": size}, fits=one)) for size, one in zip((100, 300), fits, strict=True)]
    assert told in difference_of(sides[0], sides[1]).sentence


def test_what_makes_the_sum_is_told_before_what_goes_against_it(holding: Callable[..., Examination]) -> None:
    a = conclude(holding({"activations": 500, "gradients": 100, "parameters": 10}))
    b = conclude(holding({"activations": 100, "gradients": 900, "parameters": 20}))
    sentence = difference_of(a, b).sentence
    assert sentence.startswith("B needs 410 B more than A (610 B -> 1020 B reserved): gradients +800 B")
    assert sentence.endswith(", activations -400 B.")


def test_a_model_of_another_name_has_another_source_which_is_not_told(two_steps: Examination) -> None:
    other = replace(
        two_steps, workload=replace(two_steps.workload, model="other"),
        provenance=replace(two_steps.provenance, model_source="elsewhere"),
    )  # fmt: skip
    found = difference_of(conclude(two_steps), conclude(other))
    assert [(one.of, one.name) for one in found.settings] == [("workload", "model")]


def test_a_difference_that_does_not_add_up_is_none() -> None:
    found = difference_of(run(2), run(5))
    with pytest.raises(ValueError, match="do not sum"):
        replace(found, parts=found.parts[:-1])
    with pytest.raises(ValueError, match="is not 7"):
        replace(found.parts[0], delta_bytes=7)
