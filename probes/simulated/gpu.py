"""What is registered with this process's PyTorch to make it see a GPU: once, for every probe."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import transformers

from memdoctor.probes.simulated import composites
from memdoctor.probes.simulated.attention import SimulatedAttention
from memdoctor.probes.simulated.autocast import SimulatedAutocast
from memdoctor.probes.simulated.device import register


@dataclass(slots=True)
class Gpu:
    """The device, and what acts for it."""

    device: torch.device
    attention: SimulatedAttention
    autocast: SimulatedAutocast
    composites: Any


@cache
def registered() -> Gpu:
    """Register it, if that has not been done.

    Raises:
        MeasureError: this release of torch has no such API, or it changed.
    """
    torch_device = register()
    attention = SimulatedAttention()
    attention.install("AutogradPrivateUse1")
    autocast = SimulatedAutocast(torch_device.type)
    autocast.install()
    # transformers passes over data-dependent shortcuts when it sees a fake tensor; a real run takes them.
    transformers.utils.import_utils.is_fake_tensor = lambda x: False
    return Gpu(torch_device, attention, autocast, composites.install("AutogradPrivateUse1"))
