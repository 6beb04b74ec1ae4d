"""A card for other processes to find, described as JSON in CUDA_STANDIN; its allocator is the stand-in.

``total``, ``context`` and ``others`` are bytes; ``name`` and ``capability`` are CUDA's. ``fault`` names what goes wrong
once ``after`` blocks were allocated: ``kill``, ``hang``, ``exit`` or ``cuda`` (an error as of a kernel).
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

from cuda_standin import CudaStandIn

from memdoctor.probes.card import Card
from memdoctor.probes.nvml import GpuProcess, MemoryReading
from memdoctor.probes.seen import ProcessState
from memdoctor.probes.simulated.allocator.blocks import Block
from memdoctor.probes.simulated.allocator.conf import parse_alloc_conf

MACHINE: dict[str, Any] = json.loads(os.environ.get("CUDA_STANDIN", "{}"))
ALLOCATORS: list[CudaStandIn] = []


class Faulty(CudaStandIn):
    """Goes wrong in the middle of a step."""

    def _allocate(self, nbytes: int) -> Block:
        if len(self.given) >= MACHINE.get("after", 200):
            match MACHINE.get("fault"):
                case "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "hang":
                    time.sleep(1000)
                case "exit":
                    os._exit(3)
                case "cuda":
                    raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return super()._allocate(nbytes)


def allocator() -> CudaStandIn:
    capacity = MACHINE["total"] - MACHINE["context"] - MACHINE["others"]
    conf = os.environ.get("PYTORCH_ALLOC_CONF", "")
    ALLOCATORS.append(Faulty(parse_alloc_conf(conf), capacity))
    return ALLOCATORS[-1]


def open_card() -> Card:
    total, context, others = (MACHINE[name] for name in ("total", "context", "others"))

    def read() -> MemoryReading:
        own = ALLOCATORS[-1].caching.reserved + context
        return MemoryReading(total, own + others, own, (GpuProcess(7, "python", others, ProcessState.ALIVE),))

    before = MemoryReading(total, others, None, ())
    return Card(
        MACHINE["name"], total, MACHINE["capability"], "GPU-1", "13.0", "580.1", before, read, lambda: read().used_bytes
    )


def install(probe: Any) -> None:
    """In the place of what the probe asks CUDA for."""
    probe.CudaAllocator = allocator
    probe.open_card = open_card
