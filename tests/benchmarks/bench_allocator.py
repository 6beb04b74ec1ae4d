"""How long a replay of a million events takes: prints the median of a few runs.

Run from the repository root: ``python tests/benchmarks/bench_allocator.py [EVENTS [RUNS]]``. The events are
seeded mixes of births and deaths in the sizes of a BERT step, with about 3,000 blocks alive.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter

from memdoctor.probes.simulated.allocator.replay import replay
from memdoctor.records import Event

LIVE_BLOCKS = 3_000
SMALL_SIZES = (512, 3_072, 4_096, 16_384, 98_304, 196_608, 786_432)
LARGE_SIZES = (1_572_864, 2_359_296, 4_718_592, 6_291_456, 9_437_184, 25_165_824, 93_763_584)

Sizes = Callable[[random.Random], int]


def repeated(rng: random.Random) -> int:
    """Draw one of the few sizes that a step of fixed shape asks for again and again."""
    return rng.choice(SMALL_SIZES if rng.random() < 0.6 else LARGE_SIZES) + rng.choice((0, 0, 40))


def arbitrary(rng: random.Random) -> int:
    """Draw any size, as with a new sequence length each step: free blocks splinter and coalesce all the time."""
    return int(2 ** rng.uniform(9, 25))


def mixed_events(count: int, size: Sizes, seed: int = 0) -> Iterator[Event]:
    """Yield ``count`` births and deaths; deaths favour the youngest blocks, as a training step does."""
    rng = random.Random(seed)
    live: list[Event] = []
    for number in range(count):
        if len(live) < rng.gauss(LIVE_BLOCKS, LIVE_BLOCKS / 10):
            live.append(Event(number, size(rng)))
            yield live[-1]
        else:
            oldest = max(0, len(live) - 50) if rng.random() < 0.8 else 0
            born = live.pop(rng.randrange(oldest, len(live)))
            yield Event(born.block, -born.delta_bytes)


def seconds(events: list[Event]) -> float:
    """Time one replay."""
    start = perf_counter()
    replay(events)
    return perf_counter() - start


def main(arguments: list[str]) -> None:
    """Print the median and the range for each mix of sizes."""
    count = int(arguments[0]) if arguments else 1_000_000
    runs = int(arguments[1]) if len(arguments) > 1 else 3
    for size in (repeated, arbitrary):
        events = list(mixed_events(count, size))
        times = [seconds(events) for _ in range(runs)]
        print(
            f"{size.__name__} sizes: {count:,} events, {runs} runs: median {median(times):.2f} s "
            f"({count / median(times):,.0f} events/s), from {min(times):.2f} to {max(times):.2f} s"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
