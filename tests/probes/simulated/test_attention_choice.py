"""Which attention kernel CUDA picks, as PyTorch 2.14 decides it (``select_sdp_backend``), and what becomes of masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from memdoctor.probes.simulated.attention import Kernel, choose_kernel
from memdoctor.records import Precision

BERT_DROPOUT, NO_DROPOUT = 0.1, 0.0
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

F, E, C, M = Kernel.FLASH, Kernel.EFFICIENT, Kernel.CUDNN, Kernel.MATH


def capability_of(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


def chosen(capability: str, dtype: str, *, padded: bool, head: int = 64, dropout: float = BERT_DROPOUT) -> Kernel:
    return choose_kernel(DTYPES[dtype], (head, head), padded, capability_of(capability), dropout=dropout)


COLUMNS = [(dtype, padded) for dtype in ("fp32", "fp16", "bf16") for padded in (False, True)]


@pytest.mark.parametrize(
    ("capability", "kernels"),
    [
        #         fp32        fp16        bf16, each without and with padding
        ("3.7", [(M, M), (M, M), (M, M)]),
        ("6.1", [(E, E), (E, E), (M, M)]),
        ("7.0", [(E, E), (E, E), (M, M)]),
        ("7.5", [(E, E), (E, E), (M, M)]),
        ("8.0", [(E, E), (F, E), (F, E)]),
        ("8.6", [(E, E), (F, E), (F, E)]),
        ("8.9", [(E, E), (F, E), (F, E)]),
        ("9.0", [(E, E), (F, E), (F, E)]),  # not cuDNN: it takes no dropout that is no multiple of 1/16
        ("10.0", [(E, E), (F, E), (F, E)]),
        ("12.0", [(E, E), (F, E), (F, E)]),
    ],
)
def test_kernel_for_bert_by_card(capability: str, kernels: list[tuple[Kernel, Kernel]]) -> None:
    expected = [kernel for pair in kernels for kernel in pair]
    assert [chosen(capability, dtype, padded=padded) for dtype, padded in COLUMNS] == expected


@pytest.mark.parametrize(
    ("capability", "kernels"),
    [
        ("8.0", [(E, E), (F, E), (F, E)]),
        ("8.9", [(E, E), (F, E), (F, E)]),
        ("9.0", [(E, E), (C, C), (C, C)]),
        ("10.0", [(E, E), (C, C), (C, C)]),
        ("10.3", [(E, E), (C, C), (C, C)]),
        ("12.0", [(E, E), (F, E), (F, E)]),
    ],
)
def test_kernel_without_dropout_by_card(capability: str, kernels: list[tuple[Kernel, Kernel]]) -> None:
    """ModernBERT and ALBERT's second version have no dropout in attention: Hopper and B200 then prefer cuDNN."""
    expected = [kernel for pair in kernels for kernel in pair]
    assert [chosen(capability, dtype, padded=padded, dropout=NO_DROPOUT) for dtype, padded in COLUMNS] == expected


HEADS = (64, 80, 96, 128, 192, 256, 320)


@pytest.mark.parametrize(
    ("capability", "dropout", "kernels"),
    [
        ("7.5", BERT_DROPOUT, (E, E, E, E, E, E, E)),
        ("8.0", BERT_DROPOUT, (F, F, F, F, F, F, E)),  # flash ends at 256
        ("8.6", BERT_DROPOUT, (F, F, F, F, F, E, E)),  # its backward with dropout does not fit a consumer card
        ("8.9", BERT_DROPOUT, (F, F, F, F, F, E, E)),
        ("12.0", BERT_DROPOUT, (F, F, F, F, F, E, E)),
        ("8.6", NO_DROPOUT, (F, F, F, F, F, F, E)),
        ("9.0", BERT_DROPOUT, (F, F, F, F, F, F, E)),
    ],
)
def test_kernel_by_head_size_in_fp16(capability: str, dropout: float, kernels: tuple[Kernel, ...]) -> None:
    found = tuple(chosen(capability, "fp16", padded=False, head=head, dropout=dropout) for head in HEADS)
    assert found == kernels


@pytest.mark.parametrize("head", HEADS)
def test_with_padding_every_head_size_is_memory_efficient(head: int) -> None:
    assert chosen("8.0", "fp16", padded=True, head=head) is E
    assert chosen("8.0", "fp32", padded=True, head=head) is E


@pytest.mark.parametrize("head", [200, 224])
def test_consumer_cards_train_no_head_between_192_and_224_with_flash(head: int) -> None:
    for dropout in (NO_DROPOUT, BERT_DROPOUT):
        assert chosen("8.6", "bf16", padded=False, head=head, dropout=dropout) is E
        assert chosen("8.0", "bf16", padded=False, head=head, dropout=dropout) is F


