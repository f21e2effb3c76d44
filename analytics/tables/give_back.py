"""One number for what can be given back, and how it comes about."""

from __future__ import annotations

from analytics.glossary import term
from analytics.language.language import SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import Moment, Number
from analytics.language.sentences import tr, tr_many
from analytics.tables.chart import Bars, Chart, ChartPlace, Panel
from analytics.tables.names import GPUS, MODEL, POOL, place_name
from analytics.tables.table import Column, Table, column, entries_column, fact, rows_column
from analytics.workloads.reclaimable import PoolReclaimable, Reclaimable


def give_back(found: Reclaimable | None) -> Table | None:
    """From idle now to safe to give back, in all and by pool and model; None for people, who have no pools."""
    if found is None:
        return None
    return Table(
        name="give_back",
        title=tr("What can be given back"),
        question=tr("How many GPUs can go, which, and what is kept back why?"),
        headline=give_back_sentence(found),
        columns=_columns(on_request=bool(found.put_off)),
        rows=found.pools,
        lines=(
            *(_which(each) for each in found.pools if each.safe),
            *(_missing(each) for each in found.pools if each.missing),
        ),
        chart=_chart(found) if found.idle_now and found.is_known else None,
        notes=(
            tr(
                "Reserve: what the pool needed at once, with a margin of 15 %, stays. Whole hosts: as many stay as jobs had wholly at work at once."
            ),
            tr(
                "Short: in how many hours of the last week more GPUs were needed than the estimate of a week earlier would have kept."
            ),
        ),
        terms=(term("reclaimable"), term("reserve")),
    )


_UNCONFIRMED = fact("unconfirmed", "count", about="GPUs that only point samples call idle; each counts as needed.")
_MISSING = fact("missing", "count", about="GPUs out of order, silent or gone whose past need counts.")


def _columns(*, on_request: bool) -> tuple[Column, ...]:
    """Programs read the same of every pool; people only what is kept on request where anything is."""

    def known(key: str, title: str) -> Column:
        return column(key, title, "count", lambda pool: Number(getattr(pool, key)))

    return (
        POOL,
        MODEL,
        GPUS,
        column("idle_now", tr("idle now"), "count"),
        _UNCONFIRMED,
        _MISSING,
        known("reserve", tr("reserve")),
        known("broken_blocks", tr("for blocks")),
        column("put_off", tr("on request"), "count", audience="all" if on_request else "programs"),
        known("safe", tr("safe")),
        known("whole_nodes", tr("whole hosts")),
        column("short", tr("short"), "words", _short, audience="people"),
        fact("next_week_low", "count", "low"),
        fact("next_week_high", "count", "high"),
        fact("safe_gpus", "gpu", json_type="array"),
        entries_column("safe_by_host", fact("", "count"), about="How many of them are on which host."),
        fact("whole_hosts", "host", json_type="array"),
        fact("history_days", "number"),
        fact("known_from", "moment", "known_from_ms"),
        rows_column(
            "what_if",
            (
                fact("reserve_share", "share", "margin"),
                fact("kept", "count"),
                fact("safe", "count"),
                fact("short_hours_last_week", "count", "short_hours"),
                fact("hours_last_week", "count", "hours"),
                fact("short_gpus_last_week", "count", "short_gpus"),
            ),
            "reserves",
            "The same with other reserves, and how short they would have been last week.",
        ),
    )


def _short(pool: PoolReclaimable) -> str:
    reserve = pool.default
    if reserve is None or reserve.hours is None:
        return tr("not known")
    return tr("{short} of {hours} h", short=Number(reserve.short_hours), hours=reserve.hours)


def _where_known(key: str) -> Column:
    return fact(key, "count", lambda found: getattr(found, key) if found.is_known else None)


