"""What all tests share: no network and no user's settings, GPU tests one at a time and only where there is a GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings

pytest_plugins = ["recordings"]  # tests/builders

_FOREIGN = ("MEMDOCTOR_", "PYTORCH_", "CUBLAS_")  # settings of the caller's that would change what is measured
_COLOUR = ("FORCE_COLOR", "GITHUB_ACTIONS", "NO_COLOR", "PY_COLORS")

for name in list(os.environ):
    if name.startswith(_FOREIGN) or name in _COLOUR:
        del os.environ[name]
# Set before anything imports the hub or torch, and inherited by every process that a test starts.
os.environ.update(
    COLUMNS="100",
    HF_HUB_CACHE=str(Path(os.devnull) / "hub"),  # a model in the developer's cache must not decide a test
    HF_HUB_OFFLINE="1",
    MEMDOCTOR_CACHE="off",  # what is tested is probed; the cache's own tests have one each
    OMP_NUM_THREADS="1",  # test processes already share the cores
    PYTORCH_JIT="0",  # as in a worker: older transformers' DeBERTa is TorchScript
)

settings.register_profile("memdoctor", parent=settings(), deadline=None)  # a busy machine is not a failure
settings.load_profile("memdoctor")


STANDINS = Path(__file__).parent / "standins"


@pytest.fixture
def nvml() -> Any:
    """A stand-in for pynvml of its own, whose functions describe machines and cards; in nobody's place yet."""
    spec = importlib.util.spec_from_file_location("pynvml", STANDINS / "pynvml.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def pretend_gpus(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """Be, in this process, on a machine with these cards and these other properties of ``nvml.machine``."""

    def pretend(*cards: dict[str, Any], **properties: Any) -> ModuleType:
        nvml.pretend(nvml.machine(*cards, **properties))
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        module: ModuleType = nvml
        return module

    return pretend


@pytest.fixture
def with_gpus(nvml: Any) -> Callable[..., dict[str, str]]:
    """The environment in which another process is on a machine with these cards."""

    def environment(*cards: dict[str, Any], **properties: Any) -> dict[str, str]:
        path = os.pathsep.join(filter(None, (str(STANDINS), os.environ.get("PYTHONPATH"))))
        return {"PYTHONPATH": path, nvml.VARIABLE: json.dumps(nvml.machine(*cards, **properties))}

    return environment


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run GPU tests one at a time, whatever ``-n`` says: each would find the memory of the others on the card."""
    with _gpu_to_itself() if item.get_closest_marker("gpu") else nullcontext():
        return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a GPU where there is none."""
    if item.get_closest_marker("gpu") and not _has_cuda():
        pytest.skip("no CUDA device")


@contextmanager
def _gpu_to_itself() -> Iterator[None]:
    import fcntl  # not on Windows, where only the tests without a GPU run

    with (Path(tempfile.gettempdir()) / "memdoctor-gpu-tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@cache
def _has_cuda() -> bool:
    import torch  # seconds, so only when a GPU test is about to run

    return torch.cuda.is_available()
