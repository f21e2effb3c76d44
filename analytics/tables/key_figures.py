"""Key figures: waste, the value of the recommendations, GPU time by state, and changes since the window before.

Documents and pages choose figures by key and show them as tiles or as lines of a mail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from analytics.decide.recommendations import Recommendations
from analytics.glossary import STATES, state_label
from analytics.language.sentences import Amount, GpuHours, Moment, Number, Share, from_cents, tr, tr_many
from analytics.ledger.summary import Summary, ratio
from analytics.proportions import Estimate
from analytics.report.compare import Change, Changes
from analytics.report.coverage import WHOLE_FROM, Seen
from analytics.report.parts import LedgerFigures
from analytics.report.report import Report
from analytics.states import UNUSED
from analytics.tables.basis import at_most
from analytics.tables.card_use import peak_share
from analytics.tables.people import efficiency
from analytics.tables.point_samples import between, busy_share, by_samples, is_sampled, open_between
from analytics.tables.table import Cell
from analytics.tables.value import a_year, list_price_words
from analytics.tables.verdicts import shortfall_words
from fallow.clock import HOUR_MS


@dataclass(frozen=True)
class KeyFigure:
    """One large figure.

    Attributes:
        key: its name, and the state whose colour it has, unless `state` names another.
        label: the words above it.
        figure: the value. A currency `unit` stands smaller behind it.
        lines: lines below it: money, GPU-hours, the whole that it is a part of.
        open_between: the bounds of the value where it is only sampled; else empty.
        meaning: what counts.
        change: the change since the window before; None where documents have none.
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


DECISION_FIGURES = ("wasted", "freed", "cash", "releasable", "working")
"""First figures of reports and mails."""
WINDOW_FIGURES = ("active", "unused", *UNUSED[::-1], "unavailable", "paid", "observed")
"""Tiles of a page, in their order."""
_CHARGED_TO_NO_USER = ("free", "unavailable")
"""Figures that a report for people leaves out: users do not pay for this time."""


def key_figures(report: Report, keys: Iterable[str]) -> tuple[KeyFigure, ...]:
    """Return the figures of these keys that the scope has."""
    shown = (key for key in keys if not (report.scope.is_personal and key in _CHARGED_TO_NO_USER))
    return tuple(_FIGURES[key](report) for key in shown)


def compared_with(found: Changes) -> str:
    """Return the window of the figures, and the window that they are compared with or why there is none."""
    over = tr(
        "Figures cover the whole window, {since} to {until}. Shares refer to the observed time.",
        since=Moment(found.seen.since_ms),
        until=Moment(found.seen.until_ms),
    )
    if found.is_comparable:
        against = tr(
            "Changes compare with the same length of time just before, from {since}.",
            since=Moment(found.seen_before.since_ms),
        )
    elif not found.seen_before.observed_ms:
        against = tr("No change is shown, because nothing was observed in the same length of time just before.")
    else:
        against = tr(
            "No change is shown: both windows need {least} observed. This window has {now}, the one before {before}.",
            least=Share(WHOLE_FROM, 0),
            now=Share(found.seen.share),
            before=Share(found.seen_before.share),
        )
    return tr("{over} {against}", over=over, against=against)


def _wasted(ledger: LedgerFigures, found: Recommendations) -> KeyFigure:
    """Return the cost of the waste, its share of the amount paid, its time, and its low-use and unconfirmed parts."""
    spent, account, currency = found.waste, ledger.money.accounts.total, ledger.money.currency
    unsure = spent.open_cents / spent.cents if spent.open_cents and spent.cents else 0.0
    figure = at_most(unsure, Amount(from_cents(spent.cents), currency))
    lines = [tr("{hours} GPU-hours", hours=GpuHours(spent.gpu_ms))]
    paid, state_cents = account.paid_cents, spent.state_cents
    if paid is None or spent.cents is None or state_cents is None:
        lines.append(tr("no price is known"))
    else:
        share, low = Share(ratio(spent.cents, paid)), Amount(from_cents(state_cents["low"]), currency)
        lines.insert(0, tr("{share} of {paid} paid", share=share, paid=Amount(from_cents(paid), currency)))
        lines.append(tr("including {amount} for the unused part of low use", amount=low))
        if spent.open_cents:
            open_amount = Amount(from_cents(spent.open_cents), currency)
            lines.append(tr("including {amount} that is only sampled, not confirmed", amount=open_amount))
        if spent.unpriced_ms:
            lines.append(tr("{hours} of these GPU-hours have no price", hours=GpuHours(spent.unpriced_ms)))
    return KeyFigure("wasted", tr("Wasted"), figure, tuple(lines), "held")


def _freed(found: Recommendations) -> KeyFigure:
    """Return the freed GPU time at its price."""
    value, label, unsure = found.value, tr("GPU time per year"), len(found.to_look_at)
    if value is None or value.freed is None:
        look = tr_many("{number} {recommendation has|recommendations have} no known value", unsure)
        lines = tr("no recommendation frees a known amount of GPU time"), look
        return KeyFigure("freed", label, None, lines, "reserved")
    hours = tr("{hours} GPU-hours", hours=GpuHours(value.gpu_hours.point * HOUR_MS))
    listed = (list_price_words(value),) if value.list_price_share else ()
    lines = _between(value.freed), hours, *listed
    return KeyFigure("freed", label, a_year(value.freed.point, found.waste.currency), lines, "reserved")


