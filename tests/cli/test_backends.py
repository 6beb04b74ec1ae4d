"""Which backend runs, on the real command line: cards are pretended, worker processes and steps are real."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

MIB, GIB = 1 << 20, 1 << 30
STANDINS = Path(__file__).parents[1] / "standins"
TINY = ("--model", "google/bert_uncased_L-2_H-128_A-2", "-b", "2", "-s", "16", "--offline")
PARAMETERS = 4_386_178
CONTEXT, OTHERS = 400 * MIB, 200 * MIB
T4 = {"name": "Tesla T4", "capability": "7.5", "total": 15 * GIB, "context": CONTEXT, "others": OTHERS}


@pytest.fixture
def on_a_card(with_gpus: Callable[..., dict[str, str]], nvml: Any, tmp_path: Path) -> Callable[..., dict[str, str]]:
    """The environment on a machine with a T4 whose CUDA works, with these properties of ``cuda_machine``."""

    def environment(**machine: Any) -> dict[str, str]:
        machine = {**T4, **machine}
        seen = with_gpus(nvml.card(used=OTHERS, total=machine["total"] + GIB))  # of which the driver keeps one
        path = os.pathsep.join((seen["PYTHONPATH"], str(STANDINS / "cuda")))
        cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
        return {**seen, **cache, "PYTHONPATH": path, "CUDA_STANDIN": json.dumps(machine)}

    return environment


def document(done: Any) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_auto_measures_on_the_own_card_and_simulates_beside(run: Any, on_a_card: Any) -> None:
    found = document(run("diagnose", *TINY, "--json", **on_a_card()))
    assert found["provenance"]["mode"] == "measured"
    assert (found["provenance"]["cuda"], found["provenance"]["driver"]) == ("13.0", "580.1")
    assert found["device"]["context_bytes"] == CONTEXT
    assert found["breakdown"]["other_processes"] == OTHERS
    assert found["breakdown"]["parameters"] == 4 * PARAMETERS
    assert sum(found["breakdown"].values()) == 15 * GIB
    rows = found["comparisons"]
    assert rows[0]["change"] == {}
    assert {"batch_size": 1} in [row["change"] for row in rows]
    for row in rows:
        measured, simulated = row["measured"]["allocated_bytes"], row["simulated"]["allocated_bytes"]
        assert row["allocated_error_percent"] == round(100 * (simulated - measured) / measured, 8)
    assert [check["difference_bytes"] for check in found["counters"]] == [0] * 5
    assert {toggle["mode"] for toggle in found["toggles"]} == {"measured"}


def test_the_terminal_shows_measured_beside_simulated(run: Any, on_a_card: Any) -> None:
    done = run("probe", *TINY, **on_a_card())
    assert done.returncode == 0, done.stderr
    assert "; measured" in done.stdout
    told = " ".join(done.stdout.split())
    assert "(75.08 MiB allocated)" in told
    assert " %), 92.00 MiB reserved (exact)" in told
    assert "75.11 MiB allocated and 92.00 MiB reserved at most, explained to the byte" in told


def test_what_does_not_fit_is_simulated(run: Any, on_a_card: Any) -> None:
    """Batch 1 and 2 are measured; the target is predicted to run out, and is not tried."""
    found = document(run("diagnose", *TINY, "-b", "200", "--json", **on_a_card(total=CONTEXT + OTHERS + 120 * MIB)))
    assert found["provenance"]["mode"] == "simulated"
    assert not found["verdict"]["fits"]
    changes = [row["change"] for row in found["comparisons"]]
    assert {"batch_size": 1} in changes
    assert {} not in changes
    assert "not measured: it is predicted not to fit on this card, as it is now" in found["provenance"]["notes"]


def test_nothing_is_tried_beside_others_that_may_not_fit(run: Any, on_a_card: Any) -> None:
    """Not even batch 1, for which 67 MiB are left beside the catalogue's context: it would be killed at once."""
    environment = on_a_card(total=OTHERS + 200 * MIB, fault="kill", after=0)
    found = document(run("diagnose", *TINY, "--json", **environment))
    assert found["provenance"]["mode"] == "simulated"
    assert "comparisons" in found
    assert found["comparisons"] == []
    assert not any("SIGKILL" in note for note in found["provenance"]["notes"])


