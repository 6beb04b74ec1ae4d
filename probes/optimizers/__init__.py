"""Optimizers by the Trainer's names, built as the Trainer builds them."""

from memdoctor.probes.optimizers.build import build_optimizer
from memdoctor.probes.optimizers.names import NOT_SIMULATED, OPTIMIZERS, updates_in_backward
from memdoctor.probes.optimizers.state import state_tensors

__all__ = ["NOT_SIMULATED", "OPTIMIZERS", "build_optimizer", "state_tensors", "updates_in_backward"]
