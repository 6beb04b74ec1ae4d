"""What touches processes and files: the GPU's worker, the simulated one's, and the two things that are written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import memdoctor
from memdoctor.catalogue import find_gpu
from memdoctor.errors import InputError, MeasureError, MemdoctorError, TooSlow
from memdoctor.probes.pool import Pool, Request
from memdoctor.probes.record import tables
from memdoctor.probes.record.comparison import CellComparison, context_is_measured
from memdoctor.probes.record.files import TABLES, read_run, recordings
from memdoctor.probes.record.grid import facts_of
from memdoctor.probes.record.overhead import MORE_TIME, Overhead
from memdoctor.probes.record.runner import Measure
from memdoctor.probes.record.simulating import compare_all
from memdoctor.records import Backend, Device, Examination, Workload
from memdoctor.storage import write_bytes, write_document
from memdoctor.units import GIB

_ELSEWHERE = "memdoctor env says what is wrong; --table compares recordings on machines without a GPU"
BACKEND = Backend.GPU  # tests without a GPU put another in its place
# What is asked for, until the probe says what it found; of its settings for the allocator, none.
THIS_GPU = Device(
    name="the GPU of this machine", total_bytes=1024 * GIB, compute_capability="8.0", context_bytes=0,
    context_error_bytes=0, context_source="unknown", source="not asked",
)  # fmt: skip


def reach_this_checkout() -> None:
    """Let workers import the package from where it is, also where it is not installed."""
    root = Path(memdoctor.__file__).parents[1]
    if (root / "pyproject.toml").is_file():
        paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)


@contextmanager
def measuring(time_limit: float) -> Iterator[Measure]:
    """Measures in one worker process, which ends with the context: the GPU is free then."""
    with Pool(BACKEND, time_limit=time_limit) as pool:

        def measure(workload: Workload, seconds: float) -> Examination:
            request = Request(workload, THIS_GPU, facts_of(workload.model), time_limit=seconds)
            try:
                return with_a_context(pool.examine([request])[0])
            except TooSlow as error:
                raise TooSlow(error.what, why=error.why, hint=MORE_TIME) from error
            except MeasureError as error:
                if "--backend" not in error.hint:
                    raise
                raise MeasureError(error.what, why=error.why, hint=_ELSEWHERE) from error  # the main command's option

        yield measure


def with_a_context(examination: Examination) -> Examination:
    """The catalogue's context of the card that was found, where NVML did not tell of the process."""
    device, entry = examination.device, find_gpu(examination.device.name)
    if entry is None or context_is_measured(device):
        return examination
    known = replace(
        device, context_bytes=entry.context_bytes, context_error_bytes=entry.context_error_bytes,
        context_source=entry.context_source,
    )  # fmt: skip
    return replace(examination, device=known)


def compare_folder(folder: Path, progress: Callable[[int, int], None]) -> list[CellComparison]:
    """Every recording of a folder beside its simulation; no GPU is touched.

    Raises:
        InputError: there are no recordings, or one cannot be read.
        WorkerError: a worker died or hung.
    """
    files = recordings(folder)
    if not files:
        raise InputError(f"there are no recordings in {folder}", why="none of its files ends in .json.gz")
    done = 0

    def on_done(request: Request, result: object) -> None:  # noqa: ARG001 - any of them counts
        nonlocal done
        done += 1
        progress(done, len(files))

    def simulate(requests: Sequence[Request]) -> Sequence[Examination | MemdoctorError]:
        with Pool(Backend.SIMULATED) as pool:
            return pool.attempt(requests, on_done)

    return compare_all(files, simulate)


def write_tables(
    folder: Path, comparisons: Sequence[CellComparison], ran: Path, overheads: Sequence[Overhead] = ()
) -> list[Path]:
    """Write the three tables into ``folder``; ``ran`` is where the last run said what became of each cell.

    Raises:
        InputError: one cannot be written.
    """
    cells = read_run(ran)
    markdown, spreadsheet, document = (folder / name for name in TABLES)
    write_bytes(markdown, tables.markdown(comparisons, cells, overheads).encode(), force=True)
    write_bytes(spreadsheet, tables.as_csv(comparisons).encode(), force=True)
    write_document(document, tables.document(comparisons, cells, overheads), force=True)
    return [markdown, spreadsheet, document]
