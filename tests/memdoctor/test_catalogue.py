"""The catalogue: its data hold together, and every spelling finds what it means."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable

import pytest

from memdoctor.catalogue import (
    GpuEntry,
    ModelEntry,
    find_gpu,
    find_model,
    gpus,
    models,
    near_gpus,
    near_models,
)
from memdoctor.units import GIB, MIB

# What the box says, in GB, by the end of the name or by the name; the catalogue itself never uses it.
SIZE_ON_THE_BOX = {
    "T4": 16, "P40": 24, "K80": 12, "A10": 24, "A10G": 24, "A30": 24, "A40": 48, "L4": 24, "L40": 48, "L40S": 48,
    "H100-NVL": 94, "H200": 141, "H20": 96, "B200": 192, "A6000": 48, "A5000": 24, "A4000": 16, "RTX6000Ada": 48,
    "RTX-PRO-6000": 96, "QuadroRTX8000": 48, "QuadroRTX6000": 24, "TITAN-RTX": 24, "TITAN-V": 12, "TITAN-Xp": 12,
    "RTX5090": 32, "RTX5080": 16, "RTX4090": 24, "RTX4080-SUPER": 16, "RTX4080": 16, "RTX4070Ti-SUPER": 16,
    "RTX4070Ti": 12, "RTX4070": 12, "RTX4060": 8, "RTX3090Ti": 24, "RTX3090": 24, "RTX3080Ti": 12, "RTX3080": 10,
    "RTX3070": 8, "RTX3060": 12, "RTX2080Ti": 11, "RTX2080-SUPER": 8, "RTX2070-SUPER": 8, "RTX2070": 8,
    "RTX2060-SUPER": 8, "RTX2060": 6, "GTX1080Ti": 11, "GTX1080": 8, "GTX1070": 8,
}  # fmt: skip
PUBLISHED_COUNTS = {
    "bert-base-uncased": 109_482_240,
    "roberta-base": 124_645_632,
    "distilbert-base-uncased": 66_362_880,
    "albert-base-v2": 11_683_584,
    "xlm-roberta-base": 278_043_648,
    "microsoft/deberta-v3-base": 183_831_552,
}
WITHOUT_TORCH = "import sys; from memdoctor.catalogue import *; models(); gpus(); assert 'torch' not in sys.modules"


def spellings(entries: Iterable[ModelEntry | GpuEntry]) -> list[tuple[str, str]]:
    """Every name and alias, each with the name of its entry."""
    return [(spelling, entry.name) for entry in entries for spelling in (entry.name, *entry.aliases)]


@pytest.mark.parametrize("entries", [models(), gpus()], ids=["models", "gpus"])
def test_tables_are_large_sourced_and_without_duplicates(entries: tuple[ModelEntry | GpuEntry, ...]) -> None:
    assert len(entries) >= 30
    counts = Counter(spelling.lower() for spelling, _ in spellings(entries))
    assert [spelling for spelling, count in counts.items() if count > 1] == []


def test_catalogue_needs_no_torch() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH], check=True)


@pytest.mark.parametrize("entry", models(), ids=lambda entry: entry.name)
def test_model_entry_holds_together(entry: ModelEntry) -> None:
    assert entry.source
    assert entry.parameters <= entry.parameters_sequence_classification
    if "max_position_embeddings" in entry.config:
        assert entry.max_seq_length is not None
        assert entry.max_seq_length <= int(str(entry.config["max_position_embeddings"]))


@pytest.mark.parametrize(("name", "count"), PUBLISHED_COUNTS.items())
def test_counts_are_the_published_ones(name: str, count: int) -> None:
    entry = find_model(name)
    assert entry is not None
    assert entry.parameters == count


@pytest.mark.parametrize("entry", models(), ids=lambda entry: entry.name)
def test_model_counts_as_transformers_builds_it(entry: ModelEntry) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(entry.model_type, num_labels=2, **entry.config)
    with torch.device("meta"):
        bare = transformers.AutoModel.from_config(config)
        headed = transformers.AutoModelForSequenceClassification.from_config(config)
    assert sum(parameter.numel() for parameter in bare.parameters()) == entry.parameters
    assert sum(parameter.numel() for parameter in headed.parameters()) == entry.parameters_sequence_classification


@pytest.mark.parametrize(("spelling", "name"), spellings(models()))
def test_model_is_found_by_every_spelling(spelling: str, name: str) -> None:
    for text in (spelling, spelling.upper(), f" {spelling} ", spelling.rpartition("/")[2]):
        entry = find_model(text)
        assert entry is not None
        assert entry.name == name


@pytest.mark.parametrize("text", ["", "bert", "bert-base-uncasd", "somebody/bert-base-uncased", "gpt2"])
def test_other_models_are_not_found(text: str) -> None:
    assert find_model(text) is None


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("bert-base-uncasd", "bert-base-uncased"),
        ("bert_base_uncased", "bert-base-uncased"),
        ("bert", "bert-base-uncased"),
        ("roberta", "roberta-base"),
        ("deberta-v3-bse", "microsoft/deberta-v3-base"),
        ("modernbert", "answerdotai/ModernBERT-base"),
        ("all-minilm", "sentence-transformers/all-MiniLM-L6-v2"),
        ("google/electra-base", "google/electra-base-discriminator"),
    ],
)
def test_nearest_model(text: str, first: str) -> None:
    assert near_models(text)[0] == first


def test_near_names_are_few_distinct_and_known() -> None:
    assert len(near_models("bert-base")) == 4
    assert len(near_models("bert-base", limit=2)) == 2
    assert len(set(near_models("bert-base", limit=20))) == len(near_models("bert-base", limit=20))
    assert near_models("qqqqqqqq") == near_models("") == near_gpus("MI300X") == near_gpus("") == ()


@pytest.mark.parametrize("entry", gpus(), ids=lambda entry: entry.name)
def test_gpu_entry_holds_together(entry: GpuEntry) -> None:
    assert entry.total_source
    assert entry.context_source
    assert tuple(map(int, entry.compute_capability.split("."))) >= (3, 7)
    size = size_on_the_box(entry)
    assert 0.9 * size * GIB < entry.total_bytes < size * GIB
    assert 0 < entry.context_error_bytes < entry.context_bytes < 1024 * MIB


@pytest.mark.parametrize("entry", gpus(), ids=lambda entry: entry.name)
def test_estimates_have_wide_bands(entry: GpuEntry) -> None:
    if entry.context_source.startswith("estimate"):
        assert entry.context_error_bytes >= 0.25 * entry.context_bytes


@pytest.mark.parametrize(("spelling", "name"), spellings(gpus()))
def test_gpu_is_found_by_every_spelling(spelling: str, name: str) -> None:
    swapped = spelling.translate(str.maketrans(" -", "_ "))
    for text in (spelling, spelling.lower(), swapped, f"NVIDIA {spelling}"):
        entry = find_gpu(text)
        assert entry is not None
        assert entry.name == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("nvidia tesla t4", "T4"),
        ("T4 16GB", "T4"),
        ("P100", "P100-16GB"),
        ("a100 80", "A100-80GB"),
        ("A100 40 G", "A100-40GB"),
        ("A100-SXM4 80GB", "A100-80GB"),
        ("v100_32gb", "V100-32GB"),
        ("H100", "H100-80GB"),
        ("h100 nvl", "H100-NVL"),
        ("RTX 2080-Ti", "RTX2080Ti"),
        ("GeForceRTX3090", "RTX3090"),
        ("rtx 3090 24gb", "RTX3090"),
        ("4060 ti 16 gb", "RTX4060Ti-16GB"),
        ("A10G", "A10G"),
        ("A10", "A10"),
    ],
)
def test_gpu_is_found_by_loose_spelling(text: str, name: str) -> None:
    entry = find_gpu(text)
    assert entry is not None
    assert entry.name == name


@pytest.mark.parametrize(
    "text", ["", "A100", "V100", "RTX 4060 Ti", "T4 80GB", "A100 24GB", "RTX 3060 Laptop GPU", "T5000"]
)
def test_ambiguous_and_unknown_gpus_are_not_found(text: str) -> None:
    assert find_gpu(text) is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("A100", {"A100-40GB", "A100-80GB"}),
        ("v100", {"V100-16GB", "V100-32GB"}),
        ("RTX 4060 Ti", {"RTX4060Ti-8GB", "RTX4060Ti-16GB"}),
        ("RTX 6000", {"RTX6000Ada", "QuadroRTX6000"}),
    ],
)
def test_ambiguous_gpu_offers_what_it_may_mean(text: str, names: set[str]) -> None:
    assert set(near_gpus(text)[:2]) == names


@pytest.mark.parametrize(
    ("text", "name"), [("T5000", "A5000"), ("RTX 3091", "RTX3090"), ("H10", "H100-80GB"), ("GB200", "B200")]
)
def test_mistyped_gpu_offers_the_like(text: str, name: str) -> None:
    assert name in near_gpus(text)


def size_on_the_box(entry: GpuEntry) -> int:
    """In GB, which for memory chips are GiB."""
    written = entry.name.rpartition("-")[2]
    return int(written.removesuffix("GB")) if written.endswith("GB") else SIZE_ON_THE_BOX[entry.name]
