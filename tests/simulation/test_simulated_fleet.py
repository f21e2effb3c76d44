"""The simulated fleet: its plan, its files and its queue fit each other, the schema, and the faults it reports."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from analytics.simulation import FleetPlan, Planted, SimulatedFleet, plan_fleet, write_fleet
from analytics.simulation.catalog import POOLS, split_gpus
from analytics.simulation.queue import simulated_queue
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from fallow.errors import UsageError
from fallow.lake_marker import MARKER_KEY
from fallow.parquet import metadata, read
from fallow.schema import TABLES, table
from tests.lakes import made_lake

if TYPE_CHECKING:
    from fallow.lake import Lake

UNTIL_MS = 20_777 * DAY_MS  # 2026-11-20
FLEET = SimulatedFleet(gpus=48, days=3, seed=7, interval_ms=60_000, until_ms=UNTIL_MS)
WRITTEN = ("gpu", "process", "host", "device", "event", "agent", "serving", "allocation", "request")
Written = tuple["Lake", FleetPlan]
Rows = dict[str, pl.DataFrame]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    lake = made_lake(tmp_path_factory.mktemp("simulated"))
    return lake, write_fleet(lake, FLEET)


@pytest.fixture(scope="module")
def rows(written: Written) -> Rows:
    frames = {name: pl.DataFrame(read(written[0].files(name), table(name))) for name in WRITTEN}
    return {name: frame.with_columns(pl.col("time").dt.epoch("ms")) for name, frame in frames.items()}


@pytest.fixture(scope="module")
def planted(written: Written) -> dict[str, Planted]:
    """By kind; there is one of each."""
    found = {each.kind: each for each in written[1].planted}
    assert len(found) == len(written[1].planted) == 5
    return found


def during(frame: pl.DataFrame, what: Planted) -> pl.DataFrame:
    inside = pl.col("time").is_between(what.start_ms, what.end_ms, closed="left")
    return frame.filter(inside & (pl.col("gpu").is_in(what.gpus) if "gpu" in frame.columns else pl.lit(value=True)))


def before(frame: pl.DataFrame, what: Planted) -> pl.DataFrame:
    return frame.filter(pl.col("gpu").is_in(what.gpus) & (pl.col("time") < what.start_ms))


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(tmp_path: Path) -> None:
    def digests(name: str, seed: int) -> tuple[FleetPlan, dict[str, str]]:
        lake = made_lake(tmp_path / name)
        fleet = SimulatedFleet(gpus=12, days=1, seed=seed, interval_ms=60_000, until_ms=UNTIL_MS)
        plan, keys = write_fleet(lake, fleet), [each.key for each in lake.store.list("")]
        return plan, {key: hashlib.sha256(Path(lake.store.url(key)).read_bytes()).hexdigest() for key in keys}

    first, (_, other) = digests("first", 3), digests("other", 4)
    assert digests("again", 3) == first
    gpu_files = {key for key in first[1] if key.startswith("gpu/")}
    assert gpu_files
    assert all(first[1][key] != other[key] for key in gpu_files)


def test_the_lake_holds_the_hosts_and_gpus_of_the_plan(written: Written, rows: Rows) -> None:
    lake, plan = written
    planned = {(host.host.name, gpu.uuid) for host in plan.hosts for gpu in host.host.gpus}
    assert set(rows["gpu"].select("host", "gpu").iter_rows()) == planned
    assert len(planned) == 48
    stored = {each.key.partition("/")[0] for each in lake.store.list("") if each.key != MARKER_KEY}
    assert stored == set(WRITTEN) <= {known.name for known in TABLES}


def test_everything_says_that_it_is_simulated(written: Written, rows: Rows) -> None:
    for name in WRITTEN:
        assert all(metadata(file)["simulated"] == "true" for file in written[0].files(name))
    for name, column in (("gpu", "util_source"), ("process", "attribution"), ("device", "source")):
        assert rows[name][column].unique().to_list() == ["simulated"]
    assert rows["gpu"]["host"].str.starts_with("sim-").all()


def test_one_file_per_table_date_and_host_named_by_its_rows_in_microseconds(written: Written, rows: Rows) -> None:
    for name in WRITTEN:
        files = written[0].files(name)
        assert len({(file.date, file.host) for file in files}) == len(files) == len(written[0].all_files(name))
    days = rows["gpu"].group_by(pl.from_epoch("time", "ms").dt.date().cast(pl.String).alias("date"), "host")
    spans = days.agg(first=1000 * pl.col("time").min(), last=1000 * pl.col("time").max())
    named = [(file.date, file.host, file.first_seq, file.last_seq) for file in written[0].files("gpu")]
    assert sorted(named) == sorted(spans.rows())


def test_gpu_rows_fit_themselves(rows: Rows) -> None:
    gpu = rows["gpu"].filter(pl.col("health") == "ok")
    mean, peak, zero = pl.col("gpu_util_pct"), pl.col("gpu_util_max_pct"), pl.col("gpu_util_zero_ratio")
    p98, processes, held = pl.col("gpu_util_p98_pct"), pl.col("process_count"), pl.col("mem_used_bytes")
    fits = {
        "measured": mean.is_not_null() & pl.col("power_w").is_not_null(),
        "a share": mean.is_between(0, 100) & (pl.col("gpu_util_coverage_ratio") > 0.99),
        "mean within the peak": mean <= peak * (1 - zero) + 0.05,
        "one zero is all": ((mean == 0) == (zero == 1)) & ((mean == 0) == (peak == 0)),
        "p98 within": p98.is_between(0, peak) & ((zero >= 0.9) | (p98 >= mean)),
        "no work without a process": (mean == 0) | (processes > 0),
        "memory with a process": (held > 0) == (processes > 0),
        "temperature": pl.col("temperature_c").is_between(20, 90),
    }
    assert gpu.select("gpu", "time").is_unique().all()
    assert gpu.select(~each.all().alias(name) for name, each in fits.items()).row(0) == (False,) * len(fits)


def test_the_energy_counter_climbs_by_power_times_time(rows: Rows) -> None:
    gpu = rows["gpu"].filter(pl.col("health") == "ok").sort("gpu", "time")
    steps = gpu.select(
        step_ms=pl.col("time").diff().over("gpu"),
        spent_mj=pl.col("energy_mj").diff().over("gpu"),
        expected_mj=pl.col("power_w").cast(pl.Float64) * pl.col("interval_ms"),
    ).drop_nulls()
    assert (steps["spent_mj"] > 0).all()
    beside = steps.filter(pl.col("step_ms") == FLEET.interval_ms)
    assert beside.height > 100_000
    assert ((beside["spent_mj"] - beside["expected_mj"]).abs() < 4).all()


def test_memory_of_the_processes_adds_up_and_stays_below_the_card(rows: Rows) -> None:
    held = rows["process"].group_by("gpu", "time").agg(held=pl.col("mem_used_bytes").sum())
    cards = rows["device"].select("gpu", "mem_total_bytes").unique()
    joined = held.join(rows["gpu"], on=["gpu", "time"]).join(cards, on="gpu")
    assert joined.height == held.height
    assert (joined["held"] == joined["mem_used_bytes"]).all()
    assert (joined["mem_used_bytes"] + joined["mem_reserved_bytes"] <= joined["mem_total_bytes"]).all()


def test_every_gpu_row_with_processes_finds_their_list(rows: Rows) -> None:
    lists = rows["process"].group_by("gpu", "time").agg(listed=pl.len()).with_columns(listed_at="time").sort("time")
    gpu = rows["gpu"].sort("gpu", "time").with_columns(was=pl.col("process_count").shift(1).over("gpu"))
    gpu = gpu.filter(pl.col("process_count") > 0).sort("time")
    joined = gpu.join_asof(lists, on="time", by="gpu", check_sortedness=False)
    assert ((joined["time"] - joined["listed_at"]) < 300_000).all()
    assert joined["listed_at"].null_count() == 0
    assert (joined["listed"] == joined["process_count"]).all()
    changed = gpu.filter(pl.col("was") == 0)
    assert changed.height > 20
    assert changed.join(lists, on=["gpu", "time"], how="anti").is_empty()


def test_an_open_context_costs_power(rows: Rows) -> None:
    idle = rows["gpu"].filter((pl.col("gpu_util_pct") == 0) & (pl.col("health") == "ok"))
    held = pl.col("process_count") > 0
    watts = idle.group_by("host").agg(
        held=pl.col("power_w").filter(held).median(), free=pl.col("power_w").filter(~held).median()
    )
    more = (watts["held"] - watts["free"]).drop_nulls()
    assert len(more) >= 4
    # 26-50 W on A100 and H100 (arXiv 2605.23918); a card's own idle power differs by a few watts
    assert more.is_between(20, 55).all()


def test_the_never_used_block_never_does_anything(planted: dict[str, Planted], rows: Rows) -> None:
    block = planted["never_used"]
    assert (block.start_ms, block.end_ms) == (FLEET.since_ms, FLEET.until_ms)
    seen = during(rows["gpu"], block).select(pl.col("gpu_util_max_pct", "process_count", "mem_used_bytes").max())
    assert seen.row(0) == (0, 0, 0)
    assert during(rows["process"], block).is_empty()
    assert during(rows["allocation"], block).is_empty()


def test_the_held_notebook_holds_memory_and_does_nothing(planted: dict[str, Planted], rows: Rows) -> None:
    notebook = planted["held_notebook"]
    seen = during(rows["gpu"], notebook)
    assert seen.height == (notebook.end_ms - notebook.start_ms) // FLEET.interval_ms
    assert (seen["gpu_util_max_pct"].max(), seen["process_count"].min()) == (0, 1)
    assert during(rows["process"], notebook)["user"].unique().to_list() == [notebook.user]
    assert (before(rows["gpu"], notebook)["gpu_util_pct"] > 0).any()


def test_the_reserved_block_is_allocated_and_empty(planted: dict[str, Planted], rows: Rows) -> None:
    block = planted["reserved_block"]
    assert during(rows["gpu"], block)["process_count"].max() == 0
    assert before(rows["gpu"], block)["process_count"].max() == 1
    allocations = rows["allocation"].filter(pl.col("gpu").is_in(block.gpus) & (pl.col("time") >= block.start_ms))
    assert set(allocations.select("gpu", "time", "end", "user").rows()) == {
        (gpu, block.start_ms, None, block.user) for gpu in block.gpus
    }


def test_the_lost_gpu_is_lost_and_unknown(planted: dict[str, Planted], rows: Rows) -> None:
    lost = planted["lost_gpu"]
    seen = during(rows["gpu"], lost)
    assert seen["health"].unique().to_list() == ["lost"]
    measured = seen.select("gpu_util_pct", "power_w", "energy_mj", "mem_used_bytes", "process_count")
    assert measured.null_count().row(0) == (seen.height,) * 5
    assert during(rows["process"], lost).is_empty()
    events = rows["event"].filter(pl.col("kind") == "gpu_lost")
    assert events.select("gpu", "time").rows() == [(lost.gpus[0], lost.start_ms)]
    assert before(rows["gpu"], lost)["health"].unique().to_list() == ["ok"]


def test_nobody_looked_during_the_outage(planted: dict[str, Planted], rows: Rows) -> None:
    outage = planted["agent_outage"]
    of_host = {name: frame.filter(pl.col("host") == outage.host) for name, frame in rows.items()}
    inside = pl.col("time").is_between(outage.start_ms, outage.end_ms, closed="left")
    for name in ("gpu", "process", "host", "device", "agent", "serving"):
        assert of_host[name].filter(inside).is_empty()
    events = of_host["event"].filter(pl.col("time") >= outage.start_ms).sort("time").select("time", "kind")
    assert events.rows()[:2] == [(outage.start_ms, "agent_killed"), (outage.end_ms, "agent_start")]
    assert set(of_host["gpu"].filter(pl.col("time") == outage.end_ms)["gpu"]) == set(outage.gpus)


def test_allocations_of_one_gpu_do_not_overlap_and_name_its_jobs(rows: Rows) -> None:
    allocations = rows["allocation"].sort("gpu", "time").with_columns(pl.col("end").dt.epoch("ms").fill_null(UNTIL_MS))
    assert (allocations["end"] > allocations["time"]).all()
    assert allocations.filter(pl.col("time").shift(-1).over("gpu") < pl.col("end")).is_empty()
    assert (
        allocations.group_by("allocation_id", "gpu_count").len().filter(pl.col("len") != pl.col("gpu_count")).is_empty()
    )
    assert set(rows["process"]["slurm_job_id"].drop_nulls()) <= set(allocations["allocation_id"])


def test_people_work_by_day_and_rest_at_the_weekend() -> None:
    plan = plan_fleet(SimulatedFleet(gpus=512, days=14, until_ms=UNTIL_MS))
    people = ("training", "notebook")
    starts = np.array([stay.start_ms for host in plan.hosts for stay in host.stays if stay.work in people])
    hour, weekday = starts % DAY_MS // HOUR_MS, (starts // DAY_MS + 3) % 7
    assert len(starts) > 1000
    assert ((weekday < 5) & (hour >= 8) & (hour < 20)).mean() > 1.3 * (5 * 12) / (7 * 24)


@pytest.mark.parametrize("gpus", [1, 2, 3, 5, 8, 13, 24])
def test_a_fleet_of_any_size_is_written(tmp_path: Path, gpus: int) -> None:
    shares: list[float] = []
    fleet = SimulatedFleet(gpus=gpus, days=1, seed=gpus, interval_ms=300_000, until_ms=UNTIL_MS)
    lake = made_lake(tmp_path)
    plan = write_fleet(lake, fleet, shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    outages = [each for each in plan.planted if each.kind == "agent_outage"]
    unseen = sum(len(each.gpus) * (each.end_ms - each.start_ms) // fleet.interval_ms for each in outages)
    assert len(read(lake.files("gpu"), table("gpu"))) == gpus * 288 - unseen
    assert all(each.start_ms < each.end_ms <= UNTIL_MS for each in plan.planted)


def test_a_large_fleet_holds_every_situation_more_than_once() -> None:
    plan = plan_fleet(SimulatedFleet(gpus=600, days=7, until_ms=UNTIL_MS))
    kinds = [each.kind for each in plan.planted]
    wanted = ("held_notebook", "never_used", "lost_gpu", "reserved_block", "agent_outage")
    assert {kind: kinds.count(kind) for kind in kinds} == dict.fromkeys(wanted, 3)
    gpus = [gpu for each in plan.planted if each.kind != "agent_outage" for gpu in each.gpus]
    assert len(set(gpus)) == len(gpus)


@pytest.mark.parametrize("gpus", [1, 2, 7, 64, 1000, 4001])
def test_the_pools_add_up(gpus: int) -> None:
    counts = split_gpus(gpus, POOLS)
    assert sum(counts) == gpus
    assert all(abs(count - gpus * pool.share) < 1 for count, pool in zip(counts, POOLS, strict=True))


@pytest.mark.parametrize(
    ("name", "value"),
    [("gpus", 0), ("days", 0), ("seed", -1), ("interval_ms", 7_000), ("interval_ms", 0), ("until_ms", 5)],
)
def test_what_cannot_be_simulated_is_an_error(name: str, value: int) -> None:
    with pytest.raises(UsageError):
        SimulatedFleet(**({"until_ms": UNTIL_MS} | {name: value}))


@pytest.fixture(scope="module")
def plan() -> FleetPlan:
    return plan_fleet(SimulatedFleet(until_ms=20_700 * DAY_MS, gpus=64, days=14, seed=1, showcase=True))


@pytest.fixture(scope="module")
def allocations(plan: FleetPlan) -> Any:
    return simulated_queue(plan).allocations


def test_a_job_asks_before_it_begins_and_ends_within_its_limit(plan: FleetPlan, allocations: Any) -> None:
    jobs = [
        (stay, allocations[host.host.name, stay.job_id]) for host in plan.hosts for stay in host.stays if stay.job_id
    ]
    assert len(jobs) > 100
    for stay, known in jobs:
        assert known["submitted"] <= known["eligible"] <= stay.start_ms
        assert stay.end_ms - stay.start_ms <= known["time_limit_s"] * SECOND_MS
        assert (known["state"] == "RUNNING") == (stay.end_ms >= plan.fleet.until_ms)


def test_a_job_waits_for_room_only_while_no_host_of_its_partition_had_any(plan: FleetPlan, allocations: Any) -> None:
    outside = {each.host for each in plan.planted if each.kind == "never_used"}
    seen = 0
    for host in plan.hosts:
        others = [each for each in plan.hosts if each.host.pool == host.host.pool and each.host.name not in outside]
        for stay in (stay for stay in host.stays if stay.job_id and stay.account != "ranking"):
            waited_from = allocations[host.host.name, stay.job_id]["eligible"]
            if stay.start_ms - waited_from < 15 * MINUTE_MS:
                continue
            seen += 1
            middle = (stay.start_ms + waited_from) // 2
            for other in others:
                had = [each.gpus for each in other.stays if each.allocated and each.start_ms <= middle < each.end_ms]
                had += [each.gpus for each in other.reservations if each.start_ms <= middle]
                assert len(other.host.gpus) - sum(map(len, had)) < len(stay.gpus)
    assert seen


def test_somebody_waits_at_the_end_and_somebody_gave_up(plan: FleetPlan) -> None:
    requests = simulated_queue(plan).requests
    assert {each["state"] for each in requests} == {"PENDING", "CANCELLED"}
    assert all(each["time"] <= each["as_of"] <= plan.fleet.until_ms for each in requests)  # type: ignore[operator]
