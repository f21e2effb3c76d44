"""The ledger's rows as segments with one payer and a price, which every table of money sums up.

Cents are divided so that every table adds up exactly: by the method of the largest remainder, in integers.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from datetime import tzinfo

import polars as pl

from analytics.frames import with_mapped
from analytics.intervals import SPAN_MS, by_day
from analytics.inventory import NO_POOL, UNKNOWN_MODEL, Inventory
from analytics.ledger.usage import LOW_ACTIVITY, by_sm_activity, used_share
from analytics.mig import MIG_PREFIX
from analytics.money.costs import Costs
from analytics.money.owners import Owners
from analytics.states import IN_USE, UNALLOCATED
from fallow.clock import DAY_MS, HOUR_MS, utc_day

MICROCENTS = 10**6
"""Parts of a cent. Amounts are whole numbers of them, so that sums do not depend on the order."""

Key = tuple[str, ...]


def rounded(amount: int) -> int:
    """Return an amount in microcents as whole cents, half a cent up."""
    return (2 * amount + MICROCENTS) // (2 * MICROCENTS)


def share_out(cents: int, amounts: Mapping[Key, int]) -> dict[Key, int]:
    """Return whole cents for amounts in microcents. They add up to `cents`, which is the rounded sum.

    Each amount is rounded down. The remaining cents go to the largest remainders, the first by name among equal ones,
    so that every share is its amount rounded either way.
    """
    shares = {key: amount // MICROCENTS for key, amount in amounts.items()}
    left = cents - sum(shares.values())
    ranked = sorted(amounts, key=lambda key: (-(amounts[key] % MICROCENTS), key))
    for key in ranked[:left]:
        shares[key] += 1
    return shares


def nested(amounts: Mapping[Key, int]) -> dict[Key, int]:
    """Return whole cents for amounts in microcents under keys of several levels.

    Cents are divided from the whole to the first level, from each of its groups to the second, and so on. Every level
    adds up to the one above and the whole to its own rounding. Every figure is within one cent of its exact amount.
    """
    return _below((), rounded(sum(amounts.values())), amounts)


def _below(prefix: Key, cents: int, amounts: Mapping[Key, int]) -> dict[Key, int]:
    depth = len(prefix)
    if all(len(key) == depth for key in amounts):
        return dict.fromkeys(amounts, cents)
    parts: dict[Key, dict[Key, int]] = defaultdict(dict)
    for key, amount in amounts.items():
        parts[key[: depth + 1]][key] = amount
    shares = share_out(cents, {part: sum(below.values()) for part, below in parts.items()})
    return {key: each for part, below in parts.items() for key, each in _below(part, shares[part], below).items()}


NOBODY = "(nobody)"
NOT_KNOWN = "(unknown user)"
NO_TEAM = "(no team)"
NO_ORGANISATION = "(no organisation)"
NO_ACCOUNT = "(no account)"
NO_PROJECT = "(no project)"
NO_PARTITION = "(no partition)"
NO_QOS = "(no QOS)"
NO_JOB = "(no job)"
OF_ALLOCATIONS = {"partition": NO_PARTITION, "qos": NO_QOS, "job_name": NO_JOB}
"""Columns of `with_allocation_facts`, and the words for rows without a value."""

UNNAMED = frozenset(
    {
        NOBODY,
        NOT_KNOWN,
        NO_TEAM,
        NO_ORGANISATION,
        NO_ACCOUNT,
        NO_PROJECT,
        NO_POOL,
        UNKNOWN_MODEL,
        *OF_ALLOCATIONS.values(),
    }
)
"""Names of groups without a name: no user, and an unknown user."""

AMOUNT = pl.Int128
"""Greatest sum in microcents: 64 bits end at 9.2 x 10^10 units of the currency, the weekly cost of a large fleet in
rials."""

_COLUMNS = (
    "gpu",
    "host",
    "time",
    "end",
    "state",
    "gpu_share",
    "user",
    "account",
    "user_shares",
    "job",
    "energy_mj",
    "energy_ms",
    "unconfirmed_ms",
    "likely_ms",
    "sampled_ms",
    "perhaps_idle_ms",
    "perhaps_stalled_ms",
    "segment_start",
    "segment_end",
    "off_peak_share",
    "project",
    *OF_ALLOCATIONS,
    "zero_ms",
    "util_ms",
    *LOW_ACTIVITY,
)
_DOUBT = ("sampled_ms", "perhaps_idle_ms", "perhaps_stalled_ms")
_USED_UP = ("unconfirmed_ms", "likely_ms", *_DOUBT, "segment_start", "segment_end", "zero_ms", "util_ms")
"""Columns whose figures are in others of `pieces_of`."""
_MIG = re.compile(r"\s+MIG\s+\d+g\..*$", re.IGNORECASE)


def pieces_of(segments: pl.DataFrame, costs: Costs, inventory: Inventory, owners: Owners, zone: tzinfo) -> pl.DataFrame:
    """Return one row per ledger row, day of the zone, price term of its GPU, and user.

    Columns:
        state, time, end, day (of UTC), local_day (of the zone), gpu, host, gpu_share, instance, job, pool, model, user,
        account.
        team, organisation: names; UNNAMED without one. project: see `project_of`, if the rows have an allocation's
        `project`.
        Those of OF_ALLOCATIONS that the rows have.
        gpu_ms. amount: microcents, null without a price.
        open_share, likely_share: the part that only point samples show as idle, and its part with power readings.
        doubt_share: of time in use, the part that may have been held (between samples) or stalled.
        used_share: see `analytics.ledger.usage`. by_sm: whether it comes from SM activity.
        kernel_share: the share of the measured time with a kernel; null if unknown.
        since: the start of the price term. segment_ms: the length of the whole interval.
        energy_mj, energy_known_ms (as gpu_ms). span_ms, energy_ms: of the GPU, not shared, for the first user only.
    """
    there = [name for name in _COLUMNS if name in segments.columns]
    measured = [name for name in LOW_ACTIVITY if name in there]
    rows = (
        placed(by_day(segments.select(there), zone).rename({"day": "local_day"}), costs, inventory)
        .with_row_index("row")
        .join(costs.rates(), on=("gpu", "since"), how="left")
        .with_columns(span_ms=SPAN_MS, gpu_ms=SPAN_MS * pl.col("gpu_share"))
        .with_columns(
            energy_known_ms=pl.col("energy_ms") * pl.col("gpu_share"),
            amount=(pl.col("gpu_ms") * pl.col("rate") / HOUR_MS * 100 * MICROCENTS).round().cast(AMOUNT),
            day=pl.col("time") // DAY_MS,
            open_share=pl.col("unconfirmed_ms") / SPAN_MS if "unconfirmed_ms" in there else pl.lit(0.0),
            likely_share=pl.col("likely_ms") / SPAN_MS if "likely_ms" in there else pl.lit(0.0),
            doubt_share=_doubt_share() if set(_DOUBT) <= set(there) else pl.lit(0.0),
            used_share=used_share(measured),
            by_sm=by_sm_activity(measured),
            kernel_share=(1 - pl.col("zero_ms") / pl.col("util_ms")).fill_nan(None) if "util_ms" in there else None,
        )
        .with_columns(segment_ms=pl.col("segment_end") - pl.col("segment_start") if "segment_end" in there else SPAN_MS)
        .drop(*_USED_UP, *LOW_ACTIVITY, strict=False)
    )
    # whole millijoules and milliseconds add up to the same in any order, and so on any number of processors
    whole = _per_user(rows).with_columns(pl.col("energy_mj", "energy_known_ms").round().cast(pl.Int64))
    return _named(whole, owners).drop("rate", "user_shares", "row", "is_beside_others")


def _doubt_share() -> pl.Expr:
    between = pl.when(pl.col("sampled_ms") > 0).then("perhaps_idle_ms").otherwise(0)
    doubt = ((between + pl.col("perhaps_stalled_ms")) / SPAN_MS).clip(0, 1)
    return pl.when(pl.col("state").is_in(IN_USE)).then(doubt).otherwise(0.0)


def unused_amount() -> pl.Expr:
    """Return the part of a segment's amount that `used_share` leaves, in microcents."""
    return (pl.col("amount").cast(pl.Float64) * (1.0 - pl.col("used_share"))).round().cast(AMOUNT)


