"""The beliefs: each confirmed, refuted, and not probed, by evidence worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from memdoctor.claims import BELIEFS, claim_probes, claims_of
from memdoctor.levers.kinds import ACCUMULATED
from memdoctor.matrix import apply_change
from memdoctor.records import Change, Claim, Dtype, Examination, Workload
from memdoctor.rules import Evidence, evidence_of

Holding = Callable[..., Examination]
Probes = list[tuple[Change, Examination]]
TARGET = Workload(model="bert-base-uncased")


def judged(name: str, target: Examination, probes: Probes | None = None) -> Claim:
    return {claim.id: claim for claim in claims_of(evidence_of(target, {}, probes=probes or []))}[name]


@pytest.fixture
def activations(holding: Holding) -> Callable[..., Examination]:
    """A step that holds so many bytes of activations, and 1,000 of parameters."""

    def make(size: int, **more: Any) -> Examination:
        return holding({"parameters": 1_000, "activations": size}, **more)

    return make


def test_every_belief_of_the_table_is_there_once() -> None:
    assert [belief.id for belief in BELIEFS] == [
        "half-precision", "checkpointing", "length", "accumulation", "small-batch", "zero-2",
    ]  # fmt: skip


def test_few_probes_are_needed_and_each_can_be_made() -> None:
    changes = claim_probes(TARGET, 512)
    needed = {apply_change(TARGET, change) for change in changes} - {TARGET}
    # The matrix and the levers have batch 1 and 2, 128 and 256 tokens, fp16, checkpointing, both, and accumulation.
    assert len(needed) - 8 == 15
    assert claim_probes(TARGET, 512) == claim_probes(TARGET, None)


def test_a_model_that_takes_less_is_not_asked_for_more() -> None:
    lengths = {change.get("seq_length", 0) for change in claim_probes(Workload(model="bert", seq_length=64), 256)}
    assert max(int(str(length)) for length in lengths) == 256


def test_weights_in_16_bits_are_not_asked_for_autocast() -> None:
    target = Workload(model="bert", dtype=Dtype.BFLOAT16)
    assert not any("precision" in change for change in claim_probes(target, 512))
    for change in claim_probes(target, 512):
        apply_change(target, change)


@pytest.mark.parametrize(("half", "verdict"), [(5_500, "confirmed"), (5_501, "refuted"), (9_000, "refuted")])
def test_half_precision_is_judged_at_the_target(activations: Holding, half: int, verdict: str) -> None:
    probes: Probes = [
        ({"precision": "fp16"}, activations(half)),
        ({"batch_size": 1}, activations(1_000)),
        ({"batch_size": 1, "precision": "fp16"}, activations(1_100)),
        ({"gradient_checkpointing": True}, activations(1_500)),
        ({"precision": "fp16", "gradient_checkpointing": True}, activations(1_000)),
    ]
    claim = judged("half-precision", activations(9_000, batch_size=8), probes)  # 35 % of 10,000 saved leaves 6,500
    assert claim.verdict == verdict
    assert "at batch 1 it costs 5 % (1.95 KiB to 2.05 KiB)" in claim.showed
    assert "with checkpointing it saves 20 % (2.44 KiB to 1.95 KiB)" in claim.showed
    assert claim.evidence["batch_1_share_saved"] == -0.05


def test_half_precision_is_not_probed_where_there_is_no_other_precision(activations: Holding) -> None:
    assert judged("half-precision", activations(1)).verdict == "not probed"
    assert "bfloat16" in judged("half-precision", activations(1, dtype=Dtype.BFLOAT16)).showed


@pytest.mark.parametrize(("with_it", "verdict"), [(5_000, "confirmed"), (5_001, "refuted"), (2_000, "confirmed")])
def test_checkpointing_is_judged_at_the_target_and_told_per_length(
    activations: Holding, with_it: int, verdict: str
) -> None:
    probes: Probes = [
        ({"gradient_checkpointing": True}, activations(with_it)),
        ({"seq_length": 128}, activations(1_000)),
        ({"seq_length": 128, "gradient_checkpointing": True}, activations(800)),
    ]
    claim = judged("checkpointing", activations(9_000), probes)  # 40 % of 10,000 saved leaves 6,000
    assert claim.verdict == verdict
    assert "at 128 tokens it saves 10 % (1.95 KiB to 1.76 KiB)" in claim.showed


def test_checkpointing_says_when_the_optimizer_step_is_the_peak(activations: Holding) -> None:
    other: Probes = [({"gradient_checkpointing": True}, activations(9_000))]
    claim = judged("checkpointing", activations(9_000, phase="optimizer"), other)
    assert claim.verdict == "refuted"
    assert claim.showed.endswith("the peak is the optimizer step, which keeps no activations")
    assert judged("checkpointing", activations(9_000)).verdict == "not probed"


def by_length(holding: Holding, sample: Mapping[int, int], attention: Change) -> Probes:
    return [
        ({**attention, "seq_length": length, "batch_size": batch}, holding({"activations": batch * size}))
        for length, size in sample.items()
        for batch in (2, 3)
    ]


@pytest.mark.parametrize(
    ("sample", "verdict", "words"),
    [
        ({128: 200, 256: 400, 512: 800}, "confirmed", "linear with its own attention"),
        ({128: 50, 256: 100, 512: 200}, "refuted", "800 MB is 762.94 MiB, 4.0 times what it is here"),
        ({128: 128, 256: 320, 512: 800}, "refuted", "not linear"),
    ],
)
def test_the_length_is_judged_by_what_one_more_sample_takes(
    holding: Holding, sample: dict[int, int], verdict: str, words: str
) -> None:
    sizes = {length: size * 1_000_000 for length, size in sample.items()}
    probes = [*by_length(holding, sizes, {}), *by_length(holding, sizes, {"attention": "eager"})]
    claim = judged("length", holding({"activations": 1}, seq_length=64), probes)
    assert claim.verdict == verdict
    assert words in claim.showed
    assert claim.evidence["bytes_a_sample_at_512"] == sizes[512]
    assert claim.showed.count(" a sample in forward, ") == 2


def test_the_quadratic_part_is_that_of_the_parabola(holding: Holding) -> None:
    sizes = {length: 1_000 * length + 10 * length * length for length in (128, 256, 512)}
    claim = judged("length", holding({"activations": 1}, seq_length=64), by_length(holding, sizes, {}))
    assert claim.evidence["quadratic_share"] == round(10 * 512 / (1_000 + 10 * 512), 4)


def test_gradients_that_are_the_peak_do_not_hide_what_a_sample_takes(new_recording: Callable[[], Any]) -> None:
    def step(size: int) -> Examination:
        tape = new_recording()
        tape.phase(1, "forward")
        kept = tape.birth(size)
        tape.phase(1, "backward")
        tape.death(kept)
        tape.birth(9_000, "gradients")
        made: Examination = tape.examination(seq_length=64)
        return made

    changes = [(length, batch) for length in (128, 256, 512) for batch in (2, 3)]
    probes: Probes = [({"seq_length": s, "batch_size": b}, step(s * b)) for s, b in changes]
    claim = judged("length", step(1), probes)
    assert [claim.evidence[f"bytes_a_sample_at_{length}"] for length in (128, 256, 512)] == [128, 256, 512]


def test_the_length_is_not_probed_where_one_step_is_missing(holding: Holding) -> None:
    probes = by_length(holding, {128: 1, 256: 2}, {})
    assert judged("length", holding({"activations": 1}, seq_length=64), probes).verdict == "not probed"


@pytest.mark.parametrize(
    ("several", "verdict", "words"),
    [
        (10_000, "refuted", "the same"),
        (10_500, "refuted", "500 B more"),
        (9_901, "refuted", "99 B less"),
        (9_900, "confirmed", "100 B less"),
    ],
)
def test_accumulation_is_judged_against_one_micro_batch(
    holding: Holding, several: int, verdict: str, words: str
) -> None:
    kept = holding({"activations": several - 400, "gradients": 400}, gradient_accumulation_steps=4)
    one = holding({"activations": 1_024})
    probes: Probes = [({"gradient_accumulation_steps": ACCUMULATED}, kept), ({"batch_size": 1}, one)]
    claim = judged("accumulation", holding({"activations": 10_000}, batch_size=8), probes)
    assert claim.verdict == verdict
    assert f"{words}, and 400 B of gradients persist" in claim.showed
    assert claim.showed.endswith("batch 1 takes 1.00 KiB")


def test_accumulation_in_use_is_probed_without(holding: Holding) -> None:
    target = holding({"activations": 10_000}, gradient_accumulation_steps=4)
    claim = judged("accumulation", target, [({"gradient_accumulation_steps": 1}, holding({"activations": 9_000}))])
    assert (claim.verdict, claim.evidence["added_bytes"]) == ("refuted", 1_000)
    assert judged("accumulation", target).verdict == "not probed"


@pytest.mark.parametrize(("one", "verdict"), [(1_000, "confirmed"), (999, "refuted")])
def test_a_small_batch_is_judged_at_1_and_at_2(activations: Holding, one: int, verdict: str) -> None:
    probes: Probes = [({"batch_size": 1}, activations(one)), ({"batch_size": 2}, activations(2_000))]
    claim = judged("small-batch", activations(8_000, batch_size=8), probes)
    assert claim.verdict == verdict
    assert "at batch 2 activations hold 1.95 KiB of the 2.93 KiB in forward, 67 %" in claim.showed


def test_a_small_batch_may_be_the_target_itself(activations: Holding) -> None:
    assert judged("small-batch", activations(8_000, batch_size=2)).verdict == "confirmed"
    assert judged("small-batch", activations(8_000, batch_size=8)).verdict == "not probed"


def test_zero_is_arithmetic_and_says_so(new_recording: Callable[[], Any]) -> None:
    tape = new_recording()
    tape.phase(1, "optimizer")
    tape.birth(4_000, "gradients", dtype="float32", shape=(1_000,))
    tape.birth(8_001, "optimizer_state")
    evidence: Evidence = evidence_of(tape.examination(), {})
    claim = {claim.id: claim for claim in claims_of(evidence)}["zero-2"]
    assert claim.verdict == "not probed"
    assert "500,000,000 x 4 B = 1.86 GiB, larger than all gradients of the model, 1,000 x 4 B" in claim.showed
    assert claim.evidence == {
        "bucket_bytes": 2_000_000_000, "gradient_bytes": 4_000, "state_bytes": 8_001, "saves_at_most_bytes": 4_000,
    }  # fmt: skip
