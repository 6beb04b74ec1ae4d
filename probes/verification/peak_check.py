"""The check of memory: what accumulation adds to a micro-batch's peak is its gradients, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from memdoctor.probes.job import Batch
from memdoctor.probes.verification.peaks import accumulated_peaks, growth_bytes
from memdoctor.probes.verification.running import Bench
from memdoctor.records import AccumulatedPeak, Check, Status
from memdoctor.units import format_bytes


def peak(bench: Bench, batches: Sequence[Batch]) -> tuple[Check, tuple[AccumulatedPeak, ...]]:
    """Two steps of one micro-batch each beside two steps of several, tensor by tensor, in the second step."""
    count = bench.accumulation
    several = bench.footprint(batches[: 2 * count], count)
    single = bench.footprint(batches[:2], 1)
    peaks = accumulated_peaks(single, several)
    worst = max(peaks, key=lambda found: abs(found.unexplained_bytes))
    highest = max(peaks, key=lambda found: found.accumulated_peak_bytes)
    rest = worst.unexplained_bytes
    growth = growth_bytes(several)
    check = Check(
        id="peak", title="peak = a micro-batch's + persistent gradients",
        status=Status.FAILED if rest else Status.PASSED, value=float(rest), tolerance=0.0,
        rule="bytes that are not explained, in the phase where they are most", tolerance_reason="bytes are counted",
        sentence=_sentence(highest), cause=_cause(rest, growth, worst.phase, count) if rest else "",
        evidence={"unexplained_bytes": rest, "left_behind_bytes": growth, "phase": highest.phase},
    )  # fmt: skip
    return check, peaks


def _sentence(peak: AccumulatedPeak) -> str:
    both = f" - {format_bytes(peak.in_both_bytes)} of them that it held already" if peak.in_both_bytes else ""
    others = (
        f" + {format_bytes(peak.other_input_bytes)} inputs of other micro-batches" if peak.other_input_bytes else ""
    )
    return (
        f"in {peak.phase}: {format_bytes(peak.micro_batch_peak_bytes)} + {format_bytes(peak.persistent_gradient_bytes)}"
        f" gradients{both}{others} + {format_bytes(peak.unexplained_bytes)} unexplained = "
        f"{format_bytes(peak.accumulated_peak_bytes)}"
    )


def _cause(rest: int, growth: int, phase: str, count: int) -> str:
    if growth > 0:
        return (
            f"each micro-batch leaves {format_bytes(growth)} behind: losses or outputs are kept with their graph; keep "
            "loss.detach() or loss.item()"
        )
    if rest > 0:
        return f"in {phase}, {format_bytes(rest)} more than a micro-batch needs are held once {count} are accumulated"
    return f"in {phase}, a step of one micro-batch holds {format_bytes(-rest)} that one of {count} does not"