def placed(segments: pl.DataFrame, costs: Costs, inventory: Inventory) -> pl.DataFrame:
    """Return the ledger's rows with their pool, model and price term.

    Columns: `pool` and `model` of their time, `since` (start of the term) and `instance` (a MIG instance). A row in
    which its GPU changed pool or price becomes several rows.
    """
    places = _places(segments, costs, inventory)
    return costs.at_their_time(segments).join(places, on=("gpu", "since"), how="left", nulls_equal=True)


def _places(segments: pl.DataFrame, costs: Costs, inventory: Inventory) -> pl.DataFrame:
    """Return pool and model of each GPU by `since`.

    A MIG instance has its GPU's model, and its GPU's pool by default.
    """
    found: list[tuple[str, int | None, str, str]] = []
    for gpu in segments["gpu"].unique().sort():
        device = inventory.devices.get(gpu)
        parent = None if device is None else device.parent_gpu
        for term in costs.terms.get(gpu, ()):
            model = (inventory.model(parent) if parent else term.model) or UNKNOWN_MODEL
            found.append((gpu, term.since_ms, term.pool or NO_POOL, _MIG.sub("", model)))
        if gpu not in costs.terms:
            found.append((gpu, None, NO_POOL, UNKNOWN_MODEL))
    places = pl.DataFrame(
        found, schema={"gpu": pl.String, "since": pl.Int64, "pool": pl.String, "model": pl.String}, orient="row"
    )
    return places.with_columns(instance=pl.col("gpu").str.starts_with(MIG_PREFIX))


