"""What all tests of probes share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def simulated_device_before_any_backward() -> None:
    """The autograd engine counts devices at its first backward: a device registered after that has no thread."""
    from memdoctor.probes.simulated.device import register

    register()
