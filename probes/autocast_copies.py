"""Which copies of weights autocast keeps on a real device: seen where they are made."""

from __future__ import annotations

from typing import Any

import torch

from memdoctor.probes.tracker import Mark, Tracker

_HALF = (torch.float16, torch.bfloat16)


def is_autocast_copy(source: torch.Tensor, copy: torch.Tensor) -> bool:
    """Whether autocast keeps ``copy`` in its cache (``cached_cast`` in ``autocast_mode.cpp``): that of an fp32 weight.

    Its cache is for leaves that require a gradient and are no views. Weak case: a model that casts such a weight
    itself, under autocast and to the same type, makes a copy that is counted here too.
    """
    return (
        source.dtype is torch.float32
        and copy.dtype in _HALF
        and source.is_leaf
        and source.requires_grad
        and source._base is None
        and torch.is_autocast_cache_enabled()
        and copy.dtype is torch.get_autocast_dtype(copy.device.type)
    )


class CopyMarkingTracker(Tracker):
    """A tracker for a real device, where autocast is the one of torch: its copies of weights are told from others."""

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = super()._run(func, args, kwargs)
        if func is torch.ops.aten._to_copy.default and is_autocast_copy(args[0], out):
            self.mark(out, Mark.AUTOCAST_COPY)
        return out
