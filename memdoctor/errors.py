"""One tree of errors that a user can act on; everything else is a bug and keeps its traceback.

MemdoctorError
├── UsageError        exit 2   the command line or a setting is wrong
├── InputError        exit 5   a file, model or GPU name is missing, unreadable or unsupported
└── MeasureError      exit 6   what was asked could not be probed here
    └── WorkerError   exit 6   the worker process died, hung or was killed
        └── TooSlow   exit 6   the probe took longer than it may
"""

from __future__ import annotations

from typing import ClassVar

_LONGEST_LINE = 600


class MemdoctorError(Exception):
    """Something the user can act on: what happened, why, and what to do about it."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, why: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        """The whole message on up to three lines."""
        lines = [self.what, self.why and f"  why: {self.why}", self.hint and f"  try: {self.hint}"]
        return "\n".join(map(_presentable, filter(None, lines)))


def _presentable(line: str) -> str:
    """A line that may quote what a user typed or a file held: no control characters, and of bearable length."""
    clean = "".join(character if character.isprintable() else "?" for character in line)
    return clean if len(clean) <= _LONGEST_LINE else f"{clean[: _LONGEST_LINE // 2]} ... {clean[-_LONGEST_LINE // 2 :]}"


class UsageError(MemdoctorError):
    """The command line or a setting is wrong."""

    exit_code = 2


class InputError(MemdoctorError):
    """An input is missing, unreadable or unsupported."""

    exit_code = 5


class MeasureError(MemdoctorError):
    """What was asked could not be probed on this machine, or with this model."""

    exit_code = 6


class WorkerError(MeasureError):
    """The worker process that runs the probe died, hung or was killed."""


class TooSlow(WorkerError):
    """The probe took longer than its time limit."""
