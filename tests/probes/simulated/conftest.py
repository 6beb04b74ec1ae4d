"""What the tests of the simulated probe share: training toys and small models, and questions to a timeline.

A probe collects garbage before it starts. Libraries and earlier results are none, and would be looked at each time,
which takes longer than a small probe: so they are frozen first.
"""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from memdoctor.records import Block, Device, Examination, Phase, Timeline, Workload

if TYPE_CHECKING:  # imported where they are used: the allocator's tests, next door, need neither
    import torch

TIB = 1 << 40


@dataclass(frozen=True, slots=True)
class Run:
    """A timeline and the questions that tests ask of it. An instant is the number of an event: the state after it.

    ``nth`` tells apart the phases of one name and step: gradient accumulation has one per micro-batch.
    """

    timeline: Timeline

    def phase(self, name: str, step: int = 1, nth: int = 0) -> Phase:
        return [phase for phase in self.timeline.phases if (phase.name.value, phase.step) == (name, step)][nth]

    def end(self, name: str, step: int = 1, nth: int = 0) -> int:
        """The instant at which the phase ends."""
        return self.phase(name, step, nth).end - 1

    def last(self) -> int:
        """The instant at which the recording ends."""
        return len(self.timeline.events) - 1

    def peak(self, name: str, step: int = 1, nth: int = 0) -> int:
        """The instant of the phase at which most is in use, counting what was there when it began."""
        phase, in_use = self.phase(name, step, nth), self.timeline.in_use()
        return max(range(phase.begin - 1, phase.end), key=in_use.__getitem__)

    def alive(self, instant: int) -> list[Block]:
        return [self.timeline.blocks[number] for number in self.timeline.alive_after(instant)]

    def held(self, instant: int) -> Counter[str]:
        """Bytes by category; a category that holds nothing counts 0."""
        total: Counter[str] = Counter()
        for block in self.alive(instant):
            total[block.category.value] += block.bytes
        return total

    def born(self, name: str, step: int = 1, nth: int = 0) -> list[Block]:
        """The blocks that the phase made, in order."""
        phase = self.phase(name, step, nth)
        events = self.timeline.events[phase.begin : phase.end]
        return [self.timeline.blocks[event.block] for event in events if event.delta_bytes > 0]


def card(capability: str = "7.5", total_bytes: int = TIB) -> Device:
    """A card of which nothing but PyTorch's allocator takes memory."""
    return Device(
        name="toy", total_bytes=total_bytes, compute_capability=capability, context_bytes=0, context_error_bytes=0,
        context_source="none", source="made up",
    )  # fmt: skip


@pytest.fixture(scope="session")
def make_card() -> Callable[..., Device]:
    """``make_card(capability, total_bytes)``: a card of which nothing but PyTorch's allocator takes memory."""
    return card


@pytest.fixture(scope="session")
def train() -> Callable[..., Run]:
    """``train(make_model, batch, capability=..., steps=..., **workload)``: train a toy that returns its loss."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from memdoctor.probes.simulated.recording import record

    def train_toy(
        make_model: Callable[[], torch.nn.Module],
        batch: Mapping[str, torch.Tensor],
        *,
        capability: str = "7.5",
        steps: int = 1,
        **workload: Any,
    ) -> Run:
        gc.freeze()
        with FakeTensorMode() as fake:
            model = make_model()
        settings = {"optimizer": "sgd", "max_grad_norm": 0.0, **workload}
        recording = record(
            Workload(model="toy", **settings), card(capability), model, fake, lambda workload, number: batch, steps,
            all_micro_steps=True,
        )  # fmt: skip
        return Run(recording.timeline)

    return train_toy


@pytest.fixture(scope="session")
def probe() -> Callable[..., Examination]:
    """``probe(config, capability=..., steps=..., ..., **workload)``: a model, each kind probed once."""
    from memdoctor.probes.simulated.probe import simulate

    done: dict[str, Examination] = {}

    def probe_model(
        config: Mapping[str, Any],
        *,
        capability: str = "7.5",
        steps: int = 2,
        total_bytes: int = TIB,
        alloc_conf: str = "",
        **workload: Any,
    ) -> Examination:
        key = json.dumps([config, capability, steps, total_bytes, alloc_conf, workload], sort_keys=True)
        if key not in done:
            gc.freeze()
            settings = Workload(**{"model": config["model_type"], "batch_size": 2, "seq_length": 32, **workload})
            device = replace(card(capability, total_bytes), alloc_conf=alloc_conf)
            done[key] = simulate(settings, device, config, "a test", steps)
        return done[key]

    return probe_model


@pytest.fixture(scope="session")
def probed(probe: Callable[..., Examination]) -> Callable[..., Run]:
    """As ``probe``, with the questions that tests ask of a timeline."""
    return lambda config, **settings: Run(probe(config, **settings).timeline)


@pytest.fixture(scope="session")
def small_bert() -> Callable[..., dict[str, Any]]:
    """``small_bert(**changes)``: the facts of a BERT with two layers, a hidden size of 64 and four heads."""
    facts = {
        "model_type": "bert", "vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 256, "max_position_embeddings": 512, "type_vocab_size": 2, "pad_token_id": 0,
    }  # fmt: skip
    return lambda **changes: {**facts, **changes}
