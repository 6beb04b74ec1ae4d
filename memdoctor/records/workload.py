"""What is to be trained, and on what: the two inputs of every probe."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf


class Precision(StrEnum):
    """fp32, or autocast to a 16-bit type with fp32 weights (what ``--fp16`` and ``--bf16`` do in the Trainer)."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"


class Dtype(StrEnum):
    """``dtype`` of ``from_pretrained``: what weights, and with them gradients and most states, are stored in."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


class Loop(StrEnum):
    """Whose training loop it is: the Trainer's, or one written by hand.

    A loop by hand keeps the model's outputs until the next step's take their place, has one parameter group, leaves
    the outputs in the precision that autocast gave them, and takes no gradient norm that it does not clip to.
    """

    TRAINER = "trainer"
    CUSTOM = "custom"


class Attention(StrEnum):
    """``attn_implementation`` of ``from_pretrained``."""

    EAGER = "eager"
    SDPA = "sdpa"


class Task(StrEnum):
    """The head on the encoder, by the name of its Auto class in transformers."""

    SEQUENCE_CLASSIFICATION = "sequence-classification"
    TOKEN_CLASSIFICATION = "token-classification"
    QUESTION_ANSWERING = "question-answering"
    MULTIPLE_CHOICE = "multiple-choice"
    MASKED_LM = "masked-lm"
    CAUSAL_LM = "causal-lm"
    SEQ2SEQ_LM = "seq2seq-lm"
    NEXT_SENTENCE = "next-sentence"
    BASE = "base"


_COUNTS = (
    "num_labels", "batch_size", "seq_length", "every_n_layers", "gradient_accumulation_steps",
    "torch_empty_cache_steps", "forward_passes", "eval_batch_size", "eval_samples", "eval_accumulation_steps",
    "world_size",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is to be trained. Field names are the JSON keys and, with dashes, the command line's options.

    ``attention`` is ``None`` where nothing was asked for: ``from_pretrained`` then takes the best that the model
    has, and the examination's workload says which that was. ``precision`` is that of autocast, ``dtype`` that of the
    weights. ``every_n_layers`` is of the layers that are checkpointed. ``forward_passes`` is how often the model is
    called on a batch before the one backward (two views of a sentence: 2). ``lora_rank`` 0 is no LoRA. With
    ``evaluate``, ``eval_samples`` samples are predicted after the last step, as the Trainer does it.
    """

    model: str
    task: Task = Task.SEQUENCE_CLASSIFICATION
    num_labels: int = 2
    batch_size: int = 8
    seq_length: int = 512
    padded: bool = False
    precision: Precision = Precision.FP32
    dtype: Dtype = Dtype.FLOAT32
    attention: Attention | None = None
    gradient_checkpointing: bool = False
    use_reentrant: bool = False
    every_n_layers: int = 1
    optimizer: str = "adamw_torch_fused"
    optim_args: str = ""
    optim_target_modules: tuple[str, ...] = ()
    gradient_accumulation_steps: int = 1
    max_grad_norm: float = 1.0
    label_smoothing_factor: float = 0.0
    torch_empty_cache_steps: int | None = None
    forward_passes: int = 1
    loop: Loop = Loop.TRAINER
    zero_grad_set_to_none: bool = True
    freeze: tuple[str, ...] = ()
    lora_rank: int = 0
    lora_dropout: float = 0.0
    lora_target_modules: tuple[str, ...] = ()
    evaluate: bool = False
    eval_batch_size: int = 8
    eval_samples: int = 100
    eval_accumulation_steps: int | None = None
    prediction_loss_only: bool = False
    output_hidden_states: bool = False
    strategy: str = "single"
    world_size: int = 1

    def __post_init__(self) -> None:
        """Counts are at least one; a clipping norm of 0 means no clipping, as in the Trainer."""
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}, but must be at least 1")
        if self.dtype is not Dtype.FLOAT32 and self.precision is Precision.FP16 and not self.lora_rank:
            # With LoRA it can: peft keeps its adapters in fp32.
            raise ValueError(
                f"dtype {self.dtype} with precision fp16 cannot be trained: GradScaler wants fp32 gradients"
            )
        if self.lora_rank < 0:
            raise ValueError(f"lora_rank is {self.lora_rank}, but must not be negative")
        if not 0 <= self.max_grad_norm < inf:
            raise ValueError(f"max_grad_norm is {self.max_grad_norm}, but must be a number and not negative")
        if not 0 <= self.lora_dropout < 1:
            raise ValueError(f"lora_dropout is {self.lora_dropout}, but must be in [0, 1)")
        if not 0 <= self.label_smoothing_factor < 1:
            raise ValueError(f"label_smoothing_factor is {self.label_smoothing_factor}, but must be in [0, 1)")


NO_CAPABILITY = "0.0"
"""The compute capability of a device that is no GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU as memory sees it. ``total_bytes`` is what CUDA reports, not what the box says.

    A step on the CPU has its machine here: the processor, the memory that a process may use, :data:`NO_CAPABILITY`, and
    as context what the process held before.

    ``context_bytes`` is what the CUDA context and its libraries hold outside PyTorch's allocator, known to
    ``context_error_bytes`` either way; ``source`` is where the figures come from. ``alloc_conf`` is the text of
    ``PYTORCH_CUDA_ALLOC_CONF``.
    """

    name: str
    total_bytes: int
    compute_capability: str
    context_bytes: int
    context_error_bytes: int
    context_source: str
    source: str
    other_processes_bytes: int = 0
    alloc_conf: str = ""

    def __post_init__(self) -> None:
        """A card has memory, and more of it than its own context takes; capabilities look like ``7.5``."""
        major, dot, minor = self.compute_capability.partition(".")
        if not (major.isdigit() and dot and minor.isdigit()):
            raise ValueError(f"{self.name}: compute capability {self.compute_capability!r} is not like '7.5'")
        if self.total_bytes <= self.context_bytes:
            raise ValueError(f"{self.name}: {self.total_bytes} B in all, {self.context_bytes} B of them context")

    @property
    def capability(self) -> tuple[int, int]:
        """CUDA compute capability as numbers that compare."""
        major, _, minor = self.compute_capability.partition(".")
        return int(major), int(minor)

    @property
    def is_cpu(self) -> bool:
        """Whether it is the machine itself and no GPU."""
        return self.compute_capability == NO_CAPABILITY

    @property
    def allocator_limit_bytes(self) -> int:
        """What PyTorch's allocator can reserve: the card without context and other processes."""
        return self.total_bytes - self.context_bytes - self.other_processes_bytes
