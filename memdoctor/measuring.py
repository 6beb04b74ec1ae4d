"""Measuring beside simulating: which workloads run where, and what came of each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from memdoctor.agreement import compare
from memdoctor.cases import Case
from memdoctor.errors import MemdoctorError
from memdoctor.probes.cached import Cache, open_cache
from memdoctor.probes.pool import Pool, Request
from memdoctor.records import Backend, Change, Comparison, Completed, Device, Examination, Workload

Probed = Examination | MemdoctorError
Subject = tuple[Workload, Device]
"""What is probed: a workload on a card with its allocator's settings."""
Progress = Callable[[int, int, int, str], None]
"""Told how many probes are done, how many of those the cache had, how many there are so far, and what the last one was.
"""


@dataclass(slots=True)
class Probing:
    """Probes workloads: on the GPU of this machine where the case has one, and simulated (or on the CPU) beside.

    Each is probed once in each way. As soon as one step was measured, ``case.device`` is the card as it was found
    then, and what was simulated before was on another. Workloads are simulated on any card, and measured on that of the
    case alone.
    """

    case: Case
    plain: Pool
    gpu: Pool | None
    progress: Progress | None = None
    cache: Cache | None = None
    simulations: dict[Subject, Probed] = field(default_factory=dict)
    measured: dict[Workload, Probed] = field(default_factory=dict)
    _done: int = 0
    _expected: int = 0

    @property
    def probes(self) -> int:
        """How many probes have run so far."""
        return self._done

    def simulate(self, workloads: Iterable[Workload]) -> None:
        """Run them on the case's card in the plain pool, side by side."""
        self.simulate_on([(workload, self.case.device) for workload in workloads])

    def simulate_on(self, subjects: Iterable[Subject]) -> None:
        """Run each on its own card in the plain pool, side by side."""
        new = [subject for subject in dict.fromkeys(subjects) if subject not in self.simulations]
        self.simulations |= zip(new, self._attempt(self.plain, new), strict=True)

    def simulated(self, workload: Workload, device: Device | None = None) -> Probed | None:
        """What came of simulating it, on the case's card unless told; ``None`` where that was not tried."""
        return self.simulations.get((workload, device or self.case.device))

    def ask(self, subjects: Sequence[Subject]) -> list[Examination | None]:
        """What came of each when it was simulated, in their order; ``None`` for what cannot be."""
        self.simulate_on(subjects)
        results = [self.simulated(*subject) for subject in subjects]
        return [result if isinstance(result, Examination) else None for result in results]

    def measure(self, workloads: Iterable[Workload]) -> None:
        """Run them on the GPU, one after another; none where the first ones have shown that nothing can run there.

        Raises:
            MemdoctorError: the first error of all, where the case insists on the GPU and nothing has worked.
        """
        if self.gpu is None:
            return
        for workload in dict.fromkeys(workloads):
            if workload in self.measured or (self.measured and not self.works):
                continue
            knew = self.works
            self.measured[workload] = result = self._attempt(self.gpu, [(workload, self.case.device)])[0]
            if isinstance(result, Examination) and not knew:
                self.case = replace(self.case, device=result.device)
        if self.case.backend is Backend.GPU and self.measured and not self.works:
            raise next(result for result in self.measured.values() if isinstance(result, MemdoctorError))

    def measure_what_fits(self, workloads: Iterable[Workload]) -> None:
        """Measure those that are predicted to fit, and those of which nothing could be predicted."""
        self.measure([workload for workload in workloads if not _ran_out(self.simulated(workload))])

    def examine_again(self, workload: Workload, times: int) -> list[Examination]:
        """Probe it so many times more, in the way in which it was probed best."""
        pool = self.gpu if self.gpu is not None and isinstance(self.measured.get(workload), Examination) else self.plain
        self._expected += times
        return pool.examine([self._request((workload, self.case.device))] * times, self._on_done)

    @property
    def works(self) -> bool:
        """Whether the GPU has completed or refused a step so far."""
        return any(isinstance(result, Examination) for result in self.measured.values())

    def best(self, workload: Workload) -> Examination:
        """As it was measured, else as it was simulated.

        Raises:
            MemdoctorError: neither was possible; this is why.
        """
        results = (self.measured.get(workload), self.simulated(workload))
        for result in results:
            if isinstance(result, Examination):
                return result
        raise next(result for result in results if isinstance(result, MemdoctorError))

    def alike(
        self, target: Workload, other: Workload, device: Device | None = None
    ) -> tuple[Examination, Examination] | None:
        """Two workloads probed in the same way: measured, where both ran to their end, else simulated.

        ``device`` is the other's, where that is not the case's: then it is simulated.
        """
        measured = self.measured.get(target), self.measured.get(other)
        here = device is None or device == self.case.device
        if here and all(isinstance(result, Examination) and not _ran_out(result) for result in measured):
            return _pair(measured)
        return _pair((self.simulated(target), self.simulated(other, device)))

    def comparisons(self, changes: Sequence[tuple[Change, Workload]]) -> tuple[Comparison, ...]:
        """Every workload that was both measured on the GPU and simulated, by its change."""
        pairs = [(change, _pair((self.measured.get(item), self.simulated(item)))) for change, item in changes]
        return tuple(compare(change, *pair) for change, pair in pairs if pair is not None)

    def notes(self, target: Workload) -> Iterator[str]:
        """Why what should have been measured was not; the target above all."""
        failed = [result for result in self.measured.values() if isinstance(result, MemdoctorError)]
        yield from dict.fromkeys(f"not measured: {_reason(result)}" for result in failed)
        if self.gpu is not None and target not in self.measured and _ran_out(self.simulated(target)):
            yield "not measured: it is predicted not to fit on this card, as it is now"

    def _attempt(self, pool: Pool, subjects: Sequence[Subject]) -> list[Probed]:
        self._expected += len(subjects)
        requests = [self._request(subject) for subject in subjects]
        if self.cache is not None and pool is self.plain:
            return self.cache.attempt(pool, requests, self._on_done)
        return pool.attempt(requests, self._on_done)

    def _request(self, subject: Subject) -> Request:
        return Request(*subject, self.case.facts)

    def _on_done(self, request: Request, _result: object) -> None:
        self._done += 1
        if self.progress is not None:
            recalled = self.cache.recalled if self.cache is not None else 0
            self.progress(self._done, recalled, self._expected, describe(request.workload))


