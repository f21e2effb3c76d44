"""Which recommendation each GPU and each piece of wasted time belongs to: claims and their precedence by GPU, state and user."""

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
from analytics.intervals import clip
from analytics.language.quantities import Number
from analytics.language.sentences import tr
from analytics.money.priced_segments import AMOUNT, NOT_KNOWN, pieces_of, unused_amount
from analytics.names import JOINER
from analytics.rules import RULES_BY_NAME, rules_of_kind
from analytics.states import IN_USE, WASTED
from analytics.workloads import waste
from analytics.workloads.model import Confidence, Context, Finding
from analytics.workloads.packing import Packing
from analytics.workloads.pool_need import POOL_MIN_GPUS
from analytics.workloads.reclaimable import PoolReclaimable, Reclaimable, reclaimable
from analytics.workloads.window_end import last_rows
from fallow.clock import HOUR_MS, WEEK_MS

_WEEK_HOURS = 7 * 24
SHARE = "off_peak_share"
"""The column of a row's share of off-peak time."""


@dataclass(frozen=True)
class IdleHours:
    """The off-peak hours by pool, in a time zone."""

    windows: Mapping[str, Sequence[OffPeak]]
    zone: tzinfo

    @classmethod
    def of(cls, context: Context, zone: tzinfo) -> IdleHours:
        """Those of the weeks before the end of the window; none of pools seen for less than four."""
        pools = {gpu: context.inventory.pool(gpu) for gpu in context.whole.stretches["gpu"].unique()}
        found: dict[str, list[OffPeak]] = defaultdict(list)
        for each in off_peak(context.whole.stretches, pools, context.until_ms, zone):
            found[each.pool].append(each)
        return cls(found, zone)

    def shares(self, context: Context, stretches: pl.DataFrame) -> pl.DataFrame:
        """The ledger's rows with SHARE, from 0 to 1."""
        if not self.windows or stretches.is_empty():
            return stretches.with_columns(pl.lit(0.0).alias(SHARE))
        first, last = int(stretches["time"].min()) // HOUR_MS, int(stretches["end"].max()) // HOUR_MS + 1  # type: ignore[arg-type]  # not empty
        starts, ends = stretches["time"].to_numpy(), stretches["end"].to_numpy()
        pools = {gpu: context.inventory.pool(gpu) for gpu in stretches["gpu"].unique()}
        named = stretches["gpu"].replace_strict(pools, return_dtype=pl.String).to_numpy()
        shares = np.zeros(len(starts))
        for pool in self.windows:
            own = np.array([self._is_off_peak(pool, hour) for hour in range(first, last)])
            rows = named == pool
            inside = _passed(own, ends[rows] - first * HOUR_MS) - _passed(own, starts[rows] - first * HOUR_MS)
            shares[rows] = inside / (ends[rows] - starts[rows])
        return stretches.with_columns(pl.Series(SHARE, shares))

    def _is_off_peak(self, pool: str, hour: int) -> bool:
        """Whether the hour since the epoch is one of the pool's; it counts by its beginning."""
        of_week = hour_of_week(hour * HOUR_MS, self.zone)
        return any(
            (of_week - (each.weekday * 24 + each.from_hour)) % _WEEK_HOURS < each.until_hour - each.from_hour
            for each in self.windows[pool]
        )


def _passed(hours: NDArray[np.bool_], moments: NDArray[np.int64]) -> NDArray[np.float64]:
    """How many milliseconds of the marked hours have passed at each moment, counted from the first of the hours."""
    edges = np.arange(len(hours) + 1, dtype=np.float64) * HOUR_MS
    passed: NDArray[np.float64] = np.interp(moments, edges, np.concatenate([[0.0], np.cumsum(hours) * float(HOUR_MS)]))
    return passed


_WEEKS_BACK = 4

ANY = ""
"""In a claim: whoever holds the GPU."""


_SCHEMA = {
    "gpu": pl.String,
    "state": pl.String,
    "holder": pl.String,
    "least_ms": pl.Int64,
    "place": pl.Int64,
    "recommendation": pl.String,
}