def _cash(found: Recommendations) -> KeyFigure:
    """Return the spending that ends. Freed GPU time is not part of it."""
    value, label = found.value, tr("Cash saved per year")
    if value is None or value.cash is None:
        why = tr("no recommendation frees a known amount of GPU time") if value is None else value.cash_unknown
        return KeyFigure("cash", label, None, (why,), "reserved")
    lines = _between(value.cash), tr("not added to the GPU time")
    return KeyFigure("cash", label, a_year(value.cash.point, found.waste.currency), lines, "reserved")


def _between(each: Estimate) -> str:
    return tr("between {low} and {high}", low=round(each.low), high=round(each.high))


def _releasable(ledger: LedgerFigures, found: Recommendations) -> KeyFigure:
    """Return the GPUs that pools can release now, and the back-test.

    People have no pools and get the GPUs to act on now.
    """
    fleet, until = found.fleet, _known_until(ledger.seen)
    if fleet is None:
        gpus = {gpu for each in found.ranked for gpu in each.gpus_now}
        return KeyFigure("releasable", tr("GPUs to act on now"), Number(len(gpus)), (tr("GPUs"), until), "free")
    label = tr("Releasable now")
    if fleet.unseen_since_ms is not None:
        return KeyFigure("releasable", label, None, (until,), "free")
    free = tr_many("of {number} unallocated {GPU|GPUs}", fleet.free_now)
    if fleet.free_now and not fleet.is_known:
        return KeyFigure("releasable", label, None, (free, tr("the demand is not known well enough"), until), "free")
    lines: list[str] = [free]
    if fleet.release_later:
        lines.append(tr("{number} more after users release them", number=Number(fleet.release_later)))
    if fleet.worst is not None:
        lines.append(tr("shortfall: {hours}", hours=shortfall_words(fleet.worst)))
    gpus_now = tr_many("{number} {GPU|GPUs}", fleet.release_now)
    return KeyFigure("releasable", label, gpus_now, (*lines, until), "free")


def _known_until(seen: Seen) -> str:
    if seen.last_ms is None or seen.to_the_end:
        return tr("at the end of the window")
    return tr("at {moment}, the last observation", moment=Moment(seen.last_ms))


def _working(ledger: LedgerFigures) -> KeyFigure:
    totals, account = ledger.summary.totals, ledger.money.accounts.total
    worked, low = GpuHours(totals.state_ms["active"]), GpuHours(totals.state_ms["low"])
    lines = [tr("{hours} GPU-hours busy, {low} at low use", hours=worked, low=low)]
    if (share := efficiency(account)) is not None:
        lines.append(tr("efficiency: {share} of the allocated time", share=share))
    if (use := peak_share(ledger.money.accounts.total_card_use)) is not None:
        lines.append(tr("{label}: {value}", label=tr("share of peak"), value=use))
    return KeyFigure("working", tr("Busy GPU time"), busy_share(ledger.summary), tuple(lines), "active")


_LABELS = {"active": state_label("active"), "unused": tr("unused"), "paid": tr("paid"), "observed": tr("observed")}
_MEANINGS = {
    "active": tr("busy time; low use does not count"),
    "unused": tr("unallocated, allocated but unused, held idle, or stalled"),
    "paid": tr("for all GPU time, observed or not"),
    "observed": tr(
        "share of the GPU time of the whole window, including hosts that were added later or stopped reporting"
    ),
}
_GOOD = {"active": 1, "observed": 1, "paid": 0}


def _of_window(key: str, report: Report) -> KeyFigure:
    """Return a state's share, or the paid or observed amount, with money and GPU-hours below."""
    ledger, found = report.ledger, report.changes
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
        _LABELS.get(key) or state_label(key),
        (None if change.now is None else Number(change.now)) if is_paid else Share(change.now),
        tuple(lines),
        unit=currency if is_paid and change.now is not None else "",
        open_between=_open_between(key, ledger.summary),
        meaning=_MEANINGS.get(key) or STATES[key].meaning,
        change=change,
        good=_GOOD.get(key, -1),
    )


def _open_between(key: str, summary: Summary) -> str:
    """Return the bounds of a sampled figure; empty if it is exact."""
    if key == "observed":
        return by_samples(summary) if is_sampled(summary.totals) else ""
    if key == "unused" and summary.totals.leaves_open:
        return tr("confirmed; {sampled}", sampled=between(summary, summary.totals.unused_bound))
    return open_between(summary, key)


_FIGURES: Mapping[str, Callable[[Report], KeyFigure]] = {
    "wasted": lambda report: _wasted(report.ledger, report.recommendations),
    "freed": lambda report: _freed(report.recommendations),
    "cash": lambda report: _cash(report.recommendations),
    "releasable": lambda report: _releasable(report.ledger, report.recommendations),
    "working": lambda report: _working(report.ledger),
    **{key: partial(_of_window, key) for key in WINDOW_FIGURES},
}
