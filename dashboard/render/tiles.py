"""The window in figures: what was useful, what was not, what that cost, and how each changed since the window before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dash import html

from analytics.glossary import STATES
from analytics.language.quantities import Moment, Number, Share
from analytics.language.sentences import tr
from analytics.report.compare import Change, Changes, changes
from analytics.report.coverage import WHOLE_FROM
from analytics.states import UNUSED
from analytics.tables.palette import Palette
from analytics.tables.point_samples import between, by_samples, is_sampled
from dashboard.view import View
from fallow.clock import HOUR_MS


@dataclass(frozen=True)
class _Tile:
    """A figure of `Changes`, what it is, and the better direction: 1 up, -1 down, 0 neither."""

    name: str
    label: str
    meaning: str
    good: int = -1


_TILES = (
    _Tile("active", tr("useful"), tr("active; low use is not counted"), 1),
    _Tile("unused", tr("unused"), tr("free, reserved or held")),
    *(_Tile(state, tr(state), STATES[state].meaning) for state in (*UNUSED[::-1], "unavailable")),
    _Tile("paid", tr("paid"), tr("for all GPU time, observed or not"), 0),
    _Tile(
        "observed",
        tr("observed"),
        tr("of the GPU time of the whole window, also of hosts that came later or fell silent"),
        1,
    ),
)
_LARGE = {"paid": "paid_money", "observed": "observed"}
"""The large figure of a tile, where it is not the state's share."""
_OF_NOBODY = ("free", "unavailable")
"""What an edition for people does not have: nobody is charged for it."""


def tiles(view: View, colours: Palette) -> html.Section:
    """The tiles, and below them what their figures are over and what they are compared with."""
    found = changes(view.whole, view.report)
    personal = view.report.scope.is_personal
    cards = [_card(view, colours, tile, found) for tile in _TILES if not (personal and tile.name in _OF_NOBODY)]
    return html.Section(
        [
            html.H2(view.translate(tr("The window in figures")), className="for-readers"),
            html.Dl(cards, className="tiles"),
            html.P(view.translate(compared_with(found)), className="note"),
        ]
    )


def compared_with(found: Changes) -> str:
    """What the figures are over, and against what they are held or why against nothing."""
    over = tr(
        "Each figure is over the whole window, {since} to {until}, not of an instant; shares are of the observed time.",
        since=Moment(found.seen.since_ms), until=Moment(found.seen.until_ms),
    )  # fmt: skip
    if found.is_comparable:
        against = tr("Changes are against the same length of time just before, from {since} on.",
                      since=Moment(found.seen_before.since_ms))  # fmt: skip
        return tr("{over} {against}", over=over, against=against)
    if not found.seen_before.observed_ms:
        why = tr("No change is given: nothing was observed in the same length of time just before.")
    else:
        why = tr(
            "No change is given: that takes {least} of both windows observed, and it was {now} of this one and {before} of the one before.",
            least=Share(WHOLE_FROM, 0), now=Share(found.seen.share), before=Share(found.seen_before.share),
        )  # fmt: skip
    return tr("{over} {against}", over=over, against=why)


def _card(view: View, colours: Palette, tile: _Tile, found: Changes) -> html.Div:
    change = found.figures[_LARGE.get(tile.name, f"{tile.name}_share")]
    colour, sampled = colours.state.get(tile.name), _left_open(view, tile)
    swatch = [html.Span(className=f"swatch {tile.name}", style={"background": colour})] if colour else []
    return html.Div(
        [
            html.Dt([*swatch, view.translate(tile.label)]),
            html.Dd([html.Span(_figure(view, change), className="figure"), *_change(view, change, tile.good)]),
            html.Dd(_below(view, tile, found), className="unit"),
            *([html.Dd(view.translate(sampled), className="meaning")] if sampled else []),
            html.Dd(view.translate(tile.meaning), className="meaning"),
        ],
        className="tile",
    )


def _left_open(view: View, tile: _Tile) -> str:
    """Between what a figure lies that point samples leave open; nothing where they do not."""
    totals = view.report.summary.totals
    if tile.name == "observed":
        return by_samples(view.report) if is_sampled(totals) else ""
    if tile.name == "unused" and totals.leaves_open:
        return tr("confirmed; {sampled}", sampled=between(view.report, totals.unused_bound))
    if totals.leaves_open and tile.name == "active":
        return between(view.report, totals.active_bound)
    is_open = totals.unconfirmed_ms.get(tile.name) or (tile.name == "held" and totals.leaves_open)
    return between(view.report, totals.bound(tile.name)) if is_open else ""


def _figure(view: View, change: Change) -> list[Any]:
    """Money without its cents, which the line below and the table of the waterfall have; its currency stands smaller."""
    if change.unit == "share":
        return [view.language.percent(change.now)]
    if change.now is None:
        return ["-"]
    return [view.language.number(change.now), html.Span(view.report.money.currency, className="of")]


def _change(view: View, change: Change, good: int) -> list[html.Span]:
    """An arrow says the direction, a colour beside it whether that is the better one."""
    said = view.translate(change.sentence) if change.sentence else ""
    if not said or change.difference is None:
        return []
    direction = (said[0] == "+") - (said[0] == "\N{MINUS SIGN}")
    kind = {0: "same", good: "better", -good: "worse"}[direction] if good else "same"
    return [html.Span(f"{'▼ ▲'[direction + 1]} {said}".strip(), className=f"change {kind}")]


def _below(view: View, tile: _Tile, found: Changes) -> list[html.Span]:
    """Money first, then the GPU-hours that it was paid for."""
    language, currency = view.language, view.report.money.currency
    money = found.figures.get(f"{tile.name}_money")
    amount = None if money is None else money.now
    hours = found.figures["total" if tile.name == "paid" else tile.name].now
    if tile.name == "observed":
        hours = found.seen.observed_ms / HOUR_MS
    lines = [view.translate(tr("{hours} GPU-hours", hours=Number(hours, 1)))]
    if amount is not None:
        lines.insert(0, language.money(amount, currency))
    elif tile.name == "paid":
        lines.append(view.translate(tr("no price is known")))
    return [html.Span(line) for line in lines]
