"""A part of the fleet or of its people: one pool, one team or one user, for tables, reports and exports alike."""

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
    """What is asked for; None is everything.

    A pool is that of each GPU at the time, a model that of the card (of its GPU, for a MIG instance), a team that of the owners
    file.
    """

    pool: str | None = None
    model: str | None = None
    team: str | None = None
    holder: str | None = None

    @classmethod
    def of(cls, args: argparse.Namespace) -> Scope:
        """That of the command line."""
        return cls(args.pool, args.model, args.team, args.user)

    @property
    def is_all(self) -> bool:
        """Whether it leaves everything."""
        return self == Scope()

    @property
    def of_gpus(self) -> Scope:
        """What it says of GPUs alone, whoever has them."""
        return Scope(self.pool, self.model)

    def has_gpu(self, gpu: str, inventory: Inventory) -> bool:
        """Whether a GPU is in the pool and of the model that are asked for, by what is known of it last."""
        return (self.pool is None or inventory.pool(gpu) == self.pool) and (
            self.model is None or inventory.model(inventory.card_of(gpu)) == self.model
        )

    @property
    def is_personal(self) -> bool:
        """Whether it is about people, who have no free time of GPUs."""
        return self.team is not None or self.holder is not None

    def __str__(self) -> str:
        """`pool a100, user ann`."""
        return ", ".join(f"{name} {value}" for name, value in self.parts())

    def parts(self) -> tuple[tuple[str, str], ...]:
        """What it is narrowed to: the word for people, and the name."""
        asked = {"pool": self.pool, "model": self.model, "team": self.team, "user": self.holder}
        return tuple((word, name) for word, name in asked.items() if name is not None)


def add_scope_arguments(parser: argparse.ArgumentParser) -> None:
    """`--pool`, `--model`, `--team` and `--user`."""
    parser.add_argument("--pool", metavar="NAME", type=given_name, help="of this pool's GPUs only")
    parser.add_argument("--model", metavar="NAME", type=given_name, help="of this model's GPUs only")
    parser.add_argument(
        "--team", metavar="NAME", type=given_name, help="of what this team (owners file) was given only"
    )
    parser.add_argument("--user", metavar="NAME", type=asked_name, help="of what this user was given only")


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
    """The ledger of a window with what the scope leaves of it; `whole` stays whole.

    Raises EmptyScopeError where that is nothing; with `or_empty` only for a name that nobody has in the whole ledger, never for one that
    `is_known` from elsewhere.
    """
    if scope.is_all:
        return ledger
    inside = narrowed(ledger.inside, scope, costs, inventory, owners)
    there = or_empty and not narrowed(without_jobs(ledger.whole), scope, costs, inventory, owners).stretches.is_empty()
    if inside.stretches.is_empty() and not (is_known or there):
        raise EmptyScopeError(
            f"nothing in this window is of {scope}",
            "the names are those of `fallow ledger --by pool`, `--by model`, `--by team` and `--by holder`",
        )
    return replace(ledger, inside=inside, summary=_summary(inside, ledger, scope))


def without_jobs(ledger: Ledger) -> Ledger:
    """The same for sums alone: whose a job is takes the process lists to tell, which are long."""
    return replace(ledger, stretches=ledger.stretches.drop("job"))


def _summary(inside: Ledger, ledger: WindowLedger, scope: Scope) -> Summary:
    """The numbers of a part over the window of the whole: a GPU that left the part has not stopped reporting."""
    since_ms, until_ms = ledger.summary.since_ms, ledger.summary.until_ms
    end_ms = until_ms if ledger.end_ms is None else ledger.end_ms
    stopped = 0 if scope.is_personal else stopped_gpus(ledger.inside.stretches, end_ms, inside.stretches["gpu"])
    return replace(summarise(inside), since_ms=since_ms, until_ms=until_ms, stopped_gpus=stopped)


