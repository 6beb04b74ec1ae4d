"""From two small batches to any batch."""

from memdoctor.scaling.events import Need, aligned
from memdoctor.scaling.prediction import LARGEST_BATCH, scaling_of

__all__ = ["LARGEST_BATCH", "Need", "aligned", "scaling_of"]
