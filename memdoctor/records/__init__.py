"""The vocabulary: small frozen records that every layer speaks, one word per concept.

Bytes are plain ``int`` everywhere; units exist only in :mod:`memdoctor.units`. Records check themselves when
they are built, so a record that exists adds up. Nothing here imports torch, reads a file or knows a command line.
"""

from memdoctor.records.breakdown import Breakdown
from memdoctor.records.diagnosis import (
    Budget,
    Change,
    Comparison,
    CounterCheck,
    Diagnosis,
    Finding,
    ModuleUse,
    Peak,
    PhaseLine,
    PhaseUse,
    Plan,
    Prediction,
    PredictionCheck,
    RanOutAt,
    Remedy,
    Scaling,
    TensorGroup,
    Toggle,
    Verdict,
)
from memdoctor.records.examination import Backend, Completed, Counters, Examination, Outcome, Provenance, RanOut
from memdoctor.records.timeline import Block, Category, Event, Phase, PhaseName, SegmentEvent, Timeline
from memdoctor.records.verification import AccumulatedPeak, Check, Status, Verification, VerificationPlan
from memdoctor.records.work import PhaseWork, Rates, Ratio, StepTime
from memdoctor.records.workload import NO_CAPABILITY, Attention, Device, Dtype, Loop, Precision, Task, Workload

__all__ = [
    "NO_CAPABILITY", "AccumulatedPeak", "Attention", "Backend", "Block", "Breakdown", "Budget", "Category",
    "Change", "Check", "Comparison", "Completed", "CounterCheck", "Counters", "Device", "Diagnosis", "Dtype",
    "Event", "Examination", "Finding", "Loop", "ModuleUse", "Outcome", "Peak", "Phase", "PhaseLine",
    "PhaseName", "PhaseUse", "PhaseWork", "Plan", "Precision", "Prediction", "PredictionCheck", "Provenance", "RanOut",
    "RanOutAt", "Rates", "Ratio", "Remedy", "Scaling", "SegmentEvent", "Status", "StepTime", "Task",
    "TensorGroup", "Timeline", "Toggle",
    "Verdict", "Verification", "VerificationPlan", "Workload",
]  # fmt: skip
