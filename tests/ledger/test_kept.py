"""The ledger is kept in the lake, read back while it is current, and never half of one and half of another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from analytics.ledger import workers
from analytics.ledger.build import load_ledger
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.summary import summarise
from fallow import parquet, schema
from fallow.errors import LakeError
from fallow.lake import Lake, LakeFile
from tests.ledger.rows import T0, claim, fill, load, processes, samples, snapshot, states, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analytics.ledger.day import HostDay

LOADED: dict[str, Any] = {"gpu_util_pct": 0.0, "process_count": 1}
DAY = 86_400
DATES = ["2026-11-19", "2026-11-20", "2026-11-21", "2026-11-22"]


@pytest.fixture
def filled(lake: Lake) -> Lake:
    """Three days with an hour of rows around each midnight."""
    rows = [row for day in range(3) for row in samples("a", day * DAY - 1800, day * DAY + 1800, every_s=60, **LOADED)]
    return fill(lake, rows, processes("a", *range(-1800, 1800, 30)))


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """A list that grows by (host, date) with every host-day that is built."""
    seen: list[tuple[str, str]] = []
    real = workers.build_day

    def counted(day: HostDay, settings: LedgerSettings) -> Any:
        seen.append((day.host, day.date))
        return real(day, settings)

    monkeypatch.setattr(workers, "build_day", counted)
    return seen


def numbers(lake: Lake, **settings: Any) -> dict[str, object]:
    return summarise(load(lake, **settings)).as_json()


EVERY_DAY = [("h1", day) for day in DATES]


def test_the_second_load_reads_what_the_first_kept(filled: Lake, builds: list[tuple[str, str]]) -> None:
    first = load(filled)
    before = snapshot(filled)
    second = load(filled)
    assert builds == EVERY_DAY
    assert first.stretches.equals(second.stretches)
    assert first.spells.equals(second.spells)
    assert first.rollups.hourly().equals(second.rollups.hourly())
    assert snapshot(filled) == before


def test_what_is_kept_is_what_duckdb_sees(filled: Lake) -> None:
    totals = summarise(load(filled)).totals
    with duckdb.connect() as connection:
        sums = connection.sql(
            f"""
            select state, sum(epoch_ms("end") - epoch_ms("time"))::bigint
            from read_parquet('{filled.root}/ledger/**/*.parquet', hive_partitioning = true) group by state
            """  # noqa: S608  # a folder of the test's own
        ).fetchall()
    assert dict(sums) == {state: part for state, part in totals.state_ms.items() if part}


def test_other_settings_build_again_and_are_kept_in_their_turn(filled: Lake, builds: list[tuple[str, str]]) -> None:
    one, other = numbers(filled), numbers(filled, idle_after_ms=2 * 3_600_000)
    assert builds == 2 * EVERY_DAY
    assert one != other
    assert numbers(filled, idle_after_ms=2 * 3_600_000) == other
    assert builds == 2 * EVERY_DAY


NEW_ROWS = {
    "gpu": samples("a", 2 * DAY + 1800, 2 * DAY + 2400, every_s=60),
    "process": processes("a", 2 * DAY, user="eve"),
    "claim": [claim("a", 2 * DAY - 60, 2 * DAY + 60)],
    "host": [{"time": T0 + 2 * DAY * 1000, "interval_ms": 10_000}],
    "serving": [{"time": T0 + 2 * DAY * 1000, "interval_ms": 10_000, "endpoint": "e", "model": "m", "gpu": "a"}],
}


@pytest.mark.parametrize("table", list(NEW_ROWS))
def test_new_files_build_their_host_and_days_again_and_no_other(
    filled: Lake, builds: list[tuple[str, str]], table: str
) -> None:
    fill(filled, samples("b", 0, 3 * DAY, every_s=600), host="h2")
    load(filled)
    builds.clear()
    write(filled, schema.table(table), NEW_ROWS[table])
    load(filled)
    # a claim may reach over midnight into the days beside its own
    assert {host for host, _ in builds} == {"h1"}
    assert ("h1", "2026-11-22") in builds
    assert "2026-11-19" not in {date for _, date in builds}
    if table != "claim":
        assert builds == [("h1", "2026-11-22")]


def test_a_new_day_of_one_host_builds_that_day_alone(filled: Lake, builds: list[tuple[str, str]]) -> None:
    load(filled)
    builds.clear()
    write(filled, schema.GPU, samples("a", 3 * DAY + 60, 3 * DAY + 600, every_s=60))
    load(filled)
    assert builds == [("h1", "2026-11-23")]


def test_a_claim_that_ends_today_leaves_the_days_before_as_they_were(
    filled: Lake, builds: list[tuple[str, str]]
) -> None:
    write(filled, schema.CLAIM, [claim("a", -3600, None)])
    load(filled)
    builds.clear()
    write(filled, schema.CLAIM, [claim("a", -3600, 2 * DAY + 600)])
    load(filled)
    assert builds == [("h1", "2026-11-22")]


def test_corrected_rows_of_the_same_size_are_seen(lake: Lake) -> None:
    """An importer that runs again over corrected figures replaces a file by one of the same name and often size."""
    rows = samples("a", 0, 60, gpu_util_pct=20.0, process_count=1)
    (file,) = write(lake, schema.GPU, rows)
    assert states(lake) == [("active", 0, 60)]
    corrected = [row | {"gpu_util_pct": 5.0} for row in rows]
    again = lake.put(file, parquet.encode(schema.GPU, parquet.table_from_rows(schema.GPU, corrected)))
    assert again.size_bytes == file.size_bytes
    os.utime(again.url, ns=(T0, T0))  # whatever the clock's resolution
    assert states(lake) == [("low", 0, 60)]


def kept(lake: Lake, table: str) -> list[LakeFile]:
    return lake.all_files(table)


@pytest.mark.parametrize("table", [table.name for table in PARTS if table.name not in EMPTY])
@pytest.mark.parametrize("damage", ["truncated", "empty", "noise", "gone"])
def test_a_broken_kept_file_is_built_again(filled: Lake, builds: list[tuple[str, str]], table: str, damage: str) -> None:
    whole = numbers(filled)
    victim = Path(kept(filled, table)[1].url)
    data = victim.read_bytes()
    if damage == "gone":
        victim.unlink()
    else:
        victim.write_bytes({"truncated": data[:-20], "empty": b"", "noise": os.urandom(len(data))}[damage])
    assert numbers(filled) == whole
    assert builds == [*EVERY_DAY, ("h1", DATES[1])]
    assert numbers(filled) == whole
    assert len(builds) == len(EVERY_DAY) + 1


def test_all_spell_files_gone_is_no_ledger_without_spells(filled: Lake, builds: list[tuple[str, str]]) -> None:
    whole = numbers(filled)
    for file in kept(filled, "spell"):
        filled.delete(file)
    assert numbers(filled) == whole
    assert len(builds) == 2


def test_a_gpu_that_is_never_idle_has_no_spell_files_and_is_kept_all_the_same(lake: Lake, builds: list[tuple[str, str]]) -> None:
    fill(lake, samples("a", 0, 600, gpu_util_pct=50.0, process_count=1))
    assert numbers(lake) == numbers(lake)
    assert builds == ["h1"]
    assert kept(lake, "spell") == []


def interruptions(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Yields with the keeping cut off after 0, 1, 2, ... of its writes and removals, until it gets through."""
    real_put, real_delete = Lake.put, Lake.delete
    for allowed in range(1000):
        left = [allowed]

        def limited(real: Any, left: list[int] = left) -> Any:
            def call(self: Lake, *arguments: Any) -> Any:
                if left[0] == 0:
                    raise KeyboardInterrupt
                left[0] -= 1
                return real(self, *arguments)

            return call

        monkeypatch.setattr(Lake, "put", limited(real_put))
        monkeypatch.setattr(Lake, "delete", limited(real_delete))
        cut_off = False
        try:
            load(lake, idle_after_ms=2 * 3_600_000)
        except KeyboardInterrupt:
            cut_off = True
        monkeypatch.setattr(Lake, "put", real_put)
        monkeypatch.setattr(Lake, "delete", real_delete)
        yield allowed
        if not cut_off:
            return


