"""Opportunities: each piece of wasted time in exactly one decision, priced once, with what acting on it would save."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from analytics.decide.claims import ANY, Claims, TimeClaim, claims_of, holders_of, opportunity_id
from analytics.decide.deadlines import Deadlines
from analytics.decide.idle_hours import SHARE, IdleHours
from analytics.decide.review import Review
from analytics.decide.right_sizing import RightSizing, right_sizing
from analytics.decide.totals import saving_of
from analytics.intervals import clip
from analytics.inventory import NO_POOL
from analytics.language.quantities import Number
from analytics.language.sentences import tr
from analytics.ledger.data_end import newest_row_ms
from analytics.ledger.summary import SILENT_AFTER_MS
from analytics.money.priced_segments import AMOUNT, MICROCENTS, nested, pieces_of, rounded, unused_amount
from analytics.money.prices import HOURS_PER_YEAR
from analytics.names import JOINER
from analytics.rules import RULES_BY_NAME, rules_of_kind
from analytics.rules.zombie_holder import is_orphan
from analytics.states import IN_USE, WASTED
from analytics.workloads.commands import acts, look_command
from analytics.workloads.model import Confidence, Context, Finding
from analytics.workloads.packing_model import Packing
from analytics.workloads.pool_need import POOL_MIN_GPUS
from analytics.workloads.reclaimable import PoolReclaimable, Reclaimable, reclaimable
from analytics.workloads.waste import (
    ALLOCATED_IDLE,
    FAULTY,
    HELD_IDLE,
    INEFFICIENT,
    NEVER_USED,
    OFF_PEAK,
    OVERSIZED,
    SURPLUS,
    WasteKind,
)
from analytics.workloads.window_end import last_rows, newest_rows
from fallow.clock import DAY_MS, HOUR_MS, WEEK_MS

OPERATORS = "operators"
"""Who acts where it is nobody's own GPU."""

_HORIZON_DAYS = {"return": 28, "right-size": 28, "schedule off-peak": 28}
_WEEKS_BACK = 4
_YEARLY_FROM_MS = DAY_MS
"""A shorter history says nothing of a year."""


@dataclass(frozen=True)
class Saving:
    """What is saved in a year, in the report's currency: `point` by the mean of the last four weeks, the others by the least and the most."""

    low: float
    point: float
    high: float


@dataclass(frozen=True)
class Risk:
    """What it costs to be wrong: how probable use within `within_ms` is, and for how long and of how many GPUs a pool would have been short last week.

    None is not known. `waits` is who would wait: a holder, or a pool's jobs where it is None.
    """

    probability: float | None
    within_ms: int | None
    short_hours: int | None
    hours: int | None
    short_gpus: int | None
    waits: str | None


@dataclass(frozen=True)
class Opportunity:
    """One decision about GPUs.

    `gpu_ms` and `cents` are the wasted time of the window that it would act on, of `gpus`; no other opportunity has any of it.
    `unconfirmed_ms` of that rests on point samples alone. `cents` is None where nothing of it has a price. `gpus_now` are those to act on at the end of the window,
    each in one opportunity only. `evidence` are the findings about it, the one that leads first. `saving` is None where none is known.
    `at_list_price`: any of `gpus_now` has a public list's price, not the site's own.
    """

    opportunity_id: str
    kind: str
    action: str
    owner: str
    holder: str | None
    team: str | None
    pool: str
    host: str
    gpus: tuple[str, ...]
    gpus_now: tuple[str, ...]
    gpu_ms: float
    unconfirmed_ms: float
    cents: int | None
    currency: str
    saving: Saving | None
    confidence: Confidence
    horizon_ms: int
    deadline_ms: int
    evidence: tuple[Finding, ...]
    status: str
    next_command: str
    risk: Risk
    simulated: bool
    at_list_price: bool = False
    packing: Packing | None = None

    @property
    def given_to(self) -> str | None:
        """The team, else the job, that its GPUs were given to, where operators have to act because no user is known."""
        lead = self.leading
        if self.owner != OPERATORS or self.holder is not None or lead is None or self.action in ("return", "repair"):
            return None
        return None if lead.holder is not None else self.team or lead.job

    @property
    def ranked(self) -> bool:
        """Whether it is known to save something; others are to be looked at."""
        return (
            self.saving is not None
            and self.saving.point > 0
            and self.action != "ask"
            and self.confidence.grade != "low"
            and self.status != "suppressed"
        )

    @property
    def unconfirmed(self) -> float:
        """The share of its time that rests on point samples alone."""
        return self.unconfirmed_ms / self.gpu_ms if self.gpu_ms else 0.0

    @property
    def leading(self) -> Finding | None:
        """The finding that it stands on, which people acknowledge or put off; None of faults and packings, and where it is about others."""
        first = self.evidence[0] if self.evidence else None
        return first if first is not None and opportunity_id(first) == self.opportunity_id else None

    @property
    def is_standing(self) -> bool:
        """Whether nobody has put it off."""
        return self.status != "suppressed"


