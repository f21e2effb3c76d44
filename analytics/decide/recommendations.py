"""Recommendations: each piece of wasted time in exactly one decision, priced once, with what acting on it would save."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import polars as pl

from analytics.decide.leads import Decisions, Lead, own_key, recommendation_id
from analytics.decide.right_sizing import RightSizing
from analytics.decide.totals import saving_of
from analytics.decide.wasted_time import Waste, waste_of, wasted_cents, with_off_peak
from analytics.inventory import NO_POOL
from analytics.language.sentences import tr
from analytics.ledger.summary import SILENT_AFTER_MS, newest_row_ms
from analytics.money.priced_segments import MICROCENTS
from analytics.money.prices import HOURS_PER_YEAR
from analytics.names import JOINER
from analytics.rules import RULES_BY_NAME
from analytics.rules.zombie_holder import is_orphan
from analytics.states import IN_USE
from analytics.workloads.commands import acts, look_command
from analytics.workloads.model import Confidence, Context, Finding
from analytics.workloads.packing import Packing
from analytics.workloads.reclaimable import Reclaimable
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
from analytics.workloads.window_end import newest_rows
from fallow.clock import DAY_MS, HOUR_MS

OPERATORS = "operators"
"""Who acts where it is nobody's own GPU."""

_HORIZON_DAYS = {"return": 28, "right-size": 28, "schedule off-peak": 28}
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
class Recommendation:
    """One decision about GPUs.

    `gpu_ms` and `cents` are the wasted time of the window that it would act on, of `gpus`; no other recommendation has any of it.
    `unconfirmed_ms` of that rests on point samples alone. `cents` is None where nothing of it has a price. `gpus_now` are those to act on at the end of the window,
    each in one recommendation only. `evidence` are the findings about it, the one that leads first. `saving` is None where none is known.
    `at_list_price`: any of `gpus_now` has a public list's price, not the site's own.
    """

    recommendation_id: str
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
        return first if first is not None and recommendation_id(first) == self.recommendation_id else None

    @property
    def is_standing(self) -> bool:
        """Whether nobody has put it off."""
        return self.status != "suppressed"


@dataclass(frozen=True)
class Recommendations:
    """The recommendations of a window, those that are ranked first, what they add up to, and what can be given back.

    `reclaimable` is None of people: free GPUs are nobody's. `sizing` is what is proposed for each work, once.
    """

    listed: tuple[Recommendation, ...]
    waste: Waste
    reclaimable: Reclaimable | None
    sizing: RightSizing

    @property
    def ranked(self) -> tuple[Recommendation, ...]:
        """Those that are known to save something, the most first."""
        return tuple(each for each in self.listed if each.ranked)

    @property
    def to_look_at(self) -> tuple[Recommendation, ...]:
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


def _sum(listed: Iterable[Recommendation]) -> Saving | None:
    known = [each.saving for each in listed if each.saving is not None]
    if not known:
        return None
    return Saving(*(sum(getattr(each, name) for each in known) for name in ("low", "point", "high")))


def recommendations_in(
    decisions: Decisions, stretches: pl.DataFrame, about: Iterable[Finding] | None = None
) -> Recommendations:
    """The recommendations in a part of the window's ledger rows, and the waste that they are parts of.

    Args:
        decisions: those of the whole fleet; of those for people nothing is said of free GPUs.
        stretches: the rows of the part, clipped to the window.
        about: the findings that may be named; all without it.
    """
    context = decisions.review.context
    named = frozenset(each.finding_id for each in (decisions.review.findings if about is None else about))
    pieces = with_off_peak(decisions.wasted(decisions.idle_hours.shares(context, stretches)))
    cents = wasted_cents(pieces)
    by_key: dict[str, int] = defaultdict(int)
    for (_, key), each in cents.items():
        by_key[key] += each
    claimed = pieces.filter(pl.col("recommendation").is_not_null())
    sums = claimed.group_by("recommendation").agg(
        pl.col("waste_ms", "open_ms").sum(),
        priced=pl.col("amount").is_not_null().any(),
        gpus=pl.col("gpu").filter(pl.col("waste_ms") > 0).unique().sort(),
        pools=pl.col("pool").unique().sort(),
    )
    rows = {row["recommendation"]: row for row in sums.iter_rows(named=True)}
    scope = _Part(decisions, claimed, stretches)
    absorbed = {each.finding_id for own in decisions.evidence.values() for each in own[1:]}
    listed: list[Recommendation] = []
    for key, lead in decisions.leads.items():
        row = rows.get(key)
        finding = lead.finding
        is_named = finding is None or finding.finding_id in named
        one = _recommendation(scope, lead, row, by_key.get(key, 0))
        stands_apart = finding is not None and is_named and bool(one.gpus) and finding.finding_id not in absorbed
        if not (one.gpu_ms > 0 or one.saving is not None or stands_apart):
            continue
        own = tuple(each for each in decisions.evidence.get(key, ()) if each.finding_id in named)
        listed.append(replace(one, evidence=own) if is_named else _without_names(one, listed))
    return Recommendations(
        tuple(sorted(listed, key=_most_saved_first)),
        waste_of(pieces, cents, context.costs.currency),
        None if decisions.for_people else _reclaimable(decisions, scope),
        decisions.sizing.of(named | {each.packing.packing_id for each in listed if each.packing is not None}),
    )


def _reclaimable(decisions: Decisions, part: _Part) -> Reclaimable:
    """That of the part's pools; not known where nothing of the part was seen at the end."""
    last_ms, until_ms = part.last_ms, decisions.review.context.until_ms
    if last_ms is not None and last_ms <= until_ms - SILENT_AFTER_MS:
        return Reclaimable.of((), last_ms)
    return decisions.reclaimable.of_gpus(part.here)


