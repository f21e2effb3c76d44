"""Builds a finding from its ledger rows, and puts its evidence in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from analytics.intervals import SPAN_MS, cut
from analytics.language.sentences import (
    Amount,
    Bytes,
    Number,
    Quantity,
    Sentence,
    SentenceList,
    Share,
    Span,
    plain,
    tr,
    tr_many,
)
from analytics.ledger.usage import WORK_KEY, foreign_work
from analytics.mig import MIG_PREFIX
from analytics.names import JOINER, joined_names
from analytics.workloads.confidence import Observation, grade, known_user, observation, right_clocks, watched_enough
from analytics.workloads.ledger_rows import THRESHOLDS_MIN, RowIndex
from analytics.workloads.model import (
    Context,
    Evidence,
    EvidenceValue,
    Finding,
    Label,
    Outlook,
    Value,
    agreeing,
    at_most_below,
    gpus_of,
    once_per_context,
)
from analytics.workloads.persistence import outlook
from analytics.workloads.row_sums import CANDIDATE, RowSums, energy_kwh_of_each, numbered, row_sums
from analytics.workloads.rule import UNASKED, Candidate, Rule
from analytics.workloads.workloads import seen_long_enough
from fallow.clock import DAY_MS, HOUR_MS

Shown = str | Quantity
Known = Mapping[str, Value]


_LEAST_SHARE = 0.001
"""Least share that one digit of a percent shows."""


def shown_plainly(value: Value) -> Shown:
    """Return a name, yes or no, or a number (with one digit unless it is a count)."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, bool):
        return tr("yes") if value else tr("no")
    return Number(value, 1) if isinstance(value, float) else Number(value)


def label(key: str, text: str, shown: Callable[[Any], Shown] = shown_plainly) -> Label:
    """Return a label of one value.

    `text` has the value as `{value}`, with its unit unless `shown` (Share, Bytes, ...) adds it.
    """
    return Label((key,), lambda known, _: [tr(text, value=shown(known[key]))])


def counted(key: str, text: str) -> Label:
    return Label((key,), lambda known, _: [tr_many(text, int(known[key]))])


def varying(key: str, below: str, by: str) -> Label:
    """Return a label of a variation: `below` if one digit of a percent does not show it, else `by`."""

    def words(known: Known, _: Finding) -> list[Sentence]:
        part = float(known[key])
        return [tr(below, share=Share(_LEAST_SHARE)) if part < _LEAST_SHARE else tr(by, share=Share(part))]

    return Label((key,), words)


def for_machines(*keys: str) -> Label:
    return Label(keys, lambda _, __: [])


def words_for(meanings: Mapping[str, str]) -> Callable[[Any], Shown]:
    """Return a function that translates values, of which a finding about several workloads may join some."""

    def shown(value: str) -> SentenceList:
        parts = value.split(JOINER)
        return SentenceList(
            [tr(meanings[each]) if each in meanings else tr("{value}", value=plain(each)) for each in parts], "+"
        )

    return shown


def _at_the_end(key: str, none: str, some: str) -> Label:
    """Return how many of the finding's GPUs are still in this state at the end of the window."""

    def words(known: Known, finding: Finding) -> list[Sentence]:
        gpus = len(finding.gpus)
        if known[key] == 0:
            return [tr_many(none, gpus)]
        return [tr(some, part=shown_plainly(known[key]), gpus=gpus_of(gpus))]

    return Label((key,), words)


def _by_threshold(prefix: str) -> Label:
    """Return GPU-hours in intervals of at least each of THRESHOLDS_MIN, side by side."""
    keys = {f"{prefix}_gpu_hours_in_segments_of_{minutes}_min": str(minutes) for minutes in THRESHOLDS_MIN}

    def words(known: Known, _: Finding) -> list[Sentence]:
        sums = SentenceList((tr("{sum}", sum=Number(float(hours), 1)) for hours in known.values()), " / ")
        minutes = " / ".join(keys[key] for key in known)
        return [tr("{sums} GPU-hours in intervals of at least {minutes} min", sums=sums, minutes=minutes)]

    return Label(tuple(keys), words)


def _promise(_: Known, finding: Finding) -> list[Sentence]:
    confidence, outlook = finding.confidence, finding.confidence.outlook
    if outlook is None or outlook.probability is None:
        return []  # the failed condition says it
    horizon, share = Span(outlook.horizon_ms), at_most_below(outlook.probability)
    if confidence.day_grade is None or outlook.day_probability is None or outlook.horizon_ms <= DAY_MS:
        return [tr("stays unused for another {horizon} with a probability of {share}", horizon=horizon, share=share)]
    return [
        tr(
            "confidence is {day_grade} for {day} and {grade} for {horizon}: the probability of staying unused is"
            " {day_share} and {share}",
            day_grade=tr(confidence.day_grade),
            day=Span(DAY_MS),
            day_share=at_most_below(outlook.day_probability),
            grade=tr(confidence.grade),
            horizon=horizon,
            share=share,
        )
    ]


