"""How long an optimizer step takes: measured where it was, else an estimate from counted work and a GPU's rates. Pure.

A roofline (Williams et al. 2009): products take as long as their arithmetic or their memory, whichever is longer, all
other kernels as long as their memory; kernels run one after another, and a step takes no less than launching them.
docs/step-time.md says how far to trust it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from memdoctor.records import Dtype, Examination, PhaseName, PhaseWork, Precision, Rates, Ratio, StepTime

_NOT_OF_A_STEP = (PhaseName.SETUP, PhaseName.EVALUATION)
_OF_A_MICRO_STEP = (PhaseName.FORWARD, PhaseName.BACKWARD)


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The share of a data sheet's rates that training gets, and the seconds that it takes to launch a kernel."""

    fp32: float
    half: float
    bandwidth: float
    launch_seconds: float


# Chosen so that the estimate agrees with NVIDIA's own measurements of BERT-large on V100 (DeepLearningExamples,
# PyTorch/LanguageModeling/BERT/README.md, "Training performance: NVIDIA DGX-1"): six of seven within a tenth, the
# seventh within the band (tests/probes/simulated/test_published_step_times.py). For other cards nothing was fitted. The
# band is a judgement: a third less to a third more of the rates than there, and half in 16 bits, where cards are often
# short of power or memory. A kernel costs PyTorch's eager mode 5 to 25 microseconds on the host, by published
# traces of its dispatcher.
TYPICAL = Efficiency(fp32=0.7, half=0.5, bandwidth=0.75, launch_seconds=10e-6)
BEST = Efficiency(fp32=0.95, half=0.75, bandwidth=0.92, launch_seconds=5e-6)
WORST = Efficiency(fp32=0.45, half=0.25, bandwidth=0.5, launch_seconds=25e-6)


def step_time(examination: Examination, rates: Rates | None) -> StepTime | None:
    """One steady optimizer step: measured where it was, else estimated, else ``None``."""
    measured = examination.step_seconds
    if measured is not None:
        return StepTime(seconds=measured, low_seconds=measured, high_seconds=measured, kind="measured")
    return estimate(examination, rates) if examination.work and rates is not None else None


def estimate(examination: Examination, rates: Rates) -> StepTime:
    """The last optimizer step of the examination, micro-steps that were left out counted in, evaluation left out.

    Raises:
        ValueError: its work was not counted.
    """
    step = _Step.of(examination, rates)
    return StepTime(
        seconds=step.seconds(TYPICAL), low_seconds=step.seconds(BEST), high_seconds=step.seconds(WORST),
        kind="estimate",
    )  # fmt: skip


def relative(changed: Examination, base: Examination, rates: Rates) -> Ratio:
    """How many times as long a step of ``changed`` takes as one of ``base``, on the same GPU.

    Both are estimates, even where one was measured. What the GPU gets of its rates is the same unknown in both, so the
    band is of the ratio at the ends of each efficiency: narrower than that of either step.

    Raises:
        ValueError: the work of one was not counted, or the base has none.
    """
    one, other = _Step.of(changed, rates), _Step.of(base, rates)
    ratios = [one.seconds(efficiency) / other.seconds(efficiency) for efficiency in _all_mixtures()]
    return Ratio(value=one.seconds(TYPICAL) / other.seconds(TYPICAL), low=min(ratios), high=max(ratios))


def _all_mixtures() -> Iterator[Efficiency]:
    names = ("fp32", "half", "bandwidth", "launch_seconds")
    ends = [[getattr(efficiency, name) for efficiency in (WORST, TYPICAL, BEST)] for name in names]
    return (Efficiency(*mixture) for mixture in product(*ends))


@dataclass(frozen=True, slots=True)
class _Step:
    """The phases of a step and how often each runs, with the rates of a GPU."""

    phases: tuple[tuple[PhaseWork, int], ...]
    rates: Rates
    half_tflops: float

    @classmethod
    def of(cls, examination: Examination, rates: Rates) -> _Step:
        phases = tuple(_last_step(examination))
        if not phases:
            raise ValueError("the work of its steps was not counted")
        return cls(phases, rates, _half_tflops(examination, rates))

    def seconds(self, efficiency: Efficiency) -> float:
        """With so much of the rates."""
        fp32 = self.rates.fp32_tflops * 1e12 * efficiency.fp32
        # Where 16 bits are no faster than 32 they run as fp32 does.
        slow = self.half_tflops <= self.rates.fp32_tflops
        half = self.half_tflops * 1e12 * (efficiency.fp32 if slow else efficiency.half)
        bandwidth = self.rates.bandwidth_gb_s * 1e9 * efficiency.bandwidth
        computing = sum(
            times
            * (max(work.fp32_flops / fp32 + work.half_flops / half, work.product_bytes / bandwidth)
            + work.other_bytes / bandwidth)
            for work, times in self.phases
        )  # fmt: skip
        return max(computing, efficiency.launch_seconds * sum(work.kernels * times for work, times in self.phases))


def _last_step(examination: Examination) -> Iterable[tuple[PhaseWork, int]]:
    """The last micro-step counts for those that repeat it."""
    phases = [work for work in examination.work if work.name not in _NOT_OF_A_STEP]
    last = max((work.step for work in phases), default=0)
    phases = [work for work in phases if work.step == last]
    repeats = {
        max((at for at, work in enumerate(phases) if work.name is name), default=None) for name in _OF_A_MICRO_STEP
    }
    return ((work, 1 + examination.repeated_micro_steps * (at in repeats)) for at, work in enumerate(phases))


def _half_tflops(examination: Examination, rates: Rates) -> float:
    workload = examination.workload
    bf16 = workload.precision is Precision.BF16 or (
        workload.precision is Precision.FP32 and workload.dtype is Dtype.BFLOAT16
    )
    return (rates.bf16_tflops if bf16 else rates.fp16_tflops) or rates.fp32_tflops