@dataclass(frozen=True)
class Waste:
    """The wasted time of a window and its whole cents: unavailable, free, reserved, held, and the unused part of low.

    `rest_ms` and `rest_cents` of it are what no opportunity can act on: pauses, the reserve, fragments. `open_ms` and `open_cents`
    of it are idle by point samples alone. Cents are None where nothing has a price; `unpriced_ms` is in no sum of money.
    """

    state_ms: Mapping[str, float]
    state_cents: Mapping[str, int] | None
    rest_ms: Mapping[str, float]
    rest_cents: Mapping[str, int] | None
    open_ms: float
    open_cents: int | None
    unpriced_ms: float
    currency: str

    @property
    def gpu_ms(self) -> float:
        """All of it."""
        return sum(self.state_ms.values())

    @property
    def cents(self) -> int | None:
        """All of it that has a price."""
        return None if self.state_cents is None else sum(self.state_cents.values())

    @property
    def not_actionable_ms(self) -> float:
        """What no opportunity can act on."""
        return sum(self.rest_ms.values())

    @property
    def not_actionable_cents(self) -> int | None:
        """The cents of that."""
        return None if self.rest_cents is None else sum(self.rest_cents.values())


@dataclass(frozen=True)
class Opportunities:
    """The opportunities of a window, those that are ranked first, what they add up to, and what can be given back.

    `reclaimable` is None of people: free GPUs are nobody's. `sizing` is what is proposed for each work, once.
    """

    listed: tuple[Opportunity, ...]
    waste: Waste
    reclaimable: Reclaimable | None
    sizing: RightSizing

    @property
    def ranked(self) -> tuple[Opportunity, ...]:
        """Those that are known to save something, the most first."""
        return tuple(each for each in self.listed if each.ranked)

    @property
    def to_look_at(self) -> tuple[Opportunity, ...]:
        """Those without a known saving, or too unsure of it."""
        return tuple(each for each in self.listed if not each.ranked and each.is_standing)

    @property
    def saving(self) -> Saving | None:
        """What the ranked ones are worth together; the bounds are sums of bounds, which is wider than the sum's own."""
        return _sum(self.ranked)

    @property
    def given_back(self) -> Saving | None:
        """Of that what the GPUs cost that are given back."""
        return _sum(each for each in self.ranked if each.action == "return")

    @property
    def at_list_price(self) -> bool:
        """Whether that counts with the prices of a public list."""
        return any(each.at_list_price for each in self.ranked)

    @property
    def freed(self) -> Saving | None:
        """Of that GPU time that others can use: nobody pays less for it until it is used or the GPUs go too."""
        return _sum(each for each in self.ranked if each.action != "return")


def _sum(listed: Iterable[Opportunity]) -> Saving | None:
    known = [each.saving for each in listed if each.saving is not None]
    if not known:
        return None
    return Saving(*(sum(getattr(each, name) for each in known) for name in ("low", "point", "high")))


@dataclass(frozen=True)
class Lead:
    """What an opportunity stands on, before it is priced: a finding, a packing, or GPUs out of order or spare without either.

    `gpus` is what it claims, `now` what of it can be acted on at the end of the window.
    """

    opportunity_id: str
    kind: WasteKind
    finding: Finding | None
    gpus: tuple[str, ...]
    now: tuple[str, ...]
    confidence: Confidence
    pool: PoolReclaimable | None = None
    packing: Packing | None = None