def _memory_in_use(known: Known, _: Finding) -> list[Sentence]:
    value = float(known["mem_used_max_bytes"])
    return [tr("memory in use up to {value}", value=Bytes(value)) if value else tr("no memory in use")]


def _with_sm_activity(known: Known, finding: Finding) -> list[Sentence]:
    part = known["gpus_with_sm_activity"]
    if part == 0:
        return [tr("SM activity not measured")]
    return [tr("SM activity measured on {part} of {gpus}", part=shown_plainly(part), gpus=gpus_of(len(finding.gpus)))]


def bounded(key: str, text: str, limit: float) -> Label:
    """Return a label of a value beside its limit, which the text has as `{limit}`."""
    return Label((key,), lambda known, _: [tr(text, value=shown_plainly(known[key]), limit=Number.as_given(limit))])


def rank_label(sentence: str) -> Label:
    """Return a label of the rank among users; the sentence, with `{rank}` and `{users}`, names the ranked figure."""

    def words(known: Known, _: Finding) -> list[Sentence]:
        rank, users = str(known["rank_among_users"]).split(" of ")
        return [tr(sentence, rank=rank, users=users)]

    return Label(("rank_among_users",), words)


def _prices(known: Known, finding: Finding) -> list[Sentence]:
    hourly, other, saving = (known.get(name) for name in ("hourly", "recommended_hourly", "saving"))
    name = finding.evidence.numbers.get("recommended_card")
    card = tr("the other card") if name is None else plain(str(name))
    currency = plain(finding.currency or "") or None
    price = None if other is None else Amount(float(other), currency if hourly is None else None)
    return [
        *([] if hourly is None else [tr("{amount} per GPU-hour", amount=Amount(float(hourly), currency))]),
        *([] if price is None else [tr("{card}: {amount}", card=card, amount=price)]),
        *([] if saving is None else [tr("saves {amount} in this window", amount=Amount(float(saving), currency))]),
    ]


SOURCES = {"process": "process", "allocation": "allocation", "memory": "memory"}

SHARED_LABELS = (
    label("user_source", "source of the user: {value}", words_for(SOURCES)),
    counted("sample_count", "{number} {sample|samples}"),
    label("coverage", "observed {value}", Share),
    label("unconfirmed", "{value} of the time idle by point samples only", Share),
    label("very_likely", "{value} of the time very likely idle: samples at 0 and flat power", Share),
    _by_threshold("held"),
    _by_threshold("reserved"),
    counted("segment_count", "in {number} {interval|intervals}"),
    _at_the_end(
        "gpus_held_now",
        "{no longer|none of the {number} GPUs still} held at the end of the window",
        "{part} of {gpus} still held at the end of the window",
    ),
    _at_the_end(
        "gpus_reserved_now",
        "{no longer|none of the {number} GPUs still} allocated at the end of the window",
        "{part} of {gpus} still allocated without a process at the end of the window",
    ),
    label("longest_h", "longest interval {value} h"),
    Label(("stays_unused_probability", "stays_unused_horizon_h", "stays_unused_1d_probability"), _promise),
    Label(("mem_used_max_bytes",), _memory_in_use),
    label("mem_need_bytes", "memory needed {value}", Bytes),
    label("card_memory_bytes", "the card has {value}", Bytes),
    label("power_mean_w", "mean power {value} W"),
    label("power_limit_w", "power limit {value} W"),
    label("gpu_util_mean_pct", "mean utilization {value} %"),
    label("gpu_util_max_pct", "highest utilization {value} %"),
    label("sm_active_mean_pct", "mean SM activity {value} %"),
    Label(("gpus_with_sm_activity",), _with_sm_activity),
    label("reserved_gpu_hours", "{value} GPU-hours allocated without a process"),
    label("used_gpu_hours", "{value} GPU-hours used"),
    label("history_days", "{value} days of history"),
    counted("workloads", "{number} {job|jobs}"),
    label("model", "model {value}"),
    label("commands", "commands {value}"),
    label("jobs", "jobs {value}"),
    label("gpus_of_the_job", "{value} GPUs in the job"),
    label("recommended_card", "{value} is enough"),
    label("recommended_memory_bytes", "the smaller card has {value}", Bytes),
    # the number of these cards does not show that one is free; a note says where the fleet has none
    for_machines("recommended_in_fleet"),
    Label(("hourly", "recommended_hourly", "saving"), _prices),
)


ESTIMATED = tr(
    "the energy of a MIG instance is an estimate: its slices' share of the whole GPU's energy in those hours. It is too"
    " high for an idle instance beside busy ones"
)

