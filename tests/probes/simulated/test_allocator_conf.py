"""The text of ``PYTORCH_ALLOC_CONF``: what each option becomes, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from memdoctor.errors import UsageError
from memdoctor.probes.simulated.allocator.conf import parse_alloc_conf
from memdoctor.probes.simulated.allocator.settings import POWER2_INTERVALS, AllocatorSettings

MIB = 1 << 20


def rounding(*divisions: int) -> AllocatorSettings:
    """Settings that round like this."""
    return AllocatorSettings(roundup_power2_divisions=divisions)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", AllocatorSettings()),
        ("  ", AllocatorSettings()),
        ("expandable_segments:True", AllocatorSettings(expandable_segments=True)),
        ("expandable_segments:False", AllocatorSettings()),
        ("max_split_size_mb:20", AllocatorSettings(max_split_size=20 * MIB)),
        ("max_split_size_mb:128,", AllocatorSettings(max_split_size=128 * MIB)),
        ("max_split_size_mb:30,max_split_size_mb:40", AllocatorSettings(max_split_size=40 * MIB)),
        ("max_non_split_rounding_mb:32", AllocatorSettings(max_non_split_rounding=32 * MIB)),
        ("large_segment_size_mb:11", AllocatorSettings(large_segment=11 * MIB)),
        (
            "max_split_size_mb:40,large_segment_size_mb:40",
            AllocatorSettings(max_split_size=40 * MIB, large_segment=40 * MIB),
        ),
        ("garbage_collection_threshold:0.8", AllocatorSettings(garbage_collection_threshold=0.8)),
        ("per_process_memory_fraction:0.5", AllocatorSettings(memory_fraction=0.5)),
        ("per_process_memory_fraction:0", AllocatorSettings(memory_fraction=0.0)),
        ("per_process_memory_fraction:1.0", AllocatorSettings()),
        ("throw_on_cudamalloc_oom:True", AllocatorSettings(throw_on_cudamalloc_oom=True)),
        (
            " garbage_collection_threshold : 0.6 ,\n max_split_size_mb : 128 ",
            AllocatorSettings(garbage_collection_threshold=0.6, max_split_size=128 * MIB),
        ),
        ("backend:native", AllocatorSettings()),
    ],
)
def test_each_option_is_read(text: str, settings: AllocatorSettings) -> None:
    assert parse_alloc_conf(text) == settings


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("4", rounding(*(4,) * POWER2_INTERVALS)),
        ("1", rounding(*(1,) * POWER2_INTERVALS)),
        ("[256:1,512:2,1024:4,>:8]", rounding(*(1,) * 9, 2, 4, *(8,) * 5)),
        ("[64:8,128:2,256:4,512:2,1024:4,>:1]", rounding(*(8,) * 7, 2, 4, 2, 4, *(1,) * 5)),
        ("[1024:4,256:2]", rounding(*(4,) * 8, 2, 4, 4, *(0,) * 5)),
        ("[256:2,1024:4]", rounding(*(2,) * 9, 0, 4, *(0,) * 5)),
        ("[131072:8]", rounding(*(8,) * POWER2_INTERVALS)),  # over the last interval: the last one
        ("[1:0,>:8]", rounding(0, *(8,) * 15)),
        ("[>:8]", rounding(0, *(8,) * 15)),
        ("[]", rounding(*(0,) * POWER2_INTERVALS)),
    ],
)
def test_roundings_are_one_number_or_one_for_each_interval(text: str, settings: AllocatorSettings) -> None:
    # Asked of torch 2.13 and 2.14: their own parser yields these numbers.
    assert parse_alloc_conf(f"roundup_power2_divisions:{text}") == settings


@pytest.mark.parametrize(
    "option",
    [
        "release_lock_on_cudamalloc:True",
        "release_lock_on_hipmalloc:False",
        "pinned_use_cuda_host_register:True",
        "pinned_use_hip_host_register:True",
        "pinned_use_background_threads:True",
        "pinned_num_register_threads:128",
        "pinned_reserve_segment_size_mb:1",
        "pinned_max_round_threshold_mb:0",
        "pinned_max_cached_size_mb:64",
        "pinned_free_catch_all:True",
        "graph_capture_record_stream_reuse:True",
    ],
)
def test_options_that_change_no_byte_on_the_device_are_taken_and_ignored(option: str) -> None:
    assert parse_alloc_conf(f"{option},max_split_size_mb:64") == AllocatorSettings(max_split_size=64 * MIB)


@pytest.mark.parametrize(
    ("text", "what", "why"),
    [
        ("max_split_size_mb:19", "max_split_size_mb:19 is not possible", "20 or more"),
        ("max_non_split_rounding_mb:19", "max_non_split_rounding_mb:19", "20 or more"),
        ("large_segment_size_mb:40,max_split_size_mb:30", "max_split_size_mb:30", "40 or more"),
        ("large_segment_size_mb:10", "large_segment_size_mb:10", "more than 10"),
        ("max_split_size_mb:-1", "max_split_size_mb:-1", "a whole number"),
        ("max_split_size_mb:24.5", "max_split_size_mb:24.5", "a whole number"),
        ("max_split_size_mb:24x", "max_split_size_mb:24x", "a whole number"),
        ("max_split_size_mb:" + "9" * 21, "max_split_size_mb:9", "a whole number"),
        ("max_split_size_mb:\u0663\u0660", "max_split_size_mb", "a whole number"),
        ("max_split_size_mb:[24]", r"max_split_size_mb:\[24\]", "a whole number"),
        ("max_split_size_mb:", "max_split_size_mb:", "no value"),
        ("max_split_size_mb", "max_split_size_mb", "no value"),
        ("garbage_collection_threshold:0", "garbage_collection_threshold:0", "between 0 and 1"),
        ("garbage_collection_threshold:1", "garbage_collection_threshold:1", "between 0 and 1"),
        ("garbage_collection_threshold:nan", "garbage_collection_threshold:nan", "between 0 and 1"),
        ("garbage_collection_threshold:80%", "garbage_collection_threshold:80%", "between 0 and 1"),
        ("per_process_memory_fraction:1.5", "per_process_memory_fraction:1.5", "from 0 to 1"),
        ("per_process_memory_fraction:-0.1", "per_process_memory_fraction:-0.1", "from 0 to 1"),
        ("per_process_memory_fraction:1_0", "per_process_memory_fraction:1_0", "from 0 to 1"),
        ("expandable_segments:true", "expandable_segments:true", "True and False only"),
        ("throw_on_cudamalloc_oom:1", "throw_on_cudamalloc_oom:1", "True and False only"),
        ("pinned_free_catch_all:yes", "pinned_free_catch_all:yes", "True and False only"),
        ("pinned_num_register_threads:3", "pinned_num_register_threads:3", "power of two"),
        ("pinned_num_register_threads:256", "pinned_num_register_threads:256", "up to 128"),
        ("pinned_reserve_segment_size_mb:0", "pinned_reserve_segment_size_mb:0", "more than 0"),
        ("pinned_max_cached_size_mb:x", "pinned_max_cached_size_mb:x", "a whole number"),
        ("roundup_power2_divisions:3", "roundup_power2_divisions:3", "power of two"),
        ("roundup_power2_divisions:0", "roundup_power2_divisions:0", "power of two"),
        ("roundup_power2_divisions:[256:3]", "roundup_power2_divisions", "3 is neither a power of two nor 0"),
        ("roundup_power2_divisions:[3:2]", "roundup_power2_divisions", "the interval 3 is no power of two"),
        ("roundup_power2_divisions:[0:2]", "roundup_power2_divisions", "the interval 0 is no power of two"),
        ("roundup_power2_divisions:[256:1,,512:2]", "roundup_power2_divisions", "a whole number"),
        ("roundup_power2_divisions:[256]", "roundup_power2_divisions", "a whole number"),
        ("roundup_power2_divisions:[256:1,512:2", "roundup_power2_divisions", "does not end"),
        ("backend:cudaMallocAsync", "backend:cudaMallocAsync", "another allocator"),
        ("backend:jemalloc", "backend:jemalloc", "native and cudaMallocAsync"),
    ],
)
def test_values_that_are_not_possible_are_refused_with_a_way_out(text: str, what: str, why: str) -> None:
    with pytest.raises(UsageError, match=what) as caught:
        parse_alloc_conf(text)
    assert why in caught.value.why
    offered = caught.value.hint
    assert parse_alloc_conf(offered) == parse_alloc_conf(offered)  # what is offered instead is possible


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("max_split_size:128", "max_split_size_mb:128"),
        ("max_split_size_mb=64", "max_split_size_mb:128"),
        ("expandable_segment:True", "expandable_segments:True"),
        ("garbage_collection_treshold:0.8", "garbage_collection_threshold:0.8"),
        ("EXPANDABLE:True", "one of backend, expandable_segments, "),
        (",", "one of backend"),
        ("max_split_size_mb:64,,expandable_segments:True", "one of backend"),
    ],
)
def test_an_unknown_key_is_refused_and_the_nearest_one_is_named(text: str, hint: str) -> None:
    with pytest.raises(UsageError, match="no allocator setting is called") as caught:
        parse_alloc_conf(text)
    assert caught.value.hint.startswith(hint)


@pytest.fixture
def allocator_settings() -> Iterator[None]:
    """Put PyTorch's own settings back."""
    yield
    torch._C._accelerator_setAllocatorSettings("large_segment_size_mb:20,expandable_segments:False")