@dataclass(frozen=True)
class Decisions:
    """What is decided for the whole fleet; parts of it are priced by `opportunities_in`. Deadlines count from `told_ms`."""

    review: Review
    deadlines: Deadlines
    told_ms: int
    leads: Mapping[str, Lead]
    claims: Claims
    reclaimable: Reclaimable
    idle_hours: IdleHours
    sizing: RightSizing
    for_people: bool

    @cached_property
    def now(self) -> pl.DataFrame:
        """Which opportunity acts on which GPU at the end of the window, each GPU once: opportunity, gpu."""
        rows = [(key, gpu) for key, lead in self.leads.items() for gpu in lead.now]
        return pl.DataFrame(rows, schema={"opportunity": pl.String, "gpu": pl.String}, orient="row")

    @cached_property
    def evidence(self) -> Mapping[str, tuple[Finding, ...]]:
        """By opportunity the findings about its time, the one that leads first; a weaker one stands under each that took time from it."""
        by_id = {opportunity_id(each): each for each in self.review.findings}
        found = {key: [] if lead.finding is None else [lead.finding] for key, lead in self.leads.items()}
        for winner, other in _overlaps(self.claims.frame):
            if other in by_id and by_id[other] not in found[winner]:
                found[winner].append(by_id[other])
        return {key: tuple(own) for key, own in found.items()}

    @cached_property
    def time_now(self) -> Mapping[str, float]:
        """By opportunity its time in the window on the GPUs to act on: wasted, or in use where another card is proposed."""
        return _time_on_now(self, self.review.context.inside.stretches)

    @cached_property
    def swings(self) -> Mapping[str, tuple[float, float, float]]:
        """By opportunity the least, the mean and the most of its time in the last weeks, over that of the window, each in an hour."""
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
    _add_repairs(book, context)
    _add_idle(book, review)
    sizing = _sizing(review, book, (() if for_people else None))
    _add_changes(book, review, sizing)
    idle_hours = IdleHours.of(context, deadlines.zone)
    for pool in idle_hours.windows:
        untested = Confidence((tr("whether work would wait for these hours is not known"),))
        book.add(Lead(_key("off_peak", pool), OFF_PEAK, None, (), (), untested))
    claims = claims_of(book.claims, context.settings.held_min_ms)
    told_ms = context.until_ms if told_ms is None else told_ms
    return Decisions(review, deadlines, told_ms, book.leads, claims, found, idle_hours, sizing, for_people)


def _add_repairs(book: _Book, context: Context) -> None:
    for key, gpus in _faulty(context).items():
        unsure = Confidence((tr("how long it stays out of order is not known"),))
        book.add(Lead(key, FAULTY, None, gpus, book.with_state(gpus, FAULTY.states), unsure))


def _add_idle(book: _Book, review: Review) -> None:
    """What nobody has, and what somebody has and does not use."""
    for finding in _of_kind(review.findings, NEVER_USED):
        book.add_returnable(finding, NEVER_USED)
    book.add_spare(review.findings)
    for finding in _of_kind(review.findings, SURPLUS):
        book.add_returnable(finding, SURPLUS)
    for kind in (ALLOCATED_IDLE, HELD_IDLE):
        for finding in _of_kind(review.findings, kind):
            book.add_finding(finding, kind)


def _add_changes(book: _Book, review: Review, sizing: RightSizing) -> None:
    """Work that runs, and could run on less or better."""
    for packing in sizing.packings:
        book.add(
            Lead(
                packing.opportunity_id, OVERSIZED, None, packing.gpus, packing.gpus, packing.confidence, packing=packing
            )
        )
    for finding in (*sizing.moves, *_of_kind(review.findings, OVERSIZED)):
        book.add_finding(finding, OVERSIZED, finding.gpus)
    for finding in _of_kind(review.findings, INEFFICIENT):
        book.add_finding(finding, INEFFICIENT, finding.gpus)


