"""The terminal view: a function of the diagnosis, the verdict first, at most 25 lines, and safe to look at."""

from __future__ import annotations

import copy
import io
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memdoctor.levers.wording import in_words
from memdoctor.records import Diagnosis, Examination, Verdict
from memdoctor.reports.terminal import print_diagnosis, print_repeats, print_toggles
from memdoctor.units import MIB

View = Callable[..., str]
MOST_LINES = 25


@pytest.fixture
def view(monkeypatch: pytest.MonkeyPatch) -> View:
    """Print something to a stream of this width and encoding, and return the text."""

    def shown(
        printing: Callable[..., None], *arguments: Any, width: int = 100, encoding: str = "utf-8", **more: Any
    ) -> str:
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setenv("COLUMNS", str(width))
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", stream)
            printing(*arguments, **more)
            stream.flush()
        content = stream.buffer.getvalue()  # type: ignore[attr-defined]
        return str(content.decode(encoding))

    return shown


def words(text: str) -> str:
    """The text as one line."""
    return " ".join(text.split())


def test_the_same_diagnosis_gives_the_same_text(view: View, diagnosis: Diagnosis) -> None:
    before = copy.deepcopy(diagnosis)
    assert view(print_diagnosis, diagnosis, top=5) == view(print_diagnosis, copy.deepcopy(diagnosis), top=5)
    assert diagnosis == before


def test_the_verdict_comes_first_with_what_was_probed(view: View, diagnosis: Diagnosis) -> None:
    text = view(print_diagnosis, diagnosis)
    assert text.startswith("Does not fit, 210.00 MiB too much")
    head = words(text)[:300]
    said = ("by-hand", "sequence-classification", "4 x 128", "fp32", "adamw_torch_fused", "sdpa", "Card", "simulated")
    assert [word for word in said if word not in head] == []


def test_a_measured_diagnosis_does_not_say_simulated(view: View, diagnosis: Diagnosis) -> None:
    measured = replace(diagnosis, provenance=replace(diagnosis.provenance, mode="measured"))
    toggles = view(print_toggles, diagnosis.toggles, "measured", width=140)
    assert toggles.count(", simulated") == len(diagnosis.toggles)  # each says so where the rest was measured
    measured = replace(measured, toggles=tuple(replace(toggle, mode="measured") for toggle in diagnosis.toggles))
    text = view(print_diagnosis, measured)
    assert "; measured" in text
    told = [line for line in text.splitlines() if "simulated" in line]
    assert [line.split()[0] for line in told] == ["batch"]  # predictions come from simulated steps
    assert "simulated" not in view(print_diagnosis, replace(measured, scaling=None))


def test_every_part_is_shown_with_its_size(view: View, diagnosis: Diagnosis) -> None:
    text = words(view(print_diagnosis, diagnosis))
    for said in ("optimizer state 200.00 MiB", "activations 700.00 MiB", "free -210.00 MiB", "other processes 0 B"):
        assert said in text


def test_the_peak_climbs_from_allocated_to_the_card(view: View, diagnosis: Diagnosis) -> None:
    text = words(view(print_diagnosis, diagnosis))
    for said in ("1.08 GiB", "100 ± 10 MiB", "1.18 GiB"):  # 1101 and 1110 MiB, the context, 1210 MiB
        assert said in text


def test_changes_are_told_with_their_peak_and_what_they_save_or_cost(view: View, diagnosis: Diagnosis) -> None:
    text = words(view(print_toggles, diagnosis.toggles, "simulated", width=140))
    assert "fp16 300.00 MiB saves 810.00 MiB" in text
    assert "checkpointing + batch size 9 1.08 GiB COSTS 5.00 MiB" in text
    assert "no fit" in text


def test_no_changes_print_nothing(view: View, diagnosis: Diagnosis) -> None:
    assert view(print_toggles, (), "simulated") == ""
    assert "what if" not in view(print_diagnosis, replace(diagnosis, toggles=()))


def test_where_it_ran_out_is_told_when_it_did(view: View, diagnosis: Diagnosis) -> None:
    assert "step 1, forward, net.layer.6.act: tried to allocate 100.00 MiB with 90.00 MiB free" in words(
        view(print_diagnosis, diagnosis)
    )
    assert "tried to allocate" not in view(print_diagnosis, replace(diagnosis, ran_out=None))
    assert diagnosis.ran_out is not None
    full = replace(diagnosis.ran_out, segment_bytes=120 * MIB, allocated_bytes=900 * MIB, reserved_bytes=910 * MIB)
    assert "120.00 MiB with 90.00 MiB free; 900.00 MiB allocated, 10.00 MiB reserved but unallocated" in words(
        view(print_diagnosis, replace(diagnosis, ran_out=full))
    )


@pytest.mark.parametrize(("most", "said"), [(2, "fits is 2"), (None, "no batch fits")])
def test_the_prediction_is_told_beside_the_probe(view: View, diagnosis: Diagnosis, most: int | None, said: str) -> None:
    assert diagnosis.scaling is not None
    scaling = replace(diagnosis.scaling, largest_batch_that_fits=most)
    text = words(view(print_diagnosis, replace(diagnosis, scaling=scaling)))
    for figure in (said, "1.08 GiB predicted", "1.08 GiB probed", "difference 0 B", "175.00 MiB a sample"):
        assert figure in text


def test_what_was_assumed_is_named(view: View, diagnosis: Diagnosis) -> None:
    assert "max_grad_norm 1.0, no padding in the batch" in words(view(print_diagnosis, diagnosis))
    assert "assumed" not in view(print_diagnosis, replace(diagnosis, assumed=()))