def test_with_gpu_what_does_not_fit_is_measured_too(run: Any, on_a_card: Any, tmp_path: Path) -> None:
    """Batch 1 that runs out is a result, with the state at that moment."""
    file = tmp_path / "out.json.gz"
    environment = on_a_card(total=CONTEXT + OTHERS + 40 * MIB)
    mark = str(time.monotonic_ns())
    done = run("probe", *TINY, "-b", "1", "--backend", "gpu", "--json", "-o", str(file), **environment, MARK=mark)
    found = document(done)
    assert (found["provenance"]["mode"], found["outcome"]["kind"]) == ("measured", "ran_out")
    assert found["outcome"]["reserved_bytes"] == 40 * MIB - found["outcome"]["free_bytes"]
    told = run("report", str(file))
    assert "Does not fit, at least" in told.stdout
    assert "tried to allocate" in told.stdout
    assert not marked(mark)  # the GPU is free for certain when the process that had it is gone


def marked(mark: str) -> list[psutil.Process]:
    """Processes that have this mark in their environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.AccessDenied, psutil.NoSuchProcess):
            if process.environ().get("MARK") == mark:
                found.append(process)
    return found


def test_simulated_never_measures(run: Any, on_a_card: Any) -> None:
    found = document(run("probe", *TINY, "--backend", "simulated", "--json", **on_a_card(fault="kill", after=0)))
    assert found["provenance"]["mode"] == "simulated"


FAULTS = {
    "kill": ("SIGKILL", {}),
    "cuda": ("illegal memory access", {}),
    "hang": ("longer than 20 s", {"--time-limit": "20"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_step_that_goes_wrong_is_an_outcome_with_its_reason(run: Any, on_a_card: Any, fault: str) -> None:
    """With auto the simulation answers, and a note says why nothing was measured."""
    why, options = FAULTS[fault]
    words = [word for option in options.items() for word in option]
    found = document(run("probe", *TINY, *words, "--json", **on_a_card(fault=fault)))
    assert found["provenance"]["mode"] == "simulated"
    (note,) = [note for note in found["provenance"]["notes"] if note.startswith("not measured")]
    assert why in note


def test_with_gpu_a_worker_that_is_killed_is_an_error(run: Any, on_a_card: Any) -> None:
    done = run("probe", *TINY, "--backend", "gpu", **on_a_card(fault="kill"))
    assert done.returncode == 6
    assert "SIGKILL" in done.stderr
    assert done.stdout == ""


FORKING = """
import os, time, torch
def build():
    if not os.fork():
        time.sleep(1000)
    return torch.nn.Linear(4, 1), torch.ones(2, 4)
"""


def test_a_copy_that_the_models_code_makes_of_the_worker_ends_with_it(run: Any, tmp_path: Path) -> None:
    (tmp_path / "forking.py").write_text(FORKING)
    mark = str(time.monotonic_ns())
    document(run("probe", "--model", "forking:build", "--json", cwd=tmp_path, MARK=mark))
    assert not marked(mark)


def test_a_torch_without_cuda_is_a_note(run: Any, with_gpus: Any, nvml: Any) -> None:
    """NVML sees a card, and CUDA does not work."""
    found = document(run("probe", *TINY, "--json", **with_gpus(nvml.card())))
    assert found["provenance"]["mode"] == "simulated"
    assert any(note.startswith("not measured") for note in found["provenance"]["notes"])


def test_without_a_gpu_nothing_is_noted(run: Any) -> None:
    found = document(run("probe", *TINY, "--json"))
    assert not any("not measured" in note for note in found["provenance"]["notes"])
    assert "comparisons" not in found
