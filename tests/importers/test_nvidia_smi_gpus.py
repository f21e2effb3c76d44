"""Which GPU a line of nvidia-smi is about, and which moment in the hour that a zone repeats."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.importers.conftest import at, query

if TYPE_CHECKING:
    from tests.importers.conftest import Run


def ticks(count: int, gpus: int, start: float = 0, interval: float = 10) -> list[str]:
    """Lines without anything that names a GPU: GPU g of tick n has utilization 10 g + n."""
    every = ((tick, gpu) for tick in range(count) for gpu in range(gpus))
    return [f"{at(start + interval * tick + 0.004 * gpu)}, {10 * gpu + tick} %" for tick, gpu in every]


HEAD, INDEXED = "timestamp, utilization.gpu [%]\n", "timestamp, index, utilization.gpu [%]\n"
BY_GPU = "select gpu, list(gpu_util_pct order by time) from lake group by gpu order by gpu"


def test_position_in_the_tick_names_the_gpu(smi: Run, place: str) -> None:
    lines = ticks(5, 3)
    del lines[7]  # the tick at 20 s has two lines: whose?
    done = smi(HEAD + "\n".join(lines) + "\n")
    assert query(place, BY_GPU) == [(f"gn001/{gpu}", [10 * gpu + tick for tick in (0, 1, 3, 4)]) for gpu in range(3)]
    assert done.dropped() == {"tick without 3 rows and no column that names its GPUs": 2}


def test_a_last_tick_that_was_cut_off_keeps_its_leading_rows(smi: Run, place: str) -> None:
    lines = ticks(4, 3)
    done = smi(HEAD + "\n".join(lines[:-1]) + f"\n{lines[-1][:20]}")
    assert [found for _, found in query(place, BY_GPU)] == [[0, 1, 2, 3], [10, 11, 12, 13], [20, 21, 22]]
    assert done.dropped() == {"wrong number of fields: truncated or mixed lines": 1}


def test_a_short_last_tick_that_was_not_cut_off_may_miss_any_gpu(smi: Run, place: str) -> None:
    smi(HEAD + "\n".join(ticks(4, 3)[:-1]) + "\n")
    assert query(place, "select count(*) from lake") == [(9,)]


def test_ticks_end_at_outages_and_header_lines(smi: Run, place: str) -> None:
    once_a_minute = "".join(HEAD + "\n".join(ticks(1, 2, start=60 * run)) + "\n" for run in range(4))
    smi(once_a_minute + HEAD + "\n".join(ticks(3, 2, start=90_000)) + "\n")
    assert query(place, BY_GPU) == [(f"gn001/{gpu}", [10 * gpu + at for at in (0, 0, 0, 0, 0, 1, 2)]) for gpu in (0, 1)]


def test_gpus_that_answer_slowly_are_not_taken_for_one(smi: Run, place: str) -> None:
    text = "".join(f"{at(10 * tick + 0.7 * gpu)}, {10 * gpu + tick} %\n" for tick in range(5) for gpu in range(2))
    smi(HEAD + text).refused()
    assert smi(HEAD + text, flags=("--interval", "10s")).code == 0
    assert query(place, BY_GPU) == [("gn001/0", list(range(5))), ("gn001/1", list(range(10, 15)))]


def test_one_gpu_without_a_name(smi: Run, place: str) -> None:
    smi(HEAD + "\n".join(ticks(9, 1, interval=1)) + "\n")
    assert query(place, BY_GPU) == [("gn001/0", list(range(9)))]


def test_lines_that_cannot_be_told_apart_need_an_interval(smi: Run) -> None:
    text = HEAD + "\n".join(ticks(20, 1, interval=0.1)) + "\n"
    smi(text).refused()
    assert smi(text, flags=("--interval", "100ms")).published["gpu"] == (20, 0, 0)


def test_an_index_takes_the_uuid_that_other_lines_give_it(smi: Run, place: str) -> None:
    smi(
        f"timestamp, index, uuid, utilization.gpu [%]\n{at(0)}, 0, GPU-a, 1 %\n{at(0)}, 1, GPU-b, 2 %\n"
        f"{at(0)}, 2, GPU-c, 3 %\n{at(10)}, 2, GPU-d, 4 %\n"
        f"timestamp, index, utilization.gpu [%]\n{at(20)}, 0, 5 %\n{at(20)}, 2, 6 %\n"
    )
    assert query(place, "select gpu, gpu_util_pct from lake order by 2") == [
        ("GPU-a", 1),
        ("GPU-b", 2),
        ("GPU-c", 3),
        ("GPU-d", 4),
        ("GPU-a", 5),
        ("gn001/2", 6),
    ]


def test_chunks_are_seamless(smi: Run, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 2 * (HEAD + "\n".join(ticks(9, 3)) + "\n" + HEAD + "\n".join(ticks(9, 3, start=90)) + "\n\n")
    found = []
    for size in (2**20, 1, 30, 333):
        monkeypatch.setattr("analytics.importers.nvidia_smi_lines._CHUNK_BYTES", size)
        found.append(smi(text).summary["files"])
    assert all(each == found[0] for each in found)
    assert query(place, "select count(*) from lake") == [(54,)]


NIGHT = datetime(2026, 10, 25, 1, 30)  # noqa: DTZ001 (Europe/Paris repeats 02:00-03:00)
PARIS = ("--tz", "Europe/Paris", "--interval", "10min")
EPOCHS = "select epoch(time + to_milliseconds(offset_ms))::bigint from lake order by 1"


def test_the_repeated_hour_is_told_apart_by_the_step_back(smi: Run, place: str) -> None:
    clock = [NIGHT + timedelta(minutes=10 * step) for step in range(9)]  # 01:30 .. 02:50
    clock += [NIGHT + timedelta(minutes=30 + 10 * step) for step in range(9)]  # 02:00 .. 03:20
    lines = "".join(f"{at(0, moment)}, {gpu}, 5 %\n" for moment in clock for gpu in range(2))
    done = smi(INDEXED + lines, flags=PARIS)
    moments = [row[0] for row in query(place, EPOCHS)][::2]
    assert len(moments) == 18
    assert {after - before for before, after in pairwise(moments)} == {600}
    passes = "12 read as its first pass, 12 as its second"
    assert done.notes == [f"24 rows of 2026-10-25 02:00-02:50 lie in the hour that Europe/Paris repeats: {passes}"]


@pytest.mark.parametrize(("around", "utc_hour"), [((-40, 0, 20, 40), 0), ((20, 40, 60, 80), 1), ((20, 40), 0)])
def test_the_repeated_hour_without_a_step_follows_its_neighbours(
    smi: Run, place: str, around: tuple[int, ...], utc_hour: int
) -> None:
    two = datetime(2026, 10, 25, 2)  # noqa: DTZ001
    text = INDEXED + "".join(f"{at(60 * minutes, two)}, 0, 5 %\n" for minutes in around)
    smi(text, flags=PARIS).refused("no step back in time proves it")
    smi(text, flags=(*PARIS, "--yes"))
    assert (utc_hour,) in query(place, "select hour(time) from lake where minute(time) = 20")


def test_the_skipped_hour_is_refused_with_its_line(smi: Run) -> None:
    spring = datetime(2026, 3, 29, 2, 30)  # noqa: DTZ001
    text = f"{INDEXED}{at(-3600, spring)}, 0, 5 %\n{at(0, spring)}, 0, 6 %\n"
    smi(text, flags=PARIS).refused("line 3 has the time 2026-03-29 02:30:00, which Europe/Paris skips")
    assert smi(text, flags=("--timezone", "UTC", "--interval", "1h")).published["gpu"] == (2, 0, 0)


def test_times_that_say_their_moment_need_no_zone(smi: Run, place: str) -> None:
    sure = [
        "2026-11-20T10:00:00Z",
        "2026/11/20 12:30:10 +02:30",
        "2026-11-20 10:00:20 UTC",
        "1795168830",
        "1795168840500",
    ]
    text = INDEXED + "".join(
        f"{moment}, 0, {number} %\n" for number, moment in enumerate([*sure, "2026/11/20 11:00:50"])
    )
    done = smi(text, flags=("--tz", "Europe/Paris"))
    assert (done.dropped(), done.summary["timezone"]) == ({}, "Europe/Paris (given) for times without an offset")
    assert query(place, "select epoch_ms(time) + offset_ms - 1795168800000, gpu_util_pct from lake order by 1") == [
        (10_000 * number + 500 * (number == 4), number) for number in range(6)
    ]
    done = smi("\n".join(text.splitlines()[:-1]) + "\n", flags=("--tz", "Europe/Paris"))
    assert (done.summary["timezone"], done.published["gpu"]) == ("UTC (the files' own)", (0, 5, 0))


def test_times_that_are_none_are_dropped_by_their_reason(smi: Run, place: str) -> None:
    good = f"{INDEXED}{at(0)}, 0, 5 %\n{at(10)}, 0, 6 %\n"
    done = smi(f"{good}2026/03/40, 0, 5 %\n1999/01/01 00:00:00, 0, 5 %\n2199/01/01 00:00:00, 0, 5 %\n")
    assert done.dropped() == {"timestamp unreadable": 1, "time before 2007": 1, "time in the future": 1}
    assert query(place, "select count(*) from lake") == [(2,)]


def test_an_hour_that_repeats_in_no_zone_is_asked_about(smi: Run) -> None:
    """Local time that was read as UTC."""
    clock = [NIGHT + timedelta(minutes=step) for step in (*range(0, 90, 2), *range(30, 120, 2))]
    text = INDEXED + "".join(f"{at(0, moment)}, 0, {number % 7} %\n" for number, moment in enumerate(clock))
    smi(text).refused("line 47 is an hour before the line above it")
    assert smi(text, flags=("--tz", "Europe/Paris")).published["gpu"] == (90, 0, 0)
