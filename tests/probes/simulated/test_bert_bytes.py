"""BERT to the byte: its parameters, the optimizer's peak, and what one layer keeps, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.catalogue import find_model
from memdoctor.records import Attention, Precision, Task

F16, F32, I64, BOOL = 2, 4, 8, 1
CUBLAS = 8_519_680

# BERT-base
VOCABULARY, HIDDEN, LAYERS, INTERMEDIATE, POSITIONS, TYPES, LABELS = 30522, 768, 12, 3072, 512, 2, 2
NORM = 2 * HIDDEN
EMBEDDINGS = (VOCABULARY + POSITIONS + TYPES) * HIDDEN + NORM
LAYER_WEIGHTS = 4 * HIDDEN * HIDDEN + 2 * HIDDEN * INTERMEDIATE
LAYER_BIASES = 5 * HIDDEN + INTERMEDIATE
HEAD_WEIGHTS = HIDDEN * HIDDEN + HIDDEN * LABELS  # pooler and classifier
HEAD_BIASES = HIDDEN + LABELS
PARAMETERS = EMBEDDINGS + LAYERS * (LAYER_WEIGHTS + LAYER_BIASES + 2 * NORM) + HEAD_WEIGHTS + HEAD_BIASES
DECAYED = EMBEDDINGS - NORM + LAYERS * LAYER_WEIGHTS + HEAD_WEIGHTS  # the Trainer decays all but biases and norms
TENSORS = 5 + LAYERS * 16 + 4


@pytest.fixture(scope="module")
def bert_base(probed: Callable[..., Any]) -> Callable[..., Any]:
    """BERT-base at batch 1 and length 128 on a T4's compute capability."""
    entry = find_model("bert-base-uncased")
    assert entry is not None
    config = {"model_type": entry.model_type, **entry.config}
    return lambda **settings: probed(config, batch_size=1, seq_length=128, **settings)


def small_tensors(run: Any, instant: int) -> list[tuple[str, str, tuple[int, ...], int]]:
    """What is neither weight, gradient, state, nor temporary of a parameter's shape, in order of category and size."""
    shapes = {block.shape for block in run.alive(instant) if block.category.value == "parameters"}
    listed = [
        (block.category.value, block.dtype, block.shape, block.bytes)
        for block in run.alive(instant)
        if block.category.value in ("inputs_and_buffers", "workspace", "temporaries", "activations")
        and not (block.category.value == "temporaries" and block.shape in shapes)
    ]
    return sorted(listed)


# What is left on the GPU while the optimizer runs, beside weights, gradients and state.
LEFT_AT_THE_OPTIMIZER = [
    ("inputs_and_buffers", "int64", (1,), 1 * I64),  # the label
    ("inputs_and_buffers", "int64", (1, 128), 128 * I64),  # token ids
    ("inputs_and_buffers", "int64", (1, 128), 128 * I64),  # token type ids
    ("inputs_and_buffers", "int64", (1, 128), 128 * I64),  # attention mask
    ("inputs_and_buffers", "int64", (1, 512), 512 * I64),  # the buffer position_ids
    ("inputs_and_buffers", "int64", (1, 512), 512 * I64),  # the buffer token_type_ids
    ("temporaries", "float32", (), F32),  # the running loss
    ("temporaries", "float32", (), F32),  # the loss of this step
    ("temporaries", "float32", (), F32),  # the number of labels, for which BERT's loss is asked
    ("temporaries", "float32", (), F32),  # the norm of the gradients, for the log
    ("workspace", "uint8", (CUBLAS,), CUBLAS),
    ("workspace", "uint8", (CUBLAS,), CUBLAS),
]
LEFT_BYTES = sum(nbytes for *_, nbytes in LEFT_AT_THE_OPTIMIZER)


def test_bert_base_has_109_483_778_parameters(bert_base: Callable[..., Any]) -> None:
    assert PARAMETERS == 109_483_778
    run = bert_base(optimizer="adamw_torch")
    assert run.held(run.last())["parameters"] == 109_483_778 * F32
    weights = [block for block in run.alive(run.last()) if block.category.value == "parameters"]
    assert len(weights) == TENSORS == 201


