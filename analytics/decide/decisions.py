"""The recommendation of each GPU and each segment of wasted time.

Recommendations claim time by GPU, state and user, and precedence decides between them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.capacity.off_peak import OffPeak, hour_of_week, off_peak
from analytics.decide.deadlines import Deadlines
from analytics.decide.recommendations import Recommendation, own_id, recommendation_id
from analytics.decide.review import Review
from analytics.decide.right_sizing import RightSizing, right_sizing
from analytics.decide.value import ValueBasis
from analytics.intervals import SPAN_MS, clip
from analytics.language.sentences import tr
from analytics.money.energy import KNOWN_MIN
from analytics.money.priced_segments import AMOUNT, NOT_KNOWN, pieces_of, unused_amount
from analytics.names import JOINER
from analytics.rules import RULES_BY_NAME, rules_of_kind
from analytics.states import IN_USE, WASTED
from analytics.workloads import waste
from analytics.workloads.fleet_demand import fleet_demand
from analytics.workloads.model import Confidence, Context, Finding
from analytics.workloads.packing import Packing
from analytics.workloads.pool_demand import FleetDemand, going_by
from analytics.workloads.window_end import last_rows
from fallow.clock import HOUR_MS

_WEEK_HOURS = 7 * 24
SHARE = "off_peak_share"
"""Column with a row's share of off-peak time."""


@dataclass(frozen=True)
class IdleHours:
    """The off-peak hours by pool, in a time zone."""

    windows: Mapping[str, Sequence[OffPeak]]
    zone: tzinfo

    @classmethod
    def of(cls, context: Context, zone: tzinfo) -> IdleHours:
        """Return the off-peak hours before the end of the window, of pools observed for at least four weeks."""
        pools = {gpu: context.inventory.pool(gpu) for gpu in context.whole.segments["gpu"].unique()}
        found: dict[str, list[OffPeak]] = defaultdict(list)
        for each in off_peak(context.whole.segments, pools, context.until_ms, zone):
            found[each.pool].append(each)
        return cls(found, zone)

    def shares(self, context: Context, segments: pl.DataFrame) -> pl.DataFrame:
        """Return the ledger's rows with SHARE, from 0 to 1."""
        if not self.windows or segments.is_empty():
            return segments.with_columns(pl.lit(0.0).alias(SHARE))
        first, last = (
            int(segments["time"].min()) // HOUR_MS,  # type: ignore[arg-type]  # not empty
            int(segments["end"].max()) // HOUR_MS + 1,  # type: ignore[arg-type]
        )
        starts, ends = segments["time"].to_numpy(), segments["end"].to_numpy()
        pools = {gpu: context.inventory.pool(gpu) for gpu in segments["gpu"].unique()}
        named = segments["gpu"].replace_strict(pools, return_dtype=pl.String).to_numpy()
        shares = np.zeros(len(starts))
        for pool in self.windows:
            own = np.array([self._is_off_peak(pool, hour) for hour in range(first, last)])
            rows = named == pool
            inside = _passed(own, ends[rows] - first * HOUR_MS) - _passed(own, starts[rows] - first * HOUR_MS)
            shares[rows] = inside / (ends[rows] - starts[rows])
        return segments.with_columns(pl.Series(SHARE, shares))

    def _is_off_peak(self, pool: str, hour: int) -> bool:
        """Return True if an hour since the epoch is an off-peak hour of the pool, by the hour's start."""
        of_week = hour_of_week(hour * HOUR_MS, self.zone)
        return any(
            (of_week - (each.weekday * 24 + each.from_hour)) % _WEEK_HOURS < each.until_hour - each.from_hour
            for each in self.windows[pool]
        )