@dataclass(frozen=True)
class Claims:
    """What every recommendation claims: gpu, state, holder (ANY for any user), least_ms, place (the lower first) and recommendation."""

    frame: pl.DataFrame

    def assigned(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """The pieces with `recommendation`, null where nothing claims them, and `place`.

        Args:
            pieces: gpu, state, holder (as in `pieces_of`) and spell_ms, how long their whole interval lasts.
        """
        keyed = pieces.with_row_index("piece")
        named = keyed.select("piece", "gpu", "state", "holder", "spell_ms")
        anybody = named.with_columns(holder=pl.lit(ANY))
        met = pl.concat([named, anybody]).join(self.frame, on=("gpu", "state", "holder"))
        first = (
            met.filter(pl.col("spell_ms") >= pl.col("least_ms")).sort("piece", "place").unique("piece", keep="first")
        )
        return keyed.join(
            first.select("piece", "recommendation", "place"), on="piece", how="left", maintain_order="left"
        ).drop("piece")


@dataclass(frozen=True)
class TimeClaim:
    """What one recommendation claims as one kind: time of these GPUs, of these holders or (None) of any."""

    recommendation: str
    kind: waste.WasteKind
    gpus: Sequence[str]
    holders: Sequence[str] | None


def claims_of(claims: Iterable[TimeClaim], held_min_ms: int) -> Claims:
    """Claims in their precedence, the first first; `held_min_ms` is `findings.held_min`."""
    rows = [
        (gpu, state, holder, held_min_ms if each.kind.spelled else 0, place, each.recommendation)
        for place, each in enumerate(claims)
        for gpu in each.gpus
        for state in each.kind.states
        for holder in ((ANY,) if each.holders is None else each.holders)
    ]
    return Claims(pl.DataFrame(rows, schema=_SCHEMA, orient="row"))


def holders_of(finding: Finding, kind: waste.WasteKind) -> tuple[str, ...] | None:
    """Whose time a finding claims; None for anybody's."""
    if not kind.of_holder:
        return None
    return tuple(finding.holder.split(JOINER)) if finding.holder else (NOT_KNOWN,)


@dataclass(frozen=True)
class Decisions:
    """What is decided for the whole fleet; parts of it are priced by `recommendations_in`. Deadlines count from `told_ms`."""

    review: Review
    deadlines: Deadlines
    told_ms: int
    recommendations: Mapping[str, Recommendation]
    claims: Claims
    reclaimable: Reclaimable
    idle_hours: IdleHours
    sizing: RightSizing
    for_people: bool

    def wasted(self, stretches: pl.DataFrame) -> pl.DataFrame:
        """Return the priced pieces of ledger rows with the recommendation that claims each.

        `waste_ms` and `waste_amount` are the wasted part, and `open_ms` what of it point samples alone call idle.
        """
        context = self.review.context
        pieces = self.claims.assigned(pieces_of(stretches, context.costs, context.inventory, context.owners))
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
        """Which recommendation acts on which GPU at the end of the window, each GPU once: recommendation, gpu."""
        rows = [(key, gpu) for key, each in self.recommendations.items() for gpu in each.gpus_now]
        return pl.DataFrame(rows, schema={"recommendation": pl.String, "gpu": pl.String}, orient="row")

    @cached_property
    def evidence(self) -> Mapping[str, tuple[Finding, ...]]:
        """By recommendation the findings about its time, the one that leads first; a weaker one stands under each that took time from it."""
        by_id = {recommendation_id(each): each for each in self.review.findings}
        found = {key: [] if each.finding is None else [each.finding] for key, each in self.recommendations.items()}
        for winner, other in _overlaps(self.claims.frame):
            if other in by_id and by_id[other] not in found[winner]:
                found[winner].append(by_id[other])
        return {key: tuple(own) for key, own in found.items()}

    @cached_property
    def time_now(self) -> Mapping[str, float]:
        """By recommendation its time in the window on the GPUs to act on: wasted, or in use where another card is proposed."""
        return _time_on_now(self, self.review.context.inside.stretches)

    @cached_property
    def swings(self) -> Mapping[str, tuple[float, float, float]]:
        """By recommendation the least, the mean and the most of its time in the last weeks, over that of the window, each in an hour."""
        return _swings(self)


def decide(review: Review, deadlines: Deadlines, told_ms: int | None = None, *, for_people: bool = False) -> Decisions:
    """The decisions that the findings of a window lead to, to be told at `told_ms`: by default at the end of what was seen.

    Off-peak hours are those of the deadlines' time zone. `for_people` there are no packings: what lies together best depends on
    the work of all, so that it would tell one team of another.
    """
    context = review.context
    if_all_go = reclaimable(context)
    found = if_all_go.without(_put_off(review.findings, if_all_go))
    book = _Book(context, if_all_go, found)
    for key, gpus in _faulty(context).items():
        unsure = Confidence((tr("how long it stays out of order is not known"),))
        book.add(Recommendation(key, waste.FAULTY, None, gpus, book.with_state(gpus, waste.FAULTY.states), unsure))
    _add_idle(book, review)
    sizing = _sizing(review, book, (() if for_people else None))
    _add_changes(book, review, sizing)
    idle_hours = IdleHours.of(context, deadlines.zone)
    for pool in idle_hours.windows:
        untested = Confidence((tr("whether work would wait for these hours is not known"),))
        book.add(Recommendation(own_id("off_peak", pool), waste.OFF_PEAK, None, (), (), untested))
    claims = claims_of(book.claims, context.settings.held_min_ms)
    told_ms = context.until_ms if told_ms is None else told_ms
    return Decisions(review, deadlines, told_ms, book.made, claims, found, idle_hours, sizing, for_people)


def _add_idle(book: _Book, review: Review) -> None:
    """What nobody has, and what somebody has and does not use."""
    for finding in _of_kind(review.findings, waste.NEVER_USED):
        book.add_returnable(finding, waste.NEVER_USED)
    book.add_spare(review.findings)
    for finding in _of_kind(review.findings, waste.SURPLUS):
        book.add_returnable(finding, waste.SURPLUS)
    for kind in (waste.ALLOCATED_IDLE, waste.HELD_IDLE):
        for finding in _of_kind(review.findings, kind):
            book.add_finding(finding, kind)


def _add_changes(book: _Book, review: Review, sizing: RightSizing) -> None:
    """Work that runs, and could run on less or better."""
    for packing in sizing.packings:
        key, gpus = packing.recommendation_id, packing.gpus
        book.add(Recommendation(key, waste.OVERSIZED, None, gpus, gpus, packing.confidence, packing=packing))
    for finding in (*sizing.moves, *_of_kind(review.findings, waste.OVERSIZED)):
        book.add_finding(finding, waste.OVERSIZED, finding.gpus)
    for finding in _of_kind(review.findings, waste.INEFFICIENT):
        book.add_finding(finding, waste.INEFFICIENT, finding.gpus)


class _Book:
    """Recommendations and claims in their precedence; a GPU is acted on by the first that can.

    `if_all_go` is what could be given back if nobody had put anything off, `found` what can.
    """

    def __init__(self, context: Context, if_all_go: Reclaimable, found: Reclaimable) -> None:
        self._if_all_go, self._found = if_all_go, found
        self.made: dict[str, Recommendation] = {}
        self.claims: list[TimeClaim] = []
        self._taken: set[str] = set()
        self._is_unseen = context.fell_silent
        last = last_rows(context).select("gpu", "state", "holder")
        self._last = {gpu: state for gpu, state, _ in last.iter_rows()}
        self._users = {gpu: frozenset(user.split(JOINER)) for gpu, _, user in last.iter_rows() if user is not None}

    @property
    def taken(self) -> frozenset[str]:
        return frozenset(self._taken)

    def with_state(self, gpus: Iterable[str], states: Sequence[str]) -> tuple[str, ...]:
        """Those that stood so at the end of the window."""
        return tuple(gpu for gpu in gpus if self._last.get(gpu) in states)

    def add(self, each: Recommendation, holders: Sequence[str] | None = None) -> None:
        """Add a recommendation with its first claim; what it acts on is what nothing before it does."""
        key = each.recommendation_id
        self.claims.append(TimeClaim(key, each.kind, each.gpus, holders))
        now = () if self._is_unseen else tuple(gpu for gpu in each.gpus_now if gpu not in self._taken)
        self._taken.update(now)
        before = self.made.get(key)
        if before is None or not before.gpus_now:
            self.made[key] = replace(each, gpus_now=now)
        else:  # of two kinds: allocated here, held there
            self.made[key] = replace(before, gpus_now=(*before.gpus_now, *now))

    def add_finding(self, finding: Finding, kind: waste.WasteKind, now: Sequence[str] | None = None) -> None:
        """Add that of a finding; one that was put off keeps its GPUs, so that no weaker finding asks for them."""
        wanted = self.with_state(finding.reclaimable_gpus, kind.states) if now is None else self._still_of(finding, now)
        if finding.status == "suppressed":
            self._taken.update(wanted)
            wanted = ()
        key = recommendation_id(finding)
        self.add(
            Recommendation(key, kind, finding, finding.gpus, wanted, finding.confidence), holders_of(finding, kind)
        )

    def _still_of(self, finding: Finding, gpus: Sequence[str]) -> tuple[str, ...]:
        """Those that no other user has at the end of the window; of a fault all, for it is the card's and not the user's."""
        if finding.holder is None or RULES_BY_NAME[finding.rule].of_machine:
            return tuple(gpus)
        theirs = frozenset(finding.holder.split(JOINER))
        return tuple(gpu for gpu in gpus if not theirs.isdisjoint(self._users.get(gpu, theirs)))

    def add_returnable(self, finding: Finding, kind: waste.WasteKind) -> None:
        """Add that of a finding about GPUs without a user: of those alone that can go, for the others are the reserve."""
        about = tuple(gpu for gpu in finding.reclaimable_gpus if gpu in self._if_all_go.safe_gpus)
        now = tuple(gpu for gpu in self.with_state(about, kind.states) if gpu in self._found.safe_gpus)
        pool = _pool_of(now, self._found)
        self.add(Recommendation(recommendation_id(finding), kind, finding, about, now, finding.confidence, pool))

    def add_spare(self, findings: Sequence[Finding]) -> None:
        """Add those of free GPUs that can go: of the pool's finding, or of their own where it has none."""
        told = {(each.surplus.pool, each.surplus.model): each for each in findings if each.surplus is not None}
        left = {(each.pool, each.model): each for each in self._found.pools}
        for pool in self._if_all_go.pools:
            about = self.with_state(pool.safe_gpus, waste.SURPLUS.states)
            if not about:
                continue
            finding, kept = told.get((pool.pool, pool.model)), left[pool.pool, pool.model]
            key = own_id("surplus", f"{pool.pool}\0{pool.model}") if finding is None else recommendation_id(finding)
            confidence = Confidence((_small(pool),)) if finding is None else finding.confidence
            now = tuple(gpu for gpu in about if gpu in kept.safe_gpus)
            self.add(Recommendation(key, waste.SURPLUS, finding, about, now, confidence, kept))


def _of_kind(findings: Sequence[Finding], kind: waste.WasteKind) -> Iterator[Finding]:
    """Those that may be of a kind, by rule in its order."""
    for rule in rules_of_kind(kind):
        yield from (each for each in findings if each.rule == rule.name)


def _sizing(review: Review, book: _Book, packed: Sequence[Packing] | None) -> RightSizing:
    """Other cards and packings for work on GPUs with which nothing else is to be done, and that nobody wants left as they are."""
    moves = tuple(_of_kind(review.findings, waste.OVERSIZED))
    taken = book.taken.union(*(each.gpus for each in moves if each.status == "suppressed"))
    free = [each for each in moves if taken.isdisjoint(each.gpus)]
    return right_sizing(review.context, free, packed, taken)


def _faulty(context: Context) -> dict[str, tuple[str, ...]]:
    """By recommendation the GPUs of a host that were out of order for long enough to be repaired."""
    rows = context.inside.stretches.filter(
        pl.col("state").is_in(waste.FAULTY.states)
        & (pl.col("stretch_end") - pl.col("stretch_start") >= context.settings.held_min_ms)
    )
    hosts = rows.group_by("host").agg(pl.col("gpu").unique().sort()).sort("host")
    return {own_id("faulty", host): tuple(gpus) for host, gpus in hosts.iter_rows()}


def _small(pool: PoolReclaimable) -> str:
    return tr(
        "the pool has {gpus} GPUs: of fewer than {wanted} the need varies much",
        gpus=Number(pool.gpus),
        wanted=Number(POOL_MIN_GPUS),
    )


def _put_off(findings: Sequence[Finding], found: Reclaimable) -> frozenset[str]:
    """The GPUs that somebody wants to be left where they are: those of suppressed findings; of a pool's surplus all of the pool."""
    gpus: set[str] = set()
    for each in findings:
        if each.status == "suppressed":
            gpus.update(each.reclaimable_gpus)
            if each.surplus is not None:
                of = (each.surplus.pool, each.surplus.model)
                gpus.update(*(pool.names for pool in found.pools if (pool.pool, pool.model) == of))
    return frozenset(gpus)


def _pool_of(gpus: Sequence[str], found: Reclaimable) -> PoolReclaimable | None:
    """That in which all of these are safe to give back."""
    return next((each for each in found.pools if gpus and set(gpus) <= set(each.safe_gpus)), None)


def _overlaps(claims: pl.DataFrame) -> list[tuple[str, str]]:
    """Pairs of recommendations that claim the same time: the first of the precedence, and each other one."""
    keys = claims.select("gpu", "state", "holder", "place", "recommendation")
    met = keys.join(keys, on=("gpu", "state"), suffix="_other").filter(
        (pl.col("place") < pl.col("place_other"))
        & ((pl.col("holder") == pl.col("holder_other")) | (pl.col("holder") == ANY) | (pl.col("holder_other") == ANY))
    )
    first = met.sort("place").unique(("gpu", "state", "holder_other", "recommendation_other"), keep="first")
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


def _swings(decisions: Decisions) -> Mapping[str, tuple[float, float, float]]:
    """See `Decisions.swings`: of the weeks that the lake knows whole, or of all that it knows where that is less than one.

    A single span says nothing of how they differ: the least is 0 then.
    """
    context = decisions.review.context
    first_ms, until_ms = context.whole.first_ms, context.until_ms
    spans = [(until_ms - back * WEEK_MS, until_ms - (back - 1) * WEEK_MS) for back in range(1, _WEEKS_BACK + 1)]
    spans = [span for span in spans if span[0] >= first_ms] or [(first_ms, until_ms)]
    rates = [
        {
            key: spent / (end - start)
            for key, spent in _time_on_now(decisions, clip(context.whole.stretches, start, end)).items()
        }
        for start, end in spans
    ]
    found: dict[str, tuple[float, float, float]] = {}
    for key, spent in decisions.time_now.items():
        if spent > 0:
            now = spent / (until_ms - context.since_ms)
            shares = [each.get(key, 0.0) / now for each in rates]
            least = min(shares) if len(shares) > 1 else 0.0
            found[key] = (least, sum(shares) / len(shares), max(shares))
    return found


def _time_on_now(decisions: Decisions, stretches: pl.DataFrame) -> dict[str, float]:
    """By recommendation the time on the GPUs to act on now: wasted, or in use where another card is proposed."""
    rows = stretches.filter(
        pl.col("gpu").is_in(decisions.now["gpu"].implode()) & pl.col("state").is_in((*WASTED, *IN_USE))
    )
    keys = {key for key, each in decisions.recommendations.items() if each.kind is waste.OVERSIZED}
    own = decisions.wasted(rows).join(decisions.now, on=("recommendation", "gpu"))
    counted = (
        pl.when(pl.col("recommendation").is_in(list(keys)))
        .then("gpu_ms")
        .otherwise(pl.col("waste_ms") - pl.col("open_ms"))
    )
    return dict(own.group_by("recommendation").agg(counted.sum()).iter_rows())
