"""What holds for every size and every text: exact both ways, and never another error than ours."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given, strategies as st

from memdoctor.errors import UsageError
from memdoctor.units import GIB, KIB, MIB, format_bytes, parse_bytes

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "kB", "MB", "GB", "TB")
SIZES = st.integers(1, 1 << 60)
NUMBERS = st.from_regex(r"\d{1,6}(\.\d{1,6})?", fullmatch=True)
# Text that is nearly a size, so that the search does not stay among the hopeless.
NEARLY = st.builds("".join, st.lists(st.sampled_from([*UNITS, *"0123456789.-+eE _%", "٣", "²", "\n"]), max_size=8))


@given(st.integers(4, 4095), st.sampled_from([KIB, MIB, GIB, 1024 * GIB]))
def test_sizes_in_quarters_of_a_unit_come_back_exactly(quarters: int, unit: int) -> None:
    count = quarters * unit // 4
    assert parse_bytes(format_bytes(count)) == count


@given(SIZES)
def test_what_is_written_is_within_the_last_digit_of_what_was_meant(count: int) -> None:
    assert abs(parse_bytes(format_bytes(count)) - count) <= count * 0.005 + 1


@given(SIZES, SIZES)
def test_the_larger_size_is_never_written_as_the_smaller(one: int, other: int) -> None:
    small, large = sorted((one, other))
    assert parse_bytes(format_bytes(small)) <= parse_bytes(format_bytes(large))


@given(st.sampled_from([KIB, MIB, GIB]), st.floats(0, 0.00001))
def test_just_under_a_unit_is_not_written_as_1024_of_the_smaller(unit: int, below: float) -> None:
    assert not format_bytes(round(1024 * unit * (1 - below))).startswith("1024")


@given(SIZES)
def test_a_shortfall_is_the_same_text_with_a_sign(count: int) -> None:
    assert format_bytes(-count) == f"-{format_bytes(count)}"


@given(st.integers(1, 10**6), st.sampled_from([("KiB", "kB", 1), ("MiB", "MB", 2), ("GiB", "GB", 3), ("TiB", "TB", 4)]))
def test_binary_and_decimal_units_differ_by_their_power(number: int, units: tuple[str, str, int]) -> None:
    binary, decimal, power = units
    assert parse_bytes(f"{number} {binary}") * 1000**power == parse_bytes(f"{number} {decimal}") * 1024**power


@given(NUMBERS)
def test_a_number_without_a_unit_is_refused(number: str) -> None:
    with pytest.raises(UsageError):
        parse_bytes(number)


@given(st.text() | NEARLY | st.builds("{} {}".format, NUMBERS, st.sampled_from(UNITS)))
@example("9" * 400 + " TiB")
@example("9" * 5000 + " B")
@example("0." + "0" * 5000 + "1 TiB")
def test_any_text_is_a_size_or_a_usage_error(text: str) -> None:
    with suppress(UsageError):
        count = parse_bytes(text)
        assert count >= 1
        assert format_bytes(count)
