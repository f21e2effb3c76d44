"""`fallow import nvidia-smi` on tables of `nvidia-smi dmon`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.importers.conftest import files, query

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD = (
    "#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem    enc   mclk   pclk     fb \n"
    "#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %      %    MHz    MHz     MB \n"
)


def row(clock: str, gpu: int, sm: object, mtemp: object = "-", day: str = " 20261120   ") -> str:
    return f"{day}{clock}      {gpu}    147     47     {mtemp}     {sm}      1      0   2619   1980   3953 \n"


ROWS = "".join(row(f"10:00:0{tick}", gpu, tick) for tick in range(3) for gpu in range(2))
VALUES = (
    "select gpu, strftime(time, '%d %H:%M:%S'), gpu_util_pct, mem_util_pct, round(power_w), temperature_c, mem_temperature_c, "
    "mem_clock_mhz, sm_clock_mhz, mem_used_bytes from lake order by time, gpu limit 1"
)


def test_every_column_reaches_its_own(smi: Callable, place: str) -> None:
    done = smi(HEAD + ROWS + HEAD + row("10:00:03", 0, "-", 54) + row("10:00:03", 1, 100))
    assert query(place, VALUES) == [("gn001/0", "20 10:00:00", 0, 1, 147, 47, None, 2619, 1980, 3953 * 2**20)]
    assert query(
        place, "select gpu_util_pct, mem_temperature_c from lake where gpu = 'gn001/0' order by time desc limit 1"
    ) == [(None, 54)]
    assert done.summary["rows"] == {"read": 8, "dropped": 0, "merged": 0, "kept": 8}
    assert done.summary["files"][0]["not_samples"] == 4
    assert done.summary["files"][0]["notes"][0] == "read as a table of nvidia-smi dmon"


def test_times_without_dates_need_the_first_day(smi: Callable, place: str) -> None:
    head = HEAD.replace("#Date       Time  ", "#Time").replace("#YYYYMMDD   HH:MM:SS", "#HH:MM:SS")
    rows = "".join(row(clock, 0, 5, day=" ") for clock in ("23:59:58", "23:59:59", "00:00:00", "00:00:01"))
    failed = smi(head + rows)
    assert (failed.code, files(place)) == (1, [])
    assert "--date" in failed.err
    assert smi(head + rows, flags=("--date", "tomorrow")).code == 2
    smi(head + rows, flags=("--date", "2026-11-20"))
    assert query(place, "select strftime(time, '%d %H:%M:%S') from lake order by time") == [
        ("20 23:59:58",), ("20 23:59:59",), ("21 00:00:00",), ("21 00:00:01",),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# gpu    pwr     sm\n# Idx      W      %\n    0    119    100\n", "dmon -o DT"),
        ("# gpu        pid  type    sm   mem   enc   dec   command\n# Idx          #   C/G     %     %     %     %   name\n", "pmon"),
        (HEAD.replace("MHz     MB", "MHz     GB") + ROWS, "fb is in GB"),
        (HEAD, "no usable row"),
    ],
)  # fmt: skip
def test_tables_that_cannot_be_used(smi: Callable, place: str, text: str, said: str) -> None:
    done = smi(text)
    assert (done.code, files(place)) == (1, [])
    assert said in done.err


def test_comma_separated_tables_and_broken_lines(smi: Callable, place: str) -> None:
    text = (HEAD + ROWS).replace(" 20261120   ", "2026-11-20, ").replace("      1      0   2619", ", 1, 0, 2619")
    done = smi(text + " 20261120   10:00:03      0    1")
    assert query(place, VALUES) == [("gn001/0", "20 10:00:00", 0, 1, 147, 47, None, 2619, 1980, 3953 * 2**20)]
    assert done.dropped() == {"wrong number of fields: cut off or mixed lines": 1}
