"""Many hosts: each one's ledger is its own, and a GPU that several report is counted once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given, settings

from analytics.ledger.build import load_ledger
from analytics.ledger.summary import summarise
from fallow import schema
from tests.ledger.agreement import assert_agree, exactly
from tests.ledger.duckdb_ledger import duckdb_ledger
from tests.ledger.fleets import SHORT, Fleet, fleets, lake_of
from tests.ledger.rows import Row, fill, load, ms, samples, silent, write

if TYPE_CHECKING:
    from fallow.lake import Lake

BUSY: dict[str, Any] = {"gpu_util_pct": 90.0, "process_count": 1}


def renamed(rows: list[Row], prefix: str) -> list[Row]:
    return [row | {"gpu": prefix + row["gpu"]} for row in rows]


@settings(max_examples=6)
@given(fleets(), fleets())
def test_hosts_do_not_look_at_each_other(one: Fleet, other: Fleet) -> None:
    second = [renamed(rows, "z") for rows in other]
    with lake_of(one) as lake:
        alone = load_ledger(lake, SHORT, warn=silent)
        for table, rows in zip((schema.GPU, schema.PROCESS, schema.CLAIM), second, strict=True):
            write(lake, table, rows, host="h2")
        both = load_ledger(lake, SHORT, warn=silent)
        assert_agree(both, duckdb_ledger(lake, SHORT))
    assert [row for row in exactly(both) if row[0] == "h1"] == exactly(alone)
    assert both.spells.filter(host="h1").equals(alone.spells)


def spans(lake: Lake) -> list[tuple[str, str, float, float]]:
    rows = load(lake).stretches.sort("gpu", "time").select("host", "state", "time", "end").rows()
    return [(host, state, (start - ms(0)) / 1000, (end - ms(0)) / 1000) for host, state, start, end in rows]


def test_a_gpu_that_moved_has_its_time_on_each_host(lake: Lake) -> None:
    fill(lake, samples("a", 0, 600, **BUSY))
    fill(lake, samples("a", 900, 1200), host="h0")
    assert spans(lake) == [("h1", "active", 0, 600), ("h0", "free", 900, 1200)]


def test_time_on_two_hosts_at_once_counts_for_the_one_that_saw_it_last(lake: Lake) -> None:
    fill(lake, samples("a", 0, 600, **BUSY))
    fill(lake, samples("a", 300, 900), host="h2")
    ledger = load(lake)
    assert spans(lake) == [("h1", "active", 0, 300), ("h2", "free", 300, 900)]
    assert summarise(ledger).totals.total_ms == 900_000
    assert summarise(ledger).totals.gpus == 1
    # what was measured at zero is at most the time that there is
    assert summarise(ledger).idle.zero_ms == 600_000


def test_what_one_host_knows_goes_before_what_another_does_not(lake: Lake) -> None:
    fill(lake, samples("a", 0, 600, **BUSY))
    fill(lake, samples("a", 0, 60) + samples("a", 840, 900), host="h2")
    assert ("h1", "active", 80, 600) in spans(lake)
    assert summarise(load(lake)).totals.total_ms == 900_000


def test_a_host_that_misses_a_gpu_hides_nothing_of_the_one_that_has_it_now(lake: Lake) -> None:
    fill(lake, samples("a", 0, 600, **BUSY) + samples("a", 600, 1800, health="missing", gpu_util_pct=None))
    fill(lake, samples("a", 900, 1500, **BUSY), host="h2")
    assert spans(lake) == [
        ("h1", "active", 0, 600), ("h1", "unavailable", 600, 900), ("h2", "active", 900, 1500),
        ("h1", "unavailable", 1500, 1800),
    ]  # fmt: skip


def test_spells_of_a_gpu_on_two_hosts_never_exceed_its_time(lake: Lake) -> None:
    fill(lake, samples("a", 0, 3600))
    fill(lake, samples("a", 0, 3600), host="h2")
    summary = summarise(load(lake))
    assert summary.totals.total_ms == 3_600_000
    assert summary.idle.zero_ms == 3_600_000
    assert summary.idle.spell_ms["60m"] == 3_600_000