RECLAIMABLE_COLUMNS = (
    fact("idle_now", "count", lambda found: found.idle_now if found.unseen_since_ms is None else None),
    _UNCONFIRMED,
    _MISSING,
    *(fact(key, "count") for key in ("need_unknown", "reserve", "broken_blocks")),
    fact("put_off", "count", about="GPUs left where they are because a finding about them is suppressed."),
    *map(_where_known, ("safe", "whole_nodes")),
    rows_column("pools", _columns(on_request=True)),
)
"""Of `Reclaimable`."""


def give_back_sentence(found: Reclaimable) -> str:
    """`21 idle, 4 kept as reserve: 17 safe to give back, 9 of them as whole hosts`."""
    if found.unseen_since_ms is not None:
        return tr(
            "Whether a GPU can be given back is not known: nothing was seen after {moment}.",
            moment=Moment(found.unseen_since_ms),
        )
    idle = tr_many("{number} GPU idle now", "{number} GPUs idle now", found.idle_now)
    if found.unconfirmed:
        more = tr("{number} more not confirmed to be idle", number=found.unconfirmed)
        idle = tr("{idle} ({more})", idle=idle, more=more)
    if not found.idle_now and not found.unconfirmed:
        return tr("No GPU is idle now.")
    kept = [
        *([tr("{number} kept as reserve", number=found.reserve)] if found.reserve else []),
        *([tr("{number} kept for whole hosts", number=found.broken_blocks)] if found.broken_blocks else []),
        *([tr("{number} kept on request", number=found.put_off)] if found.put_off else []),
        *([_unknown(found)] if found.need_unknown else []),
    ]
    if not found.is_known:
        return tr("{parts}.", parts=SentenceList([idle, *kept], ", "))
    safe = tr("{number} safe to give back", number=found.safe)
    parts = SentenceList([idle, *kept], ", ")
    if found.whole_nodes:
        return tr("{parts}: {safe}, {whole} of them as whole hosts.", parts=parts, safe=safe, whole=found.whole_nodes)
    return tr("{parts}: {safe}.", parts=parts, safe=safe)


def _unknown(found: Reclaimable) -> str:
    known = [each.known_from_ms for each in found.pools if each.known_from_ms is not None and each.idle_now]
    number = Number(found.need_unknown)
    return tr("{number} in pools whose need is known from {moment} on", number=number, moment=Moment(min(known)))


def _which(each: PoolReclaimable) -> str:
    """On which hosts the safe ones of a pool are, and what next week leaves of them."""
    hosts = SentenceList(
        [
            tr("{host} (whole)", host=plain(host))
            if host in each.whole_hosts
            else tr("{host} ({number})", host=plain(host), number=number)
            for host, number in each.safe_by_host.items()
        ],
        ", ",
    )
    return tr("{pool}, {model}: {hosts}", pool=place_name(each.pool), model=place_name(each.model), hosts=hosts)


def _missing(each: PoolReclaimable) -> str:
    return tr_many(
        "{pool}, {model}: {number} GPU is out of order, silent or gone; what it was needed for counts.",
        "{pool}, {model}: {number} GPUs are out of order, silent or gone; what they were needed for counts.",
        each.missing,
        pool=place_name(each.pool),
        model=place_name(each.model),
    )


def _chart(found: Reclaimable) -> Chart:
    """What is kept of the GPUs that are idle now, until those are left that are safe to give back."""
    left = found.idle_now
    steps = [(ChartPlace(tr("idle now"), figure=Number(left)), "muted", 0, left)]
    for label, number, state in (
        (tr("need not known"), found.need_unknown, "unknown"),
        (tr("kept as reserve"), found.reserve, "reserved"),
        (tr("kept for whole hosts"), found.broken_blocks, "held"),
        (tr("kept on request"), found.put_off, "low"),
    ):
        left -= number
        if number:
            steps.append((ChartPlace(label, figure=Number(number)), state, left, number))
    steps.append((ChartPlace(tr("safe"), note=tr("to give back"), figure=Number(left)), "free", 0, left))
    places, states, bases, lengths = zip(*steps, strict=True)
    return Chart((Panel("", (Bars("", states, lengths, bases),), places, unit=tr("GPUs"), lying=True),))
