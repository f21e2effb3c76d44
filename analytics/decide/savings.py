"""Cost in a window and yearly value of recommendations in a part of the fleet.

Each segment of waste is priced once, in one recommendation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import polars as pl

from analytics.decide.decisions import SHARE, Decisions
from analytics.decide.recommendations import Recommendation, Recommendations, Risk, Waste, own_id
from analytics.decide.valuation import Valuation
from analytics.inventory import NO_POOL
from analytics.language.sentences import tr
from analytics.ledger.summary import SILENT_AFTER_MS, newest_row_ms
from analytics.money.priced_segments import AMOUNT, nested, rounded
from analytics.names import JOINER
from analytics.rules import RULES_BY_NAME
from analytics.states import WASTED
from analytics.workloads import waste
from analytics.workloads.commands import acts, look_command
from analytics.workloads.model import Confidence, Context, Finding
from analytics.workloads.pool_demand import FleetDemand
from analytics.workloads.window_end import newest_rows


def recommendations_in(
    decisions: Decisions,
    segments: pl.DataFrame,
    about: Iterable[Finding] | None = None,
    asked: pl.DataFrame | None = None,
) -> Recommendations:
    """Return the recommendations in a part of the fleet, and the waste of a window that they act on.

    Action, GPUs and yearly value depend on `segments` only, and are the same for every window.

    Args:
        decisions: recommendations of the whole fleet; those for people leave out unallocated GPUs.
        segments: the ledger rows of the part over the decision window.
        about: the findings that may be named; by default all.
        asked: the ledger rows of the part over the window whose waste is counted; by default `segments`.
    """
    context = decisions.review.context
    named = frozenset(each.finding_id for each in (decisions.review.findings if about is None else about))
    counted = segments if asked is None else asked
    pieces = with_off_peak(decisions.wasted(decisions.idle_hours.shares(context, counted)))
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
    scope = _Part(decisions, segments)
    absorbed = {each.finding_id for own in decisions.evidence.values() for each in own[1:]}
    listed: list[Recommendation] = []
    for key, whole in decisions.recommendations.items():
        one = scope.priced(whole, rows.get(key), by_key.get(key, 0))
        finding = one.finding
        is_named = finding is None or finding.finding_id in named
        stands_apart = finding is not None and is_named and bool(one.gpus) and finding.finding_id not in absorbed
        is_packing = one.packing is not None and bool(one.gpus_now)
        if not (one.gpu_ms > 0 or one.value is not None or stands_apart or is_packing):
            continue
        own = tuple(each for each in decisions.evidence.get(key, ()) if each.finding_id in named)
        listed.append(replace(one, evidence=own) if is_named else _without_names(one, listed))
    return Recommendations(
        tuple(sorted(listed, key=_most_valued_first)),
        waste_of(pieces, cents, context.costs.currency),
        None if decisions.for_people else _demand(decisions, scope),
        decisions.sizing.of(named | {each.packing.packing_id for each in listed if each.packing is not None}),
        decisions.basis.weeks,
    )


def _demand(decisions: Decisions, part: _Part) -> FleetDemand:
    """Return the demand of the part's pools; not known if the part was not observed at the end."""
    last_ms, until_ms = part.last_ms, decisions.review.context.until_ms
    if last_ms is not None and last_ms <= until_ms - SILENT_AFTER_MS:
        return FleetDemand.of(unseen_since_ms=last_ms)
    return decisions.fleet.of_gpus(part.here)


def _most_valued_first(each: Recommendation) -> tuple[bool, float, float, float, str]:
    freed = 0.0 if each.value is None or each.value.freed is None else each.value.freed.point
    return not each.ranked, -freed, -float(each.cents or 0), -each.gpu_ms, each.recommendation_id


