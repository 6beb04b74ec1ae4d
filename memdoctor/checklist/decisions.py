"""The decision flow that goes with the checklist: the branch that was taken at each, and why."""

from __future__ import annotations

from memdoctor.checklist.asking import in_hardware
from memdoctor.checklist.looking import moved, probed, reserved, too_many
from memdoctor.records import Change, Decision, Dtype, Precision
from memdoctor.rules import Evidence
from memdoctor.rules.accumulating import never_accumulates, stops
from memdoctor.rules.several_gpus.strategies import sharded_bytes
from memdoctor.units import format_bytes

ANCESTORS = "FairScale's OSS, ShardedDDP and FSDP are the ancestors of ZeRO-1, ZeRO-2 and PyTorch's FSDP"


def decisions_of(evidence: Evidence) -> tuple[Decision, ...]:
    """Mixed precision, checkpointing, accumulation, several GPUs."""
    return _precision(evidence), _checkpointing(evidence), _accumulation(evidence), _gpus(evidence)


def _precision(evidence: Evidence) -> Decision:
    workload, device = evidence.workload, evidence.device
    question = "Is mixed precision supported (GPU, dtype)?"
    card = f"{device.name} has compute capability {device.compute_capability}"
    if workload.dtype is not Dtype.FLOAT32:
        why = f"the weights are {workload.dtype.value} already, and autocast has little left to cast"
        return Decision(question=question, answer="skip it", why=why)
    kind, why = in_hardware(device.capability)
    if workload.precision is Precision.BF16 and kind is Precision.FP16:
        effect = _effect(evidence, {"precision": kind.value}, in_use=False)
        return Decision(question=question, answer="not bf16: fp16", why=f"{card}, and {why}{effect}")
    if workload.precision is not Precision.FP32:
        other: Change = {"precision": Precision.FP32.value}
        effect = _effect(evidence, other, in_use=True)
        return Decision(question=question, answer=f"in use: {workload.precision.value}", why=f"{card}{effect}")
    if kind is None:
        return Decision(question=question, answer="no: skip it", why=f"{card}, and {why}")
    lever = evidence.lever(kind.value)
    if lever is not None and lever.status == "not probed":  # the optimizer or the model does not take it
        return Decision(question=question, answer="no", why=lever.sentence)
    effect = _effect(evidence, {"precision": kind.value}, in_use=False)
    return Decision(question=question, answer=f"yes: {kind.value}", why=f"{card}, and {why}{effect}")


def _checkpointing(evidence: Evidence) -> Decision:
    question = "Can activations be checkpointed?"
    on = evidence.workload.gradient_checkpointing
    if on:
        effect = _effect(evidence, {"gradient_checkpointing": False}, in_use=True)
        return Decision(question=question, answer="in use", why=f"checkpointing is on{effect}")
    found = probed(evidence, {"gradient_checkpointing": True})
    if found is None:
        lever = evidence.lever("checkpointing")
        return Decision(question=question, answer="no", why=lever.sentence if lever else "it was not probed")
    saves = reserved(found) < evidence.peak.reserved_bytes
    why = f"the model allows it{_effect(evidence, {'gradient_checkpointing': True}, in_use=False)}"
    return Decision(question=question, answer="yes: do" if saves else "yes, but it saves nothing here", why=why)


def _accumulation(evidence: Evidence) -> Decision:
    """The effective batch becomes too small where the per-device batch has to: then it is made up."""
    workload = evidence.workload
    question = "Is the effective batch too small now?"
    batch, steps, gpus = workload.batch_size, workload.gradient_accumulation_steps, workload.world_size
    whole = f"{batch} x {steps} x {gpus} = {batch * steps * gpus}"
    if evidence.fits:
        return Decision(question=question, answer="no: nothing to accumulate", why=f"the wanted batch fits: {whole}")
    if never := never_accumulates(workload):
        return Decision(question=question, answer="accumulation cannot help", why=never)
    most = evidence.scaling.largest_batch_that_fits if evidence.scaling else None
    if most is None:
        return Decision(question=question, answer="accumulation cannot help", why="no batch fits as the rest is")
    if most >= batch:  # accumulation itself, evaluation, or what no batch changes
        return Decision(question=question, answer="no", why=f"batch {most} is predicted to fit; it is not the batch")
    sizes = [size for size in range(1, most + 1) if batch * steps % size == 0]
    stopped = stops(evidence, sizes[-1])
    smaller = max((size for size in sizes if stops(evidence, size) is None), default=None)
    if smaller is None:
        why = f"{most} a device is predicted to fit, but {stopped}"
        return Decision(question=question, answer="accumulation cannot help by itself", why=why)
    if another := too_many(batch * steps, smaller, most):
        return Decision(question=question, answer="yes, with another effective batch", why=another)
    largest = "the largest that divides" if stopped is None else "the largest that fits when accumulated, and divides"
    return Decision(
        question=question,
        answer=f"yes: accumulate {batch * steps // smaller}",
        why=(
            f"{most} a device is predicted to fit, and {smaller} is {largest} {batch * steps}: "
            f"{smaller} x {batch * steps // smaller} x {gpus} = {batch * steps * gpus}"
            f"{'' if stopped is None else f'; {stopped}'}"
        ),
    )


def _gpus(evidence: Evidence) -> Decision:
    workload = evidence.workload
    question = "More than one GPU?"
    shared = {name: format_bytes(sharded_bytes(name, evidence.breakdown)) for name in ("zero2", "zero3")}
    if workload.world_size == 1:
        why = (
            f"with one there is nothing to share; with more, DDP first, then ZeRO-2 (shares {shared['zero2']}) or "
            f"ZeRO-3 and FSDP ({shared['zero3']}), not probed"
        )
        return Decision(question=question, answer="no", why=f"{why}; {ANCESTORS}")
    gpus = workload.world_size
    if workload.strategy in ("single", "ddp"):
        answer, why = (
            f"yes, {gpus}: {'DDP' if evidence.fits else 'shard'}",
            (
                f"DDP copies all of it to each; ZeRO-2 divides {shared['zero2']} by {gpus}, ZeRO-3 and FSDP "
                f"{shared['zero3']}, not probed"
            ),
        )
    else:
        held = format_bytes(sharded_bytes(workload.strategy, evidence.breakdown))
        answer, why = f"yes, {gpus}: {workload.strategy}", f"it divides {held} by {gpus}, not probed"
    return Decision(question=question, answer=answer, why=f"{why}; {ANCESTORS}")


def _effect(evidence: Evidence, change: Change, *, in_use: bool) -> str:
    """``; it saves 850.00 MiB here``, as far as it was probed."""
    found = probed(evidence, change)
    if found is None:
        return ""
    here, there = evidence.peak.reserved_bytes, reserved(found)
    return f"; it {moved(there, here) if in_use else moved(here, there)} of the reserved peak here"
