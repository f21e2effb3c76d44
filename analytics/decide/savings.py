"""What recommendations cost and save in a part of the window: each piece of wasted time in one of them, priced once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from analytics.decide.decisions import SHARE, Decisions
from analytics.decide.recommendations import Recommendation, Recommendations, Risk, Saving, Waste, own_id
from analytics.decide.totals import saving_of
from analytics.inventory import NO_POOL
from analytics.language.sentences import tr
from analytics.ledger.summary import SILENT_AFTER_MS, newest_row_ms
from analytics.money.priced_segments import AMOUNT, MICROCENTS, nested, rounded
from analytics.money.prices import HOURS_PER_YEAR
from analytics.names import JOINER
from analytics.rules import RULES_BY_NAME
from analytics.states import IN_USE, WASTED
from analytics.workloads import waste
from analytics.workloads.commands import acts, look_command
from analytics.workloads.model import Confidence, Context, Finding
from analytics.workloads.reclaimable import Reclaimable
from analytics.workloads.window_end import newest_rows
from fallow.clock import DAY_MS, HOUR_MS

_YEARLY_FROM_MS = DAY_MS
"""A shorter history says nothing of a year."""


def recommendations_in(
    decisions: Decisions, stretches: pl.DataFrame, about: Iterable[Finding] | None = None
) -> Recommendations:
    """The recommendations in a part of the window's ledger rows, and the waste that they are parts of.

    Args:
        decisions: those of the whole fleet; those for people leave free GPUs out.
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
    for key, whole in decisions.recommendations.items():
        one = scope.priced(whole, rows.get(key), by_key.get(key, 0))
        finding = one.finding
        is_named = finding is None or finding.finding_id in named
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

    def priced(self, whole: Recommendation, row: Mapping[str, Any] | None, cents: int) -> Recommendation:
        """Return a recommendation of the fleet as it is in this part; `row` are the sums of its time here."""
        context, devices, finding = self.context, self.context.inventory.devices, whole.finding
        now = tuple(gpu for gpu in whole.gpus_now if gpu in self.here)
        about = tuple(row["gpus"]) if row else ()
        about = about or tuple(gpu for gpu in whole.gpus if gpu in self.gpus) or whole.gpus
        action = _action(whole, now, is_seen=not context.fell_silent)
        hosts = sorted({devices[gpu].host for gpu in now or about if gpu in devices})
        prices = [context.costs.price_of(gpu) for gpu in now]
        return replace(
            whole,
            status=whole.status if finding is None else finding.status,
            action=action,
            pool=JOINER.join(row["pools"] if row else sorted({context.inventory.pool(gpu) for gpu in about}))
            or NO_POOL,
            host=JOINER.join(hosts),
            gpus=about,
            gpus_now=now,
            gpu_ms=float(row["waste_ms"]) if row else 0.0,
            unconfirmed_ms=float(row["open_ms"]) if row else 0.0,
            cents=cents if (row["priced"] if row else self.rates(about) is not None) else None,
            currency=context.costs.currency,
            saving=self._saving(whole, now),
            deadline_ms=self._deadline_ms(whole, action),
            next_command=_next_command(context, finding, action, now),
            risk=_risk(whole),
            simulated=all(context.inventory.simulated(gpu) for gpu in about),
            at_list_price=any(price is not None and price.origin == "catalog" for price in prices),
        )

    def _saving(self, whole: Recommendation, now: Sequence[str]) -> Saving | None:
        """What acting on GPUs of a recommendation saves in a year; None where it is not known, or none is left to act on."""
        hourly = self.rates(now)
        if not now or not hourly or self.context.until_ms - self.context.whole.first_ms < _YEARLY_FROM_MS:
            return None
        paid = hourly * HOURS_PER_YEAR
        if whole.kind in (waste.NEVER_USED, waste.SURPLUS):
            return self._of_return(whole, now, paid)
        if whole.kind in (waste.INEFFICIENT, waste.OFF_PEAK):
            return None  # how to use them better is not known
        wasted, used_ms = self.on_now.get(whole.recommendation_id, (0.0, 0.0))
        point = (self._right_size(whole, now, used_ms) if whole.kind is waste.OVERSIZED else wasted) * self.per_year
        swing = self.decisions.swings.get(whole.recommendation_id)
        if point <= 0 or swing is None:
            return None
        low, mean, high = (min(point * each, paid) for each in swing)
        return Saving(low, mean, paid if whole.kind is waste.FAULTY else high)  # what is out of order may stay so

    def _right_size(self, whole: Recommendation, now: Sequence[str], used_ms: float) -> float:
        """What other cards save in the window; of a part of the work its share, of a part of a packing nothing."""
        if whole.packing is not None:
            return whole.packing.saving or 0.0 if len(now) == len(whole.packing.gpus) else 0.0
        saved = None if whole.finding is None else saving_of(whole.finding)
        whole_ms = self.decisions.time_now.get(whole.recommendation_id, 0.0)
        is_part = len(whole.gpus_now) < len(whole.gpus)
        return 0.0 if saved is None or not whole_ms or is_part else saved * used_ms / whole_ms

    def _of_return(self, whole: Recommendation, now: Sequence[str], paid: float) -> Saving:
        """Of GPUs that go all that they cost; at least of as many as next week leaves without a reserve."""
        low = 0
        if whole.spare is not None and whole.spare.low is not None:
            of = (whole.spare.pool, whole.spare.model)
            low = min(len(now), self._left_low[of] or 0)
            self._left_low[of] = (self._left_low[of] or 0) - low
        return Saving(paid * low / len(now), paid, paid)

    def _deadline_ms(self, whole: Recommendation, action: str) -> int:
        """Idle GPUs and faults first, then changes of work; cards that leave the site take the longest."""
        deadlines, told_ms = self.decisions.deadlines, self.decisions.told_ms
        if action == "return":
            return deadlines.end_ms(told_ms, deadlines.return_days)
        if action in ("right-size", "schedule off-peak") or (action == "ask" and whole.kind is waste.INEFFICIENT):
            return deadlines.end_ms(told_ms, deadlines.change_days)
        return deadlines.end_ms(told_ms, deadlines.release_days)


