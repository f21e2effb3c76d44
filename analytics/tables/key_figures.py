"""The report's four large figures: what was wasted, what the decisions save, what is safe to give back, and what worked."""

from __future__ import annotations

from dataclasses import dataclass

from analytics.language.quantities import Amount, GpuHours, Moment, Number, Share, from_cents
from analytics.language.sentences import tr, tr_many
from analytics.ledger.summary import ratio
from analytics.report.model import Report
from analytics.tables.finding_heading import at_most
from analytics.tables.point_samples import useful_share
from analytics.tables.recommendations import a_year
from analytics.tables.table import Cell


@dataclass(frozen=True)
class KeyFigure:
    """One large figure, what it is, what stands below it, and the state whose colour it has."""

    label: str
    figure: Cell
    lines: tuple[str, ...]
    state: str


def key_figures(report: Report) -> tuple[KeyFigure, ...]:
    """The figures."""
    totals, account, currency = report.summary.totals, report.money.accounts.total, report.money.currency
    wasted = Amount(from_cents(report.recommendations.waste.cents), currency)
    worked, low = GpuHours(totals.state_ms["active"]), GpuHours(totals.state_ms["low"])
    at_work = tr("{hours} GPU-hours active, {low} at low use", hours=worked, low=low)
    efficiency = Share(account.efficiency)
    at_least = tr("{share} or more", share=efficiency) if account.leaves_open else efficiency
    useful = () if account.efficiency is None else (tr("efficiency: {share} of the allocated time", share=at_least),)
    spent = report.recommendations.waste
    unsure = spent.open_cents / spent.cents if spent.open_cents and spent.cents else 0.0
    return (
        KeyFigure(tr("Wasted"), at_most(unsure, wasted), _waste_lines(report), "held"),
        _saved(report),
        _given_back(report),
        KeyFigure(tr("Working"), useful_share(report), (at_work, *useful), "active"),
    )


def _waste_lines(report: Report) -> tuple[str, ...]:
    """Its share of what was paid, its time, and what of it is apart: of low time, and by point samples alone."""
    spent, account, currency = report.recommendations.waste, report.money.accounts.total, report.money.currency
    hours = tr("{hours} GPU-hours", hours=GpuHours(spent.gpu_ms))
    paid, state_cents = account.paid_cents, spent.state_cents
    if paid is None or spent.cents is None or state_cents is None:
        return hours, tr("no price is known")
    share = Share(ratio(spent.cents, paid))
    of_paid = tr("{share} of {paid} paid", share=share, paid=Amount(from_cents(paid), currency))
    low = tr("{amount} of it the unused part of low time", amount=Amount(from_cents(state_cents["low"]), currency))
    unsure = tr("{amount} of it not confirmed: sampled", amount=Amount(from_cents(spent.open_cents), currency))
    unpriced = tr("{hours} of these GPU-hours have no price", hours=GpuHours(spent.unpriced_ms))
    return of_paid, hours, low, *((unsure,) if spent.open_cents else ()), *((unpriced,) if spent.unpriced_ms else ())


def _saved(report: Report) -> KeyFigure:
    found = report.recommendations
    saving = found.saving
    label, unsure = tr("Worth a year"), len(found.to_look_at)
    look = tr_many("{number} more thing to look at", "{number} more things to look at", unsure)
    if saving is None:
        return KeyFigure(label, None, (tr("no decision is known to save something"), look), "reserved")
    bounds = tr("between {low} and {high}", low=Number(round(saving.low)), high=Number(round(saving.high)))
    currency, parts = report.money.currency, list[str]()
    if found.given_back is not None:
        parts.append(tr("{amount} is what the GPUs to give back cost", amount=a_year(found.given_back.point, currency)))
    if found.freed is not None:
        parts.append(tr("{amount} of GPU time for others", amount=a_year(found.freed.point, currency)))
    if found.at_list_price:
        parts.append(tr("public list prices count in it"))
    return KeyFigure(label, a_year(saving.point, currency), (bounds, *parts), "reserved")


def _given_back(report: Report) -> KeyFigure:
    """What is safe to give back; of people, who give no pool's GPUs back, what the decisions are about now."""
    found = report.recommendations.reclaimable
    if found is None:
        gpus = {gpu for each in report.recommendations.ranked for gpu in each.gpus_now}
        return KeyFigure(tr("To act on now"), Number(len(gpus)), (tr("GPUs"), _as_of(report)), "free")
    label = tr("Safe to give back now")
    if found.unseen_since_ms is not None:
        return KeyFigure(label, None, (_as_of(report),), "free")
    idle = tr_many("of {number} GPU idle", "of {number} GPUs idle", found.idle_now)
    if found.idle_now and not found.is_known:
        return KeyFigure(label, None, (idle, tr("the history is too short to know"), _as_of(report)), "free")
    safe = tr_many("{number} GPU", "{number} GPUs", found.safe)
    return KeyFigure(label, safe, (idle, _as_of(report)), "free")


def _as_of(report: Report) -> str:
    """Up to when that is known."""
    if report.seen.last_ms is None or report.seen.to_the_end:
        return tr("at the end of the window")
    return tr("at {moment}, the last that was seen", moment=Moment(report.seen.last_ms))