class _Book:
    """Leads and claims in their precedence; a GPU is acted on by the first that can.

    `if_all_go` is what could be given back if nobody had put anything off, `found` what can.
    """

    def __init__(self, context: Context, if_all_go: Reclaimable, found: Reclaimable) -> None:
        self._if_all_go, self._found = if_all_go, found
        self.leads: dict[str, Lead] = {}
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

    def add(self, lead: Lead, holders: Sequence[str] | None = None) -> None:
        """A lead with its first claim; what it acts on is what nothing before it does."""
        self.claims.append(TimeClaim(lead.opportunity_id, lead.kind, lead.gpus, holders))
        now = () if self._is_unseen else tuple(gpu for gpu in lead.now if gpu not in self._taken)
        self._taken.update(now)
        before = self.leads.get(lead.opportunity_id)
        if before is None or not before.now:
            self.leads[lead.opportunity_id] = replace(lead, now=now)
        else:  # of two kinds: allocated here, held there
            self.leads[lead.opportunity_id] = replace(before, now=(*before.now, *now))

    def add_finding(self, finding: Finding, kind: WasteKind, now: Sequence[str] | None = None) -> None:
        """The lead of a finding; what somebody put off takes its GPUs, so that no weaker finding asks for them."""
        wanted = self.with_state(finding.reclaimable_gpus, kind.states) if now is None else self._still_of(finding, now)
        if finding.status == "suppressed":
            self._taken.update(wanted)
            wanted = ()
        lead = Lead(opportunity_id(finding), kind, finding, finding.gpus, wanted, finding.confidence)
        self.add(lead, holders_of(finding, kind))

    def _still_of(self, finding: Finding, gpus: Sequence[str]) -> tuple[str, ...]:
        """Those that no other user has at the end of the window; of a fault all, for it is the card's and not the user's."""
        if finding.holder is None or RULES_BY_NAME[finding.rule].of_machine:
            return tuple(gpus)
        theirs = frozenset(finding.holder.split(JOINER))
        return tuple(gpu for gpu in gpus if not theirs.isdisjoint(self._users.get(gpu, theirs)))

    def add_returnable(self, finding: Finding, kind: WasteKind) -> None:
        """The lead of a finding about GPUs that nobody has: of those alone that can go, for the others are the reserve."""
        about = tuple(gpu for gpu in finding.reclaimable_gpus if gpu in self._if_all_go.safe_gpus)
        now = tuple(gpu for gpu in self.with_state(about, kind.states) if gpu in self._found.safe_gpus)
        pool = _pool_of(now, self._found)
        self.add(Lead(opportunity_id(finding), kind, finding, about, now, finding.confidence, pool))

    def add_spare(self, findings: Sequence[Finding]) -> None:
        """The leads of free GPUs that can go: of the pool's finding, or of their own where it has none."""
        told = {(each.surplus.pool, each.surplus.model): each for each in findings if each.surplus is not None}
        left = {(each.pool, each.model): each for each in self._found.pools}
        for pool in self._if_all_go.pools:
            about = self.with_state(pool.safe_gpus, SURPLUS.states)
            if not about:
                continue
            finding, kept = told.get((pool.pool, pool.model)), left[pool.pool, pool.model]
            key = _key("surplus", f"{pool.pool}\0{pool.model}") if finding is None else opportunity_id(finding)
            confidence = Confidence((_small(pool),)) if finding is None else finding.confidence
            now = tuple(gpu for gpu in about if gpu in kept.safe_gpus)
            self.add(Lead(key, SURPLUS, finding, about, now, confidence, kept))


def _of_kind(findings: Sequence[Finding], kind: WasteKind) -> Iterator[Finding]:
    """Those that may be of a kind, by rule in its order."""
    for rule in rules_of_kind(kind):
        yield from (each for each in findings if each.rule == rule.name)


def _sizing(review: Review, book: _Book, packed: Sequence[Packing] | None) -> RightSizing:
    """Other cards and packings for work on GPUs with which nothing else is to be done, and that nobody wants left as they are."""
    moves = tuple(_of_kind(review.findings, OVERSIZED))
    taken = book.taken.union(*(each.gpus for each in moves if each.status == "suppressed"))
    free = [each for each in moves if taken.isdisjoint(each.gpus)]
    return right_sizing(review.context, free, packed, taken)


def _faulty(context: Context) -> dict[str, tuple[str, ...]]:
    """By opportunity the GPUs of a host that were out of order for long enough to be repaired."""
    rows = context.inside.stretches.filter(
        pl.col("state").is_in(FAULTY.states)
        & (pl.col("stretch_end") - pl.col("stretch_start") >= context.settings.held_min_ms)
    )
    hosts = rows.group_by("host").agg(pl.col("gpu").unique().sort()).sort("host")
    return {_key("faulty", str(host)): tuple(gpus) for host, gpus in hosts.iter_rows()}


def _key(kind: str, subject: str) -> str:
    return "O-" + hashlib.sha256(f"{kind}\0{subject}".encode()).hexdigest()[:10]


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


