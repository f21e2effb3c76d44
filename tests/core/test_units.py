"""Byte sizes in and out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.errors import UsageError
from fallow.units import format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0), ("123", 123), ("123B", 123), ("1KB", 1_000), ("1k", 1_000), ("1KiB", 1_024), ("1.5 MiB", 1_572_864),
        ("1GB", 1_000_000_000), ("48GiB", 48 * 1024**3), ("2tib", 2 * 1024**4), (" 1 PB ", 10**15),
    ],
)  # fmt: skip
def test_sizes_are_read_as_people_write_them(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1 GBs", "1e9", "1,5GB", "one"])
def test_what_is_no_size_says_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size; write a number and a unit"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["9" * 400, "100000PB"])
def test_a_size_beyond_every_machine_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is more than any machine has"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "0 B"), (1_023, "1023 B"), (1_024, "1.0 KiB"), (102_298, "99.9 KiB"), (102_400, "100 KiB"),
        (25_125_558_681, "23.4 GiB"), (5 * 1024**5, "5120 TiB"), (-1_536, "-1.5 KiB"),
    ],
)  # fmt: skip
def test_sizes_are_shown_with_one_decimal_below_a_hundred(size: float, expected: str) -> None:
    assert format_bytes(size) == expected


@given(st.integers(0, 2**50))
def test_a_shown_size_is_within_its_last_digit(size: int) -> None:
    shown = parse_bytes(format_bytes(size))
    assert abs(shown - size) <= max(0.05 * size, 0.5)