def _per_user(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows of several users split by their shares of the process time, equally if these are unknown.

    The amounts of the parts add up to the row's: the first user has the rounding remainder.
    """
    idle = pl.col("state").is_in(UNALLOCATED)
    rows = rows.with_columns(pl.when(~idle).then(pl.col(name)).alias(name) for name in ("user", "account"))
    several = pl.col("user").str.contains("+", literal=True).fill_null(value=False)
    rows = rows.with_columns(is_beside_others=several | pl.col("user_shares").is_not_null())
    alone, shared = rows.filter(~several), rows.filter(several)
    if shared.is_empty():
        return alone
    names = pl.col("user").str.split("+")
    equal = (1.0 / pl.col("names").list.len()).repeat_by(pl.col("names").list.len())
    known = pl.col("user_shares").list.len() == pl.col("names").list.len()
    parts = (
        shared.with_columns(names=names)
        .with_columns(shares=pl.when(known.fill_null(value=False)).then(pl.col("user_shares")).otherwise(equal))
        .with_columns(part=pl.int_ranges(0, pl.col("names").list.len()))
        .explode("names", "shares", "part")
    )
    first = pl.col("part") == 0
    share = pl.col("shares") / pl.col("shares").sum().over("row")
    parts = parts.with_columns(
        *((pl.col(name) * share).alias(name) for name in ("gpu_ms", "energy_mj", "energy_known_ms")),
        *(pl.when(first).then(pl.col(name)).otherwise(0).alias(name) for name in ("span_ms", "energy_ms")),
        rounded=(pl.col("amount") * share).round().cast(AMOUNT),
    )
    left = pl.col("amount") - pl.col("rounded").sum().over("row")
    parts = parts.with_columns(user=pl.col("names"), amount=pl.col("rounded") + pl.when(first).then(left).otherwise(0))
    return pl.concat([alone, parts.select(alone.columns)])


def _named(rows: pl.DataFrame, owners: Owners) -> pl.DataFrame:
    """Add teams, organisations and projects, and words for missing names."""
    allocated = ["project"] if "project" in rows.columns else []
    key = ("user", "account", "is_beside_others", *allocated)

    def names(
        user: str | None,
        account: str | None,
        beside: bool,  # noqa: FBT001  # a row's columns
        *project: str | None,
    ) -> tuple[str | None, ...]:
        return *whose(owners, user, account, is_beside_others=beside), project_of(owners, user, account, *project)

    named = with_mapped(rows, key, dict.fromkeys(("team", "organisation", "named_project"), pl.String()), names)
    idle = pl.col("state").is_in(UNALLOCATED)
    stand_in = {"user": NOT_KNOWN, "account": NO_ACCOUNT, "team": NO_TEAM, "organisation": NO_ORGANISATION}
    projects = {"project": NO_PROJECT} if allocated else {}
    unknown = pl.col("user").is_null() & pl.col("account").is_null()
    days = rows["day"].unique()
    there = [name for name in OF_ALLOCATIONS if name in named.columns]
    found = named.with_columns(
        *([pl.col("named_project").alias("project")] if allocated else []),
        *(
            pl.when(idle).then(pl.lit(NOBODY)).otherwise(pl.col(name).fill_null(OF_ALLOCATIONS[name])).alias(name)
            for name in there
        ),
    )
    return found.with_columns(
        *(
            pl.when(idle)
            .then(pl.lit(NOBODY))
            .when(unknown)
            .then(pl.lit(NOT_KNOWN))
            .otherwise(pl.col(name).fill_null(other))
            .alias(name)
            for name, other in {**stand_in, **projects}.items()
        ),
        day=pl.col("day").replace_strict(days, [utc_day(day * DAY_MS) for day in days], return_dtype=pl.String),
    ).drop("named_project")


def project_of(owners: Owners, user: str | None, account: str | None, allocated: str | None = None) -> str | None:
    """Return the project of GPUs: that of the user's owners line, else of the allocation, else the account."""
    line = owners.of(user, account)
    return (None if line is None else line.project) or allocated or account


def whose(
    owners: Owners, user: str | None, account: str | None, *, is_beside_others: bool = False
) -> tuple[str | None, str | None]:
    """Return team and organisation of one user.

    The user's own line decides for several accounts or another user's account.
    """
    may_be_another = is_beside_others or "+" in (account or "")
    if account is not None and may_be_another and owners.team(user, None) is not None:
        account = None
    return owners.team(user, account), owners.organisation(user, account)
