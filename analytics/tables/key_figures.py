"""The key figures: what was wasted, what the decisions save, where the GPU time went, and how each changed since the window before.

Documents and pages choose theirs by key, as tiles or as lines of a mail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from analytics.decide.recommendations import Recommendations
from analytics.glossary import STATES
from analytics.language.quantities import Amount, GpuHours, Moment, Number, Share, from_cents
from analytics.language.sentences import tr, tr_many
from analytics.ledger.summary import Totals, ratio
from analytics.report.compare import Change, Changes
from analytics.report.coverage import WHOLE_FROM, Seen
from analytics.report.parts import LedgerFigures
from analytics.report.report import Report
from analytics.states import UNUSED
from analytics.tables.finding_heading import at_most
from analytics.tables.point_samples import between, by_samples, is_sampled, open_between, useful_share
from analytics.tables.recommendations import a_year
from analytics.tables.table import Cell
from fallow.clock import HOUR_MS


@dataclass(frozen=True)
class KeyFigure:
    """One large figure.

    Attributes:
        key: its name; also of the state whose colour it has, unless `state` is another one.
        label: what it is.
        figure: the figure. A currency `unit` stands smaller behind it.
        lines: what stands below it: money, GPU-hours, what it is a part of.
        open_between: between what it lies where point samples leave it open; else empty.
        meaning: what counts.
        change: the figure beside that of the window before; None where documents have none.
        good: the better direction of a change: 1 up, -1 down, 0 neither.
    """

    key: str
    label: str
    figure: Cell
    lines: tuple[str | Amount, ...]
    state: str = ""
    unit: str = ""
    open_between: str = ""
    meaning: str = ""
    change: Change | None = None
    good: int = 0


DECISION_FIGURES = ("wasted", "saving", "releasable", "working")
"""What reports and mails begin with."""
WINDOW_FIGURES = ("active", "unused", *UNUSED[::-1], "unavailable", "paid", "observed")
"""The tiles of a page, in their order."""
_CHARGED_TO_NO_USER = ("free", "unavailable")
"""What a report for people leaves out: no user is charged for it."""


def key_figures(report: Report, keys: Iterable[str]) -> tuple[KeyFigure, ...]:
    """Return the figures of these keys that the scope has."""
    shown = (key for key in keys if not (report.scope.is_personal and key in _CHARGED_TO_NO_USER))
    return tuple(_MADE_BY[key](report) for key in shown)


def compared_with(found: Changes) -> str:
    """What the figures are over, and against what they are held or why against nothing."""
    over = tr(
        "Each figure is over the whole window, {since} to {until}, not of an instant; shares are of the observed time.",
        since=Moment(found.seen.since_ms),
        until=Moment(found.seen.until_ms),
    )
    if found.is_comparable:
        against = tr(
            "Changes are against the same length of time just before, from {since} on.",
            since=Moment(found.seen_before.since_ms),
        )
    elif not found.seen_before.observed_ms:
        against = tr("No change is given: nothing was observed in the same length of time just before.")
    else:
        against = tr(
            "No change is given: that takes {least} of both windows observed, and it was {now} of this one and {before} of the one before.",
            least=Share(WHOLE_FROM, 0),
            now=Share(found.seen.share),
            before=Share(found.seen_before.share),
        )
    return tr("{over} {against}", over=over, against=against)


def _wasted(ledger: LedgerFigures, found: Recommendations) -> KeyFigure:
    """With its share of what was paid, its time, and what of it is apart: of low time, and by point samples alone."""
    spent, account, currency = found.waste, ledger.money.accounts.total, ledger.money.currency
    unsure = spent.open_cents / spent.cents if spent.open_cents and spent.cents else 0.0
    figure = at_most(unsure, Amount(from_cents(spent.cents), currency))
    lines = [tr("{hours} GPU-hours", hours=GpuHours(spent.gpu_ms))]
    paid, state_cents = account.paid_cents, spent.state_cents
    if paid is None or spent.cents is None or state_cents is None:
        lines.append(tr("no price is known"))
        return KeyFigure("wasted", tr("Wasted"), figure, tuple(lines), "held")
    share, low = Share(ratio(spent.cents, paid)), Amount(from_cents(state_cents["low"]), currency)
    lines.insert(0, tr("{share} of {paid} paid", share=share, paid=Amount(from_cents(paid), currency)))
    lines.append(tr("{amount} of it the unused part of low time", amount=low))
    if spent.open_cents:
        open_amount = Amount(from_cents(spent.open_cents), currency)
        lines.append(tr("{amount} of it not confirmed: sampled", amount=open_amount))
    if spent.unpriced_ms:
        lines.append(tr("{hours} of these GPU-hours have no price", hours=GpuHours(spent.unpriced_ms)))
    return KeyFigure("wasted", tr("Wasted"), figure, tuple(lines), "held")


def _saving(ledger: LedgerFigures, found: Recommendations) -> KeyFigure:
    saving, label, unsure = found.saving, tr("Worth a year"), len(found.to_look_at)
    if saving is None:
        look = tr_many("{number} more thing to look at", "{number} more things to look at", unsure)
        lines = tr("no decision is known to save something"), look
        return KeyFigure("saving", label, None, lines, "reserved")
    bounds = tr("between {low} and {high}", low=round(saving.low), high=round(saving.high))
    currency, parts = ledger.money.currency, list[str]()
    if found.given_back is not None:
        parts.append(tr("{amount} is what the GPUs to give back cost", amount=a_year(found.given_back.point, currency)))
    if found.freed is not None:
        parts.append(tr("{amount} of GPU time for others", amount=a_year(found.freed.point, currency)))
    if found.at_list_price:
        parts.append(tr("public list prices count in it"))
    return KeyFigure("saving", label, a_year(saving.point, currency), (bounds, *parts), "reserved")


def _releasable(ledger: LedgerFigures, found: Recommendations) -> KeyFigure:
    """What is safe to give back; of people, who give no pool's GPUs back, what the decisions are about now."""
    given, until = found.reclaimable, _known_until(ledger.seen)
    if given is None:
        gpus = {gpu for each in found.ranked for gpu in each.gpus_now}
        return KeyFigure("releasable", tr("To act on now"), Number(len(gpus)), (tr("GPUs"), until), "free")
    label = tr("Safe to give back now")
    if given.unseen_since_ms is not None:
        return KeyFigure("releasable", label, None, (until,), "free")
    idle = tr_many("of {number} GPU idle", "of {number} GPUs idle", given.idle_now)
    if given.idle_now and not given.is_known:
        lines = idle, tr("the history is too short to know"), until
        return KeyFigure("releasable", label, None, lines, "free")
    safe = tr_many("{number} GPU", "{number} GPUs", given.safe)
    return KeyFigure("releasable", label, safe, (idle, until), "free")


