"""Medians of rendering a saved examination, of bert-large with 100,000 events; nothing is judged here.

Run as ``python tests/benchmarks/bench_reports.py [--repeat N] [--events N] [--model NAME]``. Prints, for each format,
the seconds of ``memdoctor report FILE -o OUT`` from start to end, and the size of what was written. The examination is
a real one whose second step is repeated until there are as many events.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from memdoctor.doctor import open_case, probe
from memdoctor.records import Event, Examination, Phase
from memdoctor.storage import examination_document, write_document

FORMATS = ("html", "png", "svg", "md", "csv", "json.gz", "trace.json", "pickle")


def repeated(examination: Examination, events: int) -> Examination:
    """Its last step again and again, with blocks of their own, until there are so many events."""
    timeline = examination.timeline
    begin = next(phase.begin for phase in timeline.phases if phase.step == 2)
    step = timeline.events[begin:]
    born = {event.block for event in step if event.delta_bytes > 0}
    died = {event.block for event in step if event.delta_bytes < 0}
    own = sorted(born & died)  # what outlives the step, or is left from before, stays as it is
    inner = [event for event in step if event.block in set(own)]
    blocks, all_, phases = list(timeline.blocks), list(timeline.events), list(timeline.phases)
    number = 3
    while len(all_) < events:
        moved = {block: len(blocks) + at for at, block in enumerate(own)}
        blocks += [timeline.blocks[block] for block in own]
        start = len(all_)
        all_ += [Event(moved[event.block], event.delta_bytes) for event in inner]
        phases.append(Phase(number, phases[-1].name, start, len(all_)))
        number += 1
    more = replace(timeline, blocks=tuple(blocks), events=tuple(all_), phases=tuple(phases))
    return replace(examination, timeline=more, work=())


def main() -> None:
    """Render and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--model", default="bert-large-uncased")
    options = parser.parse_args()
    case = open_case(options.model, gpu="T4", backend="simulated")
    examination = repeated(probe(case).runs[0], options.events)
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "large.json"
        write_document(saved, examination_document(examination), force=False)
        print(f"{len(examination.timeline.events):,} events, {saved.stat().st_size / 2**20:.1f} MiB of JSON")
        for suffix in FORMATS:
            out = Path(folder) / f"out.{suffix}"
            command = [sys.executable, "-m", "memdoctor", "report", str(saved), "-f", "-o", str(out)]
            seconds = []
            for _ in range(options.repeat):
                started = time.perf_counter()
                subprocess.run(command, check=True, capture_output=True)
                seconds.append(time.perf_counter() - started)
            median, size = statistics.median(seconds), out.stat().st_size / 1024
            print(f"{suffix:<10} {median:5.2f} s (median of {options.repeat}), {size:,.0f} KiB", flush=True)


if __name__ == "__main__":
    main()
