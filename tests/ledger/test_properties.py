"""Random small fleets: time is partitioned, layout never matters, and a plain second implementation agrees."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any
from unittest import mock

import duckdb
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analytics.ledger.build import build_host, load_ledger
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.summary import summarise
from fallow import schema
from fallow.clock import MINUTE_MS
from fallow.lake import Lake
from tests.ledger import reference
from tests.ledger.rows import GB, T0, Row, claim, samples, silent, write

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from analytics.ledger.stretches import HostLedger

Fleet = tuple[list[Row], list[Row], list[Row]]
SHORT = LedgerSettings(idle_after_ms=MINUTE_MS)  # so that small fleets hold GPUs

STEP_MS = st.sampled_from([10_000] * 6 + [9_998, 10_003, 20_000, 30_000, 30_001, 45_000, 700_000])
UTIL = st.sampled_from([0.0, 0.0, 0.0, 0.0, None, 0.25, 8.0, 10.0, 12.0, 99.75])
MAXIMUM = st.sampled_from([None, None, 0.0, 1.0])
COUNT = st.sampled_from([0, 1, 1, 1, None])
HEALTH = st.sampled_from(["ok"] * 8 + [None, "degraded", "lost", "wedged", "asleep", "released"])
MEMORY = st.sampled_from([None, 0, GB, GB + 1])
USER = st.sampled_from(["ann", "bob", None])


@st.composite
def rows_of(draw: st.DrawFn, gpu: str) -> list[Row]:
    """Rows of one GPU around midnight: episodes of like rows, jitter, gaps, and what a real agent may leave out."""
    at = T0 + draw(st.sampled_from([-90_000, -90_000, 3_600_000, -86_400_000]))
    rows: list[Row] = []
    for _ in range(draw(st.integers(1, 6))):
        alike = {
            "gpu_util_pct": draw(UTIL), "gpu_util_max_pct": draw(MAXIMUM), "process_count": draw(COUNT),
            "health": draw(HEALTH), "mem_used_bytes": draw(MEMORY),
        }  # fmt: skip
        for _ in range(draw(st.integers(1, 9))):
            interval = draw(st.sampled_from([10_000, 10_000, 15_000]))
            rows.append(
                {"gpu": gpu, "time": at, "offset_ms": draw(st.integers(-400, 400)), "interval_ms": interval} | alike
            )
            at += draw(STEP_MS)
    return rows


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """One host: its gpu, process and claim rows."""
    gpus = ["a", "b"][: draw(st.integers(1, 2))]
    moments = st.integers(-12, 60).map(lambda tens: 10.0 * tens)
    gpu_rows = [row for gpu in gpus for row in draw(rows_of(gpu))]
    lists: dict[tuple[str, float, int], Row] = {}
    for _ in range(draw(st.integers(0, 12))):
        gpu, at, pid = draw(st.sampled_from(gpus)), draw(moments), draw(st.integers(1, 2))
        user = draw(USER)
        lists[gpu, at, pid] = {
            "gpu": gpu, "time": T0 + round(1000 * at), "interval_ms": 30_000, "pid": pid, "kind": "compute", "user": user,
        }  # fmt: skip
    claims = [
        claim(draw(st.sampled_from(gpus)), start, start + draw(st.integers(1, 400)), draw(USER), f"j{number}")
        for number, start in enumerate(draw(st.lists(moments, max_size=3)))
    ]
    return gpu_rows, list(lists.values()), claims


def build(
    fleet: Fleet, split: Callable[[Row], object], chunk_bytes: int = 2**40, thresholds: Any = SHORT
) -> HostLedger:
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"):
        lake = Lake.at(folder)
        tables = (schema.GPU, schema.PROCESS, schema.CLAIM)
        files = {table.name: write(lake, table, rows, split=split) for table, rows in zip(tables, fleet, strict=True)}
        with mock.patch("analytics.ledger.build._CHUNK_BYTES", chunk_bytes):
            return build_host(files, thresholds)


def pieces_of(built: HostLedger) -> set[reference.Piece]:
    return {
        reference.Piece(
            row["gpu"], row["time"], row["end"], row["state"], row["holder"], row["holder_source"],
            (row["stretch_start"], row["stretch_end"]),
        )
        for row in built.ledger.iter_rows(named=True)
    }  # fmt: skip


def spells_of(built: HostLedger) -> set[tuple[Any, ...]]:
    return set(built.spells.select("gpu", "time", "end", "spell_start", "spell_end").rows())


def whole(_: Row) -> int:
    return 0


@settings(max_examples=100)
@given(fleets())
@example((samples("a", 0, 10), [], []))
def test_a_plain_second_implementation_agrees(fleet: Fleet) -> None:
    built = build(fleet, whole)
    pieces, spells = reference.ledger(*fleet, SHORT)
    assert pieces_of(built) == pieces
    assert spells_of(built) == spells


@settings(max_examples=25)
@given(fleets(), st.randoms(use_true_random=False), st.integers(1, 5))
def test_order_duplicates_chunks_and_files_never_change_the_result(
    fleet: Fleet, random_: random.Random, parts: int
) -> None:
    gpu_rows, lists, claims = fleet
    again = gpu_rows + random_.sample(gpu_rows, len(gpu_rows) // 2)
    random_.shuffle(again)
    shuffled = (again, random_.sample(lists, len(lists)), random_.sample(claims, len(claims)))
    one = build(fleet, whole)
    other = build(shuffled, lambda _: random_.randrange(parts), chunk_bytes=1)
    assert pieces_of(other) == pieces_of(one)
    assert spells_of(other) == spells_of(one)
    for exact in ("zero_ms", "util_ms", "sample_count", "mem_used_max_bytes", "gpu_util_max_pct"):
        assert other.ledger[exact].to_list() == one.ledger[exact].to_list()


@settings(max_examples=20)
@given(fleets(), st.randoms(use_true_random=False))
def test_of_rows_that_contradict_each_other_the_same_one_wins_in_any_order(
    fleet: Fleet, random_: random.Random
) -> None:
    gpu_rows, lists, claims = fleet
    other = [row | {"interval_ms": 12_000, "gpu_util_max_pct": 3.0} for row in gpu_rows[::2]]
    contradicting = [*gpu_rows, *other]
    shuffled = random_.sample(contradicting, len(contradicting))
    assert pieces_of(build((contradicting, lists, claims), whole)) == pieces_of(build((shuffled, lists, claims), whole))


@settings(max_examples=25)
@given(fleets())
def test_states_partition_the_time_of_every_gpu_to_the_millisecond(fleet: Fleet) -> None:
    gpu_rows, _, _ = fleet
    spans: dict[str, list[int]] = {}
    for row in gpu_rows:
        start = row["time"] + row["offset_ms"]
        spans.setdefault(row["gpu"], []).extend((start, start + row["interval_ms"]))
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"):
        lake = Lake.at(folder)
        for table, rows in zip((schema.GPU, schema.PROCESS, schema.CLAIM), fleet, strict=True):
            write(lake, table, rows)
        ledger = load_ledger(lake, SHORT, warn=silent)
        with duckdb.connect() as connection:
            connection.execute("set timezone = 'UTC'")
            stored = connection.sql(
                f"""
                with stretch as (
                    select gpu, epoch_ms("time") as start_ms, epoch_ms("end") as end_ms,
                           lead(epoch_ms("time")) over (partition by gpu order by "time") as next_ms
                    from read_parquet('{folder}/ledger/**/*.parquet')
                )
                select gpu, min(start_ms), max(end_ms), sum(end_ms - start_ms)::bigint,
                       count(*) filter (end_ms <> next_ms), count(*) filter (end_ms <= start_ms)
                from stretch group by gpu
                """  # noqa: S608  # a folder of the test's own
            ).fetchall()
    expected = {(gpu, min(span), max(span), max(span) - min(span), 0, 0) for gpu, span in spans.items()}
    assert set(stored) == expected
    totals = summarise(ledger).totals
    assert totals.total_ms == sum(capacity for _, _, _, capacity, _, _ in expected)
    assert all(isinstance(part, int) and part >= 0 for part in totals.state_ms.values())


@settings(max_examples=25)
@given(fleets(), st.integers(2, 4))
def test_times_and_thresholds_scaled_give_times_scaled(fleet: Fleet, factor: int) -> None:
    """Twice as long an interval, twice as long a wait: twice the time in every state (midnights aside)."""

    def scaled(row: Row) -> Row:
        moved = {key: row[key] for key in row}
        for key in ("time", "end"):
            if row.get(key) is not None:
                moved[key] = T0 + factor * (row[key] - T0)
        return moved | {key: factor * row[key] for key in ("offset_ms", "interval_ms") if key in row}

    once = build(fleet, whole)
    larger: Fleet = (
        [scaled(row) for row in fleet[0]], [scaled(row) for row in fleet[1]], [scaled(row) for row in fleet[2]],
    )  # fmt: skip
    many = build(larger, whole, thresholds=LedgerSettings(idle_after_ms=factor * SHORT.idle_after_ms))
    assert _state_ms(many) == {state: factor * part for state, part in _state_ms(once).items()}


def _state_ms(built: HostLedger) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in built.ledger.iter_rows(named=True):
        found[row["state"]] = found.get(row["state"], 0) + row["end"] - row["time"]
    return found
