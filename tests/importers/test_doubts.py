"""Every import ends with figures that show a mistake, and what looks wrong is asked about before it is published."""

from __future__ import annotations

import io
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.importers.conftest import at, files, query

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOON = 1_795_176_000
HEAD = "timestamp, index, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W], power.limit [W]\n"


MEMORY = "timestamp, index, memory.used [MiB]\n"
ENERGY = "timestamp, index, total_energy_consumption [mJ]\n"


def log(ticks: int = 40, step: float = 10, used: int = 40_000, power: int = 350) -> str:
    return HEAD + "".join(
        f"{at(step * tick)}, {gpu}, {tick % 5} %, {used} MiB, 80000 MiB, {power} W, 700 W\n"
        for tick in range(ticks)
        for gpu in range(2)
    )


def test_the_summary_shows_what_the_import_amounts_to(smi: Callable) -> None:
    lines = smi(log(), as_json=False).out.splitlines()
    assert lines[1:8] == [
        "window    2026-11-20T10:00:00Z to 2026-11-20T10:06:40Z",
        "GPUs      2 on host gn001",
        "GPU-hours 0.22 in a span of 0.11 h",
        "busy      2.0 % on average, 20.0% of the samples at 0",
        "memory    39.1 GiB used on average of the card's 78.1 GiB",
        "power     350 W on average of the limit of 700 W",
        "cadence   10s between samples of a GPU (median), 10s at the most",
    ]
    summary = smi(log()).summary
    assert summary["overview"] == {
        "gpus": 2, "hosts": ["gn001"], "rows": 80, "gpu_hours": pytest.approx(80 / 360), "span_hours": pytest.approx(40 / 360),
        "mean_util_pct": 2, "zero_ratio": 0.2, "mean_mem_used_bytes": 40_000 * 2**20, "mem_total_bytes": 80_000 * 2**20,
        "mean_power_w": 350, "power_limit_w": 700, "cadence_ms": 10_000, "longest_gap_ms": 10_000,
        "processes": None, "users": None,
    }  # fmt: skip
    assert summary["rows"] == {"read": 80, "dropped": 0, "merged": 0, "kept": 80}
    assert (summary["odd"], summary["published"]) == ([], True)


FUTURE = (datetime.now(UTC) + timedelta(hours=5)).replace(tzinfo=None)


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        (log(), ("--interval", "60s"), "samples of a GPU are 10s apart (median), and --interval says 1min"),
        (log(), ("--interval", "60s"), "GPU-hours, where 2 GPUs have"),
        (log(), ("--interval", "1s"), "--interval says 1s"),
        (log(used=40), (), "memory used is 0.050% of the card"),
        (log(power=900), (), "power is 900 W on average, above the limit of 700 W"),
        (log(90).replace(" 0 %", " 3 %").replace(" 1 %", " 3 %").replace(" 2 %", " 3 %").replace(" 4 %", " 3 %"), (),
         "utilization is 3 % in all of 180 samples"),
        (HEAD + f"{at(0, FUTURE)}, 0, 5 %, 400 MiB, 80000 MiB, 1 W, 7 W\n{at(10, FUTURE)}, 0, 5 %, 400 MiB, 80000 MiB, 3 W, 7 W\n", (),
         "2 rows lie in the future"),
        (log() + "2026/11/20 10:30:00.000, 0, 5\n" * 30, (), "30 of 110 rows are dropped, most as: wrong number of fields"),
        (log(100, 60), ("--interval", "90s"), "GPU-hours, where 2 GPUs have 3.35 in that time"),
        (log(100, 60), ("--interval", "1s"), "the samples stand for 0.06 GPU-hours of the 3.30 from the first to the last"),
        (log().replace(" 2 %", " 1 %").replace(" 3 %", " 0 %").replace(" 4 %", " 1 %"), (), "utilization is 0 or 1 % in all of 80 samples"),
        (log(power=2500).replace(" 700 W", " [N/A]"), (), "power is 2,500 W on average, more than cards draw"),
        (MEMORY + "".join(f"{at(10 * tick)}, 0, {tick % 5 + 20} MiB\n" for tick in range(40)), (), "no GPU holds more than 24.0 MiB"),
        (ENERGY + "".join(f"{at(10 * tick)}, 0, {5_000 * tick}\n" for tick in range(40)), (), "as if a GPU drew 0.5 W: is its unit mJ?"),
        (ENERGY + "".join(f"{at(10 * tick)}, 0, {90_000_000 * tick}\n" for tick in range(40)), (), "as if a GPU drew 9e+03 W"),
        (log().replace("MiB,", "pages,"), (), "80 values of mem_used_bytes cannot be read"),
    ],
)  # fmt: skip
def test_what_looks_wrong_is_not_published_unasked(
    smi: Callable, place: str, text: str, flags: tuple[str, ...], said: str
) -> None:
    done = smi(text, flags=flags)
    assert (done.code, files(place)) == (1, [])
    assert said in done.err
    assert done.err.endswith("; add --yes to publish all the same\n")
    assert done.err.count("\n") == 1
    assert '"published": false' in done.out
    assert smi(text, flags=(*flags, "--yes")).summary["odd"] != []
    assert files(place) != []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("", 1)])
