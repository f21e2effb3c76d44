"""Requests in the lake: only ever added, the same thing once, and merged like any other rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.allocations.publish import add_requests
from analytics.frames import POLARS, typed
from analytics.plan.jobs import load_jobs
from fallow.clock import DAY_MS
from fallow.compaction import LakeCompactor
from fallow.lake_init import opened_for_writing
from fallow.schema import REQUEST
from tests.allocations.conftest import requested
from tests.ledger.rows import T0

if TYPE_CHECKING:
    from fallow.lake import Lake

LATER_MS = 2 * 10**12


def requests(*rows: dict[str, object]) -> pl.DataFrame:
    base: dict[str, object] = {"scheduler": "slurm", "time": T0}
    columns = {column.name: POLARS[column.type] for column in REQUEST.columns}
    return typed(pl.DataFrame([base | row for row in rows], schema=columns), REQUEST)


def counts(lake: Lake, *rows: dict[str, object]) -> tuple[int, int, int]:
    opened_for_writing(lake)
    done = add_requests(lake, requests(*rows))
    return done.new, done.already_there, done.files_written


def test_what_is_seen_again_later_is_added_and_nothing_is_added_twice(lake: Lake) -> None:
    first = {"claim_id": "1", "as_of": T0 + 10}
    assert counts(lake, first, first | {"scheduler": "csv"}) == (2, 0, 2)
    assert counts(lake, first | {"as_of": T0 + 20}) == (1, 0, 1)
    assert counts(lake, first, first | {"as_of": T0 + 15}, first | {"as_of": T0 + 20}) == (0, 3, 0)
    assert counts(lake, first | {"as_of": T0 + 15, "reason": "Priority"}) == (1, 0, 1)


def test_what_was_granted_under_other_ids_is_noted_only_of_what_was_seen_to_wait(lake: Lake) -> None:
    granted = {"claim_id": "ns/w", "scheduler": "kubernetes", "as_of": T0 + 20, "granted": T0 + 15}
    assert counts(lake, granted) == (0, 0, 0)
    counts(lake, {"claim_id": "ns/w", "scheduler": "kubernetes", "as_of": T0 + 10})
    assert counts(lake, granted) == (1, 0, 1)
    assert counts(lake, granted | {"as_of": T0 + 99}) == (0, 1, 0)
    assert load_jobs(lake).is_empty()


def test_requests_of_a_day_become_one_file_and_later_ones_stay_seen(lake: Lake) -> None:
    for number in range(3):
        counts(lake, {"claim_id": str(number), "as_of": T0 + number})
    LakeCompactor(lake, LATER_MS, DAY_MS, DAY_MS).run()
    assert len(lake.files("request")) == 1
    assert counts(lake, {"claim_id": "0", "as_of": T0 + 1}) == (1, 0, 1)  # an older export, imported late
    assert [row["claim_id"] for row in requested(lake)] == ["0", "0", "1", "2"]
