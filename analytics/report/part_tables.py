"""Tables beside the report: the ledger by GPU, and data around a scope's part of the window."""

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
    """Return the scope's part of everything that was read, including the time around the window; without jobs."""
    return whole.narrowed(without_jobs(whole.ledger.whole), scope)


def listed_processes(whole: Whole, scope: Scope, spans: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of `process_day` that were listed during some of the spans of their GPU.

    People get only their own processes.

    Args:
        whole: the window.
        scope: the scope.
        spans: rows of its ledger.
    """
    rows = whole.ledger.inside.rollups.processes().with_columns(single_names("user"))
    if not scope.is_all:
        rows = rows.join(_during(rows, spans), on=("host", "gpu", "pid", "time"), how="semi")
    if not scope.is_personal:
        return rows
    names = {name for user in spans["user"].drop_nulls() for name in user.split(JOINER)}
    rows = rows.filter(pl.col("user").is_in(list(names)))
    return rows if scope.team is None else rows.join(_paid_by(whole, scope.team, rows), on=_PAYER, nulls_equal=True)


_PAYER = ("user", "account")


def _paid_by(whole: Whole, team: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the users and accounts that the team pays for: its people may also work for other teams."""
    owners = whole.money.owners
    known = rows.select(_PAYER).unique()
    return known.filter([owners.team(user, account) == team for user, account in known.rows()])


def _during(rows: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of `process_day` that were listed during some of the spans of their GPU."""
    own = spans.select("host", "gpu", from_ms="time", to_ms="end")
    met = rows.select("host", "gpu", "pid", "time", "end").join(own, on=("host", "gpu"))
    return met.filter((pl.col("from_ms") < pl.col("end")) & (pl.col("to_ms") > pl.col("time")))


def wrong_rows(whole: Whole, scope: Scope, host: str) -> pl.DataFrame | None:
    """Return the problems of a host's rows; None for people, because they concern others."""
    if scope.is_personal:
        return None
    return whole.ledger.inside.rollups.quality().filter(pl.col("host") == host)


def host_hours(whole: Whole, host: str, columns: Collection[str]) -> pl.DataFrame:
    """Return a host's hours from `host_hourly`: `time`, `interval_ms` and `columns`, for readers of a part of them."""
    hours = whole.ledger.inside.rollups.hosts().filter(pl.col("host") == host)
    return hours.select("time", pl.lit(HOUR_MS).alias("interval_ms"), *columns).sort("time")


def without_others(whole: Whole, scope: Scope, own: pl.DataFrame, rows: pl.DataFrame, of: pl.Expr) -> pl.DataFrame:
    """Return, for people, rows of times when no one else used the GPU or host, because sums would reveal others' use.

    Args:
        whole: the window.
        scope: the scope.
        own: the ledger's rows of the scope.
        rows: `time`, `interval_ms` and the measured values.
        of: selects ledger rows about the same GPU or host.
    """
    if not scope.is_personal:
        return rows
    key = ("gpu", "host", "time")
    who = pl.concat_str(pl.col("user", "account").fill_null(""), separator="\n")
    mine = own.select(*key, mine=who)
    held = whole.ledger.inside.segments.filter(of & ~pl.col("state").is_in(UNALLOCATED))
    held = held.with_columns(foreign=foreign_work(held, whole.ledger.inside.rollups)).join(mine, on=key, how="left")
    is_theirs = who.ne_missing(pl.col("mine"))
    return never_during(rows, held.filter(is_theirs | pl.col("foreign")))
