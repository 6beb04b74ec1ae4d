"""Operands of matrix products that cuBLAS cannot read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from memdoctor.probes.simulated.kernels.products import operand_copy_bytes

F32 = 4
A = torch.empty(6, 8)


@pytest.mark.parametrize(
    ("operand", "copied"),
    [
        pytest.param(A, 0, id="rows"),
        pytest.param(A.t(), 0, id="columns"),
        pytest.param(A[:, :5], 0, id="rows that lie apart"),
        pytest.param(A[:, ::2], 6 * 4 * F32, id="every other column"),
        pytest.param(torch.empty(()).expand(6, 8), 6 * 8 * F32, id="one number everywhere"),
        pytest.param(torch.empty(8).expand(6, 8), 6 * 8 * F32, id="one row for all"),
        pytest.param(torch.empty(6, 1).expand(6, 8), 6 * 8 * F32, id="one column for all"),
        pytest.param(torch.empty(1, 8)[:, ::2], 0, id="a single row with gaps: a column of distance 2"),
        pytest.param(torch.empty(3, 6, 8).transpose(1, 2), 0, id="a batch of columns"),
        pytest.param(torch.empty(()).expand(3, 6, 8), 3 * 6 * 8 * F32, id="a batch of one number"),
    ],
)
def test_what_is_neither_rows_nor_columns_is_copied(operand: torch.Tensor, copied: int) -> None:
    assert operand_copy_bytes(operand.shape, operand.stride(), operand.element_size()) == copied


def test_the_gradient_of_a_bare_sum_is_copied_for_each_product_of_backward(train: Callable[..., Any]) -> None:
    rows, width, out = 4, 6, 3

    class Summed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(width, width), nn.Linear(width, out, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x)).sum()

    run = train(Summed, {"x": torch.zeros(rows, width)})
    copies = [block for block in run.born("backward") if "operand" in block.op]
    assert [block.bytes for block in copies] == [rows * out * F32] * 2  # for the weight's gradient and the input's
    alive = {block.op for block in run.alive(run.end("backward"))}
    assert not any("operand" in op for op in alive)