def test_with_foreach_the_optimizer_step_is_the_peak_at_5_times_the_weights(bert_base: Callable[..., Any]) -> None:
    run = bert_base(optimizer="adamw_torch")
    peak = run.peak("optimizer", step=2)
    held, weights = run.held(peak), PARAMETERS * F32
    assert held["parameters"] == held["gradients"] == weights
    assert held["optimizer_state"] == 2 * weights
    assert small_tensors(run, peak) == LEFT_AT_THE_OPTIMIZER
    # The root of the second moment of the decayed group, all at once.
    in_use = run.timeline.in_use()
    assert in_use[peak] == 4 * weights + DECAYED * F32 + LEFT_BYTES == 2_206_237_752
    assert in_use[peak] == max(in_use)
    assert round(in_use[peak] / weights, 1) == 5.0


def test_with_fused_the_optimizer_step_holds_4_times_the_weights(bert_base: Callable[..., Any]) -> None:
    run = bert_base(optimizer="adamw_torch_fused")
    peak = run.peak("optimizer", step=2)
    held, weights = run.held(peak), PARAMETERS * F32
    assert held["parameters"] == held["gradients"] == weights
    assert held["optimizer_state"] == 2 * weights + TENSORS * F32  # a step count for each tensor, on the GPU
    assert small_tensors(run, peak) == LEFT_AT_THE_OPTIMIZER
    assert run.timeline.in_use()[peak] == 4 * weights + TENSORS * F32 + LEFT_BYTES == 1_768_791_900
    assert round(run.timeline.in_use()[peak] / weights, 1) == 4.0


def test_the_first_step_has_no_state_before_its_optimizer(bert_base: Callable[..., Any]) -> None:
    run = bert_base(optimizer="adamw_torch")
    states = [run.held(run.end("backward", step=step))["optimizer_state"] for step in (1, 2)]
    assert states == [0, 2 * PARAMETERS * F32]


# What one layer keeps: the difference between two layers and one.

BATCH, LENGTH, WIDTH, HEADS, INNER = 3, 48, 64, 4, 256
TOKENS = BATCH * LENGTH
STATE = TOKENS * WIDTH  # elements of one hidden state
SCORES = BATCH * HEADS * LENGTH * LENGTH
LOG_SUM_EXP = BATCH * HEADS * 64 * F32  # memory-efficient attention rounds the length up to 32
NORM_STATISTICS = 2 * TOKENS * F32  # mean and 1/deviation of each token


@pytest.fixture(scope="module")
def a_layer(probed: Callable[..., Any], small_bert: Callable[..., Any]) -> Callable[..., int]:
    """Bytes of activations at the end of forward that one more layer adds."""

    def difference(**settings: Any) -> int:
        def held(layers: int) -> int:
            config = small_bert(num_hidden_layers=layers)
            run = probed(config, batch_size=BATCH, seq_length=LENGTH, steps=1, **settings)
            nbytes: int = run.held(run.end("forward"))["activations"]
            return nbytes

        return held(2) - held(1)

    return difference


def test_a_layer_in_fp32_with_fused_attention(a_layer: Callable[..., int]) -> None:
    attention = 4 * STATE * F32 + LOG_SUM_EXP  # query, key, value, and the output that the next product keeps as well
    after_attention = STATE * BOOL + 2 * STATE * F32 + NORM_STATISTICS  # dropout's mask; the norm's input and output
    feed_forward = 2 * TOKENS * INNER * F32  # GELU's input and output
    after_feed_forward = STATE * BOOL + 2 * STATE * F32 + NORM_STATISTICS
    assert a_layer() == attention + after_attention + feed_forward + after_feed_forward


def test_a_layer_in_fp16_with_fused_attention(a_layer: Callable[..., int]) -> None:
    # Each of query, key and value casts the fp32 hidden state for itself and keeps its copy; all else that a product
    # keeps is fp16; a norm's input is fp32, and its output is cast for the next product instead of being kept.
    attention = 3 * STATE * F16 + 4 * STATE * F16 + LOG_SUM_EXP
    after_attention = STATE * BOOL + STATE * F32 + STATE * F16 + NORM_STATISTICS
    feed_forward = 2 * TOKENS * INNER * F16
    after_feed_forward = STATE * BOOL + STATE * F32 + NORM_STATISTICS  # the cast is counted with the next layer's
    kept = attention + after_attention + feed_forward + after_feed_forward
    assert a_layer(precision=Precision.FP16) == kept


