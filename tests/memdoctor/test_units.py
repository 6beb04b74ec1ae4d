"""Sizes as text and back: a unit is always there, and GiB is not GB."""

from __future__ import annotations

import pytest

from memdoctor.errors import UsageError
from memdoctor.units import GIB, KIB, MIB, format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (1_048_570, "1023.99 KiB"),
        (1_048_571, "1.00 MiB"),  # 1023.9951 KiB, which must not be written as 1024.00 KiB
        (KIB * KIB - 1, "1.00 MiB"),
        (MIB, "1.00 MiB"),
        (15_642_329_088, "14.57 GiB"),
        (GIB, "1.00 GiB"),
        (1024 * GIB, "1.00 TiB"),
        (1024 * 1024 * GIB, "1024.00 TiB"),  # there is no larger unit
        (-1536, "-1.50 KiB"),
        (-1, "-1 B"),
    ],
)
def test_bytes_are_written_in_the_largest_whole_binary_unit(count: int, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("8 GiB", 8 * GIB),
        ("8 GB", 8_000_000_000),
        ("8GiB", 8 * GIB),
        ("8gib", 8 * GIB),
        ("  8   GiB ", 8 * GIB),
        ("512 B", 512),
        ("1 KiB", 1024),
        ("1 kB", 1000),
        ("1 TiB", 1024 * GIB),
        ("1 TB", 10**12),
        ("0.5 KiB", 512),
        ("1.50 GiB", 3 * GIB // 2),
        ("0.1 GiB", 107_374_182),  # 107374182.4: part of a byte is not a byte
        ("9007199254740993 B", 9_007_199_254_740_993),  # 2^53 + 1: no float on the way
    ],
)
def test_sizes_are_read_to_the_byte(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "8", "GiB", "8 G", "8 GiBs", "8 GiB 2", "-8 GiB", "+8 GiB", "1e3 MiB", "inf GiB", "nan GiB", "8,5 GiB",
        ".5 GiB", "8. GiB", "1_000 MiB", "8 %", "0x8 GiB", "eight GiB", "8\x00GiB",
    ],
)  # fmt: skip
def test_what_is_not_a_number_and_a_unit_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_bytes(text)
    assert repr(text) in caught.value.what
    assert "GiB" in str(caught.value)


@pytest.mark.parametrize("text", ["0 B", "0 GiB", "0.0 GiB", "0.5 B", "0.0000001 KiB"])
def test_less_than_a_byte_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="less than one byte"):
        parse_bytes(text)


def test_a_size_without_a_unit_says_how_to_write_it() -> None:
    with pytest.raises(UsageError) as caught:
        parse_bytes("8")
    assert caught.value.exit_code == 2
    assert '"8 GiB"' in caught.value.hint
    assert '"8 GB"' in caught.value.hint


def test_a_number_of_thousands_of_digits_is_refused_briefly() -> None:
    with pytest.raises(UsageError) as caught:
        parse_bytes("9" * 5000 + " GiB")
    assert len(str(caught.value)) < 2000
