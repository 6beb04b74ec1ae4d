"""The vocabulary: small frozen records that every layer speaks, one word per concept.

Bytes are plain ``int`` everywhere; units exist only in :mod:`memdoctor.units`. Records check themselves when
they are built, so a record that exists adds up. Nothing here imports torch, reads a file or knows a command line.
"""

from memdoctor.records.advice import (
    CardFit,
    ChecklistStep,
    Claim,
    Cost,
    Decision,
    Finding,
    Lever,
    NotChecked,
    Numerics,
    Plan,
    Severity,
    Smallest,
)
from memdoctor.records.breakdown import Breakdown
from memdoctor.records.conclusions import (
    Change,
    Comparison,
    CounterCheck,
    ModuleUse,
    Peak,
    PhaseLine,
    PhaseUse,
    Prediction,
    PredictionCheck,
    RanOutAt,
    Scaling,
    TensorGroup,
    Toggle,
    Verdict,
)
from memdoctor.records.diagnosis import Budget, Diagnosis
from memdoctor.records.examination import Backend, Completed, Counters, Examination, Outcome, Provenance, RanOut
from memdoctor.records.explanation import Explanation, RemedyLine, RulePage, ThresholdLine
from memdoctor.records.timeline import Block, Category, Event, Phase, PhaseName, SegmentEvent, Timeline
from memdoctor.records.verification import AccumulatedPeak, Check, Status, Verification, VerificationPlan
from memdoctor.records.work import PhaseWork, Rates
from memdoctor.records.workload import NO_CAPABILITY, Attention, Device, Dtype, Loop, Precision, Task, Workload

__all__ = [
    "NO_CAPABILITY",
    "AccumulatedPeak",
    "Attention",
    "Backend",
    "Block",
    "Breakdown",
    "Budget",
    "CardFit",
    "Category",
    "Change",
    "Check",
    "ChecklistStep",
    "Claim",
    "Comparison",
    "Completed",
    "Cost",
    "CounterCheck",
    "Counters",
    "Decision",
    "Device",
    "Diagnosis",
    "Dtype",
    "Event",
    "Examination",
    "Explanation",
    "Finding",
    "Lever",
    "Loop",
    "ModuleUse",
    "NotChecked",
    "Numerics",
    "Outcome",
    "Peak",
    "Phase",
    "PhaseLine",
    "PhaseName",
    "PhaseUse",
    "PhaseWork",
    "Plan",
    "Precision",
    "Prediction",
    "PredictionCheck",
    "Provenance",
    "RanOut",
    "RanOutAt",
    "Rates",
    "RemedyLine",
    "RulePage",
    "Scaling",
    "SegmentEvent",
    "Severity",
    "Smallest",
    "Status",
    "Task",
    "TensorGroup",
    "ThresholdLine",
    "Timeline",
    "Toggle",
    "Verdict",
    "Verification",
    "VerificationPlan",
    "Workload",
]
