"""Two windows side by side, figure by figure and pool by pool."""

from __future__ import annotations

from analytics.language.language import SentenceList
from analytics.language.quantities import Amount, Moment, Number, Share
from analytics.language.sentences import tr
from analytics.report.compare import Compared, Comparison, Comparisons
from analytics.report.coverage import WHOLE_FROM
from analytics.tables.names import place_name
from analytics.tables.table import Cell, Column, Table

_NAMES = {
    "waste_money": tr("waste"),
    "paid_money": tr("paid"),
    "useful_money": tr("paid for active time and the used part of low"),
    "free_money": tr("cost of free time"),
    "reserved_money": tr("cost of reserved time"),
    "held_money": tr("cost of held time"),
    "unavailable_money": tr("cost of unavailable time"),
    "unused_share": tr("unused share"),
    "free_share": tr("free share"),
    "reserved_share": tr("reserved share"),
    "held_share": tr("held share"),
    "active_share": tr("useful share"),
    "efficiency": tr("efficiency"),
    "idle_gpus": tr("GPUs unused, mean"),
    "gpus": tr("GPUs"),
    "observed": tr("observed share"),
}
_NOT_COMPARED = tr("not compared")
_COLUMNS = (
    Column("now", tr("this window"), "number"),
    Column("before", tr("the other window"), "number"),
    Column("difference", tr("difference"), "number"),
    Column("change", tr("change"), "number"),
)


def comparison(found: Comparisons) -> Table:
    """A row for each key figure."""
    return Table(
        name="comparison",
        title=tr("Both windows, figure by figure"),
        question=tr("Are we better than then?"),
        headline=_headline(found),
        columns=(Column("figure", tr("figure"), "words"), *_COLUMNS),
        rows=tuple((_name(each, found.currency), *_cells(each)) for each in found.whole.rows(found.names)),
        notes=(_windows(found.whole), *_refusals(found.whole)),
        wide=True,
    )


def pool_comparison(found: Comparisons) -> Table | None:
    """Unused share and waste of each pool; None where there is one pool only."""
    if not found.pools:
        return None
    was = tr("the other window")
    return Table(
        name="pools_compared",
        title=tr("Both windows, pool by pool"),
        question=tr("Where did it change?"),
        headline=_most_changed(found),
        columns=(
            Column("pool", tr("pool"), "pool"),
            Column("unused_share", tr("unused"), "share"),
            Column("unused_share_before", was, "share"),
            Column("unused_share_change", tr("change"), "number"),
            Column("waste", tr("waste, {currency}", currency=found.currency), "money"),
            Column("waste_before", was, "money"),
            Column("waste_change", tr("change"), "number"),
            Column("observed", tr("observed"), "share"),
            Column("observed_before", was, "share"),
        ),
        rows=tuple((place_name(pool), *_pool_cells(own)) for pool, own in found.pools.items()),
        notes=(
            tr(
                "A pool of which less than {least} of either window was observed has no differences.",
                least=Share(WHOLE_FROM, 0),
            ),
        ),
        wide=True,
    )


def _pool_cells(own: Comparison) -> tuple[Cell, ...]:
    unused, waste, observed = own.rows(("unused_share", "waste_money", "observed"))
    both = ((_figure(each, each.now), _figure(each, each.before)) for each in (unused, waste, observed))
    (unused_now, unused_was), (waste_now, waste_was), seen = both
    return unused_now, unused_was, _change(unused), waste_now, waste_was, _change(waste), *seen


def _headline(found: Comparisons) -> str:
    """What waste and its share did; why not, where nothing can be said."""
    both = found.whole
    if not both.is_comparable:
        shares = (Share(side.seen.share) for side in (both.now, both.before))
        return tr(
            "No difference is given: it takes {least} of both windows observed, and it was {now} of this one and {before} of the other.",
            least=Share(WHOLE_FROM, 0), **dict(zip(("now", "before"), shares, strict=True)),
        )  # fmt: skip
    rows = {each.name: each for each in both.rows(found.names)}
    share, waste = rows["unused_share"], rows["waste_money"]
    said = [
        tr(
            "unused {now}, it was {before} ({change})",
            now=Share(share.now),
            before=Share(share.before),
            change=share.change.sentence,
        )
    ]
    if waste.change.sentence:
        said.append(
            tr(
                "waste cost {now}, it was {before} ({change})",
                now=Amount(waste.now, found.currency), before=Amount(waste.before, found.currency), change=waste.change.sentence,
            )
        )  # fmt: skip
    difference = share.difference or 0.0
    verdict = tr("Better") if difference < 0 else tr("Worse") if difference > 0 else tr("The same")
    return tr("{verdict}: {figures}.", verdict=verdict, figures=SentenceList(said, "; "))


def _windows(both: Comparison) -> str:
    return tr(
        "This window: {since} to {until}. The other: {other_since} to {other_until}.",
        since=Moment(both.now.seen.since_ms), until=Moment(both.now.seen.until_ms),
        other_since=Moment(both.before.seen.since_ms), other_until=Moment(both.before.seen.until_ms),
    )  # fmt: skip


def _refusals(both: Comparison) -> list[str]:
    if both.is_comparable and not both.is_as_long:
        return [tr("The windows are not as long as each other: sums have no difference, shares and means do.")]
    return []


def _most_changed(found: Comparisons) -> str:
    """The pools whose unused share fell and rose most."""
    changes = {
        pool: each
        for pool, own in found.pools.items()
        for each in own.rows(("unused_share",))
        if each.difference is not None
    }
    if not changes:
        return tr("No pool was observed well enough in both windows.")
    best, worst = (pick(changes, key=lambda pool: changes[pool].difference or 0.0) for pick in (min, max))
    said = [
        tr("{pool} {change}", pool=place_name(pool), change=changes[pool].change.sentence)
        for pool in dict.fromkeys((best, worst))
    ]
    return tr("Unused share: {pools}.", pools=SentenceList(said, ", "))


def _name(each: Compared, currency: str) -> str:
    name = _NAMES[each.name]
    return tr("{name} ({currency})", name=name, currency=currency) if each.unit == "money" else name


def _cells(each: Compared) -> tuple[Cell, ...]:
    relative = "" if each.unit == "share" or each.difference is None else each.change.sentence
    return _figure(each, each.now), _figure(each, each.before), _difference(each), relative


def _change(each: Compared) -> str:
    """In points or percent; what is not comparable is said."""
    return each.change.sentence if each.difference is not None else _NOT_COMPARED


def _figure(each: Compared, value: float | None) -> Cell:
    if value is None:
        return None
    return Share(value) if each.unit == "share" else Number(value, _digits(each))


def _difference(each: Compared) -> Cell:
    """Of shares in points; what is not comparable is said."""
    if each.difference is None:
        return _NOT_COMPARED
    if each.unit == "share":
        return each.change.sentence
    rounded = round(each.difference, _digits(each))
    sign = "+" if rounded > 0 else "\N{MINUS SIGN}" if rounded < 0 else "±"
    return tr("{sign}{share}", sign=sign, share=Number(abs(each.difference), _digits(each)))


def _digits(each: Compared) -> int:
    return {"money": 2, "gpus": 0 if each.name == "gpus" else 1}.get(each.unit, 1)
