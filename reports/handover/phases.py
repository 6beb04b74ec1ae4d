"""What both hand-overs say of phases and of what a trace cannot show."""

from __future__ import annotations

from memdoctor.errors import InputError
from memdoctor.records import Diagnosis, Phase, Timeline

CLOCK = "the number of the event in the timeline, one microsecond each: how long anything took is not known"


def timeline_of(diagnosis: Diagnosis) -> Timeline:
    """The timeline of the target.

    Raises:
        InputError: there is none, or nothing happened in it.
    """
    if diagnosis.timeline is None or not diagnosis.timeline.events:
        raise InputError(
            "there is no timeline to hand over",
            why="nothing happened in it" if diagnosis.timeline else "this file is of memdoctor 0.1, which kept none",
            hint="memdoctor diagnose -o FILE again, or the file that memdoctor probe -o wrote",
        )
    return diagnosis.timeline


def label(phase: Phase) -> str:
    """A phase in words: ``setup``, or ``step 2, backward``."""
    return f"step {phase.step}, {phase.name.value}" if phase.step else phase.name.value


def notes_of(diagnosis: Diagnosis) -> tuple[str, ...]:
    """What whoever reads a trace has to know: where it is from, and what is not in it."""
    provenance = diagnosis.provenance
    notes = [f"{provenance.mode} by memdoctor {provenance.memdoctor} with torch {provenance.torch}", f"time is {CLOCK}"]
    if diagnosis.repeated_micro_steps:
        notes.append(
            f"{diagnosis.repeated_micro_steps} micro-steps of each step are not in it: they repeat the last one that is"
        )
    if diagnosis.ran_out is not None:
        notes.append(
            "it ends where memory ran out: the request that was refused is not in it"
            if cut_short(diagnosis)
            else "memory ran out on this card at the oom; what follows was simulated on the smallest card that it fits"
        )
    return tuple(notes)


def cut_short(diagnosis: Diagnosis) -> bool:
    """Whether the last event of the timeline is a request that was refused, and nothing is known of what follows."""
    return diagnosis.ran_out is not None and diagnosis.provenance.mode == "measured"
