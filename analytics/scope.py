"""A part of the fleet or of its users: one pool, model, team or user, for tables, reports and exports alike."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

import polars as pl

from analytics.intervals import clip, merge
from analytics.inventory import Inventory
from analytics.ledger.build import Ledger
from analytics.ledger.summary import Summary, stopped_gpus, summarise
from analytics.ledger.usage import SEVERAL_HOLD, foreign_work
from analytics.money.costs import Costs
from analytics.money.owners import Owners
from analytics.money.priced_segments import placed, whose
from analytics.names import JOINER, asked_name, given_name
from analytics.states import UNALLOCATED
from analytics.window import WindowLedger
from fallow.errors import EmptyScopeError


@dataclass(frozen=True)
class Scope:
    """The requested part; None is everything.

    The pool is that of each GPU at the time, the model that of the card (for a MIG instance, of its GPU), the team that
    of the owners file.
    """

    pool: str | None = None
    model: str | None = None
    team: str | None = None
    user: str | None = None

    @classmethod
    def of(cls, args: argparse.Namespace) -> Scope:
        """Return the scope of the command line."""
        return cls(args.pool, args.model, args.team, args.user)

    @property
    def is_all(self) -> bool:
        """Return whether the scope includes everything."""
        return self == Scope()

    @property
    def of_gpus(self) -> Scope:
        """Return the scope without team and user."""
        return Scope(self.pool, self.model)

    def has_place(self, pool: str | None, model: str | None) -> bool:
        """Return whether these are the requested pool and the requested model."""
        return self.pool in (None, pool) and self.model in (None, model)

    def has_gpu(self, gpu: str, inventory: Inventory) -> bool:
        """Return whether a GPU is in the requested pool and of the requested model, by its latest facts."""
        return self.has_place(inventory.pool(gpu), inventory.model(inventory.card_of(gpu)))

    @property
    def is_personal(self) -> bool:
        """Return whether the scope is a team or a user, who have no free GPU time."""
        return self.team is not None or self.user is not None

    def __str__(self) -> str:
        """Return `pool a100, user ann`."""
        return ", ".join(f"{name} {value}" for name, value in self.parts())

    def parts(self) -> tuple[tuple[str, str], ...]:
        """Return the parts of the scope: the word for people, and the name."""
        asked = {"pool": self.pool, "model": self.model, "team": self.team, "user": self.user}
        return tuple((word, name) for word, name in asked.items() if name is not None)


def add_scope_arguments(parser: argparse.ArgumentParser) -> None:
    """`--pool`, `--model`, `--team` and `--user`."""
    parser.add_argument("--pool", metavar="NAME", type=given_name, help="only GPUs of this pool")
    parser.add_argument("--model", metavar="NAME", type=given_name, help="only GPUs of this model")
    parser.add_argument("--team", metavar="NAME", type=given_name, help="only GPU time of this team (owners file)")
    parser.add_argument("--user", metavar="NAME", type=asked_name, help="only GPU time of this user")


def narrow(
    ledger: WindowLedger,
    scope: Scope,
    costs: Costs,
    inventory: Inventory,
    owners: Owners,
    *,
    or_empty: bool = False,
    is_known: bool = False,
) -> WindowLedger:
    """Return the ledger of a window narrowed to the scope; `whole` stays whole.

    Raises EmptyScopeError where nothing is left; with `or_empty` only for a name that does not occur in the whole
    ledger and that `is_known` does not know.
    """
    if scope.is_all:
        return ledger
    inside = narrowed(ledger.inside, scope, costs, inventory, owners)
    there = or_empty and not narrowed(without_jobs(ledger.whole), scope, costs, inventory, owners).segments.is_empty()
    if inside.segments.is_empty() and not (is_known or there):
        raise EmptyScopeError(
            f"nothing in this window belongs to {scope}",
            "`fallow ledger --by pool`, `--by model`, `--by team` and `--by user` list the names",
        )
    return replace(ledger, inside=inside, summary=_summary(inside, ledger, scope))


def without_jobs(ledger: Ledger) -> Ledger:
    """Return the ledger without jobs, for sums alone: the user of a job is in the process lists, which are long."""
    return replace(ledger, segments=ledger.segments.drop("job"))


def _summary(inside: Ledger, ledger: WindowLedger, scope: Scope) -> Summary:
    """Return the numbers of a part over the window of the whole: a GPU that left the part has not stopped reporting."""
    since_ms, until_ms = ledger.summary.since_ms, ledger.summary.until_ms
    end_ms = until_ms if ledger.end_ms is None else ledger.end_ms
    stopped = 0 if scope.is_personal else stopped_gpus(ledger.inside.segments, end_ms, inside.segments["gpu"])
    return replace(summarise(inside), since_ms=since_ms, until_ms=until_ms, stopped_gpus=stopped)


def narrowed(ledger: Ledger, scope: Scope, costs: Costs, inventory: Inventory, owners: Owners) -> Ledger:
    """Return the ledger narrowed to the scope; of a GPU with several users, the share of the requested ones."""
    if scope.is_all:
        return ledger
    rows = ledger.segments
    if not scope.of_gpus.is_all:
        asked = [pl.col(name) == value for name, value in vars(scope.of_gpus).items() if value is not None]
        rows = placed(rows, costs, inventory).filter(*asked).select(rows.columns)
    if scope.is_personal:
        rows = _rows_of_people(ledger, rows, scope, owners)
    return replace(ledger, segments=rows, idle_intervals=_intervals_inside(ledger.idle_intervals, rows))


def _rows_of_people(ledger: Ledger, rows: pl.DataFrame, scope: Scope, owners: Owners) -> pl.DataFrame:
    """Return the rows of a team or a user, with their share of the GPU and nothing that reveals other users.

    Where others had a part of the GPU, `job` is null, `account` has those of the same team alone, and `user_shares` is
    not null: that marks such a row, however many users remain in it.
    """
    rows = rows.filter(~pl.col("state").is_in(UNALLOCATED))
    pairs = rows.select("user", "account").unique().rows()
    known = pl.DataFrame(
        [(user, account, *_own_names(scope, owners, user, account)) for user, account in pairs],
        schema=_MINE,
        orient="row",
    )
    held = rows.join(known, on=("user", "account"), how="left", nulls_equal=True, maintain_order="left").filter(
        pl.col("mine").list.len() > 0
    )
    count = pl.col("user").str.split(JOINER).list.len()
    stated = (pl.col("user_shares").list.len() == count).fill_null(value=False)
    left = pl.col("mine").list.len()
    own = pl.col("user_shares").list.gather(pl.col("mine"))
    share = pl.when(stated).then(own.list.sum() / pl.col("user_shares").list.sum()).otherwise(left / count)
    part = pl.when(SEVERAL_HOLD).then(share).otherwise(1.0)
    doubtful = foreign_work(held, ledger.rollups)
    shares = (
        pl.when(SEVERAL_HOLD & stated)
        .then(own)
        .when(pl.col("is_beside") | doubtful)
        .then(pl.lit(1.0).repeat_by(left))
        .otherwise("user_shares")
    )
    narrow_job = [pl.when(~(pl.col("is_beside") | doubtful)).then("job").alias("job")] if "job" in rows.columns else []
    return held.with_columns(
        *narrow_job,
        gpu_share=pl.col("gpu_share") * part,
        user=pl.when(SEVERAL_HOLD).then("names").otherwise("user"),
        account=pl.when(pl.col("is_beside") | doubtful).then("accounts").otherwise("account"),
        user_shares=shares,
    ).select(rows.columns)


_MINE: dict[str, pl.DataType] = {
    **dict.fromkeys(("user", "account"), pl.String()),
    "mine": pl.List(pl.Int64),
    **dict.fromkeys(("names", "accounts"), pl.String()),
    "is_beside": pl.Boolean(),
}


def _own_names(
    scope: Scope, owners: Owners, user: str | None, account: str | None
) -> tuple[list[int], str | None, str | None, bool]:
    """Return the requested ones of a GPU's names: their positions, the names joined, and their team's accounts joined.

    Return also whether others are left out, by name or by account.
    """
    names = [None] if user is None else user.split(JOINER)
    teams = [whose(owners, name, account, is_beside_others=len(names) > 1)[0] for name in names]
    kept = [
        place
        for place, name in enumerate(names)
        if (scope.user is None or name == scope.user) and (scope.team is None or teams[place] == scope.team)
    ]
    left = {teams[place] for place in kept}
    paid = [] if account is None else account.split(JOINER)
    own = [each for each in paid if (team := owners.team(None, each)) is not None and team in left]
    is_paid_by_others = scope.team is not None and any(owners.team(user, each) != scope.team for each in paid)
    is_beside = len(kept) < len(names) or is_paid_by_others
    return kept, JOINER.join(names[place] or "" for place in kept) or None, JOINER.join(own) or None, is_beside


def _intervals_inside(idle_intervals: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the idle intervals cut to the rows of their GPU; the length of a whole idle interval stays."""
    # rows that touch are joined: a join of idle intervals with rows would be as large as their product
    spans = merge(rows).select("gpu", from_ms="time", to_ms="end")
    return clip(idle_intervals.join(spans, on="gpu"), "from_ms", "to_ms").select(idle_intervals.columns)