def _most_saved_first(each: Recommendation) -> tuple[bool, float, float, float, str]:
    saved = each.saving.point if each.saving is not None else 0.0
    return not each.ranked, -saved, -float(each.cents or 0), -each.gpu_ms, each.recommendation_id


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
        met = claimed.join(decisions.now, on=("recommendation", "gpu"))
        self.on_now = {
            key: (amount / MICROCENTS / 100, used_ms)
            for key, amount, used_ms in met.group_by("recommendation")
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
        """What acting on a recommendation saves in a year; None where it is not known, or nothing is left to act on."""
        now = tuple(gpu for gpu in lead.now if gpu in self.here)
        hourly = self.rates(now)
        if not now or not hourly or self.context.until_ms - self.context.whole.first_ms < _YEARLY_FROM_MS:
            return None
        paid = hourly * HOURS_PER_YEAR
        if lead.kind in (NEVER_USED, SURPLUS):
            return self._of_return(lead, now, paid)
        if lead.kind in (INEFFICIENT, OFF_PEAK):
            return None  # what it would take to use them better nobody knows
        wasted, used_ms = self.on_now.get(lead.recommendation_id, (0.0, 0.0))
        point = (self._right_size(lead, now, used_ms) if lead.kind is OVERSIZED else wasted) * self.per_year
        if point <= 0:
            return None
        swing = self.decisions.swings.get(lead.recommendation_id)
        if swing is None:
            return None
        low, mean, high = (min(point * each, paid) for each in swing)
        return Saving(low, mean, paid if lead.kind is FAULTY else high)  # what is out of order may stay so

    def _right_size(self, lead: Lead, now: Sequence[str], used_ms: float) -> float:
        """What other cards save in the window; of a part of the work its share, of a part of a packing nothing."""
        if lead.packing is not None:
            return lead.packing.saving or 0.0 if len(now) == len(lead.packing.gpus) else 0.0
        saved = None if lead.finding is None else saving_of(lead.finding)
        whole_ms = self.decisions.time_now.get(lead.recommendation_id, 0.0)
        return 0.0 if saved is None or not whole_ms or len(lead.now) < len(lead.gpus) else saved * used_ms / whole_ms

    def _of_return(self, lead: Lead, now: Sequence[str], paid: float) -> Saving:
        """Of GPUs that go all that they cost; at least of as many as next week leaves without a reserve."""
        low = 0
        if lead.pool is not None and lead.pool.low is not None:
            of = (lead.pool.pool, lead.pool.model)
            low = min(len(now), self._left_low[of] or 0)
            self._left_low[of] = (self._left_low[of] or 0) - low
        return Saving(paid * low / len(now), paid, paid)


def _recommendation(part: _Part, lead: Lead, row: Mapping[str, Any] | None, cents: int) -> Recommendation:
    context, finding, key = part.context, lead.finding, lead.recommendation_id
    now = tuple(gpu for gpu in lead.now if gpu in part.here)
    action = _action(lead, now, is_seen=not context.fell_silent)
    gpus = tuple(row["gpus"]) if row else ()
    about = gpus or tuple(gpu for gpu in lead.gpus if gpu in part.gpus) or lead.gpus
    holder = None if finding is None or not lead.kind.of_holder else finding.holder
    devices = context.inventory.devices
    hosts = sorted({devices[gpu].host for gpu in now or about if gpu in devices})
    return Recommendation(
        recommendation_id=key,
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


def _without_names(one: Recommendation, before: Sequence[Recommendation]) -> Recommendation:
    """The same without what its finding says of others: its id too is made of what is left, for that of a finding names whom it is about."""
    alike = sum((each.kind, each.gpus, each.holder) == (one.kind, one.gpus, None) for each in before)
    return replace(
        one,
        recommendation_id=own_key(one.kind, "\0".join((str(alike), *one.gpus))),
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
    """What its kind says; a question first where somebody has the GPUs and it is unsure, or nothing can be done now."""
    if lead.finding is not None and RULES_BY_NAME[lead.finding.rule].of_machine:
        return "repair"
    of_somebody = lead.kind in (ALLOCATED_IDLE, HELD_IDLE) and (lead.confidence.grade == "low" or not now)
    of_nobody = lead.kind in (NEVER_USED, SURPLUS) and not is_seen
    return "ask" if of_somebody or of_nobody else lead.kind.action


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


GroupBy = Literal["owner", "pool"]


@dataclass(frozen=True)
class RecommendationGroup:
    """The ranked recommendations of one owner or pool: `gpus` to act on now, the wasted time and its cents, what they save together."""

    name: str
    listed: tuple[Recommendation, ...]
    saving: Saving | None

    @property
    def gpus(self) -> int:
        """Each GPU is in one recommendation."""
        return sum(len(each.gpus_now) for each in self.listed)

    @property
    def gpu_ms(self) -> float:
        return sum(each.gpu_ms for each in self.listed)

    @property
    def cents(self) -> int | None:
        """None where nothing has a price."""
        known = [each.cents for each in self.listed if each.cents is not None]
        return sum(known) if known else None


def grouped(found: Recommendations, by: GroupBy) -> tuple[RecommendationGroup, ...]:
    """The groups, the one that saves most first."""
    own: dict[str, list[Recommendation]] = {}
    for each in found.ranked:
        own.setdefault(getattr(each, by), []).append(each)
    groups = [
        RecommendationGroup(name, tuple(listed), replace(found, listed=tuple(listed)).saving)
        for name, listed in own.items()
    ]
    return tuple(sorted(groups, key=lambda group: (-(group.saving.point if group.saving else 0.0), group.name)))