def test_tensors_are_listed_when_asked_for(view: View, diagnosis: Diagnosis) -> None:
    text = view(print_diagnosis, diagnosis, top=1, width=200)
    assert "7 x 4x128x51200" in text
    assert "net.layer.*.act" in text
    assert "51200" not in view(print_diagnosis, diagnosis, width=200)


def test_more_tensors_than_there_are_are_all_of_them(view: View, diagnosis: Diagnosis) -> None:
    assert view(print_diagnosis, diagnosis, top=99) == view(print_diagnosis, diagnosis, top=1)


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_the_longest_view_has_at_most_25_lines(view: View, diagnosis: Diagnosis, width: int) -> None:
    """BERT-large at a length of its own on an A100: every change that is ever probed, and all that can be assumed."""
    changes: list[dict[str, str | int | bool]] = [
        {"batch_size": 1}, {"batch_size": 2}, {"seq_length": 128}, {"seq_length": 256}, {"seq_length": 512},
        {"precision": "fp16"}, {"precision": "bf16"}, {"gradient_checkpointing": True},
        {"precision": "fp16", "gradient_checkpointing": True},
    ]  # fmt: skip
    why = (
        "the peak is in backward, and 86 % of it is activations, 24.78 GiB (24 x 16384x4096 x 4 B = 6.00 GiB; "
        "24 x 32x512x4096 x 4 B = 6.00 GiB)."
    )
    assert diagnosis.ran_out is not None
    longest = replace(
        diagnosis,
        workload=replace(diagnosis.workload, model="bert-large-uncased"),
        device=replace(diagnosis.device, name="A100-40GB"),
        ran_out=replace(diagnosis.ran_out, module="bert.encoder.layer.12.intermediate.intermediate_act_fn"),
        verdict=replace(diagnosis.verdict, sentence=f"Does not fit, 210.00 MiB too much: {why}"),
        toggles=tuple(replace(diagnosis.toggles[0], change=change, fits=False) for change in changes),
        assumed=(
            "batch_size 8", "seq_length 384", "precision fp32", "optimizer adamw_torch_fused", "max_grad_norm 1.0",
            "no padding in the batch", "GPU A100-40GB, the first of this machine", "attention sdpa",
        ),
    )  # fmt: skip
    lines = view(print_diagnosis, longest, width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= MOST_LINES


@pytest.mark.parametrize("width", [1, 10, 20, 40, 60, 77, 78, 79, 80, 500])
def test_any_width_shows_every_part(view: View, diagnosis: Diagnosis, width: int) -> None:
    text = view(print_diagnosis, diagnosis, top=3, width=width)
    assert text
    if width >= 40:
        assert max(map(len, text.splitlines())) <= width
        for said in ("optimizer state", "allocator overhead", "700.00 MiB", "-210.00 MiB"):
            assert said in words(text)


def test_a_plain_terminal_is_shown_plain_characters(view: View, diagnosis: Diagnosis) -> None:
    text = view(print_diagnosis, diagnosis, top=3, encoding="ascii")
    assert "#" in text
    assert "+-" in text
    assert "█" in view(print_diagnosis, diagnosis)


HOSTILE = ["a\x1b[31mred", "a\x1b]0;title\x07", "a\x9b31m", "a\rb", "a\x08b", "a\x7fb"]


@pytest.mark.parametrize("name", HOSTILE, ids=repr)
def test_a_name_from_a_file_cannot_command_the_terminal(view: View, diagnosis: Diagnosis, name: str) -> None:
    """A saved file may come from anyone."""
    named = replace(
        diagnosis,
        workload=replace(diagnosis.workload, model=name),
        device=replace(diagnosis.device, name=name),
        tensors=tuple(replace(group, module=name, op=name) for group in diagnosis.tensors),
        verdict=Verdict(fits=False, headroom_bytes=-210 << 20, cause=name, sentence=f"Does not fit, {name}: {name}"),
        assumed=(name,),
    )
    text = view(print_diagnosis, named, top=1)
    assert [character for character in text if not character.isprintable() and character != "\n"] == []


@pytest.mark.parametrize("name", ["[bold]x[/bold]", "[/]", ":smile:", "a {} %s", "[link=http://x]x"])
def test_markup_in_a_name_is_shown_as_it_is(view: View, diagnosis: Diagnosis, name: str) -> None:
    named = replace(diagnosis, workload=replace(diagnosis.workload, model=name), assumed=(name,))
    assert words(view(print_diagnosis, named, width=400)).count(name) == 2


def test_a_name_on_two_lines_does_not_break_the_view(view: View, diagnosis: Diagnosis) -> None:
    named = replace(diagnosis, workload=replace(diagnosis.workload, model="a\nb" * 10))
    plain = view(print_diagnosis, replace(diagnosis, workload=replace(diagnosis.workload, model="a b" * 10)))
    assert len(view(print_diagnosis, named).splitlines()) == len(plain.splitlines())


def test_repeated_probes_are_compared(view: View, examination: Examination) -> None:
    later = replace(examination, provenance=replace(examination.provenance, created="2031-01-01", seconds=9.0))
    assert "2 probes gave the same bytes" in view(print_repeats, [examination, later])
    other = replace(examination, timeline=replace(examination.timeline, segments=()))
    assert "NOT the same" in view(print_repeats, [examination, other])
    assert view(print_repeats, [examination]) == ""


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"precision": "fp16"}, "fp16"),
        ({"batch_size": 1}, "batch size 1"),
        ({"gradient_checkpointing": True}, "checkpointing"),
        ({"gradient_checkpointing": False}, "no checkpointing"),
        ({"precision": "fp16", "gradient_checkpointing": True}, "fp16 + checkpointing"),
        ({"max_grad_norm": 0.0}, "max grad norm 0.0"),
    ],
)
def test_a_change_is_told_in_words(change: dict[str, Any], text: str) -> None:
    assert in_words(change) == text
