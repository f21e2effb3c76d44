"""Logs that name no GPU: count and order place the lines, and no interval on the command line overrules the file."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analytics.importers.nvidia_smi import NvidiaSmiSettings, read_file
from fallow.errors import FallowError
from tests.importers.conftest import LIMITS, at, query

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.importers.conftest import Run

HEAD = "timestamp, utilization.gpu [%], memory.used [MiB]\n"


def log(ticks: int, gpus: int = 8, period_s: float = 0.102, slow: int = 0, *, keeps_time: bool = False) -> list[str]:
    """Lines of `nvidia-smi -lms` without a name; GPU g uses g + 1 GiB. Slow ticks wait up to 450 ms within themselves.

    nvidia-smi sleeps after each tick; with `keeps_time` late ticks are followed at once by those that are due.
    """
    chance = random.Random(ticks + gpus)  # noqa: S311
    late = set(chance.sample(range(ticks), slow))
    lines, now = [], 0.0
    for tick in range(ticks):
        now = max(now + 0.001, tick * period_s) if keeps_time else now
        for gpu in range(gpus):
            lines.append(f"{at(now)}, {tick % 100} %, {gpu + 1} GiB\n")
            now += chance.uniform(0.0005, 0.0025)
            if tick in late and gpu == tick % (gpus - 1):
                now += chance.uniform(0.06, 0.45)
        if not keeps_time:
            now += period_s - 0.0015 * gpus
    return lines


PLACED = (
    "select count(distinct gpu), count(*), count(*) filter (mem_used_bytes != 1073741824 * (1 + split_part(gpu, '/',"
    " 2)::bigint)) from lake"
)


def test_the_tick_is_inferred_from_the_timestamps(smi: Run, place: str) -> None:
    done = smi(HEAD + "".join(log(300)))
    assert done.summary["interval"].startswith("102ms (inferred")
    assert query(place, PLACED) == [(8, 2400, 0)]


def test_an_interval_that_contradicts_the_file_is_refused_with_the_right_one(smi: Run) -> None:
    for wrong in ("10s", "1s", "30ms"):
        done = smi(HEAD + "".join(log(300)), flags=("--interval", wrong))
        done.refused("ticks of 8 lines are 102ms apart", "--interval 102ms")
    assert smi(HEAD + "".join(log(300)), flags=("--interval", "100ms")).published["gpu"] == (2400, 0, 0)


@pytest.mark.parametrize("keeps_time", [False, True])
def test_slow_ticks_are_placed_by_count_and_order(smi: Run, place: str, keeps_time: bool) -> None:  # noqa: FBT001
    done = smi(HEAD + "".join(log(600, slow=20, keeps_time=keeps_time)), flags=("--interval", "100ms"))
    assert done.dropped() == {}
    assert query(place, PLACED) == [(8, 4800, 0)]


def test_a_tick_that_lost_lines_among_slow_ones_is_dropped_alone(smi: Run, place: str) -> None:
    lines = log(600, slow=20)
    del lines[8 * 300 + 2 : 8 * 300 + 5]
    done = smi(HEAD + "".join(lines))
    assert done.dropped() == {"tick without 8 rows and no column that names its GPUs": 5}
    assert query(place, PLACED) == [(8, 4792, 0)]


def test_halves_of_two_ticks_are_not_one(smi: Run, place: str) -> None:
    lines = log(60, gpus=2, period_s=10)
    del lines[41], lines[41]  # GPU 1 of tick 20, GPU 0 of tick 21
    lines[41], lines[42] = lines[42], lines[41]
    done = smi(HEAD + "".join(sorted(lines)))
    assert query(place, PLACED)[0][2] == 0
    assert sum(done.dropped().values()) == 2


def test_two_groups_of_gpus_are_one_host(smi: Run, place: str) -> None:
    """GPUs of the second socket answer 30 ms later: an uneven rhythm of four is an even one of eight."""
    answers = [0.001 * gpu + (0.03 if gpu > 3 else 0) for gpu in range(8)]
    every = ((tick, gpu) for tick in range(100) for gpu in range(8))
    smi(HEAD + "".join(f"{at(tick * 0.1 + answers[gpu])}, {tick} %, {gpu + 1} GiB\n" for tick, gpu in every))
    assert query(place, PLACED) == [(8, 800, 0)]


def test_lines_out_of_order_name_no_gpu(smi: Run, place: str) -> None:
    lines = log(100)
    lines[80], lines[83] = lines[83], lines[80]
    assert smi(HEAD + "".join(lines)).dropped() == {"tick without 8 rows and no column that names its GPUs": 8}
    assert query(place, PLACED) == [(8, 792, 0)]
    done = smi(HEAD + "".join(sorted(lines, reverse=True)))
    assert (done.code, "not in the order of their times" in done.err) == (1, True)


def test_one_gpu_every_100_ms_is_not_nine_gpus(smi: Run) -> None:
    text = HEAD + "".join(log(9, gpus=1, period_s=0.1))
    smi(text).refused("--interval 100ms if a tick has 1 line")
    smi(text, flags=("--interval", "10s")).refused()
    assert smi(text, flags=("--interval", "100ms")).published["gpu"] == (9, 0, 0)


def test_a_gap_within_a_tick_is_no_interval(smi: Run) -> None:
    """Eight GPUs, and seven from the middle on: no line can be placed, and no flag turns them into one GPU."""
    every = ((tick, gpu) for tick in range(600) for gpu in range(8 if tick < 300 else 7))
    text = HEAD + "".join(f"{at(5 * tick + 0.002 * gpu)}, 0 %, 1 GiB\n" for tick, gpu in every)
    assert "2ms" not in smi(text).refused()
    smi(text, flags=("--interval", "2ms", "--yes")).refused()


def test_lines_of_one_moment_are_not_of_one_gpu(smi: Run, place: str) -> None:
    """Ticks of eight equal lines with one time: one short tick is dropped; seven from the middle on are refused."""

    def text(gone: Callable[[int, int], bool]) -> str:
        kept = ((tick, gpu) for tick in range(100) for gpu in range(8) if not gone(tick, gpu))
        return HEAD + "".join(f"{at(10 * tick)}, {tick} %, 1 GiB\n" for tick, _ in kept)

    smi(text(lambda tick, gpu: gpu == 7 and tick >= 50), flags=("--yes",)).refused()
    assert smi(text(lambda tick, gpu: (tick, gpu) == (50, 3))).summary["rows"]["dropped"] == 7
    assert query(place, "select count(distinct gpu), count(*) from lake") == [(8, 792)]


def test_no_host_has_more_than_32_gpus(smi: Run) -> None:
    text = "".join(f"{at(10 * tick + 0.002 * gpu)}, {gpu}, 5 %\n" for tick in range(9) for gpu in range(40))
    for flags in ((), ("--interval", "10s")):
        smi("timestamp, index, utilization.gpu [%]\n" + text, flags=flags).refused("40 GPUs")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    gpus=st.integers(2, 9),
    slow=st.integers(0, 6),
    cuts=st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 12)), max_size=3),
    interval=st.sampled_from([None, 100, 10_000]),
)
def test_no_line_is_given_to_another_gpu(
    tmp_path: Path, gpus: int, slow: int, cuts: list[tuple[int, int]], interval: int | None
) -> None:
    """Whatever segments of lines are missing."""
    lines = log(80, gpus=gpus, slow=slow)
    for start, length in cuts:
        del lines[start % len(lines) : start % len(lines) + length]
    path = tmp_path / "log.csv"
    path.write_text(HEAD + "".join(lines))
    try:
        frame, report = read_file(str(path), NvidiaSmiSettings("h", "UTC", interval, None, LIMITS))
    except FallowError:
        return
    assert interval != 10_000
    assert (frame["mem_used_bytes"] // 2**30 == frame["position"].cast(int) + 1).all()
    assert report.rows_kept + sum(each.count for each in report.dropped) == len(lines)