def test_eager_attention_keeps_9_bytes_a_score_more_and_no_log_sum_exp(a_layer: Callable[..., int]) -> None:
    # Softmax's output, dropout's output and dropout's mask. What is multiplied has the same bytes: eager attention
    # keeps contiguous copies of query, key and value, the fused kernel keeps them as they are.
    more = SCORES * (F32 + F32 + BOOL)
    assert a_layer(attention=Attention.EAGER) - a_layer(attention=Attention.SDPA) == more - LOG_SUM_EXP


def test_padding_costs_fused_attention_a_float_mask_a_layer(a_layer: Callable[..., int]) -> None:
    assert a_layer(padded=True) - a_layer() == BATCH * LENGTH * LENGTH * F32
    with_fp16 = {"precision": Precision.FP16}
    assert a_layer(padded=True, **with_fp16) - a_layer(**with_fp16) == BATCH * LENGTH * LENGTH * F16


def test_padding_costs_eager_attention_no_activation(a_layer: Callable[..., int]) -> None:
    eager = {"attention": Attention.EAGER}
    assert a_layer(padded=True, **eager) == a_layer(**eager)  # adding the mask keeps neither mask nor sum


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.FP16])
def test_a_checkpointed_layer_keeps_its_input(
    a_layer: Callable[..., int], use_reentrant: bool, precision: Precision
) -> None:
    kept = a_layer(gradient_checkpointing=True, use_reentrant=use_reentrant, precision=precision)
    assert kept == STATE * F32  # hidden states between layers are fp32 under autocast too: a norm's output


# The whole model under autocast


@pytest.mark.parametrize("checkpointing", [False, True])
def test_autocast_copies_are_those_of_all_linear_weights_and_biases(
    probed: Callable[..., Any], small_bert: Callable[..., Any], checkpointing: bool
) -> None:
    run = probed(small_bert(), precision=Precision.FP16, gradient_checkpointing=checkpointing)
    in_layer = 4 * WIDTH * WIDTH + 2 * WIDTH * INNER
    weights = 2 * in_layer + WIDTH * WIDTH + 2 * WIDTH  # two layers, pooler, classifier
    biases = 2 * (5 * WIDTH + INNER) + WIDTH + 2
    copies = [block for block in run.born("forward", step=2) if block.category.value == "autocast_copies"]
    assert sum(block.bytes for block in copies) == (weights + biases) * F16
    assert {block.dtype for block in copies} == {"float16"}
    # When the region ends, backward keeps the weights; checkpointed layers make theirs again.
    held = run.held(run.end("forward", step=2))["autocast_copies"]
    assert held == (weights if not checkpointing else WIDTH * WIDTH + 2 * WIDTH) * F16
    assert run.held(run.end("backward", step=2))["autocast_copies"] == 0


def test_with_fp16_weights_gradients_and_state_stay_fp32(
    probed: Callable[..., Any], small_bert: Callable[..., Any]
) -> None:
    def static(precision: Precision) -> dict[str, int]:
        run = probed(small_bert(), precision=precision)
        held = run.held(run.end("optimizer", step=2))
        return {name: held[name] for name in ("parameters", "gradients", "optimizer_state")}

    assert static(Precision.FP16) == static(Precision.FP32)


# Masked language modelling

V = 1000  # the small model's vocabulary
LOGITS = TOKENS * V


