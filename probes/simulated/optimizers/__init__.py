"""What optimizers of other libraries need on a simulated GPU: stand-ins for kernels and for calls of CUDA."""

from memdoctor.probes.simulated.optimizers.standins import standing_in

__all__ = ["standing_in"]
