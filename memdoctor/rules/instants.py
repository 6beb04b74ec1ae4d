"""What is alive at an instant that is not the peak of the whole run: the peak of a phase, the end of a step."""

from __future__ import annotations

from memdoctor.records import Block, PhaseName
from memdoctor.rules.evidence import Evidence


def blocks_at_peak_of(evidence: Evidence, name: PhaseName) -> tuple[Block, ...]:
    """The blocks alive when most is in use in any phase of this name; none where there is no such phase."""
    timeline = evidence.examination.timeline
    in_use = timeline.in_use()
    events = [event for phase in timeline.phases if phase.name is name for event in range(phase.begin, phase.end)]
    if not events:
        return ()
    at = max(events, key=in_use.__getitem__)
    return tuple(timeline.blocks[number] for number in timeline.alive_after(at))


def born_in(evidence: Evidence, name: PhaseName) -> frozenset[Block]:
    """The blocks born in any phase of this name."""
    timeline = evidence.examination.timeline
    return frozenset(
        timeline.blocks[event.block]
        for phase in timeline.phases
        if phase.name is name
        for event in timeline.events[phase.begin : phase.end]
        if event.delta_bytes > 0
    )


def ran_out_in(evidence: Evidence, *names: PhaseName) -> bool:
    """Whether the run ran out of memory, and in one of these phases."""
    return evidence.ran_out is not None and evidence.ran_out.phase in names
