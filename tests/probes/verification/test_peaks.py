"""What accumulation adds to a peak, from events by hand and from a layer whose bytes are known."""

from __future__ import annotations

import pytest
import torch

from memdoctor.probes.verification.loops import LoopJob
from memdoctor.probes.verification.memory import Footprint, footprint
from memdoctor.probes.verification.peaks import accumulated_peaks, growth_bytes
from memdoctor.records import AccumulatedPeak, Event, Phase, PhaseName, Workload

F32 = 4
IN, OUT, ROWS = 6, 5, 3
PARAMETERS = (IN * OUT + OUT) * F32


def test_the_parts_of_a_peak_sum_to_it() -> None:
    with pytest.raises(ValueError, match="do not sum to it"):
        AccumulatedPeak(
            phase="forward", micro_batch_peak_bytes=10, persistent_gradient_bytes=5, in_both_bytes=0,
            other_input_bytes=1, unexplained_bytes=0, accumulated_peak_bytes=15,
        )  # fmt: skip


def by_hand(*, waiting: int, persistent: int) -> Footprint:
    """Forward takes 100 B beside parameters of 7 B; what waits and what persists was born before."""
    born = [size for size in (7, waiting, persistent) if size]
    events = [*(Event(number, size) for number, size in enumerate(born)), Event(9, 100), Event(9, -100)]
    phases = [Phase(1, PhaseName.SETUP, 0, len(born)), Phase(2, PhaseName.FORWARD, len(born), len(events))]
    finished = {len(born) - 1: len(born) - 1} if persistent else {}
    return Footprint(events, phases, finished, {1: {1}} if waiting else {}, [len(born)])


def test_gradients_and_inputs_that_wait_are_the_difference() -> None:
    (peak,) = accumulated_peaks(by_hand(waiting=0, persistent=0), by_hand(waiting=20, persistent=30))
    assert peak == AccumulatedPeak(
        phase="forward", micro_batch_peak_bytes=107, persistent_gradient_bytes=30, in_both_bytes=0,
        other_input_bytes=20, unexplained_bytes=0, accumulated_peak_bytes=157,
    )  # fmt: skip


def test_what_is_neither_is_unexplained() -> None:
    plain = by_hand(waiting=0, persistent=0)
    more = Footprint(
        [Event(5, 11), *plain.events], [Phase(1, PhaseName.SETUP, 0, 2), Phase(2, PhaseName.FORWARD, 2, 4)], {}, {}, [2]
    )
    (peak,) = accumulated_peaks(plain, more)
    assert (peak.unexplained_bytes, peak.accumulated_peak_bytes) == (11, 118)


def layer_loop(job: LoopJob) -> None:
    """One linear layer; its loss is the sum of what it returns."""
    for index in range(len(job.batches)):
        batch = job.batches[index]
        job.model(batch["0"]).sum().backward()
        if (index + 1) % job.accumulation == 0:
            job.optimizer.step()
            job.optimizer.zero_grad()


def of_layer(accumulation: int) -> Footprint:
    torch.manual_seed(0)
    model = torch.nn.Linear(IN, OUT)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [{"0": torch.ones(ROWS, IN)} for _ in range(2 * accumulation)]
    return footprint(layer_loop, LoopJob(Workload(model="layer"), model, optimizer, batches, accumulation))


def test_a_layers_peak_with_accumulation_by_hand() -> None:
    """Beside parameters, a micro-batch's backward holds its input, its output's gradient, and a weight's gradient.

    The output is freed when the loss is there; the gradients of the micro-batches before stay.
    """
    forward, backward, *_ = accumulated_peaks(of_layer(1), of_layer(4))
    own_input, output = ROWS * IN * F32, ROWS * OUT * F32
    assert forward.persistent_gradient_bytes == PARAMETERS
    assert forward.micro_batch_peak_bytes == PARAMETERS + own_input + output + F32
    assert forward.accumulated_peak_bytes == forward.micro_batch_peak_bytes + PARAMETERS
    assert (forward.other_input_bytes, forward.unexplained_bytes, forward.in_both_bytes) == (0, 0, 0)
    assert backward.persistent_gradient_bytes == PARAMETERS
    assert backward.unexplained_bytes == 0


def test_nothing_is_left_behind_by_a_layer() -> None:
    assert growth_bytes(of_layer(4)) == 0
