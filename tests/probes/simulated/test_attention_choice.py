"""Which attention kernel CUDA picks (``select_sdp_backend`` of PyTorch 2.11 to 2.14), and what becomes of masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from memdoctor.probes.simulated.attention import Kernel, _aligned, choose_kernel
from memdoctor.probes.simulated.releases import INSTALLED, RELEASES
from memdoctor.records import Precision

BERT_DROPOUT, NO_DROPOUT = 0.1, 0.0
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

CUDNN_WITH_DROPOUT = not INSTALLED.cudnn_dropout_in_sixteenths  # torch 2.11
F, E, C, M = Kernel.FLASH, Kernel.EFFICIENT, Kernel.CUDNN, Kernel.MATH


def capability_of(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


def chosen(
    capability: str, dtype: str, *, padded: bool, head: int = 64, dropout: float = BERT_DROPOUT, **settings: Any
) -> Kernel:
    """As torch 2.13 chooses, unless another ``release`` is given."""
    settings.setdefault("release", RELEASES[2, 13])
    return choose_kernel(DTYPES[dtype], (head, head), padded, capability_of(capability), dropout=dropout, **settings)


# BERT: heads of 64, dropout of 0.1 in attention. On the left without, on the right with padding in the batch.
BERT = [
    #         fp32           fp16           bf16
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
]
COLUMNS = [(dtype, padded) for dtype in ("fp32", "fp16", "bf16") for padded in (False, True)]
CELLS = [
    (capability, *column, kernel)
    for capability, pairs in BERT
    for column, kernel in zip(COLUMNS, (kernel for pair in pairs for kernel in pair), strict=True)
]


@pytest.mark.parametrize("version", [(2, 12), (2, 13), (2, 14)])
@pytest.mark.parametrize(("capability", "dtype", "padded", "kernel"), CELLS)
def test_kernel_for_bert_by_card(
    version: tuple[int, int], capability: str, dtype: str, padded: bool, kernel: Kernel
) -> None:
    assert chosen(capability, dtype, padded=padded, release=RELEASES[version]) is kernel


@pytest.mark.parametrize(("capability", "dtype", "padded", "kernel"), CELLS)
def test_torch_2_11_takes_cudnn_on_hopper_and_blackwell_whatever_the_dropout(
    capability: str, dtype: str, padded: bool, kernel: Kernel
) -> None:
    on_cudnn = capability in ("9.0", "10.0") and dtype != "fp32"
    found = chosen(capability, dtype, padded=padded, release=RELEASES[2, 11])
    assert found is (C if on_cudnn else kernel)


@pytest.mark.parametrize(
    ("capability", "kernels"),
    [
        ("7.5", [(E, E), (E, E), (M, M)]),
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


@pytest.mark.parametrize(("dropout", "kernel"), [(0.0, C), (0.0625, C), (0.125, C), (0.1, F), (0.2, F)])
def test_cudnn_knows_sixteenths_of_dropout(dropout: float, kernel: Kernel) -> None:
    assert chosen("9.0", "bf16", padded=False, dropout=dropout) is kernel


@pytest.mark.parametrize(
    ("capability", "dropout", "lengths", "kernel"),
    [
        ("8.0", BERT_DROPOUT, (128, 128), F),
        ("8.0", BERT_DROPOUT, (64, 128), E),  # flash aligns the mask to the last key, the operator to the first
        ("7.5", BERT_DROPOUT, (64, 128), E),
        ("9.0", NO_DROPOUT, (64, 128), C),
        ("9.0", NO_DROPOUT, (128, 1), F),  # cuDNN wants more than one key
        ("9.0", NO_DROPOUT, (1, 128), C),
        ("9.0", 0.125, (1, 128), F),  # and with dropout more than one query
    ],
)
def test_causal_attention_and_lengths(
    capability: str, dropout: float, lengths: tuple[int, int], kernel: Kernel
) -> None:
    causal = lengths[0] != 1 and lengths[1] != 1
    found = chosen(capability, "fp16", padded=False, dropout=dropout, lengths=lengths, causal=causal)
    assert found is kernel


@pytest.mark.parametrize(
    ("capability", "head", "kernels"),
    [
        # torch 2.11, 2.12, 2.13, 2.14; without dropout and padding
        ("9.0", (64, 64), (C, C, C, C)),
        ("9.0", (80, 80), (C, C, C, C)),
        ("9.0", (96, 96), (C, C, C, C)),
        ("9.0", (128, 128), (C, C, C, C)),
        ("9.0", (192, 192), (C, C, C, F)),
        ("9.0", (192, 128), (C, C, C, C)),
        ("9.0", (256, 256), (C, C, C, C)),
        ("10.0", (128, 128), (C, C, C, C)),
        ("10.0", (192, 192), (F, F, F, F)),
        ("10.0", (192, 128), (C, C, C, C)),
        ("10.0", (256, 256), (F, F, F, C)),
        ("9.0", (20, 20), (F, F, F, F)),  # no multiple of 8
        ("9.0", (320, 320), (E, E, E, E)),
    ],
)
def test_head_sizes_that_cudnn_trains_by_release(
    capability: str, head: tuple[int, int], kernels: tuple[Kernel, ...]
) -> None:
    found = tuple(
        choose_kernel(torch.float16, head, False, capability_of(capability), dropout=NO_DROPOUT, release=release)
        for release in RELEASES.values()
    )
    assert found == kernels


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


@pytest.mark.parametrize(
    ("capability", "dtype", "kernels"),
    [
        ("7.5", "fp32", (M, M, M, E)),
        ("8.0", "fp32", (M, M, M, E)),
        ("7.5", "fp16", (M, M, M, E)),
        ("8.0", "bf16", (F, F, F, F)),
        ("9.0", "fp16", (C, C, C, C)),
    ],
)
def test_queries_that_share_keys_by_release(capability: str, dtype: str, kernels: tuple[Kernel, ...]) -> None:
    found = tuple(
        chosen(capability, dtype, padded=False, dropout=NO_DROPOUT, grouped=True, release=release)
        for release in RELEASES.values()
    )
    assert found == kernels


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
        ("9.0", {"precision": Precision.BF16}, "cudnn" if CUDNN_WITH_DROPOUT else "flash"),
        ("9.0", {"precision": Precision.BF16, "padded": True}, "cudnn" if CUDNN_WITH_DROPOUT else "memory-efficient"),
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


def test_a_mask_of_one_row_for_all_queries_is_not_expanded_in_memory(train: Callable[..., Any]) -> None:
    def activations(mask: torch.Tensor) -> int:
        run = train(Masked, {"x": torch.zeros(ROWS, 16, WIDTH), "mask": mask})
        nbytes: int = run.held(run.end("forward"))["activations"]
        return nbytes

    wide = activations(torch.ones(ROWS, 1, 16, 16, dtype=torch.bool))
    assert wide - activations(torch.ones(ROWS, 1, 1, 16, dtype=torch.bool)) == ROWS * (16 - 1) * 16 * 4
    assert wide - activations(torch.ones(1, 1, 16, 16, dtype=torch.bool)) == (ROWS - 1) * 16 * 16 * 4


@pytest.mark.parametrize(
    ("make", "padded_to"),
    [
        pytest.param(lambda: torch.zeros(ROWS, 1, 16, 16), None, id="rows of 16"),
        pytest.param(lambda: torch.zeros(ROWS, 1, 16, 24)[..., :16], None, id="rows of 16 in a stride of 24"),
        pytest.param(lambda: torch.zeros(ROWS, 1, 16, 20)[..., :16], 24, id="rows of 16 in a stride of 20"),
        pytest.param(lambda: torch.zeros(ROWS, 1, 1, 16).expand(ROWS, 1, 16, 16), None, id="one row, expanded"),
        pytest.param(lambda: torch.zeros(ROWS, 1, 16, 1).expand(ROWS, 1, 16, 16), 24, id="one column, expanded"),
        pytest.param(lambda: torch.zeros(ROWS, 1, 16, 16).mT, 24, id="columns"),
    ],
)
def test_strides_decide_whether_a_float_mask_is_padded(make: Callable[[], torch.Tensor], padded_to: int | None) -> None:
    mask, query = make(), torch.empty(ROWS, HEADS_OF_TOY, 16, SIZE)
    aligned = _aligned(mask, query, query)
    assert aligned is not None
    assert aligned.shape == (ROWS, HEADS_OF_TOY, 16, 16)
    if padded_to is None:
        assert aligned.data_ptr() == mask.data_ptr()
    else:
        assert aligned.untyped_storage().nbytes() == ROWS * 16 * padded_to * 4  # one for all heads


def test_a_mask_that_learns_is_given_a_gradient_as_wide_as_16(train: Callable[..., Any]) -> None:
    class Biased(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(ROWS, HEADS_OF_TOY, 8, 8))

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": functional.scaled_dot_product_attention(x, x, x, attn_mask=self.bias).sum()}

    run = train(Biased, {"x": torch.zeros(ROWS, HEADS_OF_TOY, 8, SIZE)})
    backward = "aten._scaled_dot_product_efficient_attention_backward.default"
    made = [block.bytes for block in run.born("backward") if block.op == backward]
    attended = ROWS * HEADS_OF_TOY * 8 * SIZE * 4
    assert made == [attended] * 3 + [ROWS * HEADS_OF_TOY * 8 * 16 * 4]


def test_a_float_mask_is_kept_as_it_is(kept_of_mask: Callable[..., int]) -> None:
    assert kept_of_mask(16, torch.float32) == 0  # it is an input of the model
