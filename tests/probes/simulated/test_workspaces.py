"""The workspaces that cuBLAS keeps, by card, release and configuration."""

from __future__ import annotations

import pytest

from memdoctor.probes.simulated.releases import RELEASES
from memdoctor.probes.simulated.workspaces import cublas_workspace_bytes, cublaslt_workspace_bytes

SMALL = 8_519_680  # 2 x 4096 KiB and 8 x 16 KiB
LARGE = 33_554_432
T, F = True, False


@pytest.mark.parametrize(
    ("capability", "large"),
    [
        # torch 2.11, 2.12, 2.13, 2.14
        ((7, 0), (F, F, F, F)),
        ((7, 5), (F, F, F, F)),
        ((8, 0), (F, F, F, F)),
        ((8, 9), (F, F, F, F)),
        ((9, 0), (T, T, T, T)),
        ((10, 0), (F, T, T, T)),
        ((10, 3), (F, T, T, T)),
        ((11, 0), (F, F, F, T)),
        ((12, 0), (F, T, T, T)),
    ],
)
def test_32_mib_by_card_and_release(capability: tuple[int, int], large: tuple[bool, ...]) -> None:
    found = [cublas_workspace_bytes(capability, release=release) for release in RELEASES.values()]
    assert found == [LARGE if wide else SMALL for wide in large]


@pytest.mark.parametrize(
    ("config", "nbytes"),
    [
        (":4096:2:16:8", SMALL),
        (":4096:8", 8 * 4096 * 1024),
        (":16:8", 8 * 16 * 1024),
        (":0:0", 0),
        ("4096", LARGE),  # not a pair: the default
        ("", LARGE),
    ],
)
def test_a_configuration_of_the_users_own(config: str, nbytes: int) -> None:
    assert cublas_workspace_bytes((9, 0), config) == nbytes


def test_cublaslt_shares_cublas_workspace_unless_told_not_to() -> None:
    assert cublaslt_workspace_bytes() == 0
    assert cublaslt_workspace_bytes(unified=False) == 1024 * 1024
