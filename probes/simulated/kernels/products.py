"""What a matrix product takes: copies of operands that cuBLAS cannot read.

``prepare_matrix_for_cublas`` and ``prepare_batch_matrix_for_cublas`` (``aten/src/ATen/native/cuda/Blas.cpp``) clone a
matrix whose strides are neither those of rows nor of columns. The gradient of a bare ``sum()`` is one: expanded from a
single number, with strides of 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from memdoctor.probes.scratch import Piece, Scratch

NOTHING = Scratch()


def operand_copy_bytes(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> int:
    """Bytes of the copy of one operand, whose last two dimensions are a matrix; 0 where it is read as it is."""
    rows, columns = shape[-2:]
    down, across = strides[-2:]
    by_columns = (down == 1 or rows == 1) and (across >= max(1, rows) or columns == 1)
    by_rows = (across == 1 or columns == 1) and (down >= max(1, columns) or rows == 1)
    return 0 if by_columns or by_rows else prod(shape) * itemsize


def product_scratch(copies: Sequence[int]) -> Scratch:
    """The copies of all operands, alive until the product is done."""
    pieces = tuple(Piece("operand in an order that cuBLAS reads", nbytes) for nbytes in copies if nbytes)
    return Scratch(before=(pieces,)) if pieces else NOTHING
