"""What is known without a network: checkpoints of the BERT family and GPUs, as facts with sources."""

from memdoctor.catalogue.entries import ConfigValue, GpuEntry, ModelEntry
from memdoctor.catalogue.gpu_names import find_gpu, near_gpus, rates_of
from memdoctor.catalogue.model_names import find_model, near_models
from memdoctor.catalogue.tables import gpus, models

__all__ = [
    "ConfigValue",
    "GpuEntry",
    "ModelEntry",
    "find_gpu",
    "find_model",
    "gpus",
    "models",
    "near_gpus",
    "near_models",
    "rates_of",
]
