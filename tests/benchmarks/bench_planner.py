"""The planner beside exhaustive search over its own levers, on workloads that do not fit; nothing is measured here.

Run as ``python tests/benchmarks/bench_planner.py [--cells N] [--skip N] [--of WORD] [--exhaustive]``. The grid is four
models on three cards at three lengths and with three batches. Per cell it prints, for each cost of a change, the step
time of the fastest plan over that of the fastest setting that fits when probed directly, each by the estimate of its
own probe; then the probes that the planner asked for. Without ``--exhaustive`` only those are probed that are forecast
to be faster than what was found: all, where nothing was.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from memdoctor.analysis import peak_of
from memdoctor.catalogue import rates_of
from memdoctor.doctor import open_case, replayed_on
from memdoctor.measuring import Probing, probing
from memdoctor.planning import Clock, Forecasts, Found, Search
from memdoctor.planning.settings import ORDER, Setting, expandable, setting_of, splits, structures, task_changes
from memdoctor.records import Change, Cost, Device, Examination, Rates, Workload
from memdoctor.steptime import estimate

MODELS = ("bert-base-uncased", "roberta-base", "distilbert-base-uncased", "bert-large-uncased")
CARDS = (("T4", "5 GiB"), ("RTX3060", "6 GiB"), ("V100-16GB", "7 GiB"))
"""Cards with less memory than they have, so that the workloads do not fit."""
LENGTHS = (128, 256, 512)
TOKENS = (32 * 512, 48 * 512, 64 * 512)
COSTS = ORDER[:-1]
STRIDE = 31  # shares no factor with the number of cells: a sample is spread out over all four dimensions


@dataclass(slots=True)
class Tally:
    """What came of all cells."""

    cells: int = 0
    fitted: int = 0
    missed: list[str] = field(default_factory=list)
    slower: list[str] = field(default_factory=list)
    worst: float = 1.0
    planner: int = 0
    direct: int = 0


@dataclass(slots=True)
class Cell:
    """One workload on one card, the search for it and every setting that its levers allow."""

    session: Probing
    search: Search
    rates: Rates

    @property
    def target(self) -> Workload:
        """What is to fit."""
        return self.search.forecasts.target

    @property
    def device(self) -> Device:
        """The card."""
        return self.search.forecasts.device

    def settings(self, tasks: Sequence[Change] = ({},)) -> Iterator[Setting]:
        """Structures and splits of the batch, each with each."""
        for cost in COSTS:
            made = product(structures(self.target, self.device, cost, {}), splits(self.target), tasks)
            for (structure, structure_cost), split, task in made:
                setting = setting_of(self.target, {**structure, **task}, structure_cost, split)
                if setting.cost == cost:
                    yield setting

    def probed(self, settings: Sequence[Setting]) -> list[Found]:
        """Each probed directly, and with the allocator's pages where that is what may help: it takes no more time."""
        plain = self._probed(settings)
        pages = expandable(self.device) or {}
        helped = [
            Setting({**s.change, **pages}, s.cost, s.batch, s.accumulation)
            for s, peak in ((found.setting, peak_of(found.examination)) for found in plain if not found.fits)
            if peak.allocated_bytes <= self.device.allocator_limit_bytes
        ]
        return [*plain, *self._probed(helped)]

    def _probed(self, settings: Sequence[Setting]) -> list[Found]:
        found = self.session.ask([setting.of(self.target, self.device) for setting in settings])
        return [Found(s, examination) for s, examination in zip(settings, found, strict=True) if examination]

    def seconds(self, examination: Examination) -> float:
        """Of a step, by the work that its own probe counted."""
        return estimate(examination, self.rates).seconds

    def fastest(self, found: Sequence[Found], cost: Cost) -> float | None:
        """Of those of this cost that fit."""
        return min((self.seconds(f.examination) for f in found if f.fits and f.setting.cost == cost), default=None)


def rivals(cell: Cell, ours: dict[Cost, float | None], everything: bool) -> list[Setting]:
    """What has to be probed to know the fastest."""
    forecasts, clock = cell.search.forecasts, cell.search.clock

    def may_win(setting: Setting) -> bool:
        best = ours[setting.cost]
        return everything or best is None or clock.expected(setting, forecasts) < best

    return [setting for setting in cell.settings() if may_win(setting)]


def run(label: str, cell: Cell, tally: Tally, everything: bool) -> None:
    """Plan, look at everything, print, count."""
    started, before = time.perf_counter(), cell.session.probes
    found = cell.search.run()
    took, asked = time.perf_counter() - started, cell.session.probes - before
    ours = {cost: cell.fastest(found, cost) for cost in COSTS}
    all_ = cell.probed(rivals(cell, ours, everything))
    words = []
    for cost in COSTS:
        best, mine = cell.fastest([*all_, *found], cost), ours[cost]
        if best is None:
            words.append(f"{cost} nothing fits")
        elif mine is None:
            words.append(f"{cost} MISSED")
            tally.missed.append(f"{label}: {cost}")
        else:
            words.append(f"{cost} {mine / best:.3f}")
            tally.worst = max(tally.worst, mine / best)
            if mine > 1.1 * best:
                tally.slower.append(f"{label}: {cost} {mine / best:.2f}")
    if not found:
        least = cell.probed(list(cell.settings(task_changes(cell.target))))
        if any(item.fits for item in least):
            tally.missed.append(f"{label}: a change of the task")
    tally.cells += 1
    tally.fitted += bool(found)
    tally.planner += asked
    tally.direct += len(all_)
    print(f"{label:<52} {', '.join(words):<52} {asked:3} probes {took:5.1f} s; {len(all_)} settings probed", flush=True)


def main() -> None:
    """Run the cells and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, help="that many, spread out over the grid")
    parser.add_argument("--skip", type=int, default=0, help="so many of the grid, to go on where a run was stopped")
    parser.add_argument("--of", default="", help="only those with this word")
    parser.add_argument("--exhaustive", action="store_true")
    options = parser.parse_args()
    grid = list(product(MODELS, CARDS, LENGTHS, TOKENS))
    grid = [grid[at * STRIDE % len(grid)] for at in range(len(grid))]
    tally = Tally()
    for model, (gpu, memory), length, tokens in grid[options.skip :]:
        batch = tokens // length
        if tally.cells == options.cells:
            break
        label = f"{model} {batch} x {length} on {gpu} of {memory}"
        if options.of not in label:
            continue
        case = open_case(model, gpu=gpu, memory=memory, batch_size=batch, seq_length=length, backend="simulated")
        rates = rates_of(case.device.name)
        assert rates is not None
        with probing(case, 600, None, use_cache=False) as session:
            session.simulate([case.workload])
            target = session.best(case.workload)
            if Found(Setting({}, "none", batch, 1), target).fits:
                print(f"{label:<52} fits as it is")
                continue
            forecasts = Forecasts(case.workload, case.device, session.ask, replayed_on)
            search = Search(forecasts, Clock(rates), target.workload.attention)
            run(label, Cell(session, search, rates), tally, options.exhaustive)
    print(f"{tally.cells} cells that do not fit; a plan for {tally.fitted}; missed: {tally.missed or 'none'}")
    print(f"more than a tenth slower: {tally.slower or 'none'}; slowest {tally.worst:.3f} x the fastest of its cost")
    print(f"{tally.planner / max(tally.cells, 1):.1f} probes a plan; {tally.direct} settings probed beside")


if __name__ == "__main__":
    main()
