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


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is to be trained. Field names are the JSON keys and, with dashes, the command line's options.

    ``attention`` is ``None`` where nothing was asked for: ``from_pretrained`` then takes the best that the model
    has, and the examination's workload says which that was.
    """

    model: str
    task: Task = Task.SEQUENCE_CLASSIFICATION
    num_labels: int = 2
    batch_size: int = 8
    seq_length: int = 512
    padded: bool = False
    precision: Precision = Precision.FP32
    attention: Attention | None = None
    gradient_checkpointing: bool = False
    use_reentrant: bool = False
    optimizer: str = "adamw_torch_fused"
    gradient_accumulation_steps: int = 1
    max_grad_norm: float = 1.0
    freeze: tuple[str, ...] = ()
    strategy: str = "single"
    world_size: int = 1

    def __post_init__(self) -> None:
        """Counts are at least one; a clipping norm of 0 means no clipping, as in the Trainer."""
        for name in ("num_labels", "batch_size", "seq_length", "gradient_accumulation_steps", "world_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, but must be at least 1")
        if not 0 <= self.max_grad_norm < inf:
            raise ValueError(f"max_grad_norm is {self.max_grad_norm}, but must be a number and not negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU as memory sees it. ``total_bytes`` is what CUDA reports, not what the box says.

    ``context_bytes`` is what the CUDA context and its libraries hold outside PyTorch's allocator, known to
    ``context_error_bytes`` either way; ``source`` is where the figures come from.
    """

    name: str
    total_bytes: int
    compute_capability: str
    context_bytes: int
    context_error_bytes: int
    context_source: str
    source: str
    other_processes_bytes: int = 0

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
    def allocator_limit_bytes(self) -> int:
        """What PyTorch's allocator can reserve: the card without context and other processes."""
        return self.total_bytes - self.context_bytes - self.other_processes_bytes
