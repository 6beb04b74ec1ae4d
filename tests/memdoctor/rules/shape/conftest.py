"""What two small batches are said to predict."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memdoctor.records import PredictionCheck, Scaling


@pytest.fixture
def scaling() -> Callable[..., Scaling]:
    """A prediction of the largest batch that fits, with the bytes of a sample and of all else."""

    def make(*, largest: int | None, sample: int = 1, fixed: int = 0, predicted: int = 0) -> Scaling:
        check = PredictionCheck(
            batch_size=1, predicted_allocated_bytes=predicted, probed_allocated_bytes=0, difference_bytes=0,
            predicted_reserved_bytes=None, probed_reserved_bytes=0,
        )  # fmt: skip
        return Scaling(
            method="event by event", from_batches=(1, 2), per_sample_bytes=sample, fixed_bytes=fixed, phases=(),
            predicted=(), largest_batch_that_fits=largest, check=check,
        )  # fmt: skip

    return make
