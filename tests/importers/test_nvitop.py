"""`fallow import nvitop`: what nvitop's collector gave, cleared or not, as JSON and as CSV."""

from __future__ import annotations

import csv
import gzip
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.importers.conftest import query
from tests.importers.test_processes import RECORDED

if TYPE_CHECKING:
    from pathlib import Path

    from tests.importers.conftest import Run

START = 1_795_449_600.0  # 2026-11-23T16:00:00Z


def record(end_s: float, duration_s: float = 10, gpus: tuple[str, ...] = ("gpu:0",)) -> dict[str, Any]:
    """One record of the tag `t`: a GPU at 40 % on average that is at 0 % now."""
    shown = {"mean": 40.0, "min": 0.0, "max": 90.0, "last": 0.0}
    found: dict[str, Any] = {"t/host/cpu_percent (%)/mean": 3.0}
    for gpu in gpus:
        found |= {f"t/{gpu}/gpu_utilization (%)/{key}": value for key, value in shown.items()}
        found |= {f"t/{gpu}/memory_used (MiB)/mean": 400.0, f"t/{gpu}/memory_total (MiB)/last": 81_920.0}
    times = {"t/timestamp": START + end_s, "t/last_timestamp": START + end_s - 0.5}
    return found | {"t/duration (s)": duration_s} | times


@pytest.fixture
def nvitop(fallow_import: Run, tmp_path: Path) -> Run:
    def run(found: list[dict[str, Any]] | str, *flags: str) -> Any:
        path = tmp_path / "nvitop"
        path.write_text(found if isinstance(found, str) else "".join(json.dumps(each) + "\n" for each in found))
        return fallow_import("nvitop", path, "--host", "gn001", *flags)

    return run


SEEN = (
    "select list(gpu_util_pct::int order by time, offset_ms), list(process_count order by time, offset_ms) from lake"
    " where gpu = '{}'"
)


@pytest.mark.parametrize(
    ("kind", "util", "peak"),
    [
        # nothing was cleared: averages are since the collector began, and only last values are of now
        ("since-start", [80, 80, 0, 0, 0, 60, 60], None),
        ("clear", [80, 80, 61, 0, 0, 40, 60], 80),
    ],
)
def test_a_recorded_collector(fallow_import: Run, place: str, kind: str, util: list[int], peak: float | None) -> None:
    done = fallow_import("nvitop", RECORDED / f"nvitop-{kind}.jsonl.gz", "--host", "gn001")
    assert done.summary["rows"] == {"read": 28, "dropped": 0, "merged": 0, "kept": 28}
    assert (done.summary["overview"]["processes"], done.summary["overview"]["users"]) == (3, 0)
    assert query(place, SEEN.format("gn001/0")) == [(util, [2, 2, 2, 2, 1, 1, 1])]
    # the collector follows the processes that it was told to: nobody says that there is no other
    assert query(place, SEEN.format("gn001/2")) == [([0] * 7, [None] * 7)]
    assert query(place, "select max(gpu_util_max_pct), count(gpu_util_coverage_ratio) from lake") == [(peak, 0)]
    assert query(
        place, "select distinct mem_used_bytes // 1048576, power_w, temperature_c, util_source from lake order by 1"
    ) == [(0, 70, 35, "import"), (9216, 70, 35, "import"), (20_480, 400, 35, "import"), (30_720, 70, 35, "import")]
    assert query(
        place, "select distinct gpu_index, mem_total_bytes // 1048576, power_limit_w from lake order by 1", "device"
    )[1] == (1, 81_920, 700)
    assert query(
        place, "select distinct pid, user, mem_used_bytes // 1048576 from lake where gpu = 'gn001/1'", "process"
    ) == [(17_719, None, 9_216)]


def test_csv_of_a_data_frame_is_the_same(fallow_import: Run, tmp_path: Path) -> None:
    with gzip.open(RECORDED / "nvitop-clear.jsonl.gz", "rt") as lines:
        records = [json.loads(line) for line in lines]
    names = list(dict.fromkeys(key for each in records for key in each))
    text = io.StringIO()
    writer = csv.DictWriter(text, ["", *names])
    writer.writeheader()
    writer.writerows({"": at, **each} for at, each in enumerate(records))
    (tmp_path / "csv").write_text(text.getvalue())
    fallow_import("nvitop", RECORDED / "nvitop-clear.jsonl.gz", "--host", "gn001")
    again = fallow_import("nvitop", tmp_path / "csv", "--host", "gn001")
    assert (again.published["gpu"], again.published["process"]) == ((0, 28, 0), (0, 13, 0))


ROWS = (
    "select epoch(time), interval_ms, offset_ms, gpu_util_pct, gpu_util_max_pct, mem_used_bytes from lake order by time"
)


def test_windows_of_their_own_are_averages_at_their_begin(nvitop: Run, place: str) -> None:
    nvitop([record(10), record(20), record(30)])
    rows = query(place, ROWS)
    assert rows == [(START + 10 * at, 10_000, 0, 40, 90, 400 * 2**20) for at in range(3)]


def test_a_window_that_goes_on_gives_last_values_or_none(nvitop: Run, place: str) -> None:
    going = [record(10 * at, 10 * at) for at in (1, 2, 3)]
    nvitop(going)
    rows = query(place, ROWS)
    assert rows == [(START + 10 * at, 10_000, 9_500, 0, None, None) for at in range(3)]
    old = [{key: value for key, value in each.items() if not key.endswith("/last")} for each in going]
    assert "averages since the collector began, without the last value: 3" in nvitop(old).err


def test_what_is_left_out_is_counted(nvitop: Run, place: str) -> None:
    text = "".join(json.dumps(each) + "\n" for each in [record(10), {"loss": 1}, record(20, gpus=()), record(20)])
    done = nvitop(text + '{"t/gpu:0/gpu_util')
    reasons = (
        "no time and duration of nvitop's collector",
        "a record without a GPU",
        "in a document that is truncated or damaged",
    )
    assert done.dropped() == dict.fromkeys(reasons, 1)
    assert query(place, "select count(*) from lake") == [(2,)]


def test_gpus_by_their_physical_index_and_mig_left_out(nvitop: Run, place: str) -> None:
    done = nvitop([record(10 * at, gpus=("cuda:0 (gpu:3)", "gpu:(3, 1)")) for at in (1, 2)])
    assert query(place, "select distinct gpu from lake") == [("gn001/3",)]
    assert "metrics of MIG instances are not read" in done.summary["files"][0]["notes"]


@pytest.mark.parametrize(
    "text",
    ["prose", "[]", "{}", "[" * 9999, '{"t/timestamp": NaN, "t/duration (s)": 1}', "9" * 5000,
     '{"t/timestamp": 1e99, "t/duration (s)": 1, "t/gpu:0/gpu_utilization (%)/mean": 1}', "a,t/timestamp\n1,2\n"],
)  # fmt: skip
def test_what_is_not_nvitops_is_refused(nvitop: Run, text: str) -> None:
    nvitop(text).refused()


def test_a_unit_that_cannot_be_is_refused(nvitop: Run) -> None:
    records = "".join(json.dumps(record(10 * at)) + "\n" for at in range(1, 6))
    nvitop(records.replace("MiB", "B")).refused("it looks like KiB, but its keys name another unit")
    nvitop(records.replace("MiB", "pages")).refused("names the unit pages", code=2)
