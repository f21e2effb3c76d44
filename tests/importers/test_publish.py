"""Publishing imports: repeatable, in any order, in parts, and whole at every moment."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.importers.model import Imported
from analytics.importers.publish import Published, publish
from analytics.importers.times import on_grid
from analytics.importers.values import conform
from fallow import leases, parquet
from fallow.errors import BrokenFileError
from fallow.lake import Lake, LakeFile
from fallow.schema import DEVICE, GPU
from fallow.stores import LocalStore
from tests.importers.conftest import files, query
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MIDNIGHT = 1_795_132_800_000  # 2026-11-20T00:00:00Z
Row = tuple[str, int, dict[str, object]]


def imported(rows: Sequence[Row], interval_ms: int = 10_000, host: str = "h") -> Imported:
    """Samples (gpu, true_ms, values) as an importer hands them over."""
    frame = pl.DataFrame(
        [{"gpu": gpu, "true_ms": true_ms, **values} for gpu, true_ms, values in rows], infer_schema_length=None
    )
    frame, _ = on_grid(frame, interval_ms)
    device = frame.sort("time").group_by("gpu", pl.col("time").dt.date().alias("day")).agg(pl.col("time").first())
    return Imported(host, frame, conform(device, DEVICE), (), "", "")


def put(place: str, rows: Sequence[Row], interval_ms: int = 10_000) -> Published:
    return publish(made_lake(place), imported(rows, interval_ms))[1]


def everything(place: str, table: str = "gpu") -> list[tuple[object, ...]]:
    return query(place, "select * replace (epoch_ms(time) as time) from lake order by all", table)


def some(count: int, start: int = MIDNIGHT, value: float = 5.0) -> list[Row]:
    return [("a", start + 10_000 * at, {"gpu_util_pct": value}) for at in range(count)]


def test_again_writes_nothing(place: str) -> None:
    assert put(place, some(6)) == Published("gpu", 6, 0, 0, 1)
    before = {path: path.stat().st_mtime_ns for path in Path(place).rglob("*.parquet")}
    assert put(place, some(6)) == Published("gpu", 0, 6, 0, 0)
    assert {path: path.stat().st_mtime_ns for path in Path(place).rglob("*.parquet")} == before


def test_one_file_holds_all_of_a_host_and_day(place: str) -> None:
    put(place, some(6, MIDNIGHT + 3_600_000))
    assert put(place, some(6)) == Published("gpu", 6, 0, 0, 1)
    assert put(place, some(9, value=7)) == Published("gpu", 3, 0, 6, 1)
    assert files(place) == [
        f"gpu/date=2026-11-20/host=h/{MIDNIGHT}-{MIDNIGHT + 3_650_000}.parquet",
        f"device/date=2026-11-20/host=h/{MIDNIGHT}-{MIDNIGHT + 3_600_000}.parquet",
    ]
    assert query(place, "select sum(gpu_util_pct), count(*) from lake") == [(9 * 7 + 6 * 5, 15)]


def test_new_values_win_unless_they_are_null(place: str) -> None:
    put(place, [("a", MIDNIGHT, {"gpu_util_pct": 5.0, "health": "lost", "temperature_c": None})])
    put(place, [("a", MIDNIGHT, {"gpu_util_pct": None, "temperature_c": 40, "power_w": 0.0})])
    found = query(place, "select gpu_util_pct, health, temperature_c, power_w, util_source from lake")
    assert found == [(5, "lost", 40, 0, "import")]


def written(place: str, first_seq: int, last_seq: int, *rows: dict[str, object]) -> LakeFile:
    """A file of an agent's, or one that was compacted."""
    file, own = LakeFile("gpu", "2026-11-20", "h", first_seq, last_seq), {"interval_ms": 10_000, "offset_ms": 0}
    made_lake(place).put(file, parquet.encode(GPU, parquet.table_from_rows(GPU, [own | row for row in rows])))
    return file


def test_the_agents_files_are_left_alone(place: str) -> None:
    agents = written(place, 10**15, 10**15 + 5, {"time": MIDNIGHT, "gpu": "a", "gpu_util_pct": 99.0})
    assert put(place, some(2)).new == 2
    assert agents.key in files(place)
    assert query(place, "select count(*) from lake") == [(3,)]


def test_a_compacted_file_that_took_an_import_in_is_merged_with(place: str) -> None:
    rows = ({"time": MIDNIGHT + 10_000, "gpu": gpu, "gpu_util_pct": 9.0} for gpu in "ab")
    compacted = written(place, MIDNIGHT, 10**15 + 5, *rows)
    assert put(place, some(3)) == Published("gpu", 2, 0, 1, 1)
    assert files(place)[0] == compacted.key
    found = query(place, "select gpu, gpu_util_pct, util_source from lake order by gpu, time")
    assert found == [*[("a", 5, "import")] * 3, ("b", 9, None)]


