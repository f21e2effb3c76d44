"""Units are declared, read from a column's name, or proved wrong: nothing is published in the wrong one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.importers.conftest import NOON, at, query

if TYPE_CHECKING:
    from tests.importers.conftest import Outcome, Run
GIB = 2**30
USED_MIB = (17_060, 17_062, 0, 17_100)


@pytest.fixture
def series(one: Run) -> Run:
    """Imports values of one column of one file, written under a name."""

    def run(column: str, source: str, values: tuple[object, ...], *flags: str) -> Outcome:
        rows = "".join(f"{NOON + 60 * number},GPU-a,{value}\n" for number, value in enumerate(values))
        return one(f"t,g,{source}\n{rows}", *flags, column=column, source=source, interval="60s")

    return run


MEMORY = "select mem_used_bytes from lake order by time"


def test_mib_given_as_bytes_is_refused_with_the_unit_named(series: Run) -> None:
    for flags in ((), ("--mem-total", "80GiB"), ("--model", "NVIDIA H100 80GB HBM3"), ("--yes",)):
        done = series("mem_used_bytes", "v", USED_MIB, *flags)
        done.refused("holds 17,100 bytes at most", "--unit mem_used_bytes=MiB")
    series("mem_used_bytes", "v", (16.7, 0, 70.2)).refused("--unit mem_used_bytes=GiB")


@pytest.mark.parametrize(
    ("source", "flags", "factor"),
    [
        ("v", ("--unit", "MiB"), 2**20),
        ("v", ("--unit", "mem_used_bytes=mib"), 2**20),
        ("mem_mib", (), 2**20),
        ("used [MiB]", (), 2**20),
        ("mem_mb", (), 10**6),
        ("mem_mb", ("--unit", "mem_used_bytes=MiB", "--yes"), 2**20),
    ],
)
def test_a_unit_is_declared_or_read_from_the_columns_name(
    series: Run, place: str, source: str, flags: tuple[str, ...], factor: int
) -> None:
    done = series("mem_used_bytes", source, USED_MIB, *flags)
    assert done.code == 0, done.err
    assert query(place, MEMORY) == [(value * factor,) for value in USED_MIB]


def test_what_the_name_says_and_what_was_converted_is_told(series: Run) -> None:
    told = ["mem_used_bytes: mem_mb names its unit, MB of 1000s (--unit mem_used_bytes=MiB: of 1024s)"]
    assert series("mem_used_bytes", "mem_mb", USED_MIB).notes == told
    other = series("mem_used_bytes", "mem_mib", (2**34, 2**33), "--unit", "B")
    assert (other.code, "but the column's name mem_mib gives MiB" in other.err) == (1, True)


def test_a_unit_in_the_cell_counts_more(series: Run, place: str) -> None:
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
        ("mem_used_bytes", (0.35, 0, 0.4, 0.41), "3 of 4 values that are impossible"),
        ("temperature_c", (176, 150), "Fahrenheit"),
        ("sm_clock_mhz", (1.98, 1.4), "--unit sm_clock_mhz=GHz"),
        ("sm_clock_mhz", (1_980_000, 1_400_000, 345_000, 345_000), "4 of 4 values that are impossible"),
    ],
)
def test_impossible_values_are_refused(series: Run, column: str, values: tuple[float, ...], said: str) -> None:
    card = ("--mem-total", "80GiB") if "card's 80" in said else ()
    series(column, "v", values, *card).refused(said)


@pytest.mark.parametrize(
    ("named", "value", "stored"),
    [
        ("gpu_util_pct=util_ratio", 0.5, 50),
        ("power_w=power_mw", 345_000, 345),
        ("energy_mj=energy_j", 7, 7_000),
        ("sm_clock_mhz=clock_ghz", 1.98, 1980),
        ("gpu_util_zero_ratio=idle_pct", 25, 0.25),
        ("pcie_tx_bytes_per_s=tx_kib", 2, 2048),
    ],
)
def test_each_dimension_is_converted(series: Run, place: str, named: str, value: float, stored: float) -> None:
    column, source = named.split("=")
    assert series(column, source, (value, value)).code == 0
    assert query(place, f"from lake select distinct {column}") == [(stored,)]


def test_a_declared_unit_ends_the_guessing_but_not_the_question(series: Run, place: str) -> None:
    declared = ("gpu_util_pct", "v", (0.5, 0.25), "--unit", "gpu_util_pct=%")
    series(*declared).refused("--yes")
    assert series(*declared, "--yes").code == 0
    assert query(place, "select gpu_util_pct from lake order by time") == [(0.5,), (0.25,)]


@pytest.mark.parametrize(
    ("flag", "said"),
    [("MiBB", "no such unit"), ("power_w=W", "no --column fills power_w"), ("gpu_util_pct=W", "no such unit")],
)
def test_wrong_units(series: Run, flag: str, said: str) -> None:
    series("gpu_util_pct", "v", (5, 6), "--unit", flag).refused(said, code=2)


def test_a_name_with_a_unit_that_cannot_be_read_is_refused(series: Run) -> None:
    assert series("temperature_c", "temp_f", (100, 120)).code == 2
    assert series("mem_used_bytes", "mem [pages]", (100, 120)).code == 2
    assert series("mem_used_bytes", "mem (avg)", (2**30, 2**31)).code == 2


def test_a_header_of_nvidia_smi_with_the_wrong_unit_is_refused(smi: Run) -> None:
    def text(unit: str) -> str:
        head = f"timestamp, index, memory.used [{unit}], memory.total [MiB], utilization.gpu [%]\n"
        return head + "".join(f"{at(10 * tick)}, 0, 17060, 81559, {tick} %\n" for tick in range(30))

    for unit in ("GiB", "B", "KiB", "pages"):
        smi(text(unit)).refused()
    assert smi(text("MiB")).published["gpu"] == (30, 0, 0)
    assert smi(text("mib")).published["gpu"] == (0, 30, 0)
