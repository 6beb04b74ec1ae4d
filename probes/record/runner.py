"""One cell after another, for as long as there is time: each is recorded, skipped with a reason, or failed with one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from memdoctor.errors import InputError, MemdoctorError, TooSlow
from memdoctor.probes.pool import Bug
from memdoctor.probes.record.files import MOST_BYTES, Versions, file_of, recordings_of, save, versions_in
from memdoctor.probes.record.grid import Cell, beyond, reason_to_skip
from memdoctor.records import Device, Examination, RanOut, Workload
from memdoctor.units import format_bytes

Measure = Callable[[Workload, float], Examination]
"""Measures a workload in at most so many seconds; raises a MemdoctorError or Bug where it cannot."""

SAME_ERRORS = 2  # as often, before anything was recorded, and it is the machine's and not the cell's


class State(StrEnum):
    """What became of a cell."""

    RECORDED = "recorded"
    RECORDED_BEFORE = "recorded before"
    SKIPPED = "skipped"
    FAILED = "failed"
    NOT_REACHED = "not reached"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a cell, why, and what to do (``hint``); ``detail`` is the traceback of what nobody foresaw."""

    cell: str
    state: State
    reason: str = ""
    file: str = ""
    size_bytes: int = 0
    seconds: float = 0.0
    detail: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds: for the whole run, and for one cell."""

    run: float
    cell: float


@dataclass(slots=True)
class Recorder:
    """Records cells into a folder. The card is that of the first recording, unless it is known before.

    Nothing that is there is written over without ``force``. ``running_out``: what will not fit is wanted too,
    and last a batch that no card of this size holds.
    """

    measure: Measure
    folder: Path
    versions: Versions
    limits: Limits
    force: bool = False
    running_out: bool = False
    device: Device | None = None
    clock: Callable[[], float] = time.monotonic
    _started: float = field(init=False)
    _took: dict[str, float] = field(init=False, default_factory=dict)  # by model, the longest
    _errors: list[MemdoctorError | Bug] = field(init=False, default_factory=list)
    _recorded: bool = field(init=False, default=False)
    _starts: bool = field(init=False, default=True)  # the next step starts a worker, and torch with it

    def run(self, cells: Sequence[Cell]) -> Iterator[Result]:
        """Go through the cells; gives each result as it is there.

        Raises:
            InputError: a recording cannot be written. Those before are whole.
            MemdoctorError: the first cells fail for the same reason: the machine has no GPU, or cannot use it.
            Bug: the same, for a reason that nobody foresaw.
        """
        self._started = self.clock()
        for cell in cells if self.device is not None else self._new_one_first(cells):
            yield self._skip(cell) or self._record(cell)
        if self.running_out and self.device is not None:
            most = beyond(self.device.total_bytes)
            yield self._skip(most) or self._record(most)

    def _new_one_first(self, cells: Sequence[Cell]) -> Sequence[Cell]:
        """The card is not known before a step ran on it: let that be one that nobody has recorded yet."""
        for number, cell in enumerate(cells):
            if self.force or not recordings_of(self.folder, cell.name):
                return [cell, *cells[:number], *cells[number + 1 :]]
        return cells

    def _skip(self, cell: Cell) -> Result | None:
        """Why there is nothing to do; ``None`` where there is."""
        settled = self._broken(cell) if self.device is None else self._settled(cell, self.device)
        if settled:
            return settled
        left, expected = self._left(), self._expected(cell)
        if left <= expected:
            return Result(cell.name, State.NOT_REACHED, f"{max(left, 0):.0f} s were left, it takes {expected:.0f} s")
        return None

    def _broken(self, cell: Cell) -> Result | None:
        """Before the card is known: no step is run for a recording that would then not be written."""
        for path in () if self.force else recordings_of(self.folder, cell.name):
            try:
                versions_in(path)
            except InputError as error:
                return _kept(cell, path, error.what)
        return None

    def _settled(self, cell: Cell, device: Device) -> Result | None:
        """What is to be said without measuring: not on this card, or recorded before."""
        if reason := reason_to_skip(cell, device, running_out=self.running_out):
            return Result(cell.name, State.SKIPPED, reason)
        path = file_of(self.folder, device.name, cell.name)
        if self.force or not path.exists():
            return None
        try:
            versions = versions_in(path)
        except InputError as error:
            return _kept(cell, path, error.what)
        if versions == self.versions:
            return Result(cell.name, State.RECORDED_BEFORE, "", path.name, path.stat().st_size)
        return _kept(cell, path, f"recorded with {versions}")

    def _left(self) -> float:
        return self.limits.run - (self.clock() - self._started)

    def _expected(self, cell: Cell) -> float:
        """The longest that a cell of this model took, else of any, without starting torch: 0 before the first."""
        return self._took.get(cell.workload.model, max(self._took.values(), default=0.0))

    def _record(self, cell: Cell) -> Result:
        started = self.clock()
        try:
            examination = self.measure(cell.workload, min(self.limits.cell, self._left()))
        except (MemdoctorError, Bug) as error:
            return self._failed(cell, error, self.clock() - started)
        seconds = self.clock() - started
        alone = min(seconds, examination.provenance.seconds) if self._starts else seconds
        self._took[cell.workload.model] = max(alone, self._took.get(cell.workload.model, 0.0))
        self._recorded, self._starts = True, isinstance(examination.outcome, RanOut)
        if self.device is None:
            self.device = examination.device
            if settled := self._settled(cell, self.device):
                return settled
        path = file_of(self.folder, self.device.name, cell.name)
        size = save(path, examination, force=self.force)
        return Result(cell.name, State.RECORDED, _remark(examination, size), path.name, size, round(seconds, 1))

    def _failed(self, cell: Cell, error: MemdoctorError | Bug, seconds: float) -> Result:
        self._starts = True
        if not isinstance(error, TooSlow):  # which says something of the cell, not of the machine
            self._errors.append(error)
        if not self._recorded and [_reason(one) for one in self._errors].count(_reason(error)) >= SAME_ERRORS:
            raise error
        detail = str(error) if isinstance(error, Bug) else ""
        hint = error.hint if isinstance(error, MemdoctorError) else ""
        return Result(cell.name, State.FAILED, _in_a_line(error), seconds=round(seconds, 1), detail=detail, hint=hint)


def _kept(cell: Cell, path: Path, why: str) -> Result:
    return Result(cell.name, State.SKIPPED, f"{why}; --force records it anew", path.name)


def _reason(error: MemdoctorError | Bug) -> str:
    """What two errors have in common that have one cause."""
    return error.why or error.what if isinstance(error, MemdoctorError) else _in_a_line(error)


def _in_a_line(error: MemdoctorError | Bug) -> str:
    if isinstance(error, MemdoctorError):
        return f"{error.what}: {error.why}" if error.why else error.what
    return f"bug: {str(error).strip().splitlines()[-1]}"


def _remark(examination: Examination, size: int) -> str:
    remarks = []
    if isinstance(examination.outcome, RanOut):
        remarks.append("ran out of memory")
    if size > MOST_BYTES:
        remarks.append(f"{format_bytes(size)} are more than a recording should have ({format_bytes(MOST_BYTES)})")
    return "; ".join(remarks)