def opportunities_in(
    decisions: Decisions, stretches: pl.DataFrame, about: Iterable[Finding] | None = None
) -> Opportunities:
    """The opportunities in a part of the window's ledger rows, and the waste that they are parts of.

    Args:
        decisions: those of the whole fleet; of those for people nothing is said of free GPUs.
        stretches: the rows of the part, clipped to the window.
        about: the findings that may be named; all without it.
    """
    context = decisions.review.context
    named = frozenset(each.finding_id for each in (decisions.review.findings if about is None else about))
    rows_of = decisions.idle_hours.shares(context, stretches)
    pieces = _with_off_peak(
        _wasted(decisions.claims.assigned(pieces_of(rows_of, context.costs, context.inventory, context.owners)))
    )
    cents = _cents(pieces)
    by_key: dict[str, int] = defaultdict(int)
    for (_, key), each in cents.items():
        by_key[key] += each
    claimed = pieces.filter(pl.col("opportunity").is_not_null())
    sums = claimed.group_by("opportunity").agg(
        pl.col("waste_ms", "open_ms").sum(),
        priced=pl.col("amount").is_not_null().any(),
        gpus=pl.col("gpu").filter(pl.col("waste_ms") > 0).unique().sort(),
        pools=pl.col("pool").unique().sort(),
    )
    rows = {row["opportunity"]: row for row in sums.iter_rows(named=True)}
    scope = _Part(decisions, claimed, stretches)
    absorbed = {each.finding_id for own in decisions.evidence.values() for each in own[1:]}
    listed: list[Opportunity] = []
    for key, lead in decisions.leads.items():
        row = rows.get(key)
        finding = lead.finding
        is_named = finding is None or finding.finding_id in named
        one = _opportunity(scope, lead, row, by_key.get(key, 0))
        stands_apart = finding is not None and is_named and bool(one.gpus) and finding.finding_id not in absorbed
        if not (one.gpu_ms > 0 or one.saving is not None or stands_apart):
            continue
        own = tuple(each for each in decisions.evidence.get(key, ()) if each.finding_id in named)
        listed.append(replace(one, evidence=own) if is_named else _without_names(one, listed))
    return Opportunities(
        tuple(sorted(listed, key=_most_saved_first)),
        _waste(pieces, cents, context.costs.currency),
        None if decisions.for_people else _reclaimable(decisions, scope),
        decisions.sizing.of(named | {each.packing.packing_id for each in listed if each.packing is not None}),
    )


def _reclaimable(decisions: Decisions, part: _Part) -> Reclaimable:
    """That of the part's pools; not known where nothing of the part was seen at the end."""
    last_ms, until_ms = part.last_ms, decisions.review.context.until_ms
    if last_ms is not None and last_ms <= until_ms - SILENT_AFTER_MS:
        return Reclaimable.of((), last_ms)
    return decisions.reclaimable.of_gpus(part.here)


def _most_saved_first(each: Opportunity) -> tuple[bool, float, float, float, str]:
    saved = each.saving.point if each.saving is not None else 0.0
    return not each.ranked, -saved, -float(each.cents or 0), -each.gpu_ms, each.opportunity_id


def _wasted(pieces: pl.DataFrame) -> pl.DataFrame:
    """With waste_ms and waste_amount, and open_ms: of it, by point samples alone."""
    wasted, low = pl.col("state").is_in(WASTED), pl.col("state") == "low"
    unused = pl.when(wasted).then(1.0 - pl.col("used_share")).otherwise(0.0)
    amount = (
        pl.when(low)
        .then(unused_amount())
        .when(wasted)
        .then("amount")
        .when(pl.col("amount").is_not_null())
        .then(pl.lit(0, AMOUNT))
    )
    return pieces.with_columns(
        waste_ms=pl.col("gpu_ms") * unused,
        waste_amount=amount,
        open_ms=pl.col("gpu_ms") * unused * pl.col("open_share"),
    )


def _with_off_peak(pieces: pl.DataFrame) -> pl.DataFrame:
    """The pieces with free time that nothing claims cut in two: in off-peak hours, which is that opportunity's, and outside."""
    open_to_use = pl.col("opportunity").is_null() & (pl.col("state") == "free") & (pl.col(SHARE) > 0)
    cut, whole = pieces.filter(open_to_use), pieces.filter(~open_to_use.fill_null(value=False))
    if cut.is_empty():
        return pieces
    keys = {pool: _key("off_peak", pool) for pool in cut["pool"].unique()}
    inside = (pl.col("waste_amount").cast(pl.Float64) * pl.col(SHARE)).round().cast(AMOUNT)
    times = [pl.col(name) * pl.col(SHARE) for name in ("gpu_ms", "waste_ms", "open_ms")]
    others = [pl.col(name) * (1 - pl.col(SHARE)) for name in ("gpu_ms", "waste_ms", "open_ms")]
    part = cut.with_columns(
        *times,
        amount=inside,
        waste_amount=inside,
        opportunity=pl.col("pool").replace_strict(keys, return_dtype=pl.String),
    )
    rest = cut.with_columns(*others, amount=pl.col("amount") - inside, waste_amount=pl.col("waste_amount") - inside)
    return pl.concat([whole, part, rest])


