"""The facts of a release, by its version."""

from __future__ import annotations

import pytest

from memdoctor.probes.simulated.releases import RELEASES, CudnnHeads, release_of


@pytest.mark.parametrize(
    ("version", "row"),
    [
        ("2.11.0", (2, 11)), ("2.12.1+cu130", (2, 12)), ("2.13.0+cpu", (2, 13)), ("2.14.1", (2, 14)),
        ("2.15.0a0+git5c48869", (2, 14)), ("3.0.0", (2, 14)), ("2.10.0", (2, 11)),
    ],
)  # fmt: skip
def test_a_version_finds_its_row_or_the_nearest(version: str, row: tuple[int, int]) -> None:
    assert release_of(version) is RELEASES[row]


def test_what_changed_when() -> None:
    rows = RELEASES.values()
    assert [row.cudnn_dropout_in_sixteenths for row in rows] == [False, True, True, True]
    assert [row.cudnn_heads for row in rows] == [CudnnHeads.HOPPER] * 3 + [CudnnHeads.LISTED]
    assert [row.cublas_32_mib for row in rows] == [(9,), (9, 10, 12), (9, 10, 12), (9, 10, 11, 12)]
    assert [row.efficient_takes_groups for row in rows] == [False, False, False, True]
