"""From two small batches to any batch."""

from memdoctor.scaling.events import Need, Replayer, aligned
from memdoctor.scaling.pair import Pair
from memdoctor.scaling.prediction import LARGEST_BATCH, Model, model_of, predictions_at, scaling_of

__all__ = ["LARGEST_BATCH", "Model", "Need", "Pair", "Replayer", "aligned", "model_of", "predictions_at", "scaling_of"]
