"""AdamW of torchao with 8-bit and 4-bit state on a simulated GPU.

Its step is compiled for each shape. What stands in for the compiled code is what Inductor writes for it, read off the
code that it generates (torch 2.14.1, torchao 0.18.0, for compute capabilities 7.5, 8.0 and 9.0 and the shapes of
BERT's parameters): with 8 bits one kernel, in place, that takes no memory; with 4 bits a kernel that leaves the new
moments and their codes in memory before others pack them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from memdoctor.probes.simulated.optimizers.replacement import Replacement


class _Torch(SimpleNamespace):
    """The module torch with a ``compile`` that compiles nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def standins(device: torch.device) -> list[Replacement]:
    """Steps that are not compiled; maps of quantisation are computed here, where tensors have values."""
    from torchao.optim import adam, subclass_4bit, subclass_8bit

    with _disable_current_modes():
        for module in (subclass_4bit, subclass_8bit):  # cached for good
            module.get_qmap_signed()
            module.get_qmap_unsigned()
    return [
        Replacement(adam, "torch", _Torch(compile=lambda step, **_: step)),
        Replacement(adam, "single_param_adam", _step),
    ]


def _step(p: torch.Tensor, grad: torch.Tensor, step: Any, *moments: Any, **_: Any) -> None:
    """Both moments of one parameter are worked on at once."""
    from torchao.optim.subclass_4bit import OptimState4bit

    buffers = [_unpacked(moment) for moment in moments if isinstance(moment, OptimState4bit)]
    del buffers


def _unpacked(moment: Any) -> tuple[torch.Tensor, ...]:
    """Scales and scaled values in fp32, and codes as int64, before they are packed."""
    count = 2 * moment.codes.numel()
    new = moment.codes.new_empty
    return (
        new(moment.scale.numel(), dtype=torch.float32),
        new(count, dtype=torch.float32),
        new(count, dtype=torch.int64),
    )
