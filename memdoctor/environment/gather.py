"""What is there: versions, the machine, its GPUs; gathered without importing torch."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from memdoctor import __version__
from memdoctor.own_gpu import remembered_context
from memdoctor.probes.cached import Usage, usage
from memdoctor.probes.context import Context
from memdoctor.probes.nvml import NoGpu, Survey, Unknown, survey
from memdoctor.probes.torch_build import TorchBuild, torch_build
from memdoctor.probes.visibility import Visible, as_cuda_numbers

PACKAGES = (
    "torch", "transformers", "huggingface-hub", "accelerate", "pydantic", "click", "rich", "nvidia-ml-py", "pynvml",
    "numpy",
)  # fmt: skip
VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_PCI_DEVICES = Path("/sys/bus/pci/devices")
_NVIDIA = "0x10de"  # the vendor's number in the PCI ID database
_DISPLAY = "0x03"  # the PCI class of display controllers; 3D controllers, as GPUs of servers are, are among them


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Everything that ``memdoctor env`` tells; ``None`` is not installed, or not set."""

    memdoctor: str
    python: str
    platform: str
    cpu_cores: int | None
    host_memory_bytes: int
    packages: Mapping[str, str | None]
    variables: Mapping[str, str | None]
    torch: TorchBuild | None
    gpus: Survey | NoGpu
    visible: Visible | None
    """The cards by CUDA's numbers; ``None`` without cards."""
    contexts: Mapping[str, Context]
    """Contexts that were measured here, by the UUIDs of the cards that they are good for."""
    probe_cache: Usage | None
    """Where simulated probes are kept; ``None``: nowhere."""
    cards_on_bus: int
    """NVIDIA cards that the system finds on the PCI bus, with a driver or without; 0 where it cannot be told."""


def gather(environ: Mapping[str, str]) -> Environment:
    """Look at this machine, in an environment with these variables."""
    import psutil

    seen = survey()
    cards = () if isinstance(seen, NoGpu) else seen.gpus
    instances = [part for card in cards if not isinstance(card.mig, Unknown) for part in card.mig.instances]
    contexts = {card.uuid: remembered_context(card, environ) for card in (*cards, *instances)}
    return Environment(
        memdoctor=__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        cpu_cores=os.cpu_count(),
        host_memory_bytes=psutil.virtual_memory().total,
        packages={name: _version(name) for name in PACKAGES},
        variables={name: environ.get(name) for name in VARIABLES},
        torch=torch_build(),
        gpus=seen,
        visible=as_cuda_numbers(seen, environ) if isinstance(seen, Survey) and cards else None,
        contexts={uuid: context for uuid, context in contexts.items() if context is not None},
        probe_cache=usage(environ),
        cards_on_bus=cards_on_bus(_PCI_DEVICES),
    )


def cards_on_bus(devices: Path) -> int:
    """How many NVIDIA GPUs the system lists on the PCI bus; 0 where there is no such list."""
    try:
        return sum(_is_nvidia_gpu(device) for device in devices.iterdir())
    except OSError:
        return 0


def _is_nvidia_gpu(device: Path) -> bool:
    try:
        vendor, kind = ((device / name).read_text(encoding="ascii") for name in ("vendor", "class"))
    except (OSError, ValueError):
        return False
    return vendor.strip() == _NVIDIA and kind.startswith(_DISPLAY)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
