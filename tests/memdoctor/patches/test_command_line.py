"""Every command that is generated says the changed workload to the real command line."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from memdoctor.cli.diagnose import command
from memdoctor.cli.options import asked
from memdoctor.codec import from_json
from memdoctor.matrix import apply_change
from memdoctor.patches import NOT_PATCHED, patch_of
from memdoctor.records import Workload

Case = tuple[dict[str, Any], dict[str, Any]]
NO_FIELDS = ("gpu", "memory", "backend", "offline", "alloc_conf", "details", "checklist", "claims")


def parsed(line: str) -> dict[str, Any]:
    """What ``memdoctor diagnose`` understands: the arguments of open_case that were said."""
    program, name, *arguments = shlex.split(line)
    assert (program, name) == ("memdoctor", "diagnose")
    context = command.make_context("diagnose", arguments)
    return {key: value for key, value in asked(context.params).case.items() if value is not None}


def workload_of(said: dict[str, Any]) -> Workload:
    return Workload(**{key: value for key, value in said.items() if key not in NO_FIELDS})


def test_the_command_says_the_changed_workload(case: Case) -> None:
    settings, change = case
    before = from_json(Workload, {"model": "bert-base-uncased", **settings})
    line = patch_of(before, change, "5.24.0")["cli"]
    assert "\n" not in line
    assert workload_of(parsed(line)) == apply_change(before, change)


@pytest.mark.parametrize("change", [{"forward_passes": 3}, {"loop": "custom"}, {"strategy": "zero2", "world_size": 4}])
def test_it_says_what_no_other_language_can(change: dict[str, Any]) -> None:
    assert set(change) <= set(NOT_PATCHED)
    before = Workload(model="bert-base-uncased")
    assert workload_of(parsed(patch_of(before, change, "5.24.0")["cli"])) == apply_change(before, change)


def test_it_says_the_card() -> None:
    before = Workload(model="bert-base-uncased")
    conf = "expandable_segments:True,max_split_size_mb:64"
    line = patch_of(before, {"batch_size": 4}, "5.24.0", gpu="RTX 3090", memory="8 GiB", alloc_conf=conf)["cli"]
    said = parsed(line)
    assert (said["gpu"], said["memory"], said["alloc_conf"]) == ("RTX 3090", "8 GiB", conf)
    assert line.startswith("memdoctor diagnose -m bert-base-uncased -b 4 -s 512 --gpu 'RTX 3090' --memory '8 GiB'")


def test_the_shortest_command() -> None:
    line = patch_of(
        Workload(model="bert-base-uncased"), {"gradient_accumulation_steps": 8, "precision": "fp16"}, "5.24.0", gpu="T4"
    )["cli"]
    assert line == "memdoctor diagnose -m bert-base-uncased -b 8 -s 512 --fp16 --gradient-accumulation-steps 8 --gpu T4"