@contextmanager
def probing(case: Case, time_limit: float, progress: Progress | None, *, use_cache: bool = True) -> Iterator[Probing]:
    """The pools that a case needs. Processes start with their first request, and the GPU is free when all is over.

    With ``use_cache`` simulated probes are taken from the cache on disk where this environment has one.
    """
    with ExitStack() as pools:
        kind = Backend.CPU if case.backend is Backend.CPU else Backend.SIMULATED
        plain = pools.enter_context(Pool(kind, time_limit=time_limit))
        gpu = pools.enter_context(Pool(Backend.GPU, time_limit=time_limit)) if case.tries_gpu else None
        cache = open_cache(os.environ) if use_cache and kind is Backend.SIMULATED else None
        yield Probing(case, plain, gpu, progress, cache)


def describe(workload: Workload) -> str:
    """The workload in a few words: ``batch 8 x 512, fp32, checkpointing``."""
    words = [f"batch {workload.batch_size} x {workload.seq_length}", workload.precision.value]
    if workload.gradient_checkpointing:
        words.append("checkpointing")
    if workload.evaluate:
        words.append("evaluation")
    return ", ".join(words)


def _ran_out(result: Probed | None) -> bool:
    return isinstance(result, Examination) and not isinstance(result.outcome, Completed)


def _pair(results: tuple[Probed | None, Probed | None]) -> tuple[Examination, Examination] | None:
    first, second = results
    return (first, second) if isinstance(first, Examination) and isinstance(second, Examination) else None


def _reason(error: MemdoctorError) -> str:
    return f"{error.what} ({error.why})" if error.why else error.what
