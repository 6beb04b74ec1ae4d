"""Ways to train the target: which levers are pulled together, what that costs, and how the batch is split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from memdoctor.levers.kinds import ADAFACTOR, EIGHT_BIT, EMBEDDINGS, EXPANDABLE, FOREACH, FUSED, LORA_RANK, SGD
from memdoctor.matrix import ALLOC_CONF, BF16_CAPABILITY, FP16_CAPABILITY, UPDATES_IN_BACKWARD, apply_to
from memdoctor.records import Attention, Change, Cost, Device, Dtype, Precision, Workload

ORDER: tuple[Cost, ...] = ("none", "time", "numerics", "task")
"""What a change may cost, in the order of the checklist."""

MOST_MICRO_BATCHES = 256  # in one step; all their inputs are made and counted, although few of them run
SHORTEST = 32  # tokens; shorter inputs are another task
SMALLER_OPTIMIZERS = (EIGHT_BIT, ADAFACTOR, SGD)  # by how near they are to AdamW


INTRUSION = {
    "precision": 0.01, EIGHT_BIT: 0.03, ADAFACTOR: 0.05, SGD: 0.07, "gradient_checkpointing": 0.005,
    "batch_size": 0.005, ALLOC_CONF: 0.005,
}  # fmt: skip
"""What time a change may take more than another before the other is preferred, although it changes more.

All together stay under a tenth: nothing is recommended that takes more than a tenth longer than what is possible.
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to train the target: the change, what it costs at most, and how the batch is split."""

    change: Change
    cost: Cost
    batch: int
    accumulation: int

    def of(self, target: Workload, device: Device) -> tuple[Workload, Device]:
        """The target with the change, and the card with its allocator's settings."""
        return apply_to(target, device, self.change)


def intrusion(change: Change) -> float:
    """How much is changed, as a share of the step's time."""
    return sum(INTRUSION.get(name, INTRUSION.get(str(value), 0.0)) for name, value in change.items())


def worst(*costs: Cost) -> Cost:
    """The highest of these costs."""
    return max(costs, key=ORDER.index)


def free_changes(target: Workload) -> dict[str, str | bool]:
    """What costs nothing and the target does not have yet; its attention is the one that it uses."""
    changes: dict[str, str | bool] = {}
    if target.attention is Attention.EAGER:
        changes["attention"] = Attention.SDPA.value
    if target.optimizer == FOREACH:
        changes["optimizer"] = FUSED
    if not target.zero_grad_set_to_none:
        changes["zero_grad_set_to_none"] = True
    return changes


def mixed_precision(target: Workload, device: Device) -> str | None:
    """The autocast type for this card: bf16 where it is in hardware, else fp16; ``None``: none, or there is one.

    A bf16 that the card has to emulate, without fused attention, is none.
    """
    emulated = target.precision is Precision.BF16 and device.capability < BF16_CAPABILITY
    if not (emulated or target.precision is Precision.FP32) or target.dtype is not Dtype.FLOAT32:
        return None
    if device.capability < FP16_CAPABILITY:
        return None
    return (Precision.BF16 if device.capability >= BF16_CAPABILITY else Precision.FP16).value


def splits(target: Workload) -> tuple[tuple[int, int], ...]:
    """Per-device batches with the micro-batches that keep the effective batch, largest batch first.

    There are at most :data:`MOST_MICRO_BATCHES` of them. An optimizer that updates in backward keeps none.
    """
    if target.optimizer in UPDATES_IN_BACKWARD:
        return ((target.batch_size, target.gradient_accumulation_steps),)
    whole = target.batch_size * target.gradient_accumulation_steps
    smaller = [
        batch for batch in range(1, target.batch_size) if whole % batch == 0 and whole // batch <= MOST_MICRO_BATCHES
    ]
    return ((target.batch_size, target.gradient_accumulation_steps), *((b, whole // b) for b in reversed(smaller)))


def structures(target: Workload, device: Device, tier: Cost, free: Change) -> tuple[tuple[Change, Cost], ...]:
    """What is pulled together besides the batch, at this cost (and at none, for a batch that costs), with its cost.

    ``free`` are the changes of :func:`free_changes` that the model allows. They are part of all that cost something:
    nothing is lost by them.
    """
    if tier == "none":
        singles = [{name: value} for name, value in free.items()]
        return tuple((change, "none") for change in ({}, *singles, *([free] if len(free) > 1 else [])))
    recompute: list[Change] = [{}] if target.gradient_checkpointing else [{}, {"gradient_checkpointing": True}]
    if tier == "time":
        return tuple(({**free, **part}, "time" if part else "none") for part in recompute)
    found: list[tuple[Change, Cost]] = []
    for numeric, part in product(_numerics(target, device), recompute):
        if numeric:
            found.append(({**free, **numeric, **part}, "numerics"))
    return tuple(found)


def _numerics(target: Workload, device: Device) -> Iterator[Change]:
    """Mixed precision and a smaller optimizer state, alone and together."""
    cast = mixed_precision(target, device)
    precisions: list[Change] = [{}, {"precision": cast}] if cast else [{}]
    optimizers: list[Change] = [{}]
    if target.optimizer.startswith("adamw"):
        optimizers += [{"optimizer": name} for name in SMALLER_OPTIMIZERS if name != target.optimizer]
    for precision, optimizer in product(precisions, optimizers):
        yield {**precision, **optimizer}


def task_changes(target: Workload) -> tuple[Change, ...]:
    """What changes the task, the least first: less is trained, then shorter inputs."""
    trained: list[Change] = []
    if not target.freeze and not target.lora_rank:
        trained = [{"freeze": (EMBEDDINGS,)}, {"lora_rank": LORA_RANK}]
    lengths: list[Change] = []
    length = target.seq_length // 2
    while length >= SHORTEST:
        lengths.append({"seq_length": length})
        length //= 2
    return (*trained, *lengths)


def expandable(device: Device) -> Change | None:
    """The allocator's setting that reserves in pages, where it is not set."""
    if "expandable_segments" in device.alloc_conf:
        return None
    return {ALLOC_CONF: ",".join(filter(None, (device.alloc_conf, EXPANDABLE)))}


def setting_of(target: Workload, structure: Change, cost: Cost, split: tuple[int, int]) -> Setting:
    """A structure with a split of the batch; a smaller batch with more micro-batches costs time."""
    batch, accumulation = split
    if batch == target.batch_size:
        return Setting(structure, cost, batch, accumulation)
    change = {"batch_size": batch, "gradient_accumulation_steps": accumulation, **structure}
    return Setting(change, worst(cost, "time"), batch, accumulation)
