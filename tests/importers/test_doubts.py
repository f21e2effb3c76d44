"""Every import ends with figures that show a mistake, and what looks wrong is asked about before it is published."""

from __future__ import annotations

import io
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.importers.conftest import NOON, at, files, query

if TYPE_CHECKING:
    from tests.importers.conftest import Run

HEAD = "timestamp, index, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W], power.limit [W]\n"


ENERGY = "timestamp, index, total_energy_consumption [mJ]\n"


def log(ticks: int = 40, step: float = 10, used: int = 40_000, power: int = 350) -> str:
    return HEAD + "".join(
        f"{at(step * tick)}, {gpu}, {tick % 5} %, {used} MiB, 80000 MiB, {power} W, 700 W\n"
        for tick in range(ticks)
        for gpu in range(2)
    )


def test_the_summary_shows_what_the_import_amounts_to(smi: Run) -> None:
    lines = smi(log(), as_json=False).out.splitlines()
    assert lines[1:8] == [
        "window    2026-11-20T10:00:00Z to 2026-11-20T10:06:40Z",
        "GPUs      2 on host gn001",
        "GPU-hours 0.22 within 0.11 h",
        "busy      2.0 % on average, 20.0% of the samples at 0",
        "memory    39.1 GiB used on average of the card's 78.1 GiB",
        "power     350 W on average of the limit of 700 W",
        "cadence   10s between samples of a GPU (median), 10s at the most",
    ]
    summary = smi(log()).summary
    assert summary["overview"] == {
        "gpus": 2, "hosts": ["gn001"], "rows": 80, "gpu_hours": pytest.approx(80 / 360),
        "span_hours": pytest.approx(40 / 360), "mean_util_pct": 2, "zero_ratio": 0.2,
        "mean_mem_used_bytes": 40_000 * 2**20, "mem_total_bytes": 80_000 * 2**20, "mean_power_w": 350,
        "power_limit_w": 700, "cadence_ms": 10_000, "longest_gap_ms": 10_000, "processes": None, "users": None,
    }  # fmt: skip
    assert summary["rows"] == {"read": 80, "dropped": 0, "merged": 0, "kept": 80}
    assert (summary["odd"], summary["published"]) == ([], True)


@pytest.mark.parametrize(("stuck_from", "hours"), [(60, 0.5), (240, 0.0)])
def test_lines_that_repeat_are_noted_and_published(smi: Run, stuck_from: int, hours: float) -> None:
    lines = (
        f"{at(10 * tick)}, 0, {90 + shown % 7} %, 40000 MiB, 80000 MiB, {400 + shown * 37 % 50 + 0.53:.2f} W, 700 W\n"
        for tick in range(241)
        for shown in (min(tick, stuck_from),)
    )
    summary = smi(HEAD + "".join(lines)).summary
    assert summary["published"]
    assert [each["kind"] for each in summary["contradictions"]] == (["readings_repeat"] if hours else [])
    assert sum(each["gpu_hours"] for each in summary["contradictions"]) == pytest.approx(hours)


FUTURE = (datetime.now(UTC) + timedelta(hours=5)).replace(tzinfo=None)


