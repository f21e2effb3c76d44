"""The simulated fleet: what it writes fits the schema, fits itself and fits what it says it planted."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from analytics.simulation import FleetSummary, Planted, SimulatedFleet, write_fleet
from fallow.clock import DAY_MS
from fallow.lake_marker import MARKER_KEY
from fallow.parquet import metadata, read
from fallow.schema import TABLES, table
from tests.lakes import made_lake

if TYPE_CHECKING:
    from fallow.lake import Lake

UNTIL_MS = 20_777 * DAY_MS  # 2026-11-20
FLEET = SimulatedFleet(gpus=48, days=3, seed=7, until_ms=UNTIL_MS)
WRITTEN = ("gpu", "process", "host", "device", "event", "agent", "serving", "claim", "request")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, FleetSummary]:
    lake = made_lake(tmp_path_factory.mktemp("simulated"))
    return lake, write_fleet(lake, FLEET)


@pytest.fixture(scope="module")
def rows(written: tuple[Lake, FleetSummary]) -> dict[str, pl.DataFrame]:
    lake, _ = written
    frames = {}
    for name in WRITTEN:
        frame = pl.from_arrow(read(lake.files(name), table(name)))
        assert isinstance(frame, pl.DataFrame)
        frames[name] = frame.with_columns(pl.col("time").dt.epoch("ms"))
    return frames


def planted(summary: FleetSummary, kind: str) -> Planted:
    (found,) = (each for each in summary.planted if each.kind == kind)
    return found


def during(frame: pl.DataFrame, what: Planted) -> pl.DataFrame:
    inside = pl.col("time").is_between(what.start_ms, what.end_ms, closed="left")
    return frame.filter(inside & pl.col("gpu").is_in(what.gpus))


def digest(lake: Lake) -> dict[str, str]:
    stored = [each.key for each in lake.store.list("")]
    return {key: hashlib.sha256(Path(lake.store.url(key)).read_bytes()).hexdigest() for key in stored}


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(tmp_path: Path) -> None:
    fleet = SimulatedFleet(gpus=12, days=2, seed=3, interval_ms=60_000, until_ms=UNTIL_MS)
    first, second, third = (made_lake(tmp_path / name) for name in ("first", "second", "third"))
    summary = write_fleet(first, fleet)
    assert write_fleet(second, fleet) == summary
    write_fleet(third, SimulatedFleet(gpus=12, days=2, seed=4, interval_ms=60_000, until_ms=UNTIL_MS))
    assert digest(first) == digest(second)
    gpu_files = {key for key in digest(first) if key.startswith("gpu/")}
    assert gpu_files
    assert all(digest(first)[key] != digest(third)[key] for key in gpu_files)


def test_the_summary_counts_what_is_in_the_lake(
    written: tuple[Lake, FleetSummary], rows: dict[str, pl.DataFrame]
) -> None:
    lake, summary = written
    assert summary.rows == {name: frame.height for name, frame in rows.items()}
    assert (summary.gpus, summary.hosts) == (48, rows["gpu"]["host"].n_unique())
    assert rows["gpu"]["gpu"].n_unique() == 48
    files = [stored for stored in lake.store.list("") if stored.key != MARKER_KEY]
    assert summary.size_bytes == sum(stored.size_bytes for stored in files)
    assert {stored.key.partition("/")[0] for stored in files} <= {known.name for known in TABLES}


def test_everything_says_that_it_is_simulated(
    written: tuple[Lake, FleetSummary], rows: dict[str, pl.DataFrame]
) -> None:
    lake, _ = written
    for name in WRITTEN:
        assert all(metadata(file)["simulated"] == "true" for file in lake.files(name))
    for name, column in (("gpu", "util_source"), ("process", "attribution"), ("device", "source")):
        assert rows[name][column].unique().to_list() == ["simulated"]
    assert all(host.startswith("sim-") for host in rows["gpu"]["host"].unique())


def test_one_file_per_table_date_and_host_named_by_its_rows_in_microseconds(
    written: tuple[Lake, FleetSummary], rows: dict[str, pl.DataFrame]
) -> None:
    lake, _ = written
    for name in WRITTEN:
        files = lake.files(name)
        assert len({(file.date, file.host) for file in files}) == len(files) == len(lake.all_files(name))
    for file in lake.files("gpu"):
        mine = (
            rows["gpu"]
            .filter(
                (pl.col("host") == file.host) & (pl.from_epoch("time", "ms").dt.date().cast(pl.String) == file.date)
            )["time"]
            .cast(pl.Int64)
        )
        assert (file.first_seq, file.last_seq) == (1000 * mine.min(), 1000 * mine.max())  # type: ignore[operator]


def test_gpu_rows_fit_themselves(rows: dict[str, pl.DataFrame]) -> None:
    gpu = rows["gpu"].filter(pl.col("health") == "ok")
    assert gpu.select("gpu", "time").is_unique().all()
    assert gpu.filter(pl.col("gpu_util_pct").is_null() | pl.col("power_w").is_null()).is_empty()
    mean, peak, zero = pl.col("gpu_util_pct"), pl.col("gpu_util_max_pct"), pl.col("gpu_util_zero_ratio")
    assert gpu.filter(mean > peak * (1 - zero) + 0.05).is_empty()
    assert gpu.filter((mean == 0) != (zero == 1)).is_empty()
    assert gpu.filter((mean == 0) != (peak == 0)).is_empty()
    assert gpu.filter((mean > 0) & (pl.col("process_count") == 0)).is_empty()
    assert gpu.filter((pl.col("mem_used_bytes") > 0) != (pl.col("process_count") > 0)).is_empty()
    assert gpu.filter(~pl.col("gpu_util_p98_pct").is_between(0, peak)).is_empty()
    assert gpu.filter((zero < 0.9) & (pl.col("gpu_util_p98_pct") < mean)).is_empty()
    assert gpu["gpu_util_coverage_ratio"].min() > 0.99  # type: ignore[operator]
    assert gpu["gpu_util_pct"].is_between(0, 100).all()
    assert gpu["temperature_c"].is_between(20, 90).all()


def test_the_energy_counter_climbs_by_power_times_time(rows: dict[str, pl.DataFrame]) -> None:
    gpu = rows["gpu"].filter(pl.col("health") == "ok").sort("gpu", "time")
    steps = gpu.select(
        step_ms=pl.col("time").diff().over("gpu"),
        spent_mj=pl.col("energy_mj").diff().over("gpu"),
        expected_mj=pl.col("power_w").cast(pl.Float64) * pl.col("interval_ms"),
    ).drop_nulls()
    assert steps["spent_mj"].min() > 0  # type: ignore[operator]
    next_to_each_other = steps.filter(pl.col("step_ms") == FLEET.interval_ms)
    error_mj = (next_to_each_other["spent_mj"] - next_to_each_other["expected_mj"]).abs()
    assert error_mj.max() < 2  # type: ignore[operator]


def test_memory_of_the_processes_adds_up_and_stays_below_the_card(rows: dict[str, pl.DataFrame]) -> None:
    held = rows["process"].group_by("gpu", "time").agg(pl.col("mem_used_bytes").sum().alias("held"))
    joined = held.join(rows["gpu"], on=["gpu", "time"]).join(
        rows["device"].select("gpu", "mem_total_bytes").unique(), on="gpu"
    )
    assert joined.height == held.height
    assert (joined["held"] == joined["mem_used_bytes"]).all()
    assert (joined["mem_used_bytes"] + joined["mem_reserved_bytes"] <= joined["mem_total_bytes"]).all()


def test_every_gpu_row_with_processes_finds_their_list(rows: dict[str, pl.DataFrame]) -> None:
    lists = (
        rows["process"]
        .group_by("gpu", "time", "interval_ms")
        .agg(listed=pl.len(), pids=pl.col("pid").sort())
        .with_columns(listed_at=pl.col("time"))
        .sort("time")
    )
    gpu = rows["gpu"].filter(pl.col("process_count") > 0).sort("time")
    joined = gpu.join_asof(lists.drop("interval_ms"), on="time", by="gpu", check_sortedness=False)
    assert joined["listed_at"].null_count() == 0
    assert (joined["time"] - joined["listed_at"]).max() < 300_000  # type: ignore[operator]
    assert (joined["listed"] == joined["process_count"]).all()
    changed = (
        rows["gpu"]
        .sort("gpu", "time")
        .filter((pl.col("process_count") > 0) & (pl.col("process_count").shift(1).over("gpu") == 0))
    )
    assert changed.height > 20
    assert changed.join(lists, on=["gpu", "time"], how="anti").is_empty()


def test_an_open_context_costs_power(rows: dict[str, pl.DataFrame]) -> None:
    idle = rows["gpu"].filter((pl.col("gpu_util_pct") == 0) & (pl.col("health") == "ok"))
    by_host = (
        idle.group_by("host", held=pl.col("process_count") > 0)
        .agg(pl.col("power_w").median())
        .pivot(on="held", index="host", values="power_w")
        .drop_nulls()
    )
    assert by_host.height >= 4
    # 26-50 W on A100 and H100 (arXiv 2605.23918); a card's own idle power differs by a few watts
    assert (by_host["true"] - by_host["false"]).is_between(20, 55).all()


def test_the_never_used_block_never_does_anything(
    written: tuple[Lake, FleetSummary], rows: dict[str, pl.DataFrame]
) -> None:
    block = planted(written[1], "never_used")
    assert (block.start_ms, block.end_ms) == (FLEET.since_ms, FLEET.until_ms)
    seen = during(rows["gpu"], block)
    assert seen.select(pl.col("gpu_util_max_pct", "process_count", "mem_used_bytes").max()).row(0) == (0, 0, 0)
    assert during(rows["process"], block).is_empty()
    assert during(rows["claim"], block).is_empty()


def test_the_held_notebook_holds_memory_and_does_nothing(
    written: tuple[Lake, FleetSummary], rows: dict[str, pl.DataFrame]
) -> None:
    notebook = planted(written[1], "held_notebook")
    seen = during(rows["gpu"], notebook)
    assert seen.height == (notebook.end_ms - notebook.start_ms) // FLEET.interval_ms
    assert seen["gpu_util_max_pct"].max() == 0
    assert seen["process_count"].min() == 1
    assert during(rows["process"], notebook)["user"].unique().to_list() == [notebook.holder]
    before = rows["gpu"].filter((pl.col("gpu") == notebook.gpus[0]) & (pl.col("time") < notebook.start_ms))
    assert before["gpu_util_pct"].max() > 0  # type: ignore[operator]


def test_the_reserved_block_is_claimed_and_empty(
    written: tuple[Lake, FleetSummary], rows: dict[str, pl.DataFrame]
) -> None:
    block = planted(written[1], "reserved_block")
    assert during(rows["gpu"], block)["process_count"].max() == 0
    before = rows["gpu"].filter(pl.col("gpu").is_in(block.gpus) & (pl.col("time") < block.start_ms))
    assert before["process_count"].max() == 1
    claims = rows["claim"].filter(pl.col("gpu").is_in(block.gpus) & (pl.col("time") >= block.start_ms))
    assert set(claims["gpu"]) == set(block.gpus)
    assert claims["time"].unique().to_list() == [block.start_ms]
    assert claims["end"].null_count() == claims.height
    assert claims["user"].unique().to_list() == [block.holder]


def test_the_lost_gpu_is_lost_and_unknown(written: tuple[Lake, FleetSummary], rows: dict[str, pl.DataFrame]) -> None:
    lost = planted(written[1], "lost_gpu")
    seen = during(rows["gpu"], lost)
    assert seen["health"].unique().to_list() == ["lost"]
    for name in ("gpu_util_pct", "power_w", "energy_mj", "mem_used_bytes", "process_count"):
        assert seen[name].null_count() == seen.height > 0
    assert during(rows["process"], lost).is_empty()
    events = rows["event"].filter(pl.col("kind") == "gpu_lost")
    assert events.select("gpu", "time").rows() == [(lost.gpus[0], lost.start_ms)]
    before = rows["gpu"].filter((pl.col("gpu") == lost.gpus[0]) & (pl.col("time") < lost.start_ms))
    assert before["health"].unique().to_list() == ["ok"]


def test_nobody_looked_during_the_outage(written: tuple[Lake, FleetSummary], rows: dict[str, pl.DataFrame]) -> None:
    outage = planted(written[1], "agent_outage")
    inside = (pl.col("host") == outage.host) & pl.col("time").is_between(outage.start_ms, outage.end_ms, closed="left")
    for name in ("gpu", "process", "host", "device", "agent", "serving"):
        assert rows[name].filter(inside).is_empty()
    events = rows["event"].filter((pl.col("host") == outage.host) & (pl.col("time") >= outage.start_ms)).sort("time")
    assert events.select("time", "kind").rows()[:2] == [
        (outage.start_ms, "agent_killed"),
        (outage.end_ms, "agent_start"),
    ]
    back = rows["gpu"].filter((pl.col("host") == outage.host) & (pl.col("time") == outage.end_ms))
    assert set(back["gpu"]) == set(outage.gpus)


def test_claims_of_one_gpu_do_not_overlap_and_name_its_jobs(rows: dict[str, pl.DataFrame]) -> None:
    claims = rows["claim"].sort("gpu", "time").with_columns(pl.col("end").dt.epoch("ms").fill_null(UNTIL_MS))
    assert claims.filter(pl.col("end") <= pl.col("time")).is_empty()
    assert claims.filter(pl.col("time").shift(-1).over("gpu") < pl.col("end")).is_empty()
    assert (claims.group_by("claim_id", "gpu_count").len().select(pl.col("len") == pl.col("gpu_count")))["len"].all()
    jobs = rows["process"].filter(pl.col("slurm_job_id").is_not_null())["slurm_job_id"].unique()
    assert jobs.is_in(claims["claim_id"].unique().implode()).all()