def _action(whole: Recommendation, now: Sequence[str], *, is_seen: bool) -> str:
    """What its kind says; a question first where a user has the GPUs and it is unsure, or nothing can be done now."""
    if whole.finding is not None and RULES_BY_NAME[whole.finding.rule].of_machine:
        return "repair"
    of_somebody = whole.kind in (waste.ALLOCATED_IDLE, waste.HELD_IDLE) and (whole.confidence.grade == "low" or not now)
    of_nobody = whole.kind in (waste.NEVER_USED, waste.SURPLUS) and not is_seen
    return "ask" if of_somebody or of_nobody else whole.kind.action


def _next_command(context: Context, finding: Finding | None, action: str, now: Sequence[str]) -> str:
    """The finding's command; before GPUs go a look at the host of the first of them."""
    host = context.inventory.devices[now[0]].host if now and now[0] in context.inventory.devices else None
    if action == "return" and host is not None and (finding is None or not acts(finding.next_command)):
        return look_command(host)
    return "" if finding is None else finding.next_command


def _risk(whole: Recommendation) -> Risk:
    outlook, reserve = whole.confidence.outlook, None if whole.spare is None else whole.spare.default
    used = None if outlook is None or outlook.probability is None else 1 - outlook.probability
    within_ms = None if outlook is None or used is None else outlook.horizon_ms
    if reserve is None or whole.kind not in (waste.NEVER_USED, waste.SURPLUS):
        return Risk(used, within_ms, waits=whole.holder)
    return Risk(used, within_ms, reserve.short_hours, reserve.hours, reserve.short_gpus, whole.holder)


def _without_names(one: Recommendation, before: Sequence[Recommendation]) -> Recommendation:
    """The same without what its finding says of others: its id too is made of what is left, for that of a finding names whom it is about."""
    alike = sum((each.kind, each.gpus, each.holder) == (one.kind, one.gpus, None) for each in before)
    return replace(
        one,
        recommendation_id=own_id(one.kind.name, "\0".join((str(alike), *one.gpus))),
        finding=None,
        evidence=(),
        packing=None,
        spare=None,
        host="",
        next_command="",
        risk=Risk(),
        confidence=without_names(one.confidence),
    )


def without_names(confidence: Confidence) -> Confidence:
    """As sure, without what its conditions say of others."""
    return replace(confidence, failed=(tr("a condition that is about others as well"),) * len(confidence.failed))


def with_off_peak(pieces: pl.DataFrame) -> pl.DataFrame:
    """The pieces with free time that nothing claims cut in two: in off-peak hours, which is that recommendation's, and outside."""
    open_to_use = pl.col("recommendation").is_null() & (pl.col("state") == "free") & (pl.col(SHARE) > 0)
    cut, whole = pieces.filter(open_to_use), pieces.filter(~open_to_use.fill_null(value=False))
    if cut.is_empty():
        return pieces
    keys = {pool: own_id("off_peak", pool) for pool in cut["pool"].unique()}
    inside = (pl.col("waste_amount").cast(pl.Float64) * pl.col(SHARE)).round().cast(AMOUNT)
    times = [pl.col(name) * pl.col(SHARE) for name in ("gpu_ms", "waste_ms", "open_ms")]
    others = [pl.col(name) * (1 - pl.col(SHARE)) for name in ("gpu_ms", "waste_ms", "open_ms")]
    part = cut.with_columns(
        *times,
        amount=inside,
        waste_amount=inside,
        recommendation=pl.col("pool").replace_strict(keys, return_dtype=pl.String),
    )
    rest = cut.with_columns(*others, amount=pl.col("amount") - inside, waste_amount=pl.col("waste_amount") - inside)
    return pl.concat([whole, part, rest])


def wasted_cents(pieces: pl.DataFrame) -> dict[tuple[str, str], int]:
    """Whole cents of the wasted time by state and recommendation, empty for what none claims; they add up to the ledger's of each state.

    Every state's cents are those of `Accounts`; in them used and wasted part, and in the latter the recommendations.
    """
    known = pieces.filter(pl.col("amount").is_not_null()).with_columns(pl.col("recommendation").fill_null(""))
    wasted = known.group_by("state", "recommendation").agg(pl.col("waste_amount").sum())
    used = known.group_by("state").agg((pl.col("amount") - pl.col("waste_amount")).sum())
    amounts: dict[tuple[str, ...], int] = {
        (state, "wasted", key): amount for state, key, amount in wasted.iter_rows() if state in WASTED
    }
    amounts |= {(state, "used", ""): amount for state, amount in used.iter_rows()}
    return {(state, key): each for (state, part, key), each in nested(amounts).items() if part == "wasted"}


def waste_of(pieces: pl.DataFrame, cents: Mapping[tuple[str, str], int], currency: str) -> Waste:
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
        rest_ms=by_state(pieces.filter(pl.col("recommendation").is_null())),
        rest_cents=rest_cents if priced else None,
        open_ms=float(pieces["open_ms"].sum()),
        open_cents=rounded(round(open_amount)) if priced else None,
        unpriced_ms=float(pieces.filter(pl.col("amount").is_null())["waste_ms"].sum()),
        currency=currency,
    )