def _overlaps(claims: pl.DataFrame) -> list[tuple[str, str]]:
    """Pairs of opportunities that claim the same time: the first of the precedence, and each other one."""
    keys = claims.select("gpu", "state", "holder", "place", "opportunity")
    met = keys.join(keys, on=("gpu", "state"), suffix="_other").filter(
        (pl.col("place") < pl.col("place_other"))
        & ((pl.col("holder") == pl.col("holder_other")) | (pl.col("holder") == ANY) | (pl.col("holder_other") == ANY))
    )
    first = met.sort("place").unique(("gpu", "state", "holder_other", "opportunity_other"), keep="first")
    pairs = (
        first.group_by("opportunity", "opportunity_other")
        .agg(pl.col("place_other").min())
        .sort("place_other", "opportunity")
    )
    return [(one, other) for one, other in pairs.select("opportunity", "opportunity_other").iter_rows() if one != other]


def _cents(pieces: pl.DataFrame) -> dict[tuple[str, str], int]:
    """Whole cents of the wasted time by state and opportunity, empty for what none claims; they add up to the ledger's of each state.

    Every state's cents are those of `Accounts`; in them used and wasted part, and in the latter the opportunities.
    """
    known = pieces.filter(pl.col("amount").is_not_null()).with_columns(pl.col("opportunity").fill_null(""))
    wasted = known.group_by("state", "opportunity").agg(pl.col("waste_amount").sum())
    used = known.group_by("state").agg((pl.col("amount") - pl.col("waste_amount")).sum())
    amounts: dict[tuple[str, ...], int] = {
        (state, "wasted", key): amount for state, key, amount in wasted.iter_rows() if state in WASTED
    }
    amounts |= {(state, "used", ""): amount for state, amount in used.iter_rows()}
    return {(state, key): each for (state, part, key), each in nested(amounts).items() if part == "wasted"}


def _waste(pieces: pl.DataFrame, cents: Mapping[tuple[str, str], int], currency: str) -> Waste:
    def by_state(rows: pl.DataFrame) -> dict[str, float]:
        found = dict(rows.group_by("state").agg(pl.col("waste_ms").sum()).iter_rows())
        return {state: found.get(state, 0.0) for state in WASTED}

    priced = bool(pieces["amount"].is_not_null().any()) or pieces.is_empty()
    open_amount = pieces.select(pl.col("waste_amount").cast(pl.Float64) * pl.col("open_share")).to_series().sum()
    all_cents, rest_cents = dict.fromkeys(WASTED, 0), dict.fromkeys(WASTED, 0)
    for (state, key), each in cents.items():
        all_cents[state] += each
        rest_cents[state] += 0 if key else each
    return Waste(
        state_ms=by_state(pieces),
        state_cents=all_cents if priced else None,
        rest_ms=by_state(pieces.filter(pl.col("opportunity").is_null())),
        rest_cents=rest_cents if priced else None,
        open_ms=float(pieces["open_ms"].sum()),
        open_cents=rounded(round(open_amount)) if priced else None,
        unpriced_ms=float(pieces.filter(pl.col("amount").is_null())["waste_ms"].sum()),
        currency=currency,
    )


