"""The levers: what people change to save memory, what each costs, and how it is written for a given target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from memdoctor.matrix import ALLOC_CONF, BF16_CAPABILITY, FP16_CAPABILITY, UPDATES_IN_BACKWARD
from memdoctor.records import Attention, Change, Cost, Device, Dtype, Precision, Workload

FUSED = "adamw_torch_fused"
FOREACH = "adamw_torch"
EIGHT_BIT = "adamw_bnb_8bit"
ADAFACTOR = "adafactor"
SGD = "sgd"
EXPANDABLE = "expandable_segments:True"
EMBEDDINGS = "*embeddings*"
LORA_RANK = 8
ACCUMULATED = 2  # micro-batches, where there is one: any number shows the same, and two are the least to run


@dataclass(frozen=True, slots=True)
class Pull:
    """The change that pulls a lever; where it is ``in_use`` already, the one that lets go of it."""

    change: Change
    in_use: bool = False


@dataclass(frozen=True, slots=True)
class LeverKind:
    """A lever. ``pull`` gives the change for a target, or says why there is none. ``acts`` says on what it acts."""

    name: str
    cost: Cost
    acts: str
    pull: Callable[[Workload, Device], Pull | str]


def _batch(workload: Workload, device: Device) -> Pull | str:
    return Pull({"batch_size": 1}) if workload.batch_size > 1 else "the batch is 1 already"


def _length(workload: Workload, device: Device) -> Pull | str:
    shorter = workload.seq_length // 2
    return Pull({"seq_length": shorter}) if shorter >= 8 else f"{workload.seq_length} tokens are hardly to be halved"


_FIRST = {Precision.FP16: FP16_CAPABILITY, Precision.BF16: BF16_CAPABILITY}


def _precision(kind: Precision) -> Callable[[Workload, Device], Pull | str]:
    def pull(workload: Workload, device: Device) -> Pull | str:
        if workload.precision is kind:
            return Pull({"precision": Precision.FP32.value}, in_use=True)
        if device.capability < _FIRST[kind]:
            return f"{device.name} has no {kind} in hardware (compute capability {device.compute_capability})"
        if workload.dtype is not Dtype.FLOAT32:
            return f"the weights are {workload.dtype.value}: autocast has little left to cast"
        return Pull({"precision": kind.value})

    return pull


def _checkpointing(workload: Workload, device: Device) -> Pull | str:
    return Pull({"gradient_checkpointing": not workload.gradient_checkpointing}, workload.gradient_checkpointing)


def _attention(workload: Workload, device: Device) -> Pull | str:
    used = workload.attention is not Attention.EAGER
    return Pull({"attention": (Attention.EAGER if used else Attention.SDPA).value}, in_use=used)


def _optimizer(name: str) -> Callable[[Workload, Device], Pull | str]:
    def pull(workload: Workload, device: Device) -> Pull | str:
        if workload.optimizer == name:
            return Pull({"optimizer": FUSED if name != FUSED else FOREACH}, in_use=True)
        return Pull({"optimizer": name})

    return pull


def _accumulation(workload: Workload, device: Device) -> Pull | str:
    if workload.optimizer in UPDATES_IN_BACKWARD:
        return f"{workload.optimizer} updates the weights in every backward pass: nothing is accumulated"
    if workload.gradient_accumulation_steps > 1:
        return Pull({"gradient_accumulation_steps": 1}, in_use=True)
    return Pull({"gradient_accumulation_steps": ACCUMULATED})


def _freezing(workload: Workload, device: Device) -> Pull | str:
    if workload.lora_rank:
        return "with LoRA all but the adapters is frozen"
    return Pull({"freeze": ()}, in_use=True) if workload.freeze else Pull({"freeze": (EMBEDDINGS,)})


def _lora(workload: Workload, device: Device) -> Pull | str:
    return Pull({"lora_rank": 0}, in_use=True) if workload.lora_rank else Pull({"lora_rank": LORA_RANK})


def _set_to_none(workload: Workload, device: Device) -> Pull | str:
    return Pull({"zero_grad_set_to_none": not workload.zero_grad_set_to_none}, workload.zero_grad_set_to_none)


def _empty_cache(workload: Workload, device: Device) -> Pull | str:
    if workload.torch_empty_cache_steps:
        return Pull({"torch_empty_cache_steps": None}, in_use=True)
    return Pull({"torch_empty_cache_steps": 1})


def _expandable(workload: Workload, device: Device) -> Pull | str:
    if "expandable_segments:true" in device.alloc_conf.lower():
        return Pull({ALLOC_CONF: ""}, in_use=True)
    return Pull({ALLOC_CONF: ",".join(filter(None, (device.alloc_conf, EXPANDABLE)))})


def _eval_accumulation(workload: Workload, device: Device) -> Pull | str:
    if not workload.evaluate:
        return "no evaluation was asked for: --eval"
    if workload.eval_accumulation_steps:
        return Pull({"eval_accumulation_steps": None}, in_use=True)
    return Pull({"eval_accumulation_steps": 1})


def _sharding(workload: Workload, device: Device) -> Pull | str:
    return "several GPUs cannot be probed yet; ZeRO and FSDP share static state, and never activations"


KINDS: tuple[LeverKind, ...] = (
    LeverKind("attention", "none", "the S x S tensors of eager attention", _attention),
    LeverKind("fused optimizer", "none", "the temporaries of the optimizer step", _optimizer(FUSED)),
    LeverKind("set_to_none", "none", "gradients between the optimizer step and the next backward", _set_to_none),
    LeverKind("expandable_segments", "none", "what the allocator reserves and does not use", _expandable),
    LeverKind("batch", "time", "activations, which are of each sample", _batch),
    LeverKind("accumulation", "time", "how many micro-batches make a step, and memory is that of one", _accumulation),
    LeverKind("checkpointing", "time", "activations between forward and backward", _checkpointing),
    LeverKind("empty_cache", "time", "cached blocks between forward and backward", _empty_cache),
    LeverKind("eval_accumulation", "time", "predictions that wait on the GPU in evaluation", _eval_accumulation),
    LeverKind("fp16", "numerics", "activations; weights, gradients and states stay fp32", _precision(Precision.FP16)),
    LeverKind("bf16", "numerics", "activations; weights, gradients and states stay fp32", _precision(Precision.BF16)),
    LeverKind("8-bit optimizer", "numerics", "optimizer state", _optimizer(EIGHT_BIT)),
    LeverKind("Adafactor", "numerics", "optimizer state", _optimizer(ADAFACTOR)),
    LeverKind("SGD", "numerics", "optimizer state", _optimizer(SGD)),
    LeverKind("freezing", "task", "gradients and states of what is frozen, and activations before it", _freezing),
    LeverKind("LoRA", "task", "gradients and states of all but the adapters", _lora),
    LeverKind("length", "task", "activations, which are of each token", _length),
    LeverKind("sharding", "none", "static state, shared among GPUs", _sharding),
)
"""All levers, in the order of what they cost."""

COSTS: Mapping[str, Cost] = MappingProxyType({kind.name: kind.cost for kind in KINDS})
"""What each lever costs at most."""


def pulls_of(workload: Workload, device: Device) -> tuple[tuple[LeverKind, Pull | str], ...]:
    """Every lever with the change that pulls it here, or why there is none."""
    return tuple((kind, kind.pull(workload, device)) for kind in KINDS)
