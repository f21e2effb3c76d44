"""Two windows side by side, by figure and by pool."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from analytics.language.sentences import Amount, Moment, Number, SentenceList, Share, tr
from analytics.report.compare import FIGURES, Compared, Comparisons
from analytics.report.coverage import WHOLE_FROM
from analytics.tables.ledger_columns import SCOPE_COLUMNS, WINDOW_COLUMNS
from analytics.tables.names import place_name
from analytics.tables.table import Cell, Table, column, column_of, entries_column, fact, flag, record_column

_NOT_COMPARED = tr("not compared")


def comparison(found: Comparisons) -> Table:
    """Return a row per key figure."""
    now, before = found.whole.now.seen, found.whole.before.seen
    in_length = tr("The windows differ in length, so sums have no difference. Shares and means do.")
    return Table(
        name="comparison",
        title=tr("Both windows by figure"),
        question=tr("Did the waste fall or rise between the two windows?"),
        headline=_headline(found),
        columns=(
            column("figure", tr("figure"), "words", lambda each: _name(each, found.currency), "name"),
            *FIGURE_COLUMNS,
        ),
        rows=tuple(found.whole.figures.values()),
        notes=(
            tr(
                "This window: {since} to {until}. The other: {other_since} to {other_until}.",
                since=Moment(now.since_ms),
                until=Moment(now.until_ms),
                other_since=Moment(before.since_ms),
                other_until=Moment(before.until_ms),
            ),
            *((in_length,) if found.whole.is_comparable and not found.whole.is_as_long else ()),
        ),
        wide=True,
    )


def pool_comparison(found: Comparisons) -> Table | None:
    """Return the unused share and the waste of each pool; None if there is only one pool."""
    if not found.pools:
        return None
    compared = ("unused_share", "waste_money", "observed")
    figures = {pool: {each.name: each for each in own.rows(compared)} for pool, own in found.pools.items()}

    def of(name: str, read: Callable[[Compared], object]) -> Callable[[str], object]:
        return lambda pool: read(figures[pool][name])

    was, change, difference = tr("the other window"), tr("change"), attrgetter("difference")
    waste_was = tr("{part}, {currency}", part=was, currency=found.currency)
    return Table(
        name="pools_compared",
        title=tr("Both windows by pool"),
        question=tr("In which pools did the waste change?"),
        headline=_most_changed(found),
        columns=(
            column("pool", tr("pool"), "pool", place_name, str),
            column("unused_share", tr("unused"), "share", of("unused_share", _now)),
            column("unused_share_before", was, "share", of("unused_share", _before)),
            column(
                "unused_share_change", change, "number", of("unused_share", _change), of("unused_share", difference)
            ),
            column("waste", tr("waste, {currency}", currency=found.currency), "money", of("waste_money", _now)),
            column("waste_before", waste_was, "money", of("waste_money", _before)),
            column("waste_change", change, "number", of("waste_money", _change), of("waste_money", difference)),
            column("observed_share", tr("observed"), "share", of("observed", _now)),
            column("observed_share_before", was, "share", of("observed", _before)),
        ),
        rows=tuple(found.pools),
        notes=(
            tr(
                "A pool has no differences unless at least {least} of both windows was observed.",
                least=Share(WHOLE_FROM, 0),
            ),
        ),
        wide=True,
    )


def _headline(found: Comparisons) -> str:
    """Return the change of the waste and its share, or why there is none."""
    both = found.whole
    if not both.is_comparable:
        return tr(
            "No difference is shown: both windows need {least} observed. This window has {now}, the other {before}.",
            least=Share(WHOLE_FROM, 0),
            now=Share(both.now.seen.share),
            before=Share(both.before.seen.share),
        )
    rows = both.figures
    share, waste = rows["unused_share"], rows["waste_money"]
    figures = [
        tr(
            "unused time is {now}, from {before} ({change})",
            now=Share(share.now),
            before=Share(share.before),
            change=share.change.sentence,
        )
    ]
    if waste.change.sentence:
        figures.append(
            tr(
                "waste costs {now}, from {before} ({change})",
                now=Amount(waste.now, found.currency),
                before=Amount(waste.before, found.currency),
                change=waste.change.sentence,
            )
        )
    difference = share.difference or 0.0
    verdict = tr("Better") if difference < 0 else tr("Worse") if difference > 0 else tr("The same")
    return tr("{verdict}: {figures}.", verdict=verdict, figures=SentenceList(figures, "; "))


def _most_changed(found: Comparisons) -> str:
    """Return the pools whose unused share fell and rose the most."""
    changes = {
        pool: each
        for pool, own in found.pools.items()
        for each in own.rows(("unused_share",))
        if each.difference is not None
    }
    if not changes:
        return tr("No pool was observed enough in both windows to compare.")
    best, worst = (pick(changes, key=lambda pool: changes[pool].difference or 0.0) for pick in (min, max))
    figures = [
        tr("{pool} {change}", pool=place_name(pool), change=changes[pool].change.sentence)
        for pool in dict.fromkeys((best, worst))
    ]
    return tr("Unused share: {pools}.", pools=SentenceList(figures, ", "))


def _name(each: Compared, currency: str) -> str:
    name = FIGURES[each.name]
    return tr("{name} ({currency})", name=name, currency=currency) if each.unit == "money" else name


def _change(each: Compared) -> str:
    """Return a change in points or percent, or why there is none."""
    return each.change.sentence if each.difference is not None else _NOT_COMPARED


def _figure(each: Compared, value: float | None) -> Cell:
    if value is None:
        return None
    return Share(value) if each.unit == "share" else Number(value, _digits(each))


def _now(each: Compared) -> Cell:
    return _figure(each, each.now)


def _before(each: Compared) -> Cell:
    return _figure(each, each.before)


def _difference(each: Compared) -> Cell:
    """Return a difference, of shares in points, or why there is none."""
    if each.difference is None:
        return _NOT_COMPARED
    if each.unit == "share":
        return each.change.sentence
    rounded = round(each.difference, _digits(each))
    sign = "+" if rounded > 0 else "\N{MINUS SIGN}" if rounded < 0 else "±"
    return tr("{sign}{share}", sign=sign, share=Number(abs(each.difference), _digits(each)))


def _digits(each: Compared) -> int:
    return {"money": 2, "gpus": 0 if each.name == "gpus" else 1}.get(each.unit, 1)


FIGURE_COLUMNS = (
    fact("unit", "words"),
    column("now", tr("this window"), "number", _now),
    column("before", tr("the other window"), "number", _before),
    column(
        "difference",
        tr("difference"),
        "number",
        _difference,
        lambda each: None if each.difference is None else round(each.difference, 9),
    ),
    column(
        "relative",
        tr("change"),
        "number",
        lambda each: "" if each.unit == "share" or each.difference is None else each.change.sentence,
        lambda each: None if each.unit == "share" else each.change.difference,
    ),
)
"""Columns of a `Compared`. Programs get no difference where the comparison is refused."""

_SIDE = (*(column_of("seen", each) for each in WINDOW_COLUMNS), fact("observed_share", "share", "seen.share"))
_COMPARISON = (
    flag("comparable", "is_comparable"),
    record_column("now", _SIDE),
    record_column("before", _SIDE),
    entries_column("figures", record_column("", FIGURE_COLUMNS)),
)
COMPARISON_COLUMNS = (
    fact("currency", "words", nullable=False),
    record_column("scope", SCOPE_COLUMNS),
    *(column_of("whole", each) for each in _COMPARISON),
    entries_column("pools", record_column("", _COMPARISON)),
)
"""Columns of `Comparisons`, for `fallow report --compare --format json`."""