class _Part:
    """A part of the fleet's claimed time, for the savings in it."""

    def __init__(self, decisions: Decisions, claimed: pl.DataFrame, stretches: pl.DataFrame) -> None:
        """`gpus` were of the part at any time, `here` are at the end of the window; what is to be done is about those."""
        self.decisions = decisions
        context = decisions.review.context
        seen = stretches.filter(pl.col("state") != "unknown")
        self.gpus = frozenset(stretches["gpu"].unique())
        self.here = frozenset(seen.join(newest_rows(context), on=("gpu", "end"), how="semi")["gpu"])
        self.last_ms = newest_row_ms(stretches, context.ahead)
        self.context = context
        self._left_low = {(each.pool, each.model): each.low for each in decisions.reclaimable.pools}
        met = claimed.join(decisions.now, on=("opportunity", "gpu"))
        self.on_now = {
            key: (amount / MICROCENTS / 100, used_ms)
            for key, amount, used_ms in met.group_by("opportunity")
            .agg(
                ((pl.col("waste_amount").cast(pl.Float64)) * (1 - pl.col("open_share"))).sum(),
                pl.col("gpu_ms").filter(pl.col("state").is_in(IN_USE)).sum(),
            )
            .iter_rows()
        }

    @property
    def per_year(self) -> float:
        """What turns a sum of the window into that of a year."""
        return HOURS_PER_YEAR * HOUR_MS / (self.context.until_ms - self.context.since_ms)

    def rates(self, gpus: Iterable[str]) -> float | None:
        """What an hour of these GPUs costs; None where a price is missing."""
        known = [self.context.costs.rate_of(gpu) for gpu in gpus]
        return None if None in known else sum(each for each in known if each is not None)

    def saving(self, lead: Lead) -> Saving | None:
        """What acting on an opportunity saves in a year; None where it is not known, or nothing is left to act on."""
        now = tuple(gpu for gpu in lead.now if gpu in self.here)
        hourly = self.rates(now)
        if not now or not hourly or self.context.until_ms - self.context.whole.first_ms < _YEARLY_FROM_MS:
            return None
        paid = hourly * HOURS_PER_YEAR
        if lead.kind in (NEVER_USED, SURPLUS):
            return self._of_return(lead, now, paid)
        if lead.kind in (INEFFICIENT, OFF_PEAK):
            return None  # what it would take to use them better nobody knows
        wasted, used_ms = self.on_now.get(lead.opportunity_id, (0.0, 0.0))
        point = (self._right_size(lead, now, used_ms) if lead.kind is OVERSIZED else wasted) * self.per_year
        if point <= 0:
            return None
        swing = self.decisions.swings.get(lead.opportunity_id)
        if swing is None:
            return None
        low, mean, high = (min(point * each, paid) for each in swing)
        return Saving(low, mean, paid if lead.kind is FAULTY else high)  # what is out of order may stay so

    def _right_size(self, lead: Lead, now: Sequence[str], used_ms: float) -> float:
        """What other cards save in the window; of a part of the work its share, of a part of a packing nothing."""
        if lead.packing is not None:
            return lead.packing.saving or 0.0 if len(now) == len(lead.packing.gpus) else 0.0
        saved = None if lead.finding is None else saving_of(lead.finding)
        whole_ms = self.decisions.time_now.get(lead.opportunity_id, 0.0)
        return 0.0 if saved is None or not whole_ms or len(lead.now) < len(lead.gpus) else saved * used_ms / whole_ms

    def _of_return(self, lead: Lead, now: Sequence[str], paid: float) -> Saving:
        """Of GPUs that go all that they cost; at least of as many as next week leaves without a reserve."""
        low = 0
        if lead.pool is not None and lead.pool.low is not None:
            of = (lead.pool.pool, lead.pool.model)
            low = min(len(now), self._left_low[of] or 0)
            self._left_low[of] = (self._left_low[of] or 0) - low
        return Saving(paid * low / len(now), paid, paid)


def _opportunity(part: _Part, lead: Lead, row: Mapping[str, Any] | None, cents: int) -> Opportunity:
    context, finding, key = part.context, lead.finding, lead.opportunity_id
    now = tuple(gpu for gpu in lead.now if gpu in part.here)
    action = _action(lead, now, is_seen=not context.fell_silent)
    gpus = tuple(row["gpus"]) if row else ()
    about = gpus or tuple(gpu for gpu in lead.gpus if gpu in part.gpus) or lead.gpus
    holder = None if finding is None or not lead.kind.of_holder else finding.holder
    devices = context.inventory.devices
    hosts = sorted({devices[gpu].host for gpu in now or about if gpu in devices})
    return Opportunity(
        opportunity_id=key,
        kind=lead.kind.name,
        action=action,
        owner=_owner(action, lead, holder),
        holder=holder,
        team=None if finding is None or not lead.kind.of_holder else finding.team,
        pool=JOINER.join(row["pools"] if row else sorted({context.inventory.pool(gpu) for gpu in about})) or NO_POOL,
        host=JOINER.join(hosts),
        gpus=about,
        gpus_now=now,
        gpu_ms=float(row["waste_ms"]) if row else 0.0,
        unconfirmed_ms=float(row["open_ms"]) if row else 0.0,
        cents=cents if (row["priced"] if row else part.rates(about) is not None) else None,
        currency=context.costs.currency,
        saving=part.saving(lead),
        confidence=lead.confidence,
        horizon_ms=_HORIZON_DAYS.get(action, 7) * DAY_MS,
        deadline_ms=_deadline_ms(part.decisions, action, lead.kind),
        evidence=part.decisions.evidence.get(key, ()),
        status="standing" if finding is None else finding.status,
        next_command=_next(context, finding, action, now),
        risk=_risk(lead, holder),
        simulated=all(context.inventory.simulated(gpu) for gpu in about),
        at_list_price=any(
            (price := context.costs.price_of(gpu)) is not None and price.origin == "catalog" for gpu in now
        ),
        packing=lead.packing,
    )


