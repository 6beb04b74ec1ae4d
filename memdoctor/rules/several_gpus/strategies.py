"""What the ways of sharing work among GPUs divide, by the names of ``--strategy``."""

from __future__ import annotations

from collections.abc import Mapping

from memdoctor.records import Breakdown, Category

SHARDED: Mapping[str, tuple[Category, ...]] = {
    "zero1": (Category.OPTIMIZER_STATE,),
    "zero2": (Category.OPTIMIZER_STATE, Category.GRADIENTS),
    "zero3": (Category.OPTIMIZER_STATE, Category.GRADIENTS, Category.PARAMETERS),
    "fsdp": (Category.OPTIMIZER_STATE, Category.GRADIENTS, Category.PARAMETERS),
}
"""What each divides by the number of GPUs (DeepSpeed's ``zero_optimization.stage``; PyTorch's FSDP)."""

NOT_PROBED = "not probed: arithmetic on one GPU's step"


def sharded_bytes(strategy: str, parts: Breakdown) -> int:
    """What the strategy divides of these parts; 0 where it divides nothing."""
    return sum(getattr(parts, category.value) for category in SHARDED.get(strategy, ()))


def words(strategy: str) -> str:
    """What it divides, in words: ``optimizer state and gradients``."""
    names = [category.value.replace("_", " ") for category in SHARDED.get(strategy, ())]
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