@pytest.fixture(scope="module")
def masked_lm(probed: Callable[..., Any], small_bert: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **settings: probed(small_bert(), task=Task.MASKED_LM, batch_size=BATCH, seq_length=LENGTH, **settings)


def logits_alive(run: Any, instant: int) -> dict[str, int]:
    """Bytes of the blocks with an element for each token and word, by data type."""
    alive = [block for block in run.alive(instant) if block.shape[-1:] == (V,) and block.bytes >= LOGITS]
    return {dtype: sum(b.bytes for b in alive if b.dtype == dtype) for dtype in sorted({b.dtype for b in alive})}


def test_the_tied_decoder_is_counted_once(masked_lm: Callable[..., Any]) -> None:
    run = masked_lm()
    embeddings = (V + 512 + 2) * WIDTH + 2 * WIDTH
    layer = 4 * (WIDTH * WIDTH + WIDTH) + 2 * WIDTH * INNER + INNER + WIDTH + 2 * 2 * WIDTH
    transform = WIDTH * WIDTH + WIDTH + 2 * WIDTH
    parameters = embeddings + 2 * layer + transform + V  # the decoder's weight is the embedding's; its bias is its own
    held = run.held(run.end("optimizer", step=2))
    assert held["parameters"] == held["gradients"] == parameters * F32


def test_the_loss_over_the_vocabulary_keeps_one_fp32_logarithm_of_each_probability(
    masked_lm: Callable[..., Any],
) -> None:
    run = masked_lm()
    # In forward the logits and their log-softmax; the logits die with the model's outputs.
    assert logits_alive(run, run.peak("forward", step=2)) == {"float32": 2 * LOGITS * F32}
    assert logits_alive(run, run.end("forward", step=2)) == {"float32": LOGITS * F32}
    # In backward the gradient of the log-softmax, and of the logits, while the log-softmax is still there.
    assert logits_alive(run, run.peak("backward", step=2)) == {"float32": 3 * LOGITS * F32}
    assert logits_alive(run, run.end("backward", step=2)) == {}


def test_with_fp16_the_loss_over_the_vocabulary_keeps_both_widths(masked_lm: Callable[..., Any]) -> None:
    run = masked_lm(precision=Precision.FP16)
    # cross_entropy asks for log_softmax in the logits' own type, and nll_loss, an fp32 operator, casts what it gets.
    # accelerate casts the model's outputs, the logits, to fp32: for a moment there are four.
    peak = logits_alive(run, run.peak("forward", step=2))
    assert peak == {"float16": 2 * LOGITS * F16, "float32": 2 * LOGITS * F32}
    assert logits_alive(run, run.end("forward", step=2)) == {"float16": LOGITS * F16, "float32": LOGITS * F32}


# What kernels take for themselves, in a layer of BERT-base's size at batch 8 and length 512


@pytest.fixture(scope="module")
def base_layer(probed: Callable[..., Any], small_bert: Callable[..., Any]) -> Callable[..., Any]:
    sizes = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": VOCABULARY}
    config = small_bert(num_hidden_layers=1, **sizes)
    return lambda **settings: probed(config, batch_size=8, seq_length=512, steps=1, **settings)


def taken(run: Any, operator: str) -> dict[str, set[int]]:
    """The bytes of what the operator's kernels took, by name."""
    found: dict[str, set[int]] = {}
    for block in run.timeline.blocks:
        if block.op.startswith(f"aten.{operator}: "):
            found.setdefault(block.op.split(": ")[1], set()).add(block.bytes)
    return found


def test_the_gradient_of_a_bias_is_staged(base_layer: Callable[..., Any]) -> None:
    # The largest card of compute capability 7.5 runs 72 x 1024 / 128 = 576 blocks. 768 columns are 6 blocks, and 64
    # share a column (each thread keeps 16 of its 4096 / 4 rows); 3072 columns are 24, and 576 / 24 = 24 share one.
    buffers = {F32 * 768 * 64 * 128, F32 * 3072 * 24 * 128}
    assert buffers == {25_165_824, 37_748_736}
    assert taken(base_layer(), "sum.dim_IntList")["staging buffer"] == buffers


def test_4096_words_are_sorted_before_their_gradients_are_added(base_layer: Callable[..., Any]) -> None:
    pieces = taken(base_layer(), "embedding_dense_backward.default")
    assert pieces["sorted_indices"] == {4096 * I64}  # of words and of token types; 512 positions are not sorted
    # Words: 4096 // 10 + 4096 sums of 768; token types are added atomically, 4096 // 10 + 2 places.
    assert pieces["grad_weight_per_segment"] == {4505 * 768 * F32}
    assert pieces["partial_to_segment_idx"] == {411 * I64}


def test_fused_attention_accumulates_in_tiles_of_64_by_64(base_layer: Callable[..., Any]) -> None:
    pieces = taken(base_layer(), "_scaled_dot_product_efficient_attention_backward.default")
    assert pieces["workspace"] == {8 * 12 * 8 * (16 + 64 * 64 * F32)} == {12_595_200}
    assert pieces["grad_out * out"] == {4096 * 768 * F32}
    assert "grad_out" not in pieces  # the gradient is contiguous already


def test_flash_attention_accumulates_the_querys_gradient_in_fp32(base_layer: Callable[..., Any]) -> None:
    run = base_layer(precision=Precision.BF16, capability="8.0")
    pieces = taken(run, "_scaled_dot_product_flash_attention_backward.default")
    assert pieces == {"softmax_d": {8 * 12 * 512 * F32}, "dq_accum": {4096 * 768 * F32}}