@pytest.mark.usefixtures("allocator_settings")
@pytest.mark.parametrize(
    ("text", "possible"),
    [
        ("max_split_size_mb:20", True),
        ("max_split_size_mb:19", False),
        ("max_non_split_rounding_mb:20", True),
        ("max_non_split_rounding_mb:19", False),
        ("large_segment_size_mb:10", False),
        ("large_segment_size_mb:11,max_split_size_mb:11", True),
        ("large_segment_size_mb:40,max_split_size_mb:30", False),
        ("garbage_collection_threshold:0", False),
        ("garbage_collection_threshold:0.01", True),
        ("garbage_collection_threshold:1", False),
        ("expandable_segments:true", False),
        (" expandable_segments : True ,", True),
        ("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", True),
        ("roundup_power2_divisions:[256:3]", False),
        ("roundup_power2_divisions:[3:2]", False),
        ("roundup_power2_divisions:0", False),
        ("roundup_power2_divisions:3", False),
        ("", True),
    ],
)
def test_the_installed_pytorch_takes_and_refuses_the_same(text: str, possible: bool) -> None:
    torch._C._accelerator_setAllocatorSettings("large_segment_size_mb:20")
    if possible:
        parse_alloc_conf(text)
        torch._C._accelerator_setAllocatorSettings(text)
        return
    with pytest.raises(UsageError):
        parse_alloc_conf(text)
    with pytest.raises((ValueError, RuntimeError)):
        torch._C._accelerator_setAllocatorSettings(text)
