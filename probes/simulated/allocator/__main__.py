"""Check the model against recorded traces: ``python -m memdoctor.probes.simulated.allocator TRACE...``.

Exit code 0 when every allocation of every trace is at the recorded address and every peak of reserved
memory is equal to the byte, 1 when not, 2 for wrong usage, 5 for a file that is not a trace.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from memdoctor.probes.simulated.allocator.comparison import Comparison, compare
from memdoctor.probes.simulated.allocator.traces import TraceError, read_trace


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare each trace, print a line for each and one for all, and return the exit code."""
    parser = ArgumentParser(
        prog="python -m memdoctor.probes.simulated.allocator",
        description="Replay recorded allocator traces and compare address by address.",
    )
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE.json.gz")
    comparisons = []
    for path in parser.parse_args(arguments).traces:
        try:
            comparisons.append(compare(read_trace(path)))
        except TraceError as problem:
            print(problem, file=sys.stderr)
            return problem.exit_code
        print(describe(comparisons[-1]), flush=True)
    print(summarise(comparisons))
    return 0 if all(comparison.is_exact for comparison in comparisons) else 1


def describe(comparison: Comparison) -> str:
    """Put one comparison into a line."""
    return (
        f"{comparison.name}: {comparison.allocations:,} allocations, {comparison.exact:,} at the recorded address; "
        f"peak reserved {comparison.recorded_peak_reserved:,} bytes recorded, {comparison.peak_reserved:,} modelled"
    )


def summarise(comparisons: Sequence[Comparison]) -> str:
    """Put all comparisons into a line."""
    allocations = sum(comparison.allocations for comparison in comparisons)
    exact = sum(comparison.exact for comparison in comparisons)
    peaks = sum(comparison.peak_reserved == comparison.recorded_peak_reserved for comparison in comparisons)
    return (
        f"{len(comparisons)} traces: {exact:,} of {allocations:,} allocations at the recorded address, "
        f"{peaks} of {len(comparisons)} peaks of reserved memory equal"
    )


if __name__ == "__main__":
    sys.exit(main())
