"""A device that looks to PyTorch like a GPU: the one place that touches the experimental PrivateUse1 API.

The device has no memory and no kernels: tensors on it are fake (shapes without data), and PyTorch's own shape
functions answer every operator. Composite operators, autograd, autocast and the optimizers take the paths that
they take on a GPU. Once registered, a real CUDA backward in the same process fails: hence a worker process.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar

import torch

from memdoctor.errors import MeasureError

NAME = "simgpu"
TESTED_TORCH = "2.11 to 2.14"


class _Backend:
    """What PyTorch asks a device module. Not available, or ``torch.tensor`` would try a real allocation."""

    amp_dtypes: ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16]

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return False

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        pass

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return self.amp_dtypes


@cache
def register() -> torch.device:
    """Register the device with this process's PyTorch, once.

    Raises:
        MeasureError: this release of torch has no such API, or it changed.
    """
    try:
        from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

        _setup_privateuseone_for_python_backend(rename=NAME, backend_module=_Backend())
    except (ImportError, AttributeError, RuntimeError, TypeError) as error:
        raise MeasureError(
            f"torch {torch.__version__} cannot host a simulated GPU",
            why=f"registering a PrivateUse1 device failed: {error}",
            hint=f"use a tested release of torch: {TESTED_TORCH}",
        ) from error
    _treat_fake_tensors_as_tensors()
    return torch.device(NAME, 0)


def _treat_fake_tensors_as_tensors() -> None:
    """Optimizers and clipping choose their fused and foreach paths by exact type; a fake tensor is a subclass.

    A copy of a fake tensor belongs to the same mode, where ``deepcopy`` would copy the mode as well.
    """
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    for types in (optimizer._foreach_supported_types, _foreach_utils._foreach_supported_types):
        if FakeTensor not in types:
            types.append(FakeTensor)
    FakeTensorMode.__deepcopy__ = lambda mode, memo: mode  # type: ignore[attr-defined]
