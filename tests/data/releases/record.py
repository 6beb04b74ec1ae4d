"""What the simulated GPU says of a fixed list of workloads under the installed torch: the files beside this script.

From the top of a checkout, in an environment with that torch and the version of transformers that the files name::

    python tests/data/releases/record.py                      # writes torch-MAJOR.MINOR.json beside this script
    python tests/data/releases/record.py --list               # the workloads
    python tests/data/releases/record.py --events NAME ...    # their timelines, to compare two releases' with diff
    python tests/data/releases/record.py --differences        # which workloads differ between the files, in what
    python tests/data/releases/record.py --facts-of 2.11 NAME ...  # this torch with 2.11's row of releases.py

When the simulation changes on purpose, the first line is run once in an environment of each release that has a file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memdoctor.analysis import peak_of, phases_of
from memdoctor.probes.pool import Pool, Request
from memdoctor.probes.resolve import ModelFacts
from memdoctor.records import Attention, Device, Dtype, Examination, Loop, Precision, Task, Workload

FOLDER = Path(__file__).parent
FP32, FP16, BF16 = Precision
SIZES = {
    "vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "max_position_embeddings": 514, "pad_token_id": 1,
}  # fmt: skip
RELATIVE = {**SIZES, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 16}
FAMILIES: dict[str, Mapping[str, Any]] = {
    "bert": SIZES,
    "roberta": SIZES,
    "distilbert": {
        "vocab_size": 1000, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128, "max_position_embeddings": 514,
    },
    "albert": {**SIZES, "embedding_size": 32},
    "electra": {**SIZES, "embedding_size": 32},
    "mpnet": SIZES,
    "deberta-v2": RELATIVE,
    "modernbert": {
        **SIZES, "bos_token_id": 0, "cls_token_id": 0, "eos_token_id": 2, "sep_token_id": 2, "local_attention": 16,
    },
    "gpt2": {
        "vocab_size": 1000, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 514, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2,
    },
    "llama": {**SIZES, "num_key_value_heads": 2},  # two heads of queries share one of keys
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One workload: a family, facts that its config has besides, a compute capability, and settings of the workload."""

    family: str = "bert"
    facts: Mapping[str, Any] = field(default_factory=dict)
    capability: str = "7.5"
    settings: Mapping[str, Any] = field(default_factory=dict)