SAVES_IN_A_PACKING = tr(
    "this change alone saves nothing: a whole card comes free only if a packing moves the workload to other cards"
)
"""Sentences about work that needs only a part of a card."""


def with_estimates(context: Context, segments: pl.DataFrame) -> pl.DataFrame:
    """Return the ledger rows with the estimated energy of MIG instances, in `energy_mj` and `energy_ms`.

    The GPU's energy is divided by slices and time, because an instance's own energy cannot be measured. An idle
    instance beside a busy one gets too much.
    """
    parents = {gpu: device.parent_gpu for gpu, device in context.inventory.devices.items() if device.parent_gpu}
    rows = segments.with_row_index("_row")
    own = rows.filter(pl.col("gpu").str.starts_with(MIG_PREFIX)).select(
        "_row", "host", "gpu", "time", "end", "gpu_share"
    )
    own = own.with_columns(gpu=pl.col("gpu").replace_strict(parents, default=None, return_dtype=pl.String))
    hours = _drawn_by_hour(context).rows(own["gpu"].drop_nulls().unique().to_list())
    met = cut(own, HOUR_MS, "hour").join(
        hours.with_columns(hour=pl.col("time") // HOUR_MS).drop("time"), on=("host", "gpu", "hour")
    )
    counted_ms = pl.min_horizontal(SPAN_MS, "hour_known_ms")
    drawn = met.group_by("_row").agg(
        estimate_mj=(pl.col("hour_mj") / pl.col("hour_known_ms") * counted_ms * pl.col("gpu_share")).sum(),
        estimate_ms=counted_ms.sum(),
    )
    found = rows.join(drawn, on="_row", how="left", maintain_order="left")
    return found.with_columns(
        energy_mj=pl.coalesce("estimate_mj", "energy_mj"), energy_ms=pl.coalesce("estimate_ms", "energy_ms")
    ).drop("_row", "estimate_mj", "estimate_ms")


@once_per_context
def _drawn_by_hour(context: Context) -> RowIndex:
    """Return the energy of each GPU in each hour: host, time, hour_mj and the length of time with known energy."""
    hours = context.rollups.hourly("energy_mj", "energy_ms").filter(pl.col("energy_ms") > 0)
    known = hours.select("host", "gpu", "time", hour_mj="energy_mj", hour_known_ms=pl.col("energy_ms").cast(pl.Int64))
    return RowIndex(known, known["gpu"])


def findings_of(context: Context, rule: Rule, found: Iterable[Candidate]) -> list[Finding]:
    """Return a finding per candidate of a rule.

    Hosts, GPUs, GPU time, energy, cost, team, job and the conditions that any rule can fail (coverage, history,
    gap-free utilization) come from the candidates' rows, which are summed up together.
    """
    candidates = list(found)
    if not candidates:
        return []
    rows = numbered([each.segments for each in candidates])
    sums = _with_estimates(context, rows, row_sums(rows))
    costs, beside = context.costs.of_each(rows, CANDIDATE), _beside_unknown(context, rows)
    return [
        each.revised(
            replace(
                _finding(context, rule, each, own),
                cost=costs[number],
                currency=None if costs[number] is None else context.costs.currency,
                notes=(*each.notes, *notes),
                beside_unknown=number in beside,
            )
        )
        for number, (each, (own, notes)) in enumerate(zip(candidates, sums, strict=True))
    ]


def _finding(context: Context, rule: Rule, candidate: Candidate, rows: RowSums) -> Finding:
    gpus = rows.gpus if candidate.gpus is None else tuple(candidate.gpus)
    host = JOINER.join(rows.hosts) if candidate.host is None else candidate.host
    seen = observation(context, gpus, rows)
    strangers = _strangers({user for user, _, _ in rows.owners}, candidate.user)
    own = [(account, job) for user, account, job in rows.owners if user not in strangers]
    accounts, jobs = (joined_names(each[at] for each in own) for at in (0, 1))
    numbers, failed = candidate.numbers, candidate.failed
    if candidate.source != UNASKED:
        numbers = numbers if "user_source" in numbers else {"user_source": candidate.source, **numbers}
        failed = (known_user(candidate.source, candidate.user or accounts), *failed)
    free = candidate.reclaimable_gpus
    promised = outlook(context, free) if candidate.is_promised and free else None
    return Finding(
        rule=rule.name,
        category=rule.category,
        sentence=agreeing(rule.sentence, len(gpus)),
        subject=candidate.subject,
        gpus=gpus,
        host=host,
        id_host=host if rule.per_host else "",
        user=candidate.user,
        since_ms=rows.begun_ms if candidate.since_ms is None else candidate.since_ms,
        gpu_ms=rows.gpu_ms,
        energy_kwh=rows.energy_kwh,
        confidence=grade(watched_enough(seen), right_clocks(context, rows.hosts), *map(list, failed), outlook=promised),
        reclaimable_gpus=tuple(free),
        evidence=_evidence(rows, numbers, jobs, promised, seen),
        next_command=candidate.next_command,
        witnesses=candidate.witnesses,
        simulated=all(context.inventory.simulated(gpu) for gpu in gpus),
        team=_team(context, rows, candidate.user, accounts),
        job=jobs,
    )


def workload_candidate(
    workloads: pl.DataFrame,
    runs: pl.DataFrame,
    segments: pl.DataFrame,
    *,
    numbers: Mapping[str, EvidenceValue],
    failed: Sequence[str],
    next_command: str,
    notes: Sequence[str],
) -> Candidate:
    """Return a candidate about workloads of one user, account and card model, with their runs and ledger rows."""
    first: dict[str, Any] = workloads.row(0, named=True)
    return Candidate(
        segments,
        subject="|".join((first["user"] or runs["gpu"][0], first["account"] or "", first["model"])),
        user=first["user"],
        source=first["user_source"],
        numbers={"workloads": workloads.height, "model": first["model"], **numbers},
        failed=[seen_long_enough(workloads), failed],
        next_command=next_command,
        notes=notes,
    )


def of_user_alone(segments: pl.DataFrame, user: str | None) -> pl.DataFrame:
    """Return the rows of the user alone: rows shared with others do not show whose job and account it is."""
    strangers = _strangers(segments["user"].unique().to_list(), user)
    return segments.filter(~pl.col("user").is_in(strangers).fill_null(value=False)) if strangers else segments


def _strangers(users: Iterable[str | None], user: str | None) -> set[str]:
    """Return those users, or several joined users, who are not the user alone; none for an unknown user."""
    if user is None:
        return set()
    own = set(user.split(JOINER))
    return {each for each in users if each and not set(each.split(JOINER)) <= own}


def _team(context: Context, rows: RowSums, user: str | None, accounts: str | None) -> str | None:
    """Return the user's team; without a user, the accounts' teams and those of all users of the rows' GPUs."""
    team = context.owners.team(user, accounts)
    if team is None or user is not None:
        return team
    held = {name for each, _, _ in rows.owners if each for name in each.split(JOINER)}
    others = {context.owners.team(name, None) for name in held} - {None}
    return JOINER.join(sorted({*team.split(JOINER), *filter(None, others)}))


def _beside_unknown(context: Context, rows: pl.DataFrame) -> frozenset[int]:
    """Return the candidates of which a part may be the work of users whose names are unknown."""
    foreign = _foreign_work(context)
    if foreign.is_empty():
        return frozenset()
    return frozenset(rows.join(foreign, on=foreign.columns, how="semi", nulls_equal=True)[CANDIDATE])


@once_per_context
def _foreign_work(context: Context) -> pl.DataFrame:
    works = context.inside.segments.group_by(*WORK_KEY, "user_source").agg(pl.col("time").min())
    return works.filter(foreign_work(works, context.rollups)).select(WORK_KEY).unique()


def _evidence(
    rows: RowSums, numbers: Mapping[str, EvidenceValue], jobs: str | None, promised: Outlook | None, seen: Observation
) -> Evidence:
    found = dict(numbers)
    if "jobs" in found:
        found["jobs"] = jobs
    if promised is not None:
        found["stays_unused_probability"] = promised.probability
        found["stays_unused_horizon_h"] = promised.horizon_ms / HOUR_MS
        found["stays_unused_1d_probability"] = promised.day_probability
    found["sample_count"] = rows.sample_count
    found["coverage"] = seen.coverage
    if seen.unconfirmed_ratio:  # of its time that was seen by point samples alone
        found["unconfirmed"] = seen.unconfirmed_ratio
    if seen.likely_ratio:
        found["very_likely"] = seen.likely_ratio
    return Evidence(rows.first_ms, rows.last_ms, found)


def _with_estimates(
    context: Context, rows: pl.DataFrame, sums: Sequence[RowSums]
) -> list[tuple[RowSums, tuple[str, ...]]]:
    """Return the sums of each candidate and, where MIG instances make its energy an estimate, a note."""
    unknown = [
        number
        for number, each in enumerate(sums)
        if each.energy_kwh is None and any(gpu.startswith(MIG_PREFIX) for gpu in each.gpus)
    ]
    if not unknown:
        return [(each, ()) for each in sums]
    estimates = energy_kwh_of_each(with_estimates(context, rows.filter(pl.col(CANDIDATE).is_in(unknown))))
    return [
        (each, ()) if estimates.get(number) is None else (replace(each, energy_kwh=estimates[number]), (ESTIMATED,))
        for number, each in enumerate(sums)
    ]
