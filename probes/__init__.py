"""Probes: from a workload and a device to an examination. The only layer that touches torch or hardware."""

STEPS = 2  # the first optimizer step makes the optimizer's state; the second is like all that follow