def table(head: str, step: float, start: float = 0) -> str:
    return head + "".join(f"{at(10 * tick)}, 0, {step * tick + start:.0f}\n" for tick in range(40))


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        (log(), ("--interval", "60s"), "samples of a GPU are 10s apart (median), but --interval is 1min"),
        (log(), ("--interval", "60s"), "GPU-hours, where 2 GPUs have"),
        (log(), ("--interval", "1s"), "--interval is 1s"),
        (log(used=40), (), "memory used is 0.050% of the card"),
        (log(power=900), (), "power is 900 W on average, above the limit of 700 W"),
        (re.sub(" [0-4] %", " 3 %", log(90)), (), "utilization is 3 % in all of 180 samples"),
        (HEAD + "".join(f"{at(10 * tick, FUTURE)}, 0, 5 %, 400 MiB, 80000 MiB, {tick + 1} W, 7 W\n" for tick in (0, 1)),
         (), "2 rows lie in the future"),
        (log() + "2026/11/20 10:30:00.000, 0, 5\n" * 30, (),
         "30 of 110 rows are dropped, most because: wrong number of fields"),
        (log(100, 60), ("--interval", "90s"), "GPU-hours, where 2 GPUs have 3.35 in that time"),
        (log(100, 60), ("--interval", "1s"),
         "the samples cover 0.06 GPU-hours of the 3.30 from the first to the last"),
        (re.sub(" [234] %", " 1 %", log()), (), "utilization is 0 or 1 % in all of 80 samples"),
        (log(power=2500).replace(" 700 W", " [N/A]"), (), "power is 2,500 W on average, more than cards draw"),
        (table("timestamp, index, memory.used [MiB]\n", 0.1, 20), (), "no GPU holds more than 24.0 MiB"),
        (table(ENERGY, 5_000), (), "as if a GPU drew 0.5 W: is its unit mJ?"),
        (table(ENERGY, 90_000_000), (), "as if a GPU drew 9e+03 W"),
        (log().replace("MiB,", "pages,"), (), "80 values of mem_used_bytes cannot be read"),
    ],
)  # fmt: skip
def test_what_looks_wrong_is_not_published_unasked(smi: Run, text: str, flags: tuple[str, ...], said: str) -> None:
    done = smi(text, flags=flags)
    assert done.refused(said).endswith("; add --yes to publish anyway\n")
    assert '"published": false' in done.out
    again = smi(text, flags=(*flags, "--yes"))
    assert again.summary["odd"] != []
    assert files(again.lake) != []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("", 1)])
def test_a_person_is_asked(smi: Run, place: str, monkeypatch: pytest.MonkeyPatch, answer: str, code: int) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    assert smi(log(used=40), as_json=False).code == code
    assert "[y/N]" in shown.getvalue()
    assert "odd       memory used is" in shown.getvalue()
    assert bool(files(place)) == (code == 0)


def of_host(ids: str = "{gpu}", hosts: tuple[int, ...] = (0,)) -> str:
    """Eight GPUs of each host."""
    rows = (
        f"{NOON + 10 * tick},{ids.format(gpu=gpu)},{tick + at}"
        for tick in range(20)
        for at in hosts
        for gpu in range(8)
    )
    return "t,g,v\n" + "\n".join(rows) + "\n"


def test_two_hosts_that_number_their_gpus_alike_stay_two(one: Run, place: str) -> None:
    for host in ("a", "b"):
        done = one(of_host(), "--host", host, interval="")
        assert (
            f"8 GPU ids are not UUIDs: stored as {host}/ID, separate from those of other hosts" in done.summary["notes"]
        )
    assert query(place, "select count(distinct gpu), sum(interval_ms) / 1000 from lake") == [(16, 2 * 8 * 20 * 10)]


def test_uuids_stay_as_they_are(one: Run, place: str) -> None:
    assert one(of_host("GPU-{gpu}"), interval="").summary["notes"] == []
    assert ("GPU-0",) in query(place, "select distinct gpu from lake")


MANY = "t,g,v\n" + "".join(f"{NOON + 10 * tick},x{gpu},{gpu}\n" for tick in range(3) for gpu in range(40))


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        (of_host(), (), "the next host's GPU 0 would be the same GPU (--host)"),
        (of_host(hosts=(0, 40)), ("--host", "h"), "160 of 320 rows repeat a GPU and time with another value"),
        (MANY, ("--host", "gn001"), "40 GPUs on the one host gn001"),
    ],
    ids=["numbers without a host", "two hosts in one file", "more GPUs than a host has"],
)
def test_gpus_that_may_be_others_are_asked_about(one: Run, text: str, flags: tuple[str, ...], said: str) -> None:
    one(text, *flags, interval="").refused(said)
    assert text != MANY or one(text, interval="").code == 0  # no host is named


def test_rows_of_two_hosts_under_one_name_are_asked_about(smi: Run) -> None:
    smi(log(), log(power=351)).refused(
        "80 of 160 rows have the GPU and time of another row but other values: are they of one host?"
    )