def narrowed(ledger: Ledger, scope: Scope, costs: Costs, inventory: Inventory, owners: Owners) -> Ledger:
    """What the scope leaves of a ledger; of a GPU that several hold, the share of those that are asked for."""
    if scope.is_all:
        return ledger
    rows = ledger.stretches
    if not scope.of_gpus.is_all:
        asked = [pl.col(name) == value for name, value in vars(scope.of_gpus).items() if value is not None]
        rows = placed(rows, costs, inventory).filter(*asked).select(rows.columns)
    if scope.is_personal:
        rows = _of_people(ledger, rows, scope, owners)
    return replace(ledger, stretches=rows, spells=_during(ledger.spells, rows))


def _of_people(ledger: Ledger, rows: pl.DataFrame, scope: Scope, owners: Owners) -> pl.DataFrame:
    """The rows of a team or a holder, with the share of the GPU that was theirs and nothing that tells of others.

    Where others had a part of the GPU, `job` is null, `account` has those of the same team alone, and `holder_shares` is not
    null: that marks such a row, whoever is left in it.
    """
    rows = rows.filter(~pl.col("state").is_in(UNALLOCATED))
    pairs = rows.select("holder", "account").unique().rows()
    known = pl.DataFrame(
        [(holder, account, *_mine(scope, owners, holder, account)) for holder, account in pairs],
        schema=_MINE,
        orient="row",
    )
    held = rows.join(known, on=("holder", "account"), how="left", nulls_equal=True, maintain_order="left").filter(
        pl.col("mine").list.len() > 0
    )
    count = pl.col("holder").str.split(JOINER).list.len()
    stated = (pl.col("holder_shares").list.len() == count).fill_null(value=False)
    left = pl.col("mine").list.len()
    own = pl.col("holder_shares").list.gather(pl.col("mine"))
    share = pl.when(stated).then(own.list.sum() / pl.col("holder_shares").list.sum()).otherwise(left / count)
    part = pl.when(SEVERAL_HOLD).then(share).otherwise(1.0)
    doubtful = foreign_work(held, ledger.rollups)
    shares = (
        pl.when(SEVERAL_HOLD & stated)
        .then(own)
        .when(pl.col("is_beside") | doubtful)
        .then(pl.lit(1.0).repeat_by(left))
        .otherwise("holder_shares")
    )
    narrow_job = [pl.when(~(pl.col("is_beside") | doubtful)).then("job").alias("job")] if "job" in rows.columns else []
    return held.with_columns(
        *narrow_job,
        gpu_share=pl.col("gpu_share") * part,
        holder=pl.when(SEVERAL_HOLD).then("names").otherwise("holder"),
        account=pl.when(pl.col("is_beside") | doubtful).then("accounts").otherwise("account"),
        holder_shares=shares,
    ).select(rows.columns)


_MINE: dict[str, pl.DataType] = {
    **dict.fromkeys(("holder", "account"), pl.String()),
    "mine": pl.List(pl.Int64),
    **dict.fromkeys(("names", "accounts"), pl.String()),
    "is_beside": pl.Boolean(),
}


def _mine(
    scope: Scope, owners: Owners, holder: str | None, account: str | None
) -> tuple[list[int], str | None, str | None, bool]:
    """Of the names that hold a GPU together those that are asked for: their places, and the names and their team's accounts joined.

    The last says whether others are left out, be it by name or by account.
    """
    names = [None] if holder is None else holder.split(JOINER)
    teams = [whose(owners, name, account, is_beside_others=len(names) > 1)[0] for name in names]
    kept = [
        place
        for place, name in enumerate(names)
        if (scope.holder is None or name == scope.holder) and (scope.team is None or teams[place] == scope.team)
    ]
    left = {teams[place] for place in kept}
    paid = [] if account is None else account.split(JOINER)
    own = [each for each in paid if (team := owners.team(None, each)) is not None and team in left]
    is_paid_by_others = scope.team is not None and any(owners.team(holder, each) != scope.team for each in paid)
    is_beside = len(kept) < len(names) or is_paid_by_others
    return kept, JOINER.join(names[place] or "" for place in kept) or None, JOINER.join(own) or None, is_beside


def _during(spells: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """The spells as far as they lie in rows of their GPU; how long a whole spell was stays."""
    # rows that touch are one span: a join of spells with rows would be as large as their product
    spans = merge(rows).select("gpu", from_ms="time", to_ms="end")
    return clip(spells.join(spans, on="gpu"), "from_ms", "to_ms").select(spells.columns)