@pytest.mark.parametrize(
    ("capability", "dtype", "padded", "kernel"),
    [
        ("8.0", "fp16", False, F),  # flash pads it to 24
        ("8.0", "fp16", True, M),  # memory-efficient attention multiplies fp16 in eights
        ("8.0", "fp32", False, E),  # and fp32 in fours
        ("7.5", "fp16", False, M),
        ("7.5", "fp32", False, E),  # without tensor cores any size will do
        ("6.1", "fp16", False, E),
    ],
)
def test_a_head_of_20_is_no_multiple_of_8(capability: str, dtype: str, padded: bool, kernel: Kernel) -> None:
    assert chosen(capability, dtype, padded=padded, head=20) is kernel


def test_a_head_of_18_suits_no_fp32_tensor_core() -> None:
    assert chosen("8.0", "fp32", padded=False, head=18) is M
    assert chosen("7.5", "fp32", padded=False, head=18) is E


def test_flash_wants_values_as_wide_as_keys() -> None:
    assert choose_kernel(torch.float16, (64, 32), False, (8, 0), dropout=BERT_DROPOUT) is E


def test_double_precision_is_written_out() -> None:
    assert choose_kernel(torch.float64, (64, 64), False, (8, 0), dropout=BERT_DROPOUT) is M


@pytest.mark.parametrize(
    ("capability", "settings", "kernel"),
    [
        ("7.5", {"precision": Precision.FP16}, "memory-efficient"),
        ("8.0", {"precision": Precision.BF16}, "flash"),
        ("8.0", {"precision": Precision.BF16, "padded": True}, "memory-efficient"),
        ("8.0", {"precision": Precision.FP32}, "memory-efficient"),
        ("7.5", {"precision": Precision.BF16}, "math"),
        ("9.0", {"precision": Precision.BF16}, "flash"),
        ("9.0", {"precision": Precision.BF16, "padded": True}, "memory-efficient"),
    ],
)
def test_an_examination_names_the_kernel_that_its_layers_ran(
    probe: Callable[..., Any], small_bert: Callable[..., Any], capability: str, settings: dict[str, Any], kernel: str
) -> None:
    config = small_bert(num_hidden_layers=1)
    examination = probe(config, capability=capability, steps=1, **settings)
    assert examination.provenance.attention_kernels == (kernel,)


# The mask

ROWS, HEADS_OF_TOY, SIZE = 2, 3, 8
WIDTH = HEADS_OF_TOY * SIZE


class Masked(nn.Module):
    """Self-attention with a mask ``[rows, 1, length, length]``."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        head = self.project(x).view(*x.shape[:2], HEADS_OF_TOY, SIZE).transpose(1, 2)
        attended = functional.scaled_dot_product_attention(head, head, head, attn_mask=mask, dropout_p=0.1)
        return {"loss": attended.sum()}


@pytest.fixture(scope="module")
def kept_of_mask(train: Callable[..., Any]) -> Callable[[int], int]:
    """Bytes of activations beside the projected input, the output and the log-sum-exp: what is kept of a mask."""

    def kept(length: int, dtype: torch.dtype = torch.bool) -> int:
        mask = torch.ones(ROWS, 1, length, length, dtype=dtype)
        run = train(Masked, {"x": torch.zeros(ROWS, length, WIDTH), "mask": mask})
        log_sum_exp = ROWS * HEADS_OF_TOY * (length + -length % 32) * 4
        nbytes: int = run.held(run.end("forward"))["activations"]
        return nbytes - 2 * ROWS * length * WIDTH * 4 - log_sum_exp

    return kept


@pytest.mark.parametrize("length", [8, 16, 24, 40, 64])
def test_a_boolean_mask_becomes_a_float_mask_that_backward_keeps(kept_of_mask: Callable[..., int], length: int) -> None:
    assert kept_of_mask(length) == ROWS * length * length * 4  # one for all heads


@pytest.mark.parametrize(("length", "padded"), [(5, 8), (12, 16), (20, 24), (100, 104)])
def test_rows_of_a_mask_are_padded_to_a_multiple_of_8_elements(
    kept_of_mask: Callable[..., int], length: int, padded: int
) -> None:
    assert kept_of_mask(length) == ROWS * length * padded * 4


def test_a_float_mask_is_kept_as_it_is(kept_of_mask: Callable[..., int]) -> None:
    assert kept_of_mask(16, torch.float32) == 0  # it is an input of the model