def _known_until(seen: Seen) -> str:
    if seen.last_ms is None or seen.to_the_end:
        return tr("at the end of the window")
    return tr("at {moment}, the last that was seen", moment=Moment(seen.last_ms))


def _working(ledger: LedgerFigures) -> KeyFigure:
    totals, account = ledger.summary.totals, ledger.money.accounts.total
    worked, low = GpuHours(totals.state_ms["active"]), GpuHours(totals.state_ms["low"])
    lines = [tr("{hours} GPU-hours active, {low} at low use", hours=worked, low=low)]
    if account.efficiency is not None:
        efficiency = Share(account.efficiency)
        at_least = tr("{share} or more", share=efficiency) if account.leaves_open else efficiency
        lines.append(tr("efficiency: {share} of the allocated time", share=at_least))
    return KeyFigure("working", tr("Working"), useful_share(ledger.summary), tuple(lines), "active")


_LABELS = {"active": tr("useful"), "unused": tr("unused"), "paid": tr("paid"), "observed": tr("observed")}
_MEANINGS = {
    "active": tr("active; low use is not counted"),
    "unused": tr("free, reserved or held"),
    "paid": tr("for all GPU time, observed or not"),
    "observed": tr("of the GPU time of the whole window, also of hosts that came later or fell silent"),
}
_GOOD = {"active": 1, "observed": 1, "paid": 0}


def _of_window(key: str, ledger: LedgerFigures, found: Changes) -> KeyFigure:
    """A state's share, what was paid or what was observed, with its money and its GPU-hours below."""
    currency, is_paid = ledger.money.currency, key == "paid"
    change = found.figures["paid_money" if is_paid else key if key == "observed" else f"{key}_share"]
    amount = paid.now if (paid := found.figures.get(f"{key}_money")) is not None else None
    hours = found.seen.observed_ms / HOUR_MS if key == "observed" else found.figures["total" if is_paid else key].now
    lines: list[str | Amount] = [tr("{hours} GPU-hours", hours=Number(hours, 1))]
    if amount is not None:
        lines.insert(0, Amount(amount, currency))
    elif is_paid:
        lines.append(tr("no price is known"))
    return KeyFigure(
        key,
        _LABELS.get(key) or tr(key),
        (None if change.now is None else Number(change.now)) if is_paid else Share(change.now),
        tuple(lines),
        unit=currency if is_paid and change.now is not None else "",
        open_between=_open_between(key, ledger, ledger.summary.totals),
        meaning=_MEANINGS.get(key) or STATES[key].meaning,
        change=change,
        good=_GOOD.get(key, -1),
    )


def _open_between(key: str, ledger: LedgerFigures, totals: Totals) -> str:
    """Between what a figure lies that point samples leave open; nothing where they do not."""
    if key == "observed":
        return by_samples(ledger.summary) if is_sampled(totals) else ""
    if key == "unused" and totals.leaves_open:
        return tr("confirmed; {sampled}", sampled=between(ledger.summary, totals.unused_bound))
    return open_between(ledger.summary, key)


def _window_figure(key: str, report: Report) -> KeyFigure:
    return _of_window(key, report.ledger, report.changes)


_MADE_BY: Mapping[str, Callable[[Report], KeyFigure]] = {
    "wasted": lambda report: _wasted(report.ledger, report.recommendations),
    "saving": lambda report: _saving(report.ledger, report.recommendations),
    "releasable": lambda report: _releasable(report.ledger, report.recommendations),
    "working": lambda report: _working(report.ledger),
    **{key: partial(_window_figure, key) for key in WINDOW_FIGURES},
}
