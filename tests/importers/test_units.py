"""Units are declared, read from a column's name, or proved wrong: nothing is published in the wrong one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.importers.conftest import at, files, query

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOON = 1_795_176_000
GIB = 2**30
USED_MIB = (17_060, 17_062, 0, 17_100)


@pytest.fixture
def series(fallow_import: Callable, tmp_path: Path) -> Callable:
    """Imports values of one column of one file, written under a name."""

    def run(column: str, source: str, values: tuple[object, ...], *flags: str) -> object:
        path = tmp_path / "f.csv"
        rows = "".join(f"{NOON + 60 * number},GPU-a,{value}\n" for number, value in enumerate(values))
        path.write_text(f"t,g,{source}\n{rows}")
        return fallow_import(
            "series", "--time", "t", "--gpu", "g", "--interval", "60s", "--column", f"{column}={path}:{source}", *flags
        )

    return run


MEMORY = "select mem_used_bytes from lake order by time"


def test_mib_given_as_bytes_is_refused_with_the_unit_named(series: Callable, place: str) -> None:
    for flags in ((), ("--mem-total", "80GiB"), ("--model", "NVIDIA H100 80GB HBM3"), ("--yes",)):
        done = series("mem_used_bytes", "v", USED_MIB, *flags)
        assert (done.code, files(place)) == (1, [])
        assert "holds 17,100 bytes at most" in done.err
        assert "--unit mem_used_bytes=MiB" in done.err
    assert "--unit mem_used_bytes=GiB" in series("mem_used_bytes", "v", (16.7, 0, 70.2)).err


@pytest.mark.parametrize(
    ("source", "flags", "factor"),
    [
        ("v", ("--unit", "MiB"), 2**20), ("v", ("--unit", "mem_used_bytes=mib"), 2**20), ("mem_mib", (), 2**20),
        ("used [MiB]", (), 2**20), ("mem_mb", (), 10**6), ("mem_mb", ("--unit", "mem_used_bytes=MiB", "--yes"), 2**20),
    ],
)  # fmt: skip
def test_a_unit_is_declared_or_read_from_the_columns_name(
    series: Callable, place: str, source: str, flags: tuple[str, ...], factor: int
) -> None:
    done = series("mem_used_bytes", source, USED_MIB, *flags)
    assert done.code == 0, done.err
    assert query(place, MEMORY) == [(value * factor,) for value in USED_MIB]


def test_what_the_name_says_and_what_was_converted_is_told(series: Callable) -> None:
    done = series("mem_used_bytes", "mem_mb", USED_MIB)
    assert done.summary["files"][0]["notes"] == [
        "mem_used_bytes: mem_mb names its unit, MB of 1000s (--unit mem_used_bytes=MiB: of 1024s)"
    ]
    other = series("mem_used_bytes", "mem_mib", (2**34, 2**33), "--unit", "B")
    assert other.code == 1
    assert "the column's name mem_mib says MiB" in other.err


def test_a_unit_in_the_cell_counts_more(series: Callable, place: str) -> None:
    done = series("mem_used_bytes", "v", ("17060 MiB", "16.5 GiB", "5 furlongs", "x"))
    assert query(place, MEMORY) == [(17_060 * 2**20,), (int(16.5 * GIB),), (None,), (None,)]
    assert done.nulled() == {("mem_used_bytes", "unknown unit"): 1, ("mem_used_bytes", "not a number"): 1}


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("gpu_util_pct", (0.5, 0.25, 1), "--unit gpu_util_pct=ratio"),
        ("gpu_util_pct", (0, 500, 900, 1000, 40, 30), "3 of 6 values outside 0..100"),
        ("mem_used_bytes", (90 * GIB, 70 * GIB), "above the card's 80.0 GiB"),
        ("mem_used_bytes", (2**41, 2**42), "above any card's 1.0 TiB"),
        ("power_w", (345_000, 60_000), "--unit power_w=mW"),
        ("power_w", (0.345, 0.06), "--unit power_w=kW"),
        ("mem_used_bytes", (0.35, 0, 0.4, 0.41), "3 of 4 values that cannot be"),
        ("temperature_c", (176, 150), "Fahrenheit"),
        ("sm_clock_mhz", (1.98, 1.4), "--unit sm_clock_mhz=GHz"),
        ("sm_clock_mhz", (1_980_000, 1_400_000, 345_000, 345_000), "4 of 4 values that cannot be"),
    ],
)
def test_impossible_values_are_refused(
    series: Callable, place: str, column: str, values: tuple[float, ...], said: str
) -> None:
    done = series(column, "v", values, "--mem-total", "80GiB") if "card's 80" in said else series(column, "v", values)
    assert (done.code, files(place)) == (1, [])
    assert said in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("column", "source", "value", "stored"),
    [
        ("gpu_util_pct", "util_ratio", 0.5, 50), ("power_w", "power_mw", 345_000, 345), ("energy_mj", "energy_j", 7, 7_000),
        ("sm_clock_mhz", "clock_ghz", 1.98, 1980), ("gpu_util_zero_ratio", "idle_pct", 25, 0.25),
        ("pcie_tx_bytes_per_s", "tx_kib", 2, 2048),
    ],
)  # fmt: skip
def test_each_dimension_is_converted(  # noqa: PLR0917 (pytest)
    series: Callable, place: str, column: str, source: str, value: float, stored: float
) -> None:
    assert series(column, source, (value, value)).code == 0
    assert query(place, f"from lake select distinct {column}") == [(stored,)]


def test_a_declared_unit_ends_the_guessing_but_not_the_question(series: Callable, place: str) -> None:
    done = series("gpu_util_pct", "v", (0.5, 0.25), "--unit", "gpu_util_pct=%")
    assert (done.code, files(place)) == (1, [])
    assert "--yes" in done.err
    assert series("gpu_util_pct", "v", (0.5, 0.25), "--unit", "gpu_util_pct=%", "--yes").code == 0
    assert query(place, "select gpu_util_pct from lake order by time") == [(0.5,), (0.25,)]


@pytest.mark.parametrize(
    ("flag", "said"),
    [("MiBB", "no such unit"), ("power_w=W", "no --column fills power_w"), ("gpu_util_pct=W", "no such unit")],
)
def test_wrong_units(series: Callable, flag: str, said: str) -> None:
    done = series("gpu_util_pct", "v", (5, 6), "--unit", flag)
    assert done.code == 2
    assert said in done.err


def test_a_name_with_a_unit_that_cannot_be_read_is_refused(series: Callable) -> None:
    assert series("temperature_c", "temp_f", (100, 120)).code == 2
    assert series("mem_used_bytes", "mem [pages]", (100, 120)).code == 2
    assert series("mem_used_bytes", "mem (avg)", (2**30, 2**31)).code == 2


def test_a_header_of_nvidia_smi_with_the_wrong_unit_is_refused(smi: Callable, place: str) -> None:
    def text(unit: str, used: float = 17_060) -> str:
        head = f"timestamp, index, memory.used [{unit}], memory.total [MiB], utilization.gpu [%]\n"
        return head + "".join(f"{at(10 * tick)}, 0, {used}, 81559, {tick} %\n" for tick in range(30))

    for unit, code in (("GiB", 1), ("B", 1), ("KiB", 1), ("pages", 1)):
        done = smi(text(unit))
        assert (done.code, files(place)) == (code, []), unit
    assert smi(text("MiB")).published["gpu"] == (30, 0, 0)
    assert smi(text("mib")).published["gpu"] == (0, 30, 0)
