"""What is promised of an edge holds when somebody probes it afresh: that batch fits, and one more does not."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from memdoctor.doctor import fit, open_case
from memdoctor.errors import UsageError
from memdoctor.fitting import lengths_of
from memdoctor.matrix import apply_change
from memdoctor.measuring import probing
from memdoctor.probes.pool import TIME_LIMIT
from memdoctor.records import Backend, Completed, Workload


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without NVML."""
    monkeypatch.setitem(sys.modules, "pynvml", None)


@pytest.mark.parametrize(
    ("model", "gpu", "memory", "length"),
    [
        ("prajjwal1/bert-tiny", "T4", "1 GiB", 100),
        ("google/electra-small-discriminator", "A100-40GB", "2 GiB", 128),
        ("distilbert-base-uncased", "V100-16GB", "3 GiB", 64),
    ],
)
def test_the_edge_of_every_cell_holds(model: str, gpu: str, memory: str, length: int) -> None:
    case = open_case(model, gpu=gpu, memory=memory, seq_length=length)
    found = fit(case, lengths=(length,))
    assert len(found.cells) == 4
    changes = [
        {**cell.change, "seq_length": length, "batch_size": (cell.edge.largest_batch or 0) + more}
        for cell in found.cells
        if cell.edge
        for more in (0, 1)
    ]
    workloads = [apply_change(case.workload, change) for change in changes]
    with probing(case, TIME_LIMIT, None, use_cache=False) as afresh:
        afresh.simulate(workloads)
        completed = [isinstance(afresh.best(workload).outcome, Completed) for workload in workloads]
    assert completed == [True, False] * 4


def test_lengths_are_the_usual_ones_that_the_model_takes_and_the_target_s_own() -> None:
    target = Workload(model="by-hand", seq_length=300)
    assert lengths_of(target, 512, ()) == (128, 256, 300, 512)
    assert lengths_of(target, 300, ()) == (128, 256, 300)
    assert lengths_of(target, None, ()) == (128, 256, 300, 512)
    assert lengths_of(target, 512, (64, 32, 64)) == (32, 64)


@pytest.mark.parametrize("backend", [Backend.GPU, Backend.CPU])
def test_what_is_to_be_measured_is_refused(backend: Backend) -> None:
    case = open_case("prajjwal1/bert-tiny", gpu="T4")
    with pytest.raises(UsageError, match=f"--backend {backend.value}"):
        fit(replace(case, backend=backend))
