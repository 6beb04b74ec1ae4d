"""The text of ``PYTORCH_ALLOC_CONF`` (older: ``PYTORCH_CUDA_ALLOC_CONF``), read as PyTorch reads it.

Source: ``ConfigTokenizer`` and ``AcceleratorAllocatorConfig`` in ``c10/core/AllocatorConfig``, ``CUDAAllocatorConfig``
in ``c10/cuda``, of PyTorch 2.13 and 2.14. Where those let something pass that they then ignore (``24x`` read as 24,
``-1`` as without end, a colon left out), this reader refuses it. Options of one release are taken whatever torch runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from memdoctor.errors import UsageError
from memdoctor.probes.simulated.allocator.settings import POWER2_INTERVALS, AllocatorSettings

_MIB = 1 << 20
_MOST_REGISTER_THREADS = 128
_LARGEST_SIZE = 1 << 64  # what size_t holds

Options = dict[str, Any]
"""Fields of :class:`AllocatorSettings`."""


def parse_alloc_conf(text: str) -> AllocatorSettings:
    """Read ``key:value,key:value``; the empty text stands for the defaults, and the last of two values counts.

    :class:`~memdoctor.errors.UsageError` for a key or a value that PyTorch refuses, and for the allocator
    ``cudaMallocAsync``, which is another one.
    """
    options: Options = {}
    for key, value in _entries("".join(text.split())):
        options |= _READERS[key](key, value)
    _check_against_large_segment(options)
    return replace(AllocatorSettings(), **options)


def _entries(text: str) -> list[tuple[str, str]]:
    """Cut the text into keys and values, and refuse what is neither."""
    entries = []
    for entry in _split(text):
        key, colon, value = entry.partition(":")
        if key not in _READERS:
            near = get_close_matches(key.partition("=")[0], _READERS, n=1)
            raise UsageError(
                f"no allocator setting is called {key!r}",
                why="the settings are those of PYTORCH_ALLOC_CONF: key:value, separated by commas",
                hint=f"{near[0]}:{_EXAMPLES.get(near[0], 'True')}" if near else f"one of {', '.join(sorted(_READERS))}",
            )
        if not colon or not value:
            raise _refused(key, value, "it has no value", f"{key}:{_EXAMPLES.get(key, 'True')}")
        entries.append((key, value))
    return entries


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets. As in PyTorch there may be one at the end."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts[:-1] if parts[-1] == "" else parts


def _refused(key: str, value: str, why: str, hint: str) -> UsageError:
    return UsageError(f"the allocator setting {key}:{value} is not possible", why=why, hint=hint)


def _number(key: str, value: str) -> int:
    """Read a whole number that fits ``size_t``."""
    if not (value.isascii() and value.isdecimal()) or len(value) > len(str(_LARGEST_SIZE)):
        raise _refused(key, value, "a whole number is wanted", f"{key}:{_EXAMPLES.get(key, '1')}")
    return int(value)


def _share(value: str) -> float:
    """Read a decimal fraction; what is none becomes a number that no range holds."""
    try:
        return float(value) if value.isascii() and "_" not in value else float("nan")
    except ValueError:
        return float("nan")


def _flag(key: str, value: str) -> bool:
    if value not in ("True", "False"):
        raise _refused(key, value, "PyTorch takes True and False only, spelled like this", f"{key}:True")
    return value == "True"


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def _mebibytes(field: str) -> Callable[[str, str], Options]:
    def read(key: str, value: str) -> Options:
        size = _number(key, value) * _MIB
        if size > _LARGEST_SIZE:
            raise _refused(key, value, "it is more bytes than a size can say", f"{key}:{_EXAMPLES.get(key, '1')}")
        return {field: size}

    return read


def _field_flag(field: str) -> Callable[[str, str], Options]:
    return lambda key, value: {field: _flag(key, value)}


def _ignored_flag(key: str, value: str) -> Options:
    """Check a flag that changes no byte on the device."""
    _flag(key, value)
    return {}


def _ignored_number(key: str, value: str) -> Options:
    """Check a number that changes no byte on the device."""
    _number(key, value)
    return {}


def _register_threads(key: str, value: str) -> Options:
    number = _number(key, value)
    if not _is_power_of_two(number) or number > _MOST_REGISTER_THREADS:
        raise _refused(key, value, f"PyTorch wants a power of two of up to {_MOST_REGISTER_THREADS}", f"{key}:8")
    return {}


def _pinned_reserve(key: str, value: str) -> Options:
    if _number(key, value) == 0:
        raise _refused(key, value, "PyTorch wants more than 0", f"{key}:1024")
    return {}


def _backend(key: str, value: str) -> Options:
    if value == "cudaMallocAsync":
        raise _refused(
            key, value, "it is another allocator, the driver's own, which is not simulated", "backend:native"
        )
    if value != "native":
        raise _refused(key, value, "PyTorch knows native and cudaMallocAsync", "backend:native")
    return {}


def _memory_fraction(key: str, value: str) -> Options:
    fraction = _share(value)
    if not 0 <= fraction <= 1:
        raise _refused(key, value, "PyTorch wants a number from 0 to 1", f"{key}:0.9")
    return {"memory_fraction": fraction}


def _collection_threshold(key: str, value: str) -> Options:
    threshold = _share(value)
    if not 0 < threshold < 1:
        raise _refused(key, value, "PyTorch wants a number between 0 and 1, both excluded", f"{key}:0.8")
    return {"garbage_collection_threshold": threshold}


def _power2_divisions(key: str, value: str) -> Options:
    """Read one number for all sizes, or a list such as ``[256:1,512:2,1024:4,>:8]`` with the intervals in MiB.

    The first number of a list counts for all smaller intervals too, ``>`` for all above the entry before it;
    what lies between others and is not named has no rounding (``parseRoundUpPower2Divisions``).
    """
    if not value.startswith("["):
        number = _number(key, value)
        if not _is_power_of_two(number):
            raise _refused(key, value, "PyTorch wants a power of two", f"{key}:4")
        return {"roundup_power2_divisions": (number,) * POWER2_INTERVALS}
    if not value.endswith("]"):
        raise _refused(key, value, "the list does not end with ]", f"{key}:{_EXAMPLES[key]}")
    divisions = [0] * POWER2_INTERVALS
    first = True
    above = 1  # as in PyTorch, where a list that starts with > leaves the first interval alone
    for entry in _split(value[1:-1]):
        bound, _, text = entry.partition(":")
        number = _number(key, text)
        if number and not _is_power_of_two(number):
            raise _refused(key, value, f"{number} is neither a power of two nor 0", f"{key}:{_EXAMPLES[key]}")
        if bound == ">":
            divisions[above:] = [number] * (POWER2_INTERVALS - above)
            continue
        mebibytes = _number(key, bound)
        if not _is_power_of_two(mebibytes):
            raise _refused(key, value, f"the interval {mebibytes} is no power of two", f"{key}:{_EXAMPLES[key]}")
        at = min(mebibytes.bit_length() - 1, POWER2_INTERVALS - 1)
        if first:
            divisions[:at] = [number] * at
        divisions[at] = number
        first, above = False, at + 1
    return {"roundup_power2_divisions": tuple(divisions)}


def _check_against_large_segment(options: Options) -> None:
    """Refuse sizes below those that they are held against, in MiB as they were given."""
    defaults = AllocatorSettings()
    large: int = options.get("large_segment", defaults.large_segment)
    if large <= defaults.large_limit:
        least = defaults.large_limit // _MIB
        raise _refused(
            "large_segment_size_mb", str(large // _MIB), f"PyTorch wants more than {least}", "large_segment_size_mb:20"
        )
    for field, key in (
        ("max_split_size", "max_split_size_mb"),
        ("max_non_split_rounding", "max_non_split_rounding_mb"),
    ):
        size: int = options.get(field, large)
        if size < large:
            least = large // _MIB
            why = f"PyTorch wants {least} or more, the size of a large segment"
            raise _refused(key, str(size // _MIB), why, f"{key}:{least}")


_READERS: dict[str, Callable[[str, str], Options]] = {
    "backend": _backend,
    "expandable_segments": _field_flag("expandable_segments"),
    "garbage_collection_threshold": _collection_threshold,
    "graph_capture_record_stream_reuse": _ignored_flag,
    "large_segment_size_mb": _mebibytes("large_segment"),
    "max_non_split_rounding_mb": _mebibytes("max_non_split_rounding"),
    "max_split_size_mb": _mebibytes("max_split_size"),
    "per_process_memory_fraction": _memory_fraction,
    "pinned_free_catch_all": _ignored_flag,
    "pinned_max_cached_size_mb": _ignored_number,
    "pinned_max_round_threshold_mb": _ignored_number,
    "pinned_num_register_threads": _register_threads,
    "pinned_reserve_segment_size_mb": _pinned_reserve,
    "pinned_use_background_threads": _ignored_flag,
    "pinned_use_cuda_host_register": _ignored_flag,
    "pinned_use_hip_host_register": _ignored_flag,
    "release_lock_on_cudamalloc": _ignored_flag,
    "release_lock_on_hipmalloc": _ignored_flag,
    "roundup_power2_divisions": _power2_divisions,
    "throw_on_cudamalloc_oom": _field_flag("throw_on_cudamalloc_oom"),
}

_EXAMPLES = {
    "backend": "native",
    "garbage_collection_threshold": "0.8",
    "large_segment_size_mb": "20",
    "max_non_split_rounding_mb": "20",
    "max_split_size_mb": "128",
    "per_process_memory_fraction": "0.9",
    "pinned_max_cached_size_mb": "1024",
    "pinned_max_round_threshold_mb": "1024",
    "pinned_num_register_threads": "8",
    "pinned_reserve_segment_size_mb": "1024",
    "roundup_power2_divisions": "[256:1,512:2,1024:4,>:8]",
}
