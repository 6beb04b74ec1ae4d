"""The simulated GPU is registered once, and a PyTorch that cannot host it is named."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import backend_registration

from memdoctor.errors import MeasureError
from memdoctor.probes.simulated.device import NAME, TESTED_TORCH, register


def test_the_device_is_registered_once() -> None:
    assert register() is register()
    assert register() == torch.device(NAME, 0)


def test_a_tensor_on_it_is_fake_and_has_no_data() -> None:
    device = register()
    with FakeTensorMode():
        tensor = torch.empty(1 << 20, 1 << 20, device=device)  # 4 TiB
        assert isinstance(tensor, FakeTensor)
        assert tensor.device == device
        assert tensor.untyped_storage().nbytes() == 4 << 40


def test_it_is_not_available_so_that_constants_are_made_on_the_host() -> None:
    register()
    module = getattr(torch, NAME)
    assert not module.is_available()
    assert module.device_count() == 1
    assert module.get_amp_supported_dtype() == [torch.float16, torch.bfloat16]


@pytest.mark.parametrize("error", [AttributeError("gone"), TypeError("changed"), RuntimeError("renamed twice")])
def test_a_pytorch_that_cannot_host_it_is_named_with_those_that_can(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(**settings: object) -> None:
        raise error

    monkeypatch.setattr(backend_registration, "_setup_privateuseone_for_python_backend", refuse)
    with pytest.raises(MeasureError) as refused:
        register.__wrapped__()
    assert torch.__version__ in refused.value.what
    assert str(error) in refused.value.why
    assert TESTED_TORCH in refused.value.hint


def test_a_pytorch_without_the_interface_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(backend_registration, "_setup_privateuseone_for_python_backend")
    with pytest.raises(MeasureError, match="cannot host a simulated GPU"):
        register.__wrapped__()