@pytest.mark.parametrize(("kept_before", "wider"), [(False, False), (True, True)])
def test_dying_while_keeping_never_leaves_a_mixture(
    filled: Lake, monkeypatch: pytest.MonkeyPatch, *, kept_before: bool, wider: bool
) -> None:
    expected: list[dict[str, object]] = []
    if kept_before:
        numbers(filled)
    if wider:  # a wider range of files hides the old ones from the first new one on
        write(filled, schema.GPU, samples("a", 3 * DAY, 3 * DAY + 600, every_s=60))
    for settings in ({}, {"idle_after_ms": 2 * 3_600_000}):
        files = build._sources(filled)["h1"]  # noqa: SLF001  # what a build without any kept ledger starts from
        part = build._with_host(build.build_host(files, LedgerSettings(**settings)), "h1")  # noqa: SLF001
        expected.append(summarise(build.Ledger(part.ledger, part.spells, ())).as_json())
    start = snapshot(filled)
    count = 0
    for _ in interruptions(filled, monkeypatch):
        count += 1
        assert numbers(filled, idle_after_ms=2 * 3_600_000) == expected[1]
        assert numbers(filled) == expected[0]
        restore(filled, start)
    assert count > 4


def restore(lake: Lake, files: dict[str, bytes]) -> None:
    root = Path(lake.root)
    for path in [path for path in root.rglob("*") if path.is_file()]:
        if str(path.relative_to(root)) not in files:
            path.unlink()
    for name, data in files.items():
        if (root / name).read_bytes() != data if (root / name).exists() else True:
            (root / name).write_bytes(data)