def test_another_interval_moves_rows_and_doubles_none(place: str) -> None:
    rows = [("a", MIDNIGHT + 57_000 * at, {"gpu_util_pct": 1.0}) for at in range(-3, 4)]
    put(place, rows, interval_ms=10_000)
    put(place, rows, interval_ms=3_600_000)
    put(place, rows, interval_ms=57_000)
    put(place, rows, interval_ms=7_000_000)
    assert query(place, "select epoch_ms(time) + offset_ms from lake order by 1") == [(true,) for _, true, _ in rows]


def test_a_broken_file_in_the_lake_is_found_before_anything_is_written(place: str) -> None:
    put(place, some(2))
    path = Path(place, files(place)[0])
    path.write_bytes(path.read_bytes()[:-20])
    before = sorted(Path(place).rglob("*"))
    with pytest.raises(BrokenFileError, match=path.name):
        put(place, [*some(2, MIDNIGHT - 86_400_000), *some(2)])
    assert sorted(Path(place).rglob("*")) == before


class PowerLoss(BaseException):
    pass


class Dying(LocalStore):
    """A store whose host loses power after so many changes."""

    def __init__(self, root: str, changes: int) -> None:
        super().__init__(root)
        self.left = changes

    def put(self, key: str, data: bytes, before: Callable[[], None] = lambda: None) -> None:
        self._change(key)
        super().put(key, data, before)

    def delete(self, key: str) -> None:
        self._change(key)
        super().delete(key)

    def _change(self, key: str) -> None:
        if key.startswith(leases.FOLDER):  # this process lives on, and so takes its ticket back
            return
        if self.left == 0:
            raise PowerLoss
        self.left -= 1


@pytest.mark.long
def test_a_crash_at_any_moment_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    old = [*some(5, MIDNIGHT - 20_000), *some(2, MIDNIGHT + 600_000)]
    new = [*some(40, MIDNIGHT - 100_000, value=7.0), ("b", MIDNIGHT + 5, {"gpu_util_pct": 0.0})]
    put(str(tmp_path / "whole"), old)
    put(str(tmp_path / "whole"), new)
    crashes = 0
    for changes in range(50):
        place = str(tmp_path / str(changes))
        put(place, old)
        try:
            publish(Lake(Dying(place, changes)), imported(new))
        except PowerLoss:
            crashes += 1
        seen = query(place, "select gpu, epoch_ms(time) + offset_ms from lake")
        assert len(seen) == len(set(seen))
        assert set(seen) >= {(gpu, moment) for gpu, moment, _ in old}
        put(place, new)
        assert everything(place) == everything(str(tmp_path / "whole"))
        assert everything(place, "device") == everything(str(tmp_path / "whole"), "device")
        assert sorted(files(place)) == sorted(files(str(tmp_path / "whole")))  # nothing hidden is left behind
        if crashes == changes:
            break
    assert crashes >= 6


HEALTH = st.sampled_from(["lost", "degraded"])
KNOWN = {"gpu_util_pct": st.floats(0, 100, width=32), "mem_used_bytes": st.integers(0, 2**40), "health": HEALTH}
MOMENTS = st.tuples(st.sampled_from("abc"), st.integers(MIDNIGHT - 60_000, MIDNIGHT + 60_000))
SAMPLES = st.dictionaries(MOMENTS, st.fixed_dictionaries({}, optional=KNOWN), min_size=1, max_size=30)


@settings(max_examples=12)
@given(samples=SAMPLES, parts=st.integers(1, 4), data=st.data())
def test_any_split_in_any_order_gives_the_same_lake(samples: dict, parts: int, data: st.DataObject) -> None:
    """Each value goes to one or more of the imports; rows without values to at least one."""
    pieces: list[list[Row]] = [[] for _ in range(parts)]
    some_parts = st.sets(st.integers(0, parts - 1), min_size=1)
    for (gpu, moment), values in samples.items():
        for name, value in list(values.items()) or [("gpu_util_pct", None)]:
            for part in data.draw(some_parts):
                pieces[part].append((gpu, moment, {name: value}))
    with tempfile.TemporaryDirectory() as folder:
        whole, split = f"{folder}/whole", f"{folder}/split"
        put(whole, [(gpu, moment, values) for (gpu, moment), values in samples.items()])
        for piece in pieces:
            by_key: dict[tuple[str, int], dict[str, object]] = {}
            for gpu, moment, values in piece:
                by_key.setdefault((gpu, moment), {}).update(values)
            if by_key:
                put(split, [(gpu, moment, values) for (gpu, moment), values in by_key.items()])
        assert everything(split) == everything(whole)
        assert everything(split, "device") == everything(whole, "device")
