"""What a reader may see beside the report: the ledger by GPU, and the one way past the part of the window that a scope leaves."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from analytics.ledger.build import Ledger
from analytics.ledger.usage import foreign_work
from analytics.names import JOINER, single_names
from analytics.readings import never_during
from analytics.report.model import Whole
from analytics.scope import Scope, without_jobs
from analytics.states import UNALLOCATED
from fallow.clock import HOUR_MS


def all_known(whole: Whole, scope: Scope) -> Ledger:
    """What the scope leaves of all that was read, the time around the window included; without jobs."""
    return whole.narrowed(without_jobs(whole.ledger.whole), scope)


def listed_processes(whole: Whole, scope: Scope, spans: pl.DataFrame) -> pl.DataFrame:
    """The rows of `process_day` of the window that were listed in some of the spans of their GPU: of people only their own work.

    Args:
        whole: the window.
        scope: what is asked for.
        spans: rows of its ledger.
    """
    rows = whole.ledger.inside.rollups.processes().with_columns(single_names("user"))
    if not scope.is_all:
        rows = rows.join(_during(rows, spans), on=("host", "gpu", "pid", "time"), how="semi")
    if not scope.is_personal:
        return rows
    names = {name for holder in spans["holder"].drop_nulls() for name in holder.split(JOINER)}
    rows = rows.filter(pl.col("user").is_in(list(names)))
    return rows if scope.team is None else rows.join(_paid_by(whole, scope.team, rows), on=_PAYER, nulls_equal=True)


_PAYER = ("user", "account")


def _paid_by(whole: Whole, team: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Those users and accounts of the rows of which the team is charged: its people may work for another team as well."""
    owners = whole.money.owners
    known = rows.select(_PAYER).unique()
    return known.filter([owners.team(user, account) == team for user, account in known.rows()])


def _during(rows: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """The rows of `process_day` that were listed in some of the spans of their GPU."""
    own = spans.select("host", "gpu", from_ms="time", to_ms="end")
    met = rows.select("host", "gpu", "pid", "time", "end").join(own, on=("host", "gpu"))
    return met.filter((pl.col("from_ms") < pl.col("end")) & (pl.col("to_ms") > pl.col("time")))


def wrong_rows(whole: Whole, scope: Scope, host: str) -> pl.DataFrame | None:
    """What was wrong with a host's rows; None of people, whom it would tell of others."""
    if scope.is_personal:
        return None
    return whole.ledger.inside.rollups.quality().filter(pl.col("host") == host)


def host_hours(whole: Whole, host: str, columns: Collection[str]) -> pl.DataFrame:
    """A host's hours from `host_hourly`, of all who have a part of it: `time`, `interval_ms` and the columns."""
    hours = whole.ledger.inside.rollups.hosts().filter(pl.col("host") == host)
    return hours.select("time", pl.lit(HOUR_MS).alias("interval_ms"), *columns).sort("time")


def without_others(whole: Whole, scope: Scope, own: pl.DataFrame, rows: pl.DataFrame, of: pl.Expr) -> pl.DataFrame:
    """Of people the rows of times in which nobody else had anything of it: its sums would tell what they did.

    Args:
        whole: the window.
        scope: what is asked for.
        own: the ledger's rows that it leaves.
        rows: `time`, `interval_ms` and what was measured.
        of: which rows of the ledger are about the same GPU or host.
    """
    if not scope.is_personal:
        return rows
    key = ("gpu", "host", "time")
    who = pl.concat_str(pl.col("holder", "account").fill_null(""), separator="\n")
    mine = own.select(*key, mine=who)
    held = whole.ledger.inside.stretches.filter(of & ~pl.col("state").is_in(UNALLOCATED))
    held = held.with_columns(foreign=foreign_work(held, whole.ledger.inside.rollups)).join(mine, on=key, how="left")
    is_theirs = who.ne_missing(pl.col("mine"))
    return never_during(rows, held.filter(is_theirs | pl.col("foreign")))