def _cases() -> Iterator[tuple[str, Case]]:
    for family in FAMILIES:
        yield f"{family}, fp32, 7.5", Case(family=family)
        yield f"{family}, bf16, 8.0, padded", _case(family, "8.0", precision=BF16, padded=True)
    for capability in ("7.0", "7.5", "8.0", "8.6", "9.0", "10.0", "11.0", "12.0"):
        yield f"fp16, {capability}", _case("bert", capability, precision=FP16)
    for capability in ("8.6", "9.0", "10.0"):
        yield f"fp32, {capability}", _case("bert", capability)
        yield f"fp16, {capability}, padded", _case("bert", capability, precision=FP16, padded=True)
    yield "bf16, 7.5", _case("bert", "7.5", precision=BF16)
    yield "bf16, 7.5, padded", _case("bert", "7.5", precision=BF16, padded=True)
    yield "gpt2, bf16, 9.0", _case("gpt2", "9.0", precision=BF16)
    for rate in (0.0, 0.125):  # the configs' default is 0.1
        yield f"fp16, 9.0, dropout {rate}", _attention("9.0", rate, 4)
    for heads, rate, capability in ((1, 0.0, "9.0"), (1, 0.0, "10.0"), (1, 0.1, "8.0"), (1, 0.1, "8.6")):
        yield f"fp16, {capability}, heads of 256, dropout {rate}", _attention(capability, rate, heads, 256)
    yield "fp16, 7.5, heads of 128, dropout 0.1", _attention("7.5", 0.1, 2, 256)
    yield "fp16, 8.0, heads of 20, padded", _attention("8.0", 0.1, 4, 80, padded=True)
    yield "fp32, 7.5, 30 tokens, padded", _case("bert", padded=True, seq_length=30)
    yield "fp32, 7.5, eager", _case("bert", attention=Attention.EAGER)
    yield "fp16, 8.0, eager, padded", _case("bert", "8.0", precision=FP16, attention=Attention.EAGER, padded=True)
    yield "fp32, 7.5, 8 x 512", _case("bert", batch_size=8, seq_length=512)
    yield "bf16, 9.0, 8 x 512", _case("bert", "9.0", precision=BF16, batch_size=8, seq_length=512)
    for reentrant in (False, True):
        name = f"checkpointing{', reentrant' * reentrant}"
        settings = {"gradient_checkpointing": True, "use_reentrant": reentrant}
        yield f"fp32, 7.5, {name}", _case("bert", **settings)
        yield f"fp16, 9.0, {name}", _case("bert", "9.0", precision=FP16, **settings)
    for optimizer in ("adamw_torch", "adafactor", "sgd", "adagrad", "rmsprop"):
        yield f"fp32, 7.5, {optimizer}", _case("bert", optimizer=optimizer)
    yield "fp16, 7.5, adamw_torch", _case("bert", precision=FP16, optimizer="adamw_torch")
    for task in (Task.MASKED_LM, Task.TOKEN_CLASSIFICATION, Task.QUESTION_ANSWERING):
        yield f"fp16, 8.0, {task.value}", _case("bert", "8.0", precision=FP16, task=task)
    yield "fp16, 7.5, 3 micro-batches", _case("bert", precision=FP16, gradient_accumulation_steps=3)
    yield "fp32, 7.5, evaluation", _case("bert", evaluate=True, eval_samples=20)
    evaluated = {"evaluate": True, "eval_samples": 20, "task": Task.MASKED_LM}
    yield "bf16, 8.0, evaluation, masked-lm", _case("bert", "8.0", precision=BF16, **evaluated)
    yield "weights in bfloat16, 8.0", _case("bert", "8.0", dtype=Dtype.BFLOAT16)
    yield "fp32, 7.5, label smoothing", _case("bert", label_smoothing_factor=0.1)
    yield "fp32, 7.5, loop by hand", _case("bert", loop=Loop.CUSTOM, max_grad_norm=0.0)


def _case(family: str, capability: str = "7.5", **settings: Any) -> Case:
    return Case(family=family, capability=capability, settings=settings)


def _attention(capability: str, rate: float, heads: int, hidden: int = 64, **settings: Any) -> Case:
    facts = {"hidden_size": hidden, "num_attention_heads": heads, "attention_probs_dropout_prob": rate}
    return Case(capability=capability, facts=facts, settings={"precision": FP16, **settings})


CASES: dict[str, Case] = dict(_cases())


def examine(names: Sequence[str]) -> dict[str, Examination]:
    """Two optimizer steps of each workload, on a card with room for everything, in worker processes as users' are."""
    with Pool() as pool:
        return dict(zip(names, pool.examine([_request(CASES[name]) for name in names]), strict=True))


def _request(case: Case) -> Request:
    card = Device(
        name="any", total_bytes=1 << 40, compute_capability=case.capability, context_bytes=0, context_error_bytes=0,
        context_source="none", source="made up",
    )  # fmt: skip
    config = {"model_type": case.family, **FAMILIES[case.family], **case.facts}
    workload = Workload(**{"model": case.family, "batch_size": 2, "seq_length": 32, **case.settings})
    return Request(workload, card, ModelFacts(case.family, config, "the list of workloads", None))


def summary_of(examination: Examination) -> dict[str, Any]:
    """What is compared: peaks in bytes, of each phase too, and digests of every event in order.

    ``bytes`` is a digest of the births and deaths alone, with the phases that they fall in; ``blocks`` of what was
    born: operator, dtype, shape, category and module.
    """
    peak, timeline = peak_of(examination), examination.timeline
    phases = [f"{use.step} {use.name} {use.peak_allocated_bytes}" for use in phases_of(examination)]
    events = [(event.block, event.delta_bytes) for event in timeline.events]
    spans = [(phase.step, phase.name.value, phase.begin, phase.end) for phase in timeline.phases]
    blocks = [(b.op, b.dtype, b.shape, b.bytes, b.category.value, b.module) for b in timeline.blocks]
    return {
        "allocated": peak.allocated_bytes,
        "reserved": peak.reserved_bytes,
        "events": len(events),
        "attention": " ".join(examination.provenance.attention_kernels),
        "phases": phases,
        "bytes": _digest([*events, *spans]),
        "blocks": _digest(blocks),
    }