def test_a_lake_that_cannot_be_written_warns_once_and_works(filled: Lake) -> None:
    fill(filled, samples("b", 0, 60), host="h2")
    Path(filled.root, "ledger").write_bytes(b"no folder")  # as root, permissions stop nobody
    warnings: list[str] = []
    ledger = load_ledger(filled, LedgerSettings(), warn=warnings.append)
    assert len(warnings) == 1
    assert warnings[0].startswith("fallow: the ledger is not kept: cannot write ")
    assert set(ledger.stretches["gpu"]) == {"a", "b"}
    assert Path(filled.root, "ledger").read_bytes() == b"no folder"
    assert not [name for name in snapshot(filled) if name.endswith(".part")]


def test_narrower_files_vanish_once_a_wider_ledger_is_kept(filled: Lake) -> None:
    load(filled)
    narrow = {file.key for table in ("ledger", "spell") for file in kept(filled, table)}
    write(filled, schema.GPU, samples("a", 3 * DAY, 3 * DAY + 600, every_s=60))
    load(filled)
    wide = {file.key for table in ("ledger", "spell") for file in kept(filled, table)}
    assert not narrow & wide
    assert len({(file.first_seq, file.last_seq) for file in kept(filled, "ledger")}) == 1


def test_days_that_lost_their_rows_lose_their_ledger_too(filled: Lake) -> None:
    load(filled)
    for file in filled.all_files("gpu"):
        if file.date > "2026-11-20":
            filled.delete(file)
    assert states(filled)[-1][2] == DAY
    assert {file.date for file in kept(filled, "ledger")} == {"2026-11-19", "2026-11-20"}


def test_a_kept_file_of_a_newer_schema_is_built_again(filled: Lake, builds: list[tuple[str, str]]) -> None:
    load(filled)
    victim = kept(filled, "ledger")[0]
    newer = parquet.encode(schema.LEDGER, parquet.table_from_rows(schema.LEDGER, []), {"fallow_schema_version": "99"})
    Path(victim.url).write_bytes(newer)
    load(filled)
    assert len(builds) == 2


def test_no_lake_and_an_empty_lake_are_two_things(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="there is no lake"):
        load(Lake.at(str(tmp_path / "nowhere")))
    (tmp_path / "empty").mkdir()
    with pytest.raises(LakeError, match="holds no gpu rows yet"):
        load(Lake.at(str(tmp_path / "empty")))


def test_progress_ends_at_one(filled: Lake) -> None:
    fill(filled, samples("b", 0, 60), host="h2")
    seen: list[float] = []
    load_ledger(filled, LedgerSettings(), progress=seen.append)
    assert seen == [0.5, 1.0]
