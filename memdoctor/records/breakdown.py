"""Where the bytes of a card are at one instant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from memdoctor.records.timeline import Category


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Bytes by holder at an instant; the twelve parts sum to the card. ``free`` is negative by the shortfall."""

    parameters: int = 0
    gradients: int = 0
    optimizer_state: int = 0
    activations: int = 0
    inputs_and_buffers: int = 0
    autocast_copies: int = 0
    temporaries: int = 0
    workspace: int = 0
    allocator_overhead: int = 0
    context: int = 0
    other_processes: int = 0
    free: int = 0

    def __post_init__(self) -> None:
        """Only ``free`` may be negative."""
        for item in fields(self):
            if item.name != "free" and getattr(self, item.name) < 0:
                raise ValueError(f"{item.name} is negative: {getattr(self, item.name)}")

    @property
    def allocated(self) -> int:
        """The sum of the categories: bytes that live tensors and workspaces asked for."""
        return sum(getattr(self, category.value) for category in Category)

    @property
    def reserved(self) -> int:
        """What PyTorch's allocator holds from the driver."""
        return self.allocated + self.allocator_overhead

    @property
    def device(self) -> int:
        """What this process and the others hold on the card."""
        return self.reserved + self.context + self.other_processes

    def items(self) -> Iterator[tuple[str, int]]:
        """Name and bytes, in the order of every view: the user's four first."""
        return ((item.name, getattr(self, item.name)) for item in fields(self))
