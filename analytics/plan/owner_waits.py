"""Whose jobs waited for GPUs when, in which pool: the waits alone, without their causes."""

from __future__ import annotations

import polars as pl

from analytics.money.accounts import OF_TEAM
from analytics.money.owners import Owners
from analytics.money.priced_segments import NO_ORGANISATION, NO_PROJECT, NO_TEAM, project_of, whose
from analytics.plan.waiting_jobs import IS_COUNTED, jobs_in_window, located

_NAMES = ("organisation", "team", "team_project")


def owner_waits(jobs: pl.DataFrame, placed: pl.DataFrame, window: tuple[int, int], owners: Owners) -> pl.DataFrame:
    """The jobs that waited in a window or got GPUs in it, of those whose time of asking and number of GPUs are known.

    Columns: those of `jobs_in_window`, and organisation, team and team_project as `Accounts` labels them.

    Args:
        jobs: with JOB_SCHEMA.
        placed: the ledger's rows of the window with `pool`.
        window: its start and end, in ms.
        owners: who is who.
    """
    known, _ = located(jobs, placed)
    rows = jobs_in_window(known, *window).filter(IS_COUNTED)
    key = ("user", "account", "project")
    people = rows.select(key).unique()
    paths = [_path(owners, user, account, project) for user, account, project in people.iter_rows()]
    labels = pl.DataFrame(paths, schema=dict.fromkeys(_NAMES, pl.String), orient="row")
    return rows.join(pl.concat([people, labels], how="horizontal"), on=key, how="left", nulls_equal=True)


def _path(owners: Owners, user: str | None, account: str | None, project: str | None) -> tuple[str, str, str]:
    team, organisation = whose(owners, user, account)
    named = project_of(owners, user, account, project) or NO_PROJECT
    return organisation or NO_ORGANISATION, team or NO_TEAM, OF_TEAM.join((team or NO_TEAM, named))
