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
    rates_of,
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


# fp32, fp16 and bf16 in TFLOP/s, and GB/s, as the data sheets have them.
PUBLISHED_RATES = {
    "T4": (8.1, 65.0, None, 320.0), "V100-16GB": (15.7, 125.0, None, 900.0), "V100-32GB": (15.7, 125.0, None, 900.0),
    "A100-40GB": (19.5, 312.0, 312.0, 1555.0), "A100-80GB": (19.5, 312.0, 312.0, 2039.0),
    "H100-80GB": (67.0, 989.4, 989.4, 3350.0), "K80": (4.37, None, None, 240.0),
    "A10": (31.2, 125.0, 125.0, 600.0), "L4": (30.3, 121.0, 121.0, 300.0), "RTX3090": (35.6, 71.2, 71.2, 936.0),
    "RTX4090": (82.6, 165.2, 165.2, 1008.0), "RTX5090": (104.8, 209.5, 209.5, 1792.0),
    "RTX2080Ti": (13.4, 53.8, None, 616.0), "GTX1080Ti": (11.3, None, None, 484.0),
}  # fmt: skip
# Cores and the boost clock in MHz: a core multiplies and adds once a clock.
CORES = {
    "T4": (2560, 1590), "P100-16GB": (3584, 1303), "P40": (3840, 1531), "K80": (2496, 875), "V100-16GB": (5120, 1530),
    "A100-40GB": (6912, 1410), "A10": (9216, 1695), "A40": (10752, 1740), "L4": (7424, 2040), "L40": (18176, 2490),
    "L40S": (18176, 2520), "H100-80GB": (16896, 1980), "A6000": (10752, 1800), "A5000": (8192, 1695),
    "A4000": (6144, 1560), "A2000-12GB": (3328, 1200), "TITAN-V": (5120, 1455), "RTX5090": (21760, 2407),
    "RTX5080": (10752, 2617), "RTX4090": (16384, 2520), "RTX4080": (9728, 2505), "RTX4060": (3072, 2460),
    "RTX3090": (10496, 1695), "RTX3080": (8704, 1710), "RTX3070": (5888, 1725), "RTX2080Ti": (4352, 1545),
    "RTX2070": (2304, 1620), "GTX1080": (2560, 1733),
}  # fmt: skip
# Of one multiprocessor's tensor cores in a clock, in fp16 with sums in fp32, against its fp32 units: the whole rate of
# the architecture, which professional cards have, and half of it, which GeForce cards (and the L40 and the A10G) have.
TENSOR_TO_FP32 = {"7.0": {8}, "7.5": {8, 4}, "8.0": {16}, "8.6": {4, 2}, "8.9": {4, 2}, "12.0": {4, 2}}


@pytest.mark.parametrize("entry", gpus(), ids=lambda entry: entry.name)
def test_every_gpu_has_rates_that_hold_together(entry: GpuEntry) -> None:
    rates = entry.rates
    assert rates.source
    assert 100 < rates.bandwidth_gb_s < 10_000
    assert 4 < rates.fp32_tflops < 130
    major = int(entry.compute_capability.partition(".")[0])
    assert (rates.bf16_tflops is not None) == (major >= 8)
    assert (rates.fp16_tflops is not None) == (major >= 7)
    if major >= 8:
        assert rates.bf16_tflops == rates.fp16_tflops


@pytest.mark.parametrize("entry", gpus(), ids=lambda entry: entry.name)
def test_tensor_cores_have_their_architectures_share(entry: GpuEntry) -> None:
    shares = TENSOR_TO_FP32.get(entry.compute_capability)
    if shares is None:  # before tensor cores, or data centre chips of several mixtures
        assert entry.compute_capability in ("3.7", "6.0", "6.1", "9.0", "10.0")
        return
    assert entry.rates.fp16_tflops is not None
    share = entry.rates.fp16_tflops / entry.rates.fp32_tflops
    assert min(abs(share / wanted - 1) for wanted in shares) < 0.015  # figures of three digits, rounded
    if entry.name.startswith("RTX") and "GeForce" in " ".join(entry.aliases):
        assert abs(share / min(shares) - 1) < 0.015


@pytest.mark.parametrize(("name", "rates"), PUBLISHED_RATES.items())
def test_rates_are_the_published_ones(name: str, rates: tuple[float | None, ...]) -> None:
    found = rates_of(name)
    assert found is not None
    assert (found.fp32_tflops, found.fp16_tflops, found.bf16_tflops, found.bandwidth_gb_s) == rates


@pytest.mark.parametrize(("name", "cores", "mhz"), [(name, *clocked) for name, clocked in CORES.items()])
def test_fp32_is_two_operations_a_core_and_clock(name: str, cores: int, mhz: int) -> None:
    found = rates_of(name)
    assert found is not None
    assert found.fp32_tflops == pytest.approx(2 * cores * mhz / 1e6, rel=0.009)  # published with two or three digits


@pytest.mark.parametrize(
    ("nvml_name", "gb_s"),
    [
        ("NVIDIA A100-SXM4-40GB", 1555.0),
        ("NVIDIA A100 80GB PCIe", 2039.0),
        ("Tesla T4", 320.0),
        ("Tesla V100-SXM2-16GB", 900.0),
        ("NVIDIA H100 80GB HBM3", 3350.0),
        ("NVIDIA GeForce RTX 3090", 936.0),
        ("NVIDIA GeForce RTX 2080 SUPER", 496.0),
    ],
)
def test_rates_are_found_by_nvmls_names(nvml_name: str, gb_s: float) -> None:
    found = rates_of(nvml_name)
    assert found is not None
    assert found.bandwidth_gb_s == gb_s


@pytest.mark.parametrize("name", ["", "A100", "NVIDIA GeForce GTX 750", "Intel Xeon"])
def test_unknown_and_ambiguous_cards_have_no_rates(name: str) -> None:
    assert rates_of(name) is None


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
