"""`fallow top`: what it says of a host, and how that fits a terminal."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from agent.top.command import _interval_ms
from agent.top.model import gpu_lines, process_lines, summarize, user_name
from agent.top.screen import Frame, frame_lines
from agent.top.tables import PLAIN, Glyphs, bar, gib, glyphs, shown, span
from fallow.errors import UsageError
from tests.agent.snapshots import BUSY, FREE, GIB, HELD, LOST, device_row, gpu_row, mig_snapshot, process_row, snapshot
from tests.agent.test_top_command import line_of

if TYPE_CHECKING:
    from agent.snapshot import Snapshot

NOW_MS = 1_795_000_000_000


def picture(seen: Snapshot, width: int = 120, height: int | None = None, **options: object) -> list[str]:
    frame = Frame(seen, 1.0, "agent 0.2.0", **options)  # type: ignore[arg-type]
    return [line.plain for line in frame_lines(frame, width, height, Glyphs())]


def test_processes_are_counted_where_a_list_is_known() -> None:
    seen = snapshot(NOW_MS)
    down = tuple(gpu_row(row["gpu"], NOW_MS, health="released") for row in seen.gpus)
    assert "process" not in picture(replace(seen, gpus=down))[3]
    watched = replace(seen, gpus=tuple(row for row in seen.gpus if row["gpu"] != LOST))
    assert picture(watched)[3].endswith("2 processes")


def test_it_says_who_holds_what_for_nothing() -> None:
    lines = picture(snapshot(NOW_MS))
    assert lines[0].startswith(
        "fallow top · gn001 · 4 \N{MULTIPLICATION SIGN} NVIDIA H100 80GB HBM3 · driver 580.65.06 · CUDA 13.0"
    )
    assert lines[1] == "agent 0.2.0: means of 10s"
    assert lines[2] == "1 of 3 watched GPUs idle while held, 40.0 GiB held idle: ml/notebook-0 1 (40.0 GiB)"
    assert lines[3] == "1 lost · 1 free · 24 % mean utilization · 88.0 of 240 GiB · 0.8 of 2.1 kW · 2+ processes"


def test_the_table_of_gpus() -> None:
    lines = picture(snapshot(NOW_MS), processes=False)
    assert lines[5].split() == ["GPU", "STATE", "UTIL", "SM", "MEMORY", "GiB", "POWER", "TEMP", "USER", "IDLE"]
    assert line_of(lines, "0").split()[:3] == ["0", "active", "73"]
    assert line_of(lines, "0").split()[-3:] == ["ada", "(job", "8812)"]
    assert re.search(r"1  idle +0 % .* 40\.0/80 .* 74/700 W +35 °C  ml/notebook-0 +40m 00s$", line_of(lines, "1"))
    assert line_of(lines, "2").split()[-3:] == ["user", ">1h", "00m"]  # idle since the agent began to look
    assert line_of(lines, "3").split() == ["3", "lost", "-", "-", "-", "-", "-"]


def test_mig_instances_stand_below_their_gpu() -> None:
    lines = picture(mig_snapshot(NOW_MS), processes=False)
    assert [line.split()[:3] for line in lines[6:]] == [
        ["0", "H100", "80GB"],
        ["0:1", "3g.40gb", "active"],
        ["0:7", "1g.10gb", "idle"],
    ]
    assert lines[2].startswith("1 of 2 GPUs idle while held, 8.0 GiB")


def test_what_is_not_known_is_not_allocated() -> None:
    unknown = (gpu_row(BUSY, NOW_MS), gpu_row(HELD, NOW_MS, gpu_util_pct=0.0, gpu_util_max_pct=0))
    seen = replace(snapshot(NOW_MS), gpus=unknown, processes=(), idle_since_ms={})
    first, second = gpu_lines(seen)
    assert (first.state, first.users, first.util_pct) == ("unknown", None, None)
    assert (second.state, second.users) == (
        "unknown",
        None,
    )  # nothing runs, and nobody knows whether somebody holds it
    assert picture(seen)[2] == "the state of the GPUs is unknown"
    released = replace(seen, mode="released", gpus=(gpu_row(BUSY, NOW_MS, health="released"),))
    lines = picture(released)
    assert "the driver is released" in lines[1]
    assert lines[2:4] == ["the state of the GPUs is unknown", "1 released"]


def test_a_kernel_too_short_for_the_mean_is_activity_and_a_lost_gpu_has_no_processes() -> None:
    row = gpu_row(HELD, NOW_MS, gpu_util_pct=0.0, gpu_util_max_pct=3, process_count=1)
    [line] = gpu_lines(replace(snapshot(NOW_MS), gpus=(row,)))
    assert line.state == "active"
    assert process_lines(replace(snapshot(NOW_MS), processes=(process_row(LOST, 1, "ada"),))) == []


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ("user=ada", "ada"),
        ("", "pid 7"),
        ("user=ada slurm_job_id=12", "ada (job 12)"),
        ("user=root pod=web-0", "web-0"),
        ("user=root pod=web-0 namespace=ml ray_job_id=02", "ml/web-0 (ray 02)"),
        ("user=root unit=vllm.service", "vllm.service"),
        ("user=ann unit=vllm.service", "ann (vllm.service)"),
        ("user=100000 container_runtime=lxc container=web unit=vllm.service", "lxc/web (vllm.service)"),
        ("user=root unit=ray.service ray_job_id=02", "root (ray 02)"),
    ],
)
def test_users(row: str, name: str) -> None:
    assert (
        user_name({"pid": 7, **dict(part.split("=") for part in row.split())})  # type: ignore[typeddict-item]
        == name
    )


def test_held_memory_adds_up_where_several_hold_one_gpu() -> None:
    processes = (process_row(HELD, 1, "ada", mem_used_bytes=GIB), process_row(HELD, 2, "grace", mem_used_bytes=3 * GIB))
    gpus = gpu_lines(replace(snapshot(NOW_MS), processes=processes))
    summary = summarize(gpus, [])
    assert summary.held_idle_by == (("grace", 1, 40 * GIB),)
    assert gpus[1].users == ("grace", "ada")


def test_processes_are_sorted_as_asked() -> None:
    many = (
        process_row(HELD, 30, "zoe", mem_used_bytes=1 * GIB, cpu_util_pct=5.0),
        process_row(BUSY, 20, "ada", mem_used_bytes=2 * GIB, cpu_util_pct=90.0),
        process_row(FREE, 10, "bob", mem_used_bytes=3 * GIB),
    )
    seen = replace(snapshot(NOW_MS), processes=many)

    def pids(sort: str) -> list[str]:
        lines = picture(seen, sort=sort)
        start = next(number for number, line in enumerate(lines) if "PID" in line)
        return [line.split()[1] for line in lines[start + 1 :]]

    assert pids("memory") == ["10", "20", "30"]
    assert pids("GPU") == ["20", "30", "10"]
    assert pids("CPU") == ["20", "30", "10"]
    assert pids("user") == ["20", "10", "30"]


def big(gpus: int) -> Snapshot:
    uuids = [f"GPU-{number:04d}" for number in range(gpus)]
    rows = tuple(gpu_row(uuid, NOW_MS, gpu_util_pct=50.0, process_count=1, mem_used_bytes=GIB) for uuid in uuids)
    devices = {uuid: device_row(uuid, number) for number, uuid in enumerate(uuids)}
    processes = tuple(process_row(uuid, 1000 + number, "名前" * 20) for number, uuid in enumerate(uuids))
    return replace(snapshot(NOW_MS), gpus=rows, devices=devices, processes=processes, idle_since_ms={})


@given(st.integers(1, 250), st.integers(1, 60), st.integers(0, 20), st.booleans(), st.sampled_from([Glyphs(), PLAIN]))
def test_no_frame_is_larger_than_its_terminal(
    width: int,
    height: int,
    gpus: int,
    keys: bool,  # noqa: FBT001
    shapes: Glyphs,
) -> None:
    frame = Frame(big(gpus), 1.0, "driver", "a remark", keys=keys)
    lines = frame_lines(frame, width, height, shapes)
    assert len(lines) <= max(height, 1)
    assert all(cell_len(line.plain) <= width for line in lines)
    assert not any("\n" in line.plain for line in lines)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_the_columns_that_matter_are_always_there(width: int) -> None:
    lines = picture(snapshot(NOW_MS), width, 24, processes=False)
    head = next(line for line in lines if "STATE" in line)
    assert {"GPU", "STATE", "UTIL", "MEMORY", "USER", "IDLE"} <= set(head.split())
    assert ("SM" in head.split(), "POWER" in head) == (width >= 80, width >= 80)
    assert line_of(lines, "1").endswith("40m 00s")


def test_what_has_no_room_is_told_of() -> None:
    lines = picture(big(16), 100, 16, keys=True)
    assert len(lines) == 16
    assert "… 8 more GPUs; a taller terminal shows them" in lines
    lines = picture(big(4), 100, 16, keys=True)
    assert "… 2 more processes" in lines


def test_old_values_say_so() -> None:
    frame = Frame(snapshot(NOW_MS), 125.0, "agent 0.2.0")
    assert (
        frame_lines(frame, 100, None, Glyphs())[1].plain
        == "agent 0.2.0: no new data for 2m 05s; the values below are old"
    )


def test_texts_and_bars() -> None:
    spans = [span(ms) for ms in (None, 0, 59_999, 61_000, 3_600_000, 93_600_000)]
    assert spans == ["", "0s", "59s", "1m 01s", "1h 00m", "1d 2h"]
    assert [gib(size) for size in (None, 0, 80 * GIB, 141 * GIB)] == ["-", "0.0", "80.0", "141"]
    assert shown("evil\x1b[2J\n") == "evil?[2J?"
    bars = ["".join(bar(share, 4, Glyphs())) for share in (None, 0, 0.001, 0.5, 0.63, 0.999, 1, 7.0)]
    assert bars == ["    ", "────", "╸───", "━━──", "━━╸─", "━━━╸", "━━━━", "━━━━"]


def test_ascii_terminals_get_ascii() -> None:
    assert glyphs("ascii") is PLAIN
    assert glyphs("no such encoding") is PLAIN
    assert glyphs("utf-8") == Glyphs()
    lines = frame_lines(Frame(snapshot(NOW_MS), 1.0, "driver"), 100, None, PLAIN)
    assert all(line.plain.isascii() for line in lines)


def test_the_interval_of_a_look() -> None:
    assert [_interval_ms(text) for text in ("1s", "2", "0.5", "250ms")] == [1000, 2000, 500, 250]
    with pytest.raises(UsageError, match="too short"):
        _interval_ms("100ms")
