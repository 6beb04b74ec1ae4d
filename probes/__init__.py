"""Probes: from a workload and a device to an examination. The only layer that touches torch or hardware."""