def _passed(hours: NDArray[np.bool_], moments: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the milliseconds of marked hours that have passed at each moment, counted from the first hour."""
    edges = np.arange(len(hours) + 1, dtype=np.float64) * HOUR_MS
    passed: NDArray[np.float64] = np.interp(moments, edges, np.concatenate([[0.0], np.cumsum(hours) * float(HOUR_MS)]))
    return passed


ANY = ""
"""Any user, in a claim on time."""


_SCHEMA = {
    "gpu": pl.String,
    "state": pl.String,
    "user": pl.String,
    "least_ms": pl.Int64,
    "place": pl.Int64,
    "recommendation": pl.String,
}


@dataclass(frozen=True)
class Claims:
    """Claims of all recommendations.

    Columns: gpu, state, user (ANY for any user), least_ms, place (the lowest comes first) and recommendation.
    """

    frame: pl.DataFrame

    def assigned(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """Return the segments with `recommendation` (null without a claim) and `place`.

        `pieces` has gpu, state, user (as in `pieces_of`) and segment_ms, the length of the whole interval.
        """
        keyed = pieces.with_row_index("piece")
        named = keyed.select("piece", "gpu", "state", "user", "segment_ms")
        anybody = named.with_columns(user=pl.lit(ANY))
        met = pl.concat([named, anybody]).join(self.frame, on=("gpu", "state", "user"))
        first = (
            met.filter(pl.col("segment_ms") >= pl.col("least_ms")).sort("piece", "place").unique("piece", keep="first")
        )
        return keyed.join(
            first.select("piece", "recommendation", "place"), on="piece", how="left", maintain_order="left"
        ).drop("piece")


@dataclass(frozen=True)
class TimeClaim:
    """The claim of one recommendation for one waste kind: time of these GPUs, of these users or (None) of any user."""

    recommendation: str
    kind: waste.WasteKind
    gpus: Sequence[str]
    users: Sequence[str] | None


def claims_of(claims: Iterable[TimeClaim], held_min_ms: int) -> Claims:
    """Return the claims by precedence; `held_min_ms` is `findings.held_min`."""
    rows = [
        (gpu, state, user, held_min_ms if each.kind.spelled else 0, place, each.recommendation)
        for place, each in enumerate(claims)
        for gpu in each.gpus
        for state in each.kind.states
        for user in ((ANY,) if each.users is None else each.users)
    ]
    return Claims(pl.DataFrame(rows, schema=_SCHEMA, orient="row"))


def users_of(finding: Finding, kind: waste.WasteKind) -> tuple[str, ...] | None:
    """Return the users whose time a finding claims; None for any user."""
    if not kind.of_user:
        return None
    return tuple(finding.user.split(JOINER)) if finding.user else (NOT_KNOWN,)


@dataclass(frozen=True)
class GpuWeek:
    """One GPU in one complete week: its observed milliseconds, and mean power (W) if at least 90 % of them have it."""

    observed_ms: float
    power_w: float | None


@dataclass(frozen=True)
class Decisions:
    """Recommendations for the whole fleet; `recommendations_in` prices them for parts of it.

    Deadlines count from `decided_ms`.
    """

    review: Review
    deadlines: Deadlines
    basis: ValueBasis
    decided_ms: int
    recommendations: Mapping[str, Recommendation]
    claims: Claims
    fleet: FleetDemand
    idle_hours: IdleHours
    sizing: RightSizing
    for_people: bool

    def wasted(self, segments: pl.DataFrame) -> pl.DataFrame:
        """Return the priced segments of ledger rows, each with the recommendation that claims it.

        `waste_ms` and `waste_amount` are the wasted part. `open_ms` is the part that only point samples show as idle.
        """
        context = self.review.context
        pieces = self.claims.assigned(
            pieces_of(segments, context.costs, context.inventory, context.owners, self.deadlines.zone)
        )
        is_wasted, low = pl.col("state").is_in(WASTED), pl.col("state") == "low"
        unused = pl.when(is_wasted).then(1.0 - pl.col("used_share")).otherwise(0.0)
        amount = (
            pl.when(low)
            .then(unused_amount())
            .when(is_wasted)
            .then("amount")
            .when(pl.col("amount").is_not_null())
            .then(pl.lit(0, AMOUNT))
        )
        return pieces.with_columns(
            waste_ms=pl.col("gpu_ms") * unused,
            waste_amount=amount,
            open_ms=pl.col("gpu_ms") * unused * pl.col("open_share"),
        )

    @cached_property
    def now(self) -> pl.DataFrame:
        """Return which recommendation acts on which GPU at the end of the window: recommendation, gpu.

        Each GPU appears once.
        """
        rows = [(key, gpu) for key, each in self.recommendations.items() for gpu in each.gpus_now]
        return pl.DataFrame(rows, schema={"recommendation": pl.String, "gpu": pl.String}, orient="row")

    @cached_property
    def evidence(self) -> Mapping[str, tuple[Finding, ...]]:
        """Return the findings about each recommendation's time, the leading one first.

        A weaker finding appears under every recommendation that took its time.
        """
        by_id = {recommendation_id(each): each for each in self.review.findings}
        found = {key: [] if each.finding is None else [each.finding] for key, each in self.recommendations.items()}
        for winner, other in _overlaps(self.claims.frame):
            if other in by_id and by_id[other] not in found[winner]:
                found[winner].append(by_id[other])
        return {key: tuple(own) for key, own in found.items()}

    @cached_property
    def used_ms(self) -> Mapping[str, float]:
        """Return by recommendation of another card the used time of its GPUs in the whole decision window."""
        keys = [key for key, each in self.recommendations.items() if each.kind is waste.OVERSIZED]
        rows = self.review.context.inside.segments.filter(
            pl.col("gpu").is_in(self.now["gpu"].implode()) & pl.col("state").is_in(IN_USE)
        )
        own = self.wasted(rows).join(self.now, on=("recommendation", "gpu"))
        sums = own.filter(pl.col("recommendation").is_in(keys)).group_by("recommendation").agg(pl.col("gpu_ms").sum())
        return dict(sums.iter_rows())

    @cached_property
    def gpu_weeks(self) -> Mapping[tuple[str, int], GpuWeek]:
        """Return by GPU to act on and week of the basis how the GPU was observed, under any user."""
        rows = self.review.context.inside.segments.filter(
            pl.col("gpu").is_in(self.now["gpu"].implode()) & (pl.col("state") != "unknown")
        )
        found = {}
        for week, span in enumerate(self.basis.weeks):
            sums = (
                clip(rows, *span)
                .group_by("gpu")
                .agg(
                    observed=(SPAN_MS * pl.col("gpu_share")).sum(),
                    span=SPAN_MS.sum(),
                    energy_mj=pl.col("energy_mj").sum(),
                    energy_ms=pl.col("energy_ms").sum(),
                )
            )
            for gpu, observed_ms, span_ms, energy_mj, energy_ms in sums.iter_rows():
                is_known = energy_ms > 0 and energy_ms >= KNOWN_MIN * span_ms
                found[gpu, week] = GpuWeek(observed_ms, energy_mj / energy_ms if is_known else None)
        return found


def decide(
    review: Review, deadlines: Deadlines, basis: ValueBasis, decided_ms: int | None = None, *, for_people: bool = False
) -> Decisions:
    """Return the recommendations that follow from the findings of a window.

    `decided_ms` is the day of the recommendations, by default the end of the observed time. Yearly values use the weeks
    of `basis`, which lie in the review's window. Off-peak hours are in the time zone of the deadlines. `for_people`
    leaves out packings: the best packing depends on the work of all and would reveal one team's work to another.
    """
    context = review.context
    fleet = after_snoozes(review)
    book = _Book(context, review.fleet, fleet)
    for key, gpus in _faulty(context).items():
        unsure = Confidence((tr("how long the GPU stays down is not known"),))
        book.add(Recommendation(key, waste.FAULTY, None, gpus, book.with_state(gpus, waste.FAULTY.states), unsure))
    _add_idle(book, review)
    sizing = _sizing(review, book, (() if for_people else None))
    _add_changes(book, review, sizing)
    idle_hours = IdleHours.of(context, deadlines.zone)
    for pool in idle_hours.windows:
        untested = Confidence((tr("whether workloads can wait for these hours is not known"),))
        book.add(Recommendation(own_id("off_peak", pool), waste.OFF_PEAK, None, (), (), untested))
    claims = claims_of(book.claims, context.settings.held_min_ms)
    decided_ms = context.until_ms if decided_ms is None else decided_ms
    return Decisions(
        review, deadlines, basis, decided_ms, book.recommendations, claims, fleet, idle_hours, sizing, for_people
    )


def _add_idle(book: _Book, review: Review) -> None:
    """Add recommendations about unallocated GPUs and about GPUs that their users do not use."""
    for kind in (waste.NEVER_USED, waste.LEFT_FREE):
        for finding in _of_kind(review.findings, kind):
            book.add_returnable(finding, kind)
    book.add_releases(review.findings)
    for finding in _of_kind(review.findings, waste.SURPLUS):
        book.add_returnable(finding, waste.SURPLUS)
    for kind in (waste.ALLOCATED_IDLE, waste.HELD_IDLE, waste.STALLED):
        for finding in _of_kind(review.findings, kind):
            book.add_finding(finding, kind)


def _add_changes(book: _Book, review: Review, sizing: RightSizing) -> None:
    """Add recommendations about running work that needs less or can run better."""
    for packing in sizing.packings:
        key, gpus = packing.recommendation_id, packing.gpus
        book.add(Recommendation(key, waste.OVERSIZED, None, gpus, gpus, packing.confidence, packing=packing))
    for finding in (*sizing.moves, *_of_kind(review.findings, waste.OVERSIZED)):
        book.add_finding(finding, waste.OVERSIZED, finding.gpus)
    for finding in _of_kind(review.findings, waste.INEFFICIENT):
        book.add_finding(finding, waste.INEFFICIENT, finding.gpus)


class _Book:
    """Recommendations and claims by precedence. A GPU belongs to the first recommendation that can act on it.

    `fleet` is the demand; `if_all_go` is the demand as if no finding were snoozed.
    """

    def __init__(self, context: Context, if_all_go: FleetDemand, fleet: FleetDemand) -> None:
        self._if_all_go, self._fleet = if_all_go, fleet
        self.recommendations: dict[str, Recommendation] = {}
        self.claims: list[TimeClaim] = []
        self._taken: set[str] = set()
        self._is_unseen = context.fell_silent
        last = last_rows(context).select("gpu", "state", "user")
        self._last = {gpu: state for gpu, state, _ in last.iter_rows()}
        self._users = {gpu: frozenset(user.split(JOINER)) for gpu, _, user in last.iter_rows() if user is not None}

    @property
    def taken(self) -> frozenset[str]:
        return frozenset(self._taken)

    def with_state(self, gpus: Iterable[str], states: Sequence[str]) -> tuple[str, ...]:
        """Return the GPUs in this state at the end of the window."""
        return tuple(gpu for gpu in gpus if self._last.get(gpu) in states)

    def add(self, each: Recommendation, users: Sequence[str] | None = None) -> None:
        """Add a recommendation with its first claim. It acts on GPUs that no earlier recommendation acts on."""
        key = each.recommendation_id
        self.claims.append(TimeClaim(key, each.kind, each.gpus, users))
        now = () if self._is_unseen else tuple(gpu for gpu in each.gpus_now if gpu not in self._taken)
        self._taken.update(now)
        before = self.recommendations.get(key)
        if before is None or not before.gpus_now:
            self.recommendations[key] = replace(each, gpus_now=now)
        else:  # of two kinds: allocated here, held there
            gpus, now = (*before.gpus, *each.gpus), (*before.gpus_now, *now)
            self.recommendations[key] = replace(before, gpus=gpus, gpus_now=now)

    def add_finding(self, finding: Finding, kind: waste.WasteKind, now: Sequence[str] | None = None) -> None:
        """Add the recommendation of a finding.

        A snoozed finding keeps its GPUs, so that no weaker finding acts on them.
        """
        wanted = self.with_state(finding.reclaimable_gpus, kind.states) if now is None else self._still_of(finding, now)
        if finding.status == "snoozed":
            self._taken.update(wanted)
            wanted = ()
        key = recommendation_id(finding)
        self.add(Recommendation(key, kind, finding, finding.gpus, wanted, finding.confidence), users_of(finding, kind))

    def _still_of(self, finding: Finding, gpus: Sequence[str]) -> tuple[str, ...]:
        """Return the GPUs without another user at the end of the window; for a fault all, as it concerns the card."""
        if finding.user is None or RULES_BY_NAME[finding.rule].of_machine:
            return tuple(gpus)
        theirs = frozenset(finding.user.split(JOINER))
        return tuple(gpu for gpu in gpus if not theirs.isdisjoint(self._users.get(gpu, theirs)))

    def add_returnable(self, finding: Finding, kind: waste.WasteKind) -> None:
        """Add the recommendation of a finding about GPUs without a user.

        It has the releasable GPUs only: the others are the reserve.
        """
        about = tuple(gpu for gpu in finding.reclaimable_gpus if gpu in self._if_all_go.released)
        now = tuple(gpu for gpu in self.with_state(about, kind.states) if gpu in self._fleet.released)
        pool = next((pool for pool in self._fleet.pools if now and pool.names.issuperset(now)), None)
        self.add(Recommendation(recommendation_id(finding), kind, finding, about, now, finding.confidence, pool))

    def add_releases(self, findings: Sequence[Finding]) -> None:
        """Add the unallocated GPUs that each pool can release, with the pool's finding or without one."""
        own = {finding.pool: finding for finding in findings if finding.pool is not None}
        for pool in self._if_all_go.pools:
            if pool.release is None or not pool.release.now:
                continue
            finding, about = own.get(pool.key), pool.release.now
            key = own_id("surplus", f"{pool.pool}\0{pool.model}") if finding is None else recommendation_id(finding)
            now = tuple(gpu for gpu in about if gpu in self._fleet.released)
            left = self._fleet.by_key[pool.key]
            self.add(Recommendation(key, waste.SURPLUS, finding, about, now, pool.confidence, left))


def _of_kind(findings: Sequence[Finding], kind: waste.WasteKind) -> Iterator[Finding]:
    """Return the findings of a waste kind, by rule in its order."""
    for rule in rules_of_kind(kind):
        yield from (each for each in findings if each.rule == rule.name)


def _sizing(review: Review, book: _Book, packed: Sequence[Packing] | None) -> RightSizing:
    """Return other cards and packings for work on GPUs without another recommendation and without a snooze."""
    moves = tuple(_of_kind(review.findings, waste.OVERSIZED))
    taken = book.taken.union(*(each.gpus for each in moves if each.status == "snoozed"))
    free = [each for each in moves if taken.isdisjoint(each.gpus)]
    return right_sizing(review.context, free, packed, taken)


def _faulty(context: Context) -> dict[str, tuple[str, ...]]:
    """Return by recommendation the GPUs of a host that were down long enough to need repair."""
    rows = context.inside.segments.filter(
        pl.col("state").is_in(waste.FAULTY.states)
        & (pl.col("segment_end") - pl.col("segment_start") >= context.settings.held_min_ms)
    )
    hosts = rows.group_by("host").agg(pl.col("gpu").unique().sort()).sort("host")
    return {own_id("faulty", host): tuple(gpus) for host, gpus in hosts.iter_rows()}


def after_snoozes(review: Review) -> FleetDemand:
    """Return the demand of every pool, with snoozed GPUs kept.

    A snoozed finding of a pool keeps all GPUs that the pool could release. GPUs of a snoozed finding that a user holds
    are demand.
    """
    snoozed = [finding for finding in review.findings if finding.status == "snoozed"]
    if not snoozed:
        return review.fleet
    own = {gpu for finding in snoozed if finding.pool is None for gpu in finding.reclaimable_gpus}
    pools = {finding.pool for finding in snoozed}
    gpus = own.union(*(pool.names for pool in review.fleet.pools if pool.key in pools))
    going = going_by(finding for finding in review.findings if finding.status != "snoozed")
    return fleet_demand(review.context, going - own, gpus).graded(review.findings)


def _overlaps(claims: pl.DataFrame) -> list[tuple[str, str]]:
    """Return pairs of recommendations that claim the same time: the first by precedence, and each other one."""
    keys = claims.select("gpu", "state", "user", "place", "recommendation")
    met = keys.join(keys, on=("gpu", "state"), suffix="_other").filter(
        (pl.col("place") < pl.col("place_other"))
        & ((pl.col("user") == pl.col("user_other")) | (pl.col("user") == ANY) | (pl.col("user_other") == ANY))
    )
    first = met.sort("place").unique(("gpu", "state", "user_other", "recommendation_other"), keep="first")
    pairs = (
        first.group_by("recommendation", "recommendation_other")
        .agg(pl.col("place_other").min())
        .sort("place_other", "recommendation")
    )
    return [
        (one, other)
        for one, other in pairs.select("recommendation", "recommendation_other").iter_rows()
        if one != other
    ]