def _next(context: Context, finding: Finding | None, action: str, now: Sequence[str]) -> str:
    """The finding's command; before GPUs go a look at the host of the first of them."""
    host = context.inventory.devices[now[0]].host if now and now[0] in context.inventory.devices else None
    if action == "return" and host is not None and (finding is None or not acts(finding.next_command)):
        return look_command(host)
    return "" if finding is None else finding.next_command


def _without_names(one: Opportunity, before: Sequence[Opportunity]) -> Opportunity:
    """The same without what its finding says of others: its id too is made of what is left, for that of a finding names whom it is about."""
    alike = sum((each.kind, each.gpus, each.holder) == (one.kind, one.gpus, None) for each in before)
    return replace(
        one,
        opportunity_id=_key(one.kind, "\0".join((str(alike), *one.gpus))),
        holder=None,
        evidence=(),
        next_command="",
        host="",
        team=None,
        owner=OPERATORS,
        packing=None,
        risk=Risk(None, None, None, None, None, None),
        confidence=without_names(one.confidence),
    )


def without_names(confidence: Confidence) -> Confidence:
    """As sure, without what its conditions say of others."""
    return replace(confidence, failed=(tr("a condition that is about others as well"),) * len(confidence.failed))


def _action(lead: Lead, now: Sequence[str], *, is_seen: bool) -> str:
    if lead.kind is FAULTY or (lead.finding is not None and RULES_BY_NAME[lead.finding.rule].of_machine):
        return "repair"
    if lead.kind in (NEVER_USED, SURPLUS) and is_seen:
        return "return"
    if lead.kind is OVERSIZED:
        return "right-size"
    if lead.kind is OFF_PEAK:
        return "schedule off-peak"
    if lead.kind is INEFFICIENT or lead.confidence.grade == "low" or not now:
        return "ask"
    return "release" if lead.kind is ALLOCATED_IDLE else "reclaim"


def _deadline_ms(decisions: Decisions, action: str, kind: WasteKind) -> int:
    """Idle GPUs and faults first, then changes of work; cards that leave the site take the longest."""
    deadlines = decisions.deadlines
    if action == "return":
        due_ms = deadlines.return_ms
    elif action in ("right-size", "schedule off-peak") or (action == "ask" and kind is INEFFICIENT):
        due_ms = deadlines.change_ms
    else:
        due_ms = deadlines.release_ms
    return due_ms(decisions.told_ms)


def _owner(action: str, lead: Lead, holder: str | None) -> str:
    """Who must act: the holder, and the operators where there is none or where the work has lost its holder."""
    orphan = lead.finding is not None and is_orphan(lead.finding)
    return OPERATORS if holder is None or orphan or action in ("return", "repair") else holder


def _risk(lead: Lead, holder: str | None) -> Risk:
    outlook = lead.confidence.outlook
    said = None if outlook is None else outlook.probability
    wrong, within_ms = (None, None) if outlook is None or said is None else (1 - said, outlook.horizon_ms)
    reserve = None if lead.pool is None else lead.pool.default
    if reserve is None or lead.kind not in (NEVER_USED, SURPLUS):
        return Risk(wrong, within_ms, None, None, None, holder)
    return Risk(wrong, within_ms, reserve.short_hours, reserve.hours, reserve.short_gpus, holder)


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
    """By opportunity the time on the GPUs to act on now: wasted, or in use where another card is proposed."""
    context = decisions.review.context
    rows = stretches.filter(
        pl.col("gpu").is_in(decisions.now["gpu"].implode()) & pl.col("state").is_in((*WASTED, *IN_USE))
    )
    pieces = _wasted(decisions.claims.assigned(pieces_of(rows, context.costs, context.inventory, context.owners)))
    keys = {key for key, lead in decisions.leads.items() if lead.kind is OVERSIZED}
    own = pieces.join(decisions.now, on=("opportunity", "gpu"))
    counted = (
        pl.when(pl.col("opportunity").is_in(list(keys)))
        .then("gpu_ms")
        .otherwise(pl.col("waste_ms") - pl.col("open_ms"))
    )
    return dict(own.group_by("opportunity").agg(counted.sum()).iter_rows())