def _digest(items: Iterable[Any]) -> str:
    return hashlib.sha256("\n".join(map(repr, items)).encode()).hexdigest()[:16]


def path_of(version: str) -> Path:
    """The file of a release of torch."""
    return FOLDER / f"torch-{'.'.join(version.split('.')[:2])}.json"


def record() -> Path:
    """Simulate every workload and write the installed release's file, a line for each workload."""
    examinations = examine(list(CASES))
    seen = next(iter(examinations.values())).provenance
    summaries = {name: summary_of(examination) for name, examination in examinations.items()}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(summaries[name])}" for name in sorted(summaries))
    head = f'"torch": {json.dumps(seen.torch)},\n"transformers": {json.dumps(seen.transformers)}'
    path = path_of(seen.torch)
    path.write_text(f'{{\n{head},\n"workloads": {{\n{lines}\n}}\n}}\n', encoding="utf-8")
    return path


def read_all() -> dict[str, dict[str, Any]]:
    """Every recorded file, by the release that it is of, e.g. ``"2.13"``; oldest first."""
    files = {path.stem.removeprefix("torch-"): path for path in FOLDER.glob("torch-*.json")}
    ordered = sorted(files, key=lambda release: tuple(map(int, release.split("."))))
    return {release: json.loads(files[release].read_text(encoding="utf-8")) for release in ordered}


def summaries_with_facts_of(release: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What the installed torch gives with another release's row of ``probes/simulated/releases.py``.

    Nothing may have imported the simulated probe before: its modules look up the row when they are imported.
    """
    from memdoctor.probes.simulated import releases

    releases.INSTALLED = releases.release_of(release)
    from memdoctor.probes.simulated.probe import simulate

    found = {}
    for name in names:
        request = _request(CASES[name])
        examination = simulate(request.workload, request.device, request.facts.config, request.facts.source)
        found[name] = summary_of(examination)
    return found


def differences() -> dict[tuple[str, str, str], list[str]]:
    """By workload and two releases that follow one another, the keys in which their summaries differ."""
    files = read_all()
    found = {}
    for (older, before), (newer, after) in zip(list(files.items())[:-1], list(files.items())[1:], strict=True):
        for name in sorted(before["workloads"].keys() | after["workloads"].keys()):
            one, other = before["workloads"].get(name, {}), after["workloads"].get(name, {})
            keys = [key for key in {**one, **other} if one.get(key) != other.get(key)]
            if keys:
                found[name, older, newer] = keys
    return found


def events_of(examination: Examination) -> Iterator[str]:
    """The timeline as text: a line for each phase, birth and death; blocks are numbered in order of birth."""
    timeline = examination.timeline
    for phase in timeline.phases:
        yield f"-- step {phase.step}, {phase.name.value}"
        for event in timeline.events[phase.begin : phase.end]:
            block = timeline.blocks[event.block]
            shape = "x".join(map(str, block.shape))
            facts = f"{block.op} {block.dtype} {shape} {block.category.value} {block.module}"
            yield f"{event.delta_bytes:+d} #{event.block} {facts}"


def main() -> None:
    """The command line; see the top of this file."""
    parser = argparse.ArgumentParser(description="What the simulated GPU says under the installed release of torch.")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--list", action="store_true", help="the workloads' names")
    choice.add_argument("--events", nargs="+", metavar="NAME", choices=CASES, help="print these workloads' timelines")
    choice.add_argument("--facts-of", nargs="+", metavar=("RELEASE", "NAME"), help="another release's facts")
    choice.add_argument("--differences", action="store_true", help="compare the recorded files")
    arguments = parser.parse_args()
    if arguments.list:
        print(*CASES, sep="\n")
    elif arguments.events:
        for name, examination in examine(arguments.events).items():
            print(f"== {name}", *events_of(examination), sep="\n")
    elif arguments.facts_of:
        release, *names = arguments.facts_of
        print(json.dumps(summaries_with_facts_of(release, names)))
    elif arguments.differences:
        for (name, older, newer), keys in differences().items():
            print(f"{older} to {newer}: {name}: {', '.join(keys)}")
    else:
        print(record())


if __name__ == "__main__":
    main()
