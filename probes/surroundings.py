"""What a simulated probe depends on besides its request: code, libraries, Python, variables; torch is not imported.

As a digest: whoever has kept a result knows by it whether a probe would come to the same today.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata, util
from pathlib import Path

import memdoctor

# Modules that may run in a probe, by the distributions that bring them (those of probes/optimizers/names.py are here).
LIBRARIES = {
    "torch": "torch", "transformers": "transformers", "numpy": "numpy", "peft": "peft", "accelerate": "accelerate",
    "bitsandbytes": "bitsandbytes", "torchao": "torchao", "galore_torch": "galore-torch",
    "apollo_torch": "apollo-torch", "lomo_optim": "lomo-optim", "schedulefree": "schedulefree",
    "grokadamw": "grokadamw", "optimi": "torch-optimi",
}  # fmt: skip
_METADATA = (".dist-info", ".egg-info", ".egg-link")

# Variables that torch, its libraries, transformers or the loader read. Which of them reach a simulated step is not
# worked out: one too many costs a probe, one too few a wrong answer.
_PREFIXES = (
    "ACCELERATE_", "BNB_", "CUBLAS", "CUDA", "CUDNN", "FLASH_ATTENTION", "FSDP_", "NCCL_", "NVIDIA_", "PEFT_",
    "PYTORCH", "TORCH", "TRANSFORMERS", "TRITON", "USE_", "XLA_",
)  # fmt: skip
_NAMES = (
    "LD_LIBRARY_PATH", "LD_PRELOAD", "LOCAL_RANK", "PYTHONOPTIMIZE", "PYTHONPATH", "RANK", "TRUST_REMOTE_CODE",
    "WORLD_SIZE",
)  # fmt: skip
_DRIVER = Path("/proc/driver/nvidia/version")  # libraries import other modules where a driver is loaded


def surroundings(environ: Mapping[str, str]) -> str | None:
    """A digest of them all, in some 15 ms; ``None`` where there is code in them that may change unnoticed.

    Raises:
        OSError: a file of ours cannot be read.
    """
    libraries = {name: _installed(name, distribution) for name, distribution in LIBRARIES.items()}
    if "" in libraries.values() or libraries["torch"] is None:
        return None
    parts = {
        "memdoctor": code_digest(Path(memdoctor.__file__).parent),
        "python": [sys.version, sys.platform, platform.machine(), _text(_DRIVER)],
        "libraries": libraries,
        "installed": sorted(_distributions(sys.path)),
        "variables": variables(environ),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Those that may change what a simulated step does."""
    return {name: text for name, text in environ.items() if name.startswith(_PREFIXES) or name in _NAMES}


def code_digest(package: Path) -> str:
    """Of the contents of a package's Python files. Sizes and times would not do: wheels may set every time alike."""
    digest = hashlib.sha256()
    for folder, folders, files in os.walk(package, followlinks=True):
        folders.sort()
        for name in sorted(file for file in files if file.endswith(".py")):
            path = Path(folder, name)
            digest.update(f"{path.relative_to(package)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _installed(module: str, name: str) -> str | None:
    """Release and digest of the list of its files; ``None``: not installed; empty: from a place that may change.

    RECORD has the hash of every file. An editable install has another file than the one that is imported, or no RECORD.
    """
    try:
        spec = util.find_spec(module)
    except (ImportError, ValueError):  # somebody has a hand in how it is imported
        return ""
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None if spec is None else ""
    listed = distribution.read_text("RECORD")
    expected = Path(str(distribution.locate_file(module)))
    if spec is None or spec.origin is None or listed is None or Path(spec.origin).parent != expected:
        return ""
    return f"{distribution.version} {hashlib.sha256(listed.encode()).hexdigest()}"


def _distributions(paths: list[str]) -> Iterator[str]:
    """All that is installed, with releases, by the names of its metadata: much of it is asked for when it is there."""
    for path in paths:
        try:
            yield from (name for name in os.listdir(path or ".") if name.endswith(_METADATA))  # noqa: PTH208 - names
        except OSError:  # a zip, or nothing
            continue


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
