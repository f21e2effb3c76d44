"""The value a year of acting on the GPUs of recommendations in a part of the fleet, from the last complete weeks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from analytics.decide.decisions import Decisions
from analytics.decide.recommendations import Recommendation
from analytics.decide.totals import saving_of
from analytics.decide.value import KIND_UNKNOWN, RUNNING_COST_UNKNOWN, Value, total
from analytics.intervals import clip
from analytics.money.priced_segments import MICROCENTS
from analytics.money.prices import HOURS_PER_YEAR, Price
from analytics.proportions import Estimate
from analytics.states import IN_USE
from analytics.workloads import waste
from analytics.workloads.confidence import COVERAGE_MIN
from fallow.clock import HOUR_MS

_UNVALUED = (waste.INEFFICIENT, waste.OFF_PEAK)
"""Reason of an unknown value: better use of these GPUs has no known saving."""
_BY_THE_HOUR = ("on_demand", "spot")
_NOTHING = Estimate(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class _WeekSums:
    """One recommendation in one complete week: milliseconds wasted and in use, and the cost of the waste."""

    wasted_ms: float = 0.0
    used_ms: float = 0.0
    wasted: float = 0.0


@dataclass(frozen=True)
class _Gpus:
    """GPUs that a recommendation acts on: their number as whole GPUs, and their cost a year (None without a price)."""

    names: tuple[str, ...]
    shares: Mapping[str, float]
    prices: Mapping[str, Price | None]

    @property
    def size(self) -> float:
        return sum(self.shares.values())

    @property
    def yearly_hours(self) -> float:
        return self.size * HOURS_PER_YEAR

    def yearly(self, gpu: str) -> float | None:
        price = self.prices[gpu]
        return None if price is None else float(price.hourly) * self.shares[gpu] * HOURS_PER_YEAR

    @cached_property
    def paid(self) -> float | None:
        known = [each for each in map(self.yearly, self.names) if each is not None]
        return sum(known) if len(known) == len(self.names) else None

    @property
    def list_price_share(self) -> float | None:
        if not self.paid:
            return None
        listed = (gpu for gpu in self.names if (price := self.prices[gpu]) is not None and price.origin == "catalog")
        return sum(self.yearly(gpu) or 0.0 for gpu in listed) / self.paid


class Valuation:
    """The value of the fleet's recommendations in a part of the fleet.

    Every figure uses `decisions.basis.weeks` and never the window of the report.
    """

    def __init__(self, decisions: Decisions, segments: pl.DataFrame) -> None:
        """Take the part's ledger rows, which cover the weeks of the basis."""
        self._decisions = decisions
        self._part = segments
        self._left_low = {pool.key: pool.next_week_left[0] for pool in decisions.fleet.pools}

    def of(self, whole: Recommendation, now: Sequence[str]) -> Value | None:
        """Return the value of acting on the GPUs `now`; None without a complete week or without GPUs to act on."""
        if not now or not self._decisions.basis.weeks or whole.kind in _UNVALUED:
            return None
        gpus = self._gpus(now)
        if whole.kind.request == waste.RETURN:
            return self._of_return(whole, gpus)
        change = self._right_sized(whole, gpus) if whole.kind is waste.OVERSIZED else self._unused(whole, gpus)
        if change is None or change[0].point <= 0:
            return None
        hours, freed = change
        cash = None if freed is None else _cash_of_freed_time(gpus, freed)
        return Value(hours, freed, cash, "" if cash is not None else KIND_UNKNOWN, gpus.list_price_share)

    def _gpus(self, now: Sequence[str]) -> _Gpus:
        costs = self._decisions.review.context.costs
        return _Gpus(
            tuple(now), {gpu: self._shares.get(gpu, 1.0) for gpu in now}, {gpu: costs.price_of(gpu) for gpu in now}
        )

    def _of_return(self, whole: Recommendation, gpus: _Gpus) -> Value:
        """Return the value of GPUs that leave the pool: all of their time is freed.

        The lower limit is the time of the GPUs that next week's demand leaves without a reserve.
        """
        low, spare = 0, whole.spare
        if spare is not None and spare.next_week is not None:
            of = spare.key
            low = min(len(gpus.names), self._left_low[of] or 0)
            self._left_low[of] = (self._left_low[of] or 0) - low
        least = low / len(gpus.names)

        def at_least(whole_amount: float) -> Estimate:
            return Estimate(whole_amount * least, whole_amount, whole_amount)

        cash, why = self._cash_of_return(gpus, least)
        freed = None if gpus.paid is None else at_least(gpus.paid)
        return Value(at_least(gpus.yearly_hours), freed, cash, why, gpus.list_price_share)

    def _cash_of_return(self, gpus: _Gpus, least: float) -> tuple[Estimate | None, str]:
        """Return the rent and running cost that end; None and the reason if one is unknown for any of the GPUs."""
        parts = []
        for gpu in gpus.names:
            price, paid = gpus.prices[gpu], gpus.yearly(gpu)
            if price is None or paid is None or price.kind is None:
                return None, KIND_UNKNOWN
            if price.kind == "buy":
                running = self._running_cost(gpu, price, gpus.shares[gpu])
                if running is None:
                    return None, RUNNING_COST_UNKNOWN
                parts.append(running)
            else:  # a reservation is paid to the end of its term
                parts.append(Estimate(0.0 if price.kind == "reserved" else paid, paid, paid))
        sure = total(parts)
        return Estimate(sure.low * least, sure.point, sure.high), ""

    def _running_cost(self, gpu: str, price: Price, share: float) -> Estimate | None:
        """Return the running cost of a bought GPU a year: its yearly cost, with or without its electricity."""
        yearly = None if price.yearly_cost is None else float(price.yearly_cost) * share
        power = self._power_w(gpu)
        grid = self._decisions.basis.grid
        if grid.price_per_kwh is None or not power:
            return None if yearly is None else Estimate(0.0, yearly, yearly)
        by_week = [each / 1000 * HOURS_PER_YEAR * grid.pue * grid.price_per_kwh * share for each in power]
        electricity = _over_weeks(by_week, max(by_week))
        if yearly is None:
            return electricity
        return Estimate(min(electricity.low, yearly), max(electricity.point, yearly), electricity.high + yearly)

    def _unused(self, whole: Recommendation, gpus: _Gpus) -> tuple[Estimate, Estimate | None] | None:
        """Return the wasted GPU time, and its price."""
        weeks = self._observed(whole, gpus)
        if not weeks:
            return None
        hours = [own.wasted_ms / seen_ms * gpus.yearly_hours for own, seen_ms in weeks]
        # what is out of order may stay so
        most = gpus.yearly_hours if whole.kind is waste.FAULTY else None
        freed = None
        if gpus.paid is not None:
            amounts = [own.wasted / (seen_ms / HOUR_MS) * gpus.yearly_hours for own, seen_ms in weeks]
            freed = _over_weeks(amounts, gpus.paid, None if most is None else gpus.paid)
        return _over_weeks(hours, gpus.yearly_hours, most), freed

    def _right_sized(self, whole: Recommendation, gpus: _Gpus) -> tuple[Estimate, Estimate] | None:
        """Return the same for work that needs less: the present cards' time that the price difference is worth."""
        weeks, per_hour = self._observed(whole, gpus), self._saved_per_hour(whole, gpus)
        if not weeks or per_hour is None or not gpus.paid:
            return None
        amounts = [own.used_ms / seen_ms * gpus.yearly_hours * per_hour for own, seen_ms in weeks]
        freed = _over_weeks(amounts, gpus.paid)
        return freed.times(gpus.yearly_hours / gpus.paid), freed

    def _saved_per_hour(self, whole: Recommendation, gpus: _Gpus) -> float | None:
        """Return the saving per hour of work on other cards. It is unknown for a part of a packing or of a finding."""
        finding, packing = whole.finding, whole.packing
        wanted = packing.gpus if packing is not None else whole.gpus
        saved = packing.saving if packing is not None else None if finding is None else saving_of(finding)
        used_ms = self._decisions.used_ms.get(whole.recommendation_id, 0.0)
        if saved is None or not used_ms or len(gpus.names if packing else whole.gpus_now) < len(wanted):
            return None
        return saved / (used_ms / HOUR_MS)

    def _observed(self, whole: Recommendation, gpus: _Gpus) -> list[tuple[_WeekSums, float]]:
        """Return the recommendation's weeks in which 90 % of the GPUs' time was observed, with that time."""
        found = []
        for week, (since_ms, until_ms) in enumerate(self._decisions.basis.weeks):
            seen_ms = sum(
                each.observed_ms for gpu in gpus.names if (each := self._decisions.gpu_weeks.get((gpu, week)))
            )
            if seen_ms >= COVERAGE_MIN * gpus.size * (until_ms - since_ms):
                found.append((self._sums.get((whole.recommendation_id, week), _WeekSums()), seen_ms))
        return found

    def _power_w(self, gpu: str) -> list[float]:
        """Return the mean power of a GPU in the weeks with known power."""
        weeks = range(len(self._decisions.basis.weeks))
        found = (self._decisions.gpu_weeks.get((gpu, week)) for week in weeks)
        return [each.power_w for each in found if each is not None and each.power_w is not None]

    @cached_property
    def _shares(self) -> dict[str, float]:
        """Return each GPU's share of a whole GPU at the end; a MIG instance has the share of its slices."""
        rows = self._decisions.review.context.inside.segments
        last = rows.sort("end").group_by("gpu", maintain_order=True).agg(pl.col("gpu_share").last())
        return dict(last.iter_rows())

    @cached_property
    def _sums(self) -> dict[tuple[str, int], _WeekSums]:
        """Return sums by recommendation and week over the GPUs to act on now, without unconfirmed idle time."""
        decisions, found = self._decisions, {}
        is_used = pl.col("state").is_in(IN_USE)
        sure = 1 - pl.col("open_share")
        for week, span in enumerate(decisions.basis.weeks):
            rows = clip(self._part, *span).filter(pl.col("gpu").is_in(decisions.now["gpu"].implode()))
            own = decisions.wasted(rows).join(decisions.now, on=("recommendation", "gpu"))
            sums = own.group_by("recommendation").agg(
                (pl.col("waste_ms") - pl.col("open_ms")).sum(),
                pl.col("gpu_ms").filter(is_used).sum(),
                (pl.col("waste_amount").cast(pl.Float64) * sure).sum(),
            )
            for key, wasted_ms, used_ms, amount in sums.iter_rows():
                found[key, week] = _WeekSums(wasted_ms, used_ms, amount / MICROCENTS / 100)
        return found


def _cash_of_freed_time(gpus: _Gpus, freed: Estimate) -> Estimate | None:
    """Return the spending that ends if GPUs are freed and stay: at most the hourly rent, if that is cancelled too."""
    kinds = {gpu: None if (price := gpus.prices[gpu]) is None else price.kind for gpu in gpus.names}
    if None in kinds.values() or not gpus.paid:
        return None
    rented = sum(gpus.yearly(gpu) or 0.0 for gpu, kind in kinds.items() if kind in _BY_THE_HOUR)
    return Estimate(0.0, 0.0, freed.high * rented / gpus.paid) if rented else _NOTHING


def _over_weeks(amounts: Sequence[float], most: float, high: float | None = None) -> Estimate:
    """Return the mean of the weeks between their lowest and highest, none above `most`.

    One week does not show how weeks differ, so the range is from 0 to `most`. `high` replaces the highest week.
    """
    known = [min(each, most) for each in amounts]
    if len(known) == 1:
        return Estimate(0.0, known[0], most)
    return Estimate(min(known), sum(known) / len(known), max(known) if high is None else high)
