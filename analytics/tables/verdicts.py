"""The verdict of each pool: how many GPUs it can release, must reclaim or must order, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from analytics.capacity.peak_demand import MARGIN, Backtest
from analytics.glossary import term
from analytics.language.sentences import Date, Moment, Number, Sentence, SentenceList, Share, Span, plain, tr, tr_many
from analytics.tables.chart import Bars, Chart, ChartPlace, Panel
from analytics.tables.names import GPUS, MODEL, POOL, card_name, place_name
from analytics.tables.table import Column, Table, column, column_of, entries_column, fact, record_column, rows_column
from analytics.workloads.model import joined_by_and
from analytics.workloads.pool_demand import FleetDemand, PoolDemand, PoolVerdict, Release

_USERS_NAMED = 3
"""Most users with names."""


def pool_verdicts(found: FleetDemand | None) -> Table | None:
    """Return a row per pool and model; None for people, who have no pools."""
    if found is None:
        return None
    return Table(
        name="verdicts",
        title=tr("What each pool can release"),
        question=tr("How many GPUs can each pool release, and why does it keep the others?"),
        headline=release_sentence(found),
        columns=_columns({name for name in _WHERE_ANY if getattr(found, name)}),
        rows=found.pools,
        lines=(
            *(_which(pool, pool.release) for pool in found.pools if pool.release is not None and pool.release.now),
            *(
                tr_many(
                    "{pool}, {model}: {number} {GPU is|GPUs are} down, silent or removed; {its|their} past demand"
                    " counts.",
                    pool.missing,
                    pool=place_name(pool.pool),
                    model=card_name(pool.model),
                )
                for pool in found.pools
                if pool.missing
            ),
        ),
        chart=_chart(found) if found.is_known and found.free_now + found.reclaimable_now else None,
        notes=(
            tr(
                "Demand: busy GPUs, GPUs held idle, stalled or allocated but unused (except where a finding of at least"
                " medium confidence shows that they are reclaimable), and GPUs that queued jobs could have used."
            ),
            tr(
                "Kept: the peak demand of four weeks plus a reserve of {share}. Shortfall: hours of the last three"
                " weeks in which demand exceeded the number that the earlier estimate kept, while the pool had more"
                " GPUs.",
                share=Share(MARGIN, 0),
            ),
            tr("A release assumes that workloads can move to the remaining GPUs."),
        ),
        terms=(term("releasable"), term("reserve"), term("peak demand")),
    )


_UNCERTAIN = fact("uncertain", "count", about="GPUs that may be unallocated; each counts as demand.")
_MISSING = fact("missing", "count", about="GPUs out of order, silent or gone whose past demand counts.")


_WHERE_ANY = {
    "growth": tr("kept for growth"),
    "kept_for_hosts": tr("kept for whole hosts"),
    "snoozed": tr("snoozed"),
}


def _columns(kept: Collection[str]) -> tuple[Column, ...]:
    """Return the columns. Programs get all of them; people get the reasons in `kept` that apply to this fleet."""
    return (
        POOL,
        MODEL,
        GPUS,
        column("free_now", tr("unallocated now"), "count"),
        column("reclaimable_now", tr("reclaimable"), "count"),
        _UNCERTAIN,
        _MISSING,
        column("peak_demand", tr("peak demand"), "number", "peak.peak"),
        fact("highest_demand", "number", "peak.highest"),
        column("reserve", tr("kept for peak demand"), "count"),
        *(
            column(name, title, "count", audience="all" if name in kept else "programs")
            for name, title in _WHERE_ANY.items()
        ),
        column("releasable", tr("releasable"), "count"),
        column("shortfall", tr("shortfall"), "words", _shortfall, audience="people"),
        column("verdict", tr("verdict"), "words", verdict_words, "verdict.kind"),
        fact("verdict_gpus", "count", "verdict.gpus"),
        fact("order_by", "words", "verdict.order_by"),
        fact("order_low", "count", "verdict.orders.low"),
        fact("order_high", "count", "verdict.orders.high"),
        column_of(_grade, column("confidence", tr("confidence"), "words", tr, str, missing="")),
        fact("failed_conditions", "words", "confidence.failed", "array"),
        fact("next_week_low", "count", lambda pool: pool.next_week_left[0]),
        fact("next_week_high", "count", lambda pool: pool.next_week_left[1]),
        *tested_columns("backtest"),
        fact("release_now", "gpu", "release.now", "array"),
        entries_column(
            "stays_unused",
            fact("", "share"),
            lambda pool: {} if pool.release is None else pool.release.stays_unused,
            "By GPU the probability that it stays unused where it is for the horizon of findings.",
        ),
        entries_column(
            "release_now_by_host",
            fact("", "count"),
            lambda pool: {} if pool.release is None else {host: len(own) for host, own in pool.release.by_host.items()},
            "How many of them are on which host.",
        ),
        fact("whole_hosts", "host", "release.whole_hosts", "array"),
        entries_column("reclaim", fact("", "gpu", json_type="array"), _reclaim, "By user the GPUs to release first."),
        fact("history_days", "number"),
        fact("known_from", "moment", "known_from_ms"),
        rows_column(
            "what_if",
            (
                fact("reserve_share", "share", "margin"),
                fact("kept", "count"),
                fact("releasable", "count"),
                *tested_columns("tested"),
            ),
            "reserves",
            "The same with other reserves, and how earlier estimates with them held.",
        ),
    )


def _grade(pool: PoolDemand) -> str | None:
    """Return the confidence of the release; None if nothing is released."""
    return pool.confidence.grade if pool.releasable else None


def _reclaim(pool: PoolDemand) -> Mapping[str, tuple[str, ...]]:
    return {} if pool.release is None else pool.release.reclaim


def tested_columns(path: str) -> tuple[Column, ...]:
    """Return for programs the columns of the back-test at a path of the row."""
    return (
        fact("tested_hours", "count", f"{path}.hours"),
        fact("shortfall_hours", "count", f"{path}.shortfall_hours"),
        fact("shortfall_gpus", "count", f"{path}.shortfall_gpus"),
    )


def _shortfall(pool: PoolDemand) -> str:
    """Return the shortfall of the back-test; empty for a pool that releases nothing."""
    return shortfall_words(pool.backtest) if pool.releasable else ""


def shortfall_words(tested: Backtest | None) -> str:
    """Return a shortfall: `6 of 504 hours, at most 17 GPUs`."""
    if tested is None:
        return tr("not tested")
    hours = Number(tested.hours)
    if not tested.shortfall_hours:
        return tr("none in {hours} hours", hours=hours)
    return tr_many(
        "{short} of {hours} hours, at most {number} {GPU|GPUs}",
        tested.shortfall_gpus,
        short=Number(tested.shortfall_hours),
        hours=hours,
    )


def verdict_words(pool: PoolDemand) -> str:
    """Return the action for a pool, and the users from whom GPUs are reclaimed."""
    verdict = pool.verdict
    if verdict.kind == "unknown":
        return tr("not known: {reason}", reason=_unknown_reason(pool))
    if verdict.kind == "order":
        return _order_words(pool, verdict)
    if verdict.kind == "keep":
        return tr("keep")
    release = pool.release
    users = _reclaim(pool) or pool.reclaimable
    if verdict.kind == "reclaim":
        number = Number(verdict.gpus)
        if not _reclaim(pool):  # nothing is free, and the pool needs them itself
            return tr("reclaim {number} from {users} for other users", number=number, users=users_words(users))
        return tr("reclaim {number} from {users} first", number=number, users=users_words(users))
    now = tr("release {number} now", number=Number(verdict.gpus))
    if release is None or not release.reclaim:
        return now
    return tr("{now}, {later}", now=now, later=_later_words(len(release.later), list(release.reclaim)))


def _order_words(pool: PoolDemand, verdict: PoolVerdict) -> str:
    full, orders = pool.policy.full, verdict.orders
    number: Sentence | Number = Number(verdict.gpus)
    if orders is not None and orders.low < orders.high:
        number = tr("{number} ({low} to {high})", number=number, low=Number(orders.low), high=Number(orders.high))
    if verdict.order_by is None or full is None or full.likely is None:
        return tr("order {number}", number=number)
    if full.likely <= pool.policy.series.next_day:
        # the days since the last day to order would only repeat the lead time
        return tr("order {gpus} now: demand, with queued jobs, takes every GPU", gpus=number)
    late = pool.policy.days_late(full.likely)
    if late:
        return tr_many("order {gpus}: {number} {day|days} late", late, gpus=number)
    return tr("order {number} by {day}", number=number, day=Date(verdict.order_by))


def _unknown_reason(pool: PoolDemand) -> str:
    if pool.known_from_ms is not None:
        return tr("observed for less than a week, known from {moment}", moment=Moment(pool.known_from_ms))
    return SentenceList(list(pool.confidence.failed), "; ")


def users_words(users: Iterable[str]) -> str:
    """Return names of users: `ann, bob and 3 more`."""
    names = [plain(user) if user else tr("an unknown user") for user in users]
    if len(names) <= _USERS_NAMED:
        return joined_by_and(names)
    more = tr("{number} more", number=Number(len(names) - _USERS_NAMED + 1))
    return tr("{names} and {more}", names=SentenceList(names[: _USERS_NAMED - 1], ", "), more=more)


def _later_words(gpus: int, users: Sequence[str]) -> str:
    return tr("{number} more once released by {users}", number=Number(gpus), users=users_words(users))


def _where_seen(key: str) -> Column:
    return fact(key, "count", lambda found: getattr(found, key) if found.unseen_since_ms is None else None)


def _where_known(key: str) -> Column:
    return fact(key, "count", lambda found: getattr(found, key) if found.is_known else None)


POOL_DEMAND = record_column(
    "pool_demand",
    (
        *map(_where_seen, ("free_now", "reclaimable_now")),
        _UNCERTAIN,
        _MISSING,
        *(fact(key, "count") for key in ("demand_unknown", "reserve", "growth", "kept_for_hosts", "snoozed")),
        *map(_where_known, ("releasable", "release_now", "release_later")),
        fact("whole_hosts", "host", json_type="array"),
        rows_column("pools", _columns(_WHERE_ANY)),
    ),
    "fleet",
    "What each pool needs and can release at the end of the window, and its verdict. Null in an edition for people.",
)
"""Columns of the verdicts of `Recommendations`."""


def release_sentence(found: FleetDemand) -> str:
    """Return the headline of the verdicts.

    For example: `21 GPUs unallocated now, 6 reclaimable: 17 can be released now, 3 more once released by ann and bob;
    ...`.
    """
    if found.unseen_since_ms is not None:
        return tr(
            "Whether a GPU can be released is not known: nothing was observed after {moment}.",
            moment=Moment(found.unseen_since_ms),
        )
    there = tr_many("{number} {GPU|GPUs} unallocated now", found.free_now)
    if found.reclaimable_now:
        there = tr("{free}, {number} reclaimable", free=there, number=Number(found.reclaimable_now))
    if found.uncertain:
        there = tr("{there} ({number} more not confirmed)", there=there, number=Number(found.uncertain))
    if not found.free_now + found.reclaimable_now + found.uncertain:
        return tr("No GPU is unallocated now, and no finding shows a reclaimable GPU.")
    kept = [
        *([tr("{number} kept for peak demand", number=Number(found.reserve))] if found.reserve else []),
        *([tr("{number} kept for growth", number=Number(found.growth))] if found.growth else []),
        *([tr("{number} kept for whole hosts", number=Number(found.kept_for_hosts))] if found.kept_for_hosts else []),
        *([tr_many("{number} snoozed", found.snoozed)] if found.snoozed else []),
        *([_unknown(found)] if found.demand_unknown else []),
    ]
    if not found.is_known:
        return tr("{parts}.", parts=SentenceList([there, *kept], ", "))
    parts: list[str] = [tr_many("{number} {GPU|GPUs} can be released now", found.release_now)]
    if found.release_later:
        users = dict.fromkeys(user for pool in found.pools if pool.release is not None for user in pool.release.reclaim)
        parts.append(_later_words(found.release_later, list(users)))
    released: str = SentenceList(parts, ", ")
    if found.worst is not None and found.worst.shortfall_hours:
        released = tr(
            "{released} (shortfall of earlier estimates: {hours})",
            released=released,
            hours=shortfall_words(found.worst),
        )
    if not kept:
        return tr("{there}: {released}.", there=there, released=released)
    return tr("{there}: {released}; {kept}.", there=there, released=released, kept=SentenceList(kept, ", "))


def _unknown(found: FleetDemand) -> str:
    known = [pool.known_from_ms for pool in found.pools if pool.known_from_ms is not None and pool.free_now]
    number = Number(found.demand_unknown)
    if not known:
        return tr("{number} in pools whose demand is not known well enough", number=number)
    return tr("{number} in pools whose demand is known from {moment}", number=number, moment=Moment(min(known)))


def _which(pool: PoolDemand, release: Release) -> str:
    """Return the hosts of the GPUs, and the probability that the GPUs stay unused where they are."""
    hosts = SentenceList(
        [
            tr("{host} (whole)", host=plain(host))
            if host in release.whole_hosts
            else tr("{host} ({number})", host=plain(host), number=Number(len(gpus)))
            for host, gpus in release.by_host.items()
        ],
        ", ",
    )
    place = tr("{pool}, {model}: {hosts}", pool=place_name(pool.pool), model=card_name(pool.model), hosts=hosts)
    if release.expected_unused is None or release.horizon_ms is None:
        return place
    return tr(
        "{place}; if no workload moves, each GPU stays unused for {horizon} with a probability of {share}",
        place=place,
        share=Share(release.expected_unused, 0),
        horizon=Span(release.horizon_ms),
    )


def _chart(found: FleetDemand) -> Chart:
    """Return the chart: what is kept of the unused GPUs, down to the releasable ones."""
    left = found.free_now + found.reclaimable_now
    steps = [(ChartPlace(tr("unallocated or reclaimable"), figure=Number(left)), "muted", 0, left)]
    for label, number, state in (
        (tr("demand not known"), found.demand_unknown, "unknown"),
        (tr("kept for peak demand"), found.reserve, "reserved"),
        (tr("kept for growth"), found.growth, "active"),
        (tr("kept for whole hosts"), found.kept_for_hosts, "held"),
        (tr("snoozed"), found.snoozed, "low"),
        (tr("after users release them"), found.release_later, "reserved"),
    ):
        left -= number
        if number:
            steps.append((ChartPlace(label, figure=Number(number)), state, left, number))
    steps.append((ChartPlace(tr("can be released now"), figure=Number(left)), "free", 0, left))
    places, states, bases, lengths = zip(*steps, strict=True)
    return Chart((Panel("", (Bars("", states, lengths, bases),), places, unit=tr("GPUs"), lying=True),))