def test_a_person_is_asked(smi: Callable, place: str, monkeypatch: pytest.MonkeyPatch, answer: str, code: int) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    assert smi(log(used=40), as_json=False).code == code
    assert "[y/N]" in shown.getvalue()
    assert "odd       memory used is" in shown.getvalue()
    assert bool(files(place)) == (code == 0)


def of_host(folder: Path, host: str, ids: str = "{gpu}") -> Path:
    path = folder / f"{host}.csv"
    rows = (f"{NOON + 10 * tick},{ids.format(gpu=gpu, host=host)},{tick}" for tick in range(20) for gpu in range(8))
    path.write_text("t,g,v\n" + "\n".join(rows) + "\n")
    return path


def test_two_hosts_that_number_their_gpus_alike_stay_two(fallow_import: Callable, place: str, tmp_path: Path) -> None:
    for host in ("a", "b"):
        column = f"gpu_util_pct={of_host(tmp_path, host)}:v"
        done = fallow_import("series", "--time", "t", "--gpu", "g", "--column", column, "--host", host)
        assert f"8 GPU ids are not UUIDs: filed as {host}/ID, apart from those of other hosts" in done.summary["notes"]
    assert query(place, "select count(distinct gpu), sum(interval_ms) / 1000 from lake") == [(16, 2 * 8 * 20 * 10)]


def test_uuids_stay_as_they_are(fallow_import: Callable, place: str, tmp_path: Path) -> None:
    column = f"gpu_util_pct={of_host(tmp_path, 'a', 'GPU-{gpu}')}:v"
    assert fallow_import("series", "--time", "t", "--gpu", "g", "--column", column).summary["notes"] == []
    assert ("GPU-0",) in query(place, "select distinct gpu from lake")


def test_numbers_without_a_host_are_asked_about(fallow_import: Callable, place: str, tmp_path: Path) -> None:
    column = f"gpu_util_pct={of_host(tmp_path, 'a')}:v"
    done = fallow_import("series", "--time", "t", "--gpu", "g", "--column", column)
    assert (done.code, files(place)) == (1, [])
    assert "the next host's GPU 0 would be the same GPU (--host)" in done.err


def test_two_hosts_in_one_file_are_asked_about(fallow_import: Callable, place: str, tmp_path: Path) -> None:
    path = tmp_path / "both.csv"
    rows = (f"{NOON + 10 * tick},{gpu},{tick + at}" for tick in range(20) for at in (0, 40) for gpu in range(8))
    path.write_text("t,g,v\n" + "\n".join(rows) + "\n")
    done = fallow_import("series", "--time", "t", "--gpu", "g", "--column", f"gpu_util_pct={path}:v", "--host", "h")
    assert (done.code, files(place)) == (1, [])
    assert "160 of 320 rows repeat a GPU and time with another value" in done.err


def test_rows_of_two_hosts_under_one_name_are_asked_about(fallow_import: Callable, place: str, tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.csv" for name in "ab"]
    for number, path in enumerate(paths):
        path.write_text(log(power=300 + number))
    done = fallow_import("nvidia-smi", *paths, "--host", "x")
    assert (done.code, files(place)) == (1, [])
    assert (
        "80 of 160 rows have the GPU and time of another one and say something else: are they of one host?" in done.err
    )


def test_more_gpus_than_a_host_has_are_asked_about(fallow_import: Callable, place: str, tmp_path: Path) -> None:
    path = tmp_path / "many.csv"
    path.write_text("t,g,v\n" + "".join(f"{NOON + 10 * tick},x{gpu},{gpu}\n" for tick in range(3) for gpu in range(40)))
    column = f"gpu_util_pct={path}:v"
    done = fallow_import("series", "--time", "t", "--gpu", "g", "--column", column, "--host", "gn001")
    assert (done.code, files(place)) == (1, [])
    assert "40 GPUs on the one host gn001" in done.err
    assert fallow_import("series", "--time", "t", "--gpu", "g", "--column", column).code == 0  # no host is named
