"""Probes of many batches, of which only the peak is kept; and edges from predictions and such probes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from memdoctor.analysis import peak_of
from memdoctor.cases import MOST_TOKENS
from memdoctor.errors import MemdoctorError
from memdoctor.measuring import Probing, Subject
from memdoctor.planning import EdgeSearch, edge_search, predicted_edge, run_searches
from memdoctor.records import Completed, Device, Edge, Examination, Provenance, Trial
from memdoctor.scaling import LARGEST_BATCH, Pair, Replayer, model_of

SMALL = (2, 3)  # batches that all others are predicted from; with one row nothing is broadcast
_TOGETHER = 24  # probes whose timelines are held at once, some MiB each
_START = 1  # where the search begins when nothing could be predicted


Keep = Callable[[Subject, Examination], None]


@dataclass(slots=True)
class Looker:
    """Probes in a session, each subject once, and forgets the timelines: a table has hundreds of them.

    ``replayed`` replays on a card. ``provenance`` is that of the first probe that came to something.
    """

    session: Probing
    replayed: Callable[[Device], Replayer]
    provenance: Provenance | None = None
    _trials: dict[Subject, Trial | MemdoctorError] = field(default_factory=dict)
    _pairs: dict[Subject, Pair | MemdoctorError] = field(default_factory=dict)

    def look(self, subjects: Sequence[Subject], keep: Keep | None = None) -> list[Trial | MemdoctorError]:
        """Whether each fits, with its peak, or why it cannot be probed. ``keep`` is handed what is new."""
        new = [subject for subject in dict.fromkeys(subjects) if subject not in self._trials]
        for first in range(0, len(new), _TOGETHER):
            some = new[first : first + _TOGETHER]
            for subject, result in zip(some, self._probe(some), strict=True):
                self._trials[subject] = result if isinstance(result, MemdoctorError) else _trial(result)
                if keep is not None and isinstance(result, Examination):
                    keep(subject, result)
        return [self._trials[subject] for subject in subjects]

    def pairs(self, subjects: Sequence[Subject]) -> list[Pair | MemdoctorError]:
        """The two small batches of each subject, whatever its own; or why they cannot be probed."""
        new = [subject for subject in dict.fromkeys(subjects) if subject not in self._pairs]
        results = iter(self._probe([at(subject, batch) for subject in new for batch in SMALL]))
        for subject, small, larger in zip(new, results, results, strict=True):
            errors = [result for result in (small, larger) if isinstance(result, MemdoctorError)]
            if isinstance(small, Examination) and isinstance(larger, Examination):
                self._pairs[subject] = Pair(small, larger)
            else:
                self._pairs[subject] = errors[0]
        return [self._pairs[subject] for subject in subjects]

    def edges(self, pairs: Mapping[Subject, Pair | None]) -> dict[Subject, Edge | MemdoctorError]:
        """The edge of each subject, whatever its own batch, from where the pair of small batches predicts it to be."""
        anchors: dict[Subject, Examination] = {}
        predicted = {subject: self._predict(subject, pair) for subject, pair in pairs.items()}
        tried: dict[Subject, dict[int, Trial]] = {subject: {} for subject in predicted}
        errors: dict[Subject, MemdoctorError] = {}

        def probe(questions: Sequence[tuple[Subject, int]]) -> list[bool]:
            of = {at(subject, batch): subject for subject, batch in questions}
            seen = self.look(list(of), lambda asked, result: anchors.update({of[asked]: result}))
            for (subject, batch), trial in zip(questions, seen, strict=True):
                if isinstance(trial, MemdoctorError):
                    errors.setdefault(subject, trial)
                else:
                    tried[subject][batch] = trial
            return [isinstance(trial, Trial) and trial.fits for trial in seen]

        def search(subject: Subject, start: int | None) -> EdgeSearch:
            def again(batch: int) -> int | None:
                anchor = anchors.get(subject)
                near = anchor is not None and anchor.workload.batch_size == batch
                return self._predict(subject, pairs[subject], anchor) if near else None

            return edge_search(_START if start is None else start, cap_of(subject), again)

        searches = {subject: search(subject, start) for subject, start in predicted.items()}
        found = run_searches(searches, probe)
        return {
            subject: errors[subject]
            if subject in errors
            else _edge(largest, predicted[subject], subject, tried[subject])
            for subject, largest in found.items()
        }

    def _predict(self, subject: Subject, pair: Pair | None, anchor: Examination | None = None) -> int | None:
        """The largest batch that the pair predicts to fit the subject's card, which need not be the pair's.

        With an ``anchor``, a larger batch probed on that card, kernels' own memory is that which they take there.
        """
        if pair is None:
            return None
        device = subject[1]
        larger = replace(pair.next, device=device)
        model = model_of(replace(pair, next=larger), anchor or larger, self.replayed(device))
        return predicted_edge(model, pair.phase_lines(), device.allocator_limit_bytes, cap_of(subject))

    def _probe(self, subjects: Sequence[Subject]) -> list[Examination | MemdoctorError]:
        self.session.simulate_on(subjects)
        results = [self.session.simulations.pop(subject) for subject in subjects]
        if self.provenance is None:
            examinations = (result for result in results if isinstance(result, Examination))
            self.provenance = next((examination.provenance for examination in examinations), None)
        return results


def at(subject: Subject, batch: int) -> Subject:
    """The subject with another batch."""
    workload, device = subject
    return replace(workload, batch_size=batch), device


def cap_of(subject: Subject) -> int:
    """The largest batch that is ever probed at the subject's length."""
    return min(LARGEST_BATCH, max(MOST_TOKENS // subject[0].seq_length, 1))


def _trial(examination: Examination) -> Trial:
    fits = isinstance(examination.outcome, Completed)
    return Trial(batch_size=examination.workload.batch_size, fits=fits, peak=peak_of(examination))


def _edge(largest: int, predicted: int | None, subject: Subject, tried: Mapping[int, Trial]) -> Edge:
    return Edge(
        largest_batch=largest or None,
        predicted_batch=predicted,
        capped=largest == cap_of(subject),
        trials=tuple(tried[batch] for batch in sorted(tried)),
    )