class _Part:
    """A part of the fleet at the end of the window, for the recommendations in it."""

    def __init__(self, decisions: Decisions, segments: pl.DataFrame) -> None:
        """`gpus` were in the part at any time, `here` are in it at the end of the window. Actions concern `here`."""
        self.decisions = decisions
        context = decisions.review.context
        seen = segments.filter(pl.col("state") != "unknown")
        self.gpus = frozenset(segments["gpu"].unique())
        self.here = frozenset(seen.join(newest_rows(context), on=("gpu", "end"), how="semi")["gpu"])
        self.last_ms = newest_row_ms(segments, context.ahead)
        self.context = context
        self.valuation = Valuation(decisions, segments)

    def rates(self, gpus: Iterable[str]) -> float | None:
        """Return the price of an hour of these GPUs; None if a price is missing."""
        known = [self.context.costs.rate_of(gpu) for gpu in gpus]
        return None if None in known else sum(each for each in known if each is not None)

    def priced(self, whole: Recommendation, row: Mapping[str, Any] | None, cents: int) -> Recommendation:
        """Return a recommendation of the fleet for this part. `row` has the sums of its time here."""
        context, devices, finding = self.context, self.context.inventory.devices, whole.finding
        now = tuple(gpu for gpu in whole.gpus_now if gpu in self.here)
        about = tuple(row["gpus"]) if row else ()
        about = about or tuple(gpu for gpu in whole.gpus if gpu in self.gpus) or whole.gpus
        action = _action(whole, now, is_seen=not context.fell_silent)
        hosts = sorted({devices[gpu].host for gpu in now or about if gpu in devices})
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
            value=self.valuation.of(whole, now),
            deadline=self._deadline(whole, action),
            next_command=_next_command(context, finding, action, now),
            risk=_risk(whole),
            simulated=all(context.inventory.simulated(gpu) for gpu in about),
        )

    def _deadline(self, whole: Recommendation, action: str) -> date:
        """Return the deadline.

        It is earliest for idle GPUs and faults, later for changes of workloads, and latest for cards that leave the
        site.
        """
        deadlines, decided_ms = self.decisions.deadlines, self.decisions.decided_ms
        if action == "release":
            return deadlines.last_day(decided_ms, deadlines.return_days)
        if action in ("right-size", "schedule off-peak") or (action == "ask" and whole.kind is waste.INEFFICIENT):
            return deadlines.last_day(decided_ms, deadlines.change_days)
        return deadlines.last_day(decided_ms, deadlines.release_days)


def _action(whole: Recommendation, now: Sequence[str], *, is_seen: bool) -> str:
    """Return the waste kind's action; `ask` if the user decides because the finding is uncertain or not current."""
    if whole.finding is not None and RULES_BY_NAME[whole.finding.rule].of_machine:
        return "repair"
    is_uncertain = whole.kind.request == waste.RELEASE and (whole.confidence.is_low or not now)
    is_unobserved = whole.kind.request == waste.RETURN and not is_seen
    return "ask" if is_uncertain or is_unobserved else whole.kind.action


def _next_command(context: Context, finding: Finding | None, action: str, now: Sequence[str]) -> str:
    """Return the finding's command, or before a release a command that inspects the host of the first GPU."""
    host = context.inventory.devices[now[0]].host if now and now[0] in context.inventory.devices else None
    if action == "release" and host is not None and (finding is None or not acts(finding.next_command)):
        return look_command(host)
    return "" if finding is None else finding.next_command


def _risk(whole: Recommendation) -> Risk:
    promised, released = whole.confidence.outlook, None if whole.spare is None else whole.spare.release
    stays, within_ms = (None, None) if promised is None else (promised.probability, promised.horizon_ms)
    if released is not None and whole.kind is waste.SURPLUS:
        stays, within_ms = released.expected_unused, released.horizon_ms
    used = None if stays is None else 1 - stays
    tested = whole.spare.backtest if whole.spare is not None and whole.kind.request == waste.RETURN else None
    return Risk(used, None if used is None else within_ms, tested, whole.user)


def _without_names(one: Recommendation, before: Sequence[Recommendation]) -> Recommendation:
    """Return the recommendation without its finding's statements about others, with an id made of the remainder."""
    alike = sum((each.kind, each.gpus, each.user) == (one.kind, one.gpus, None) for each in before)
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
    """Return the same grade of confidence, without conditions that name others."""
    return replace(confidence, failed=(tr("a condition that also concerns other people"),) * len(confidence.failed))


def with_off_peak(pieces: pl.DataFrame) -> pl.DataFrame:
    """Return the segments, with unclaimed unallocated time cut into off-peak hours and other hours.

    The off-peak recommendation claims the off-peak hours.
    """
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
    """Return whole cents of the waste by state and recommendation (empty without a claim).

    They add up to the ledger's cents per state. Each state has the cents of `Accounts`. They are divided into used and
    wasted parts, and the wasted part by recommendation.
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
