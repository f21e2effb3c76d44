"""Puts a finding together from the ledger rows that it is about, and says its evidence in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from analytics.intervals import SPAN_MS, cut
from analytics.language.language import Sentence, SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, Bytes, Number, Quantity, Share, Span
from analytics.language.sentences import tr, tr_many
from analytics.ledger.usage import WORK_KEY, foreign_work
from analytics.mig import MIG_PREFIX
from analytics.names import JOINER
from analytics.workloads.confidence import Observation, grade, known_holder, observe, right_clocks, watched_enough
from analytics.workloads.ledger_rows import THRESHOLDS_MIN, RowIndex, energy_kwh, gpu_ms_of, joined
from analytics.workloads.model import (
    HIGH_MIN,
    Context,
    Evidence,
    EvidenceValue,
    Finding,
    Label,
    Outlook,
    Rule,
    Value,
    agreeing,
    at_most_below,
    gpus_of,
    hours_by_threshold,
    once_per_context,
)
from analytics.workloads.persistence import outlook
from analytics.workloads.runs import stretches_of
from analytics.workloads.window_end import window_end
from analytics.workloads.workloads import runs_of, seen_long_enough
from fallow.clock import HOUR_MS

Shown = str | Quantity
Known = Mapping[str, Value]


_LEAST_SHARE = 0.001
"""What is shown with one digit of a percent."""


def shown_plainly(value: Value) -> Shown:
    """A name, yes or no, or a number with one digit where it is no count."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, bool):
        return tr("yes") if value else tr("no")
    return Number(value, 1) if isinstance(value, float) else Number(value)


def label(key: str, text: str, shown: Callable[[Any], Shown] = shown_plainly) -> Label:
    """One value; `text` holds it as `{value}`, with its unit unless `shown` (Share, Bytes, ...) brings it."""
    return Label((key,), lambda known, _: [tr(text, value=shown(known[key]))])


def counted(key: str, one: str, many: str) -> Label:
    return Label((key,), lambda known, _: [tr_many(one, many, int(known[key]))])


def varying(key: str, below: str, by: str) -> Label:
    """How much something varies: `below` where that is less than one digit of a percent shows, else `by`."""

    def words(known: Known, _: Finding) -> list[Sentence]:
        part = float(known[key])
        return [tr(below, share=Share(_LEAST_SHARE)) if part < _LEAST_SHARE else tr(by, share=Share(part))]

    return Label((key,), words)


def for_machines(*keys: str) -> Label:
    return Label(keys, lambda _, __: [])


def words_for(meanings: Mapping[str, str]) -> Callable[[Any], Shown]:
    """Values that are words of ours, of which a finding about several workloads may join some, by what they mean."""

    def shown(value: str) -> SentenceList:
        parts = value.split("+")
        return SentenceList(
            [tr(meanings[each]) if each in meanings else tr("{value}", value=plain(each)) for each in parts], "+"
        )

    return shown


def _at_the_end(key: str, none: tuple[str, str], some: str) -> Label:
    """How many of the finding's GPUs are still as it says at the end of the window."""

    def words(known: Known, finding: Finding) -> list[Sentence]:
        gpus = len(finding.gpus)
        if known[key] == 0:
            return [tr_many(*none, gpus)]
        return [tr(some, part=shown_plainly(known[key]), gpus=gpus_of(gpus))]

    return Label((key,), words)


def _by_threshold(prefix: str) -> Label:
    """GPU-hours in intervals of at least each of THRESHOLDS_MIN, side by side."""
    keys = {f"{prefix}_gpu_hours_in_stretches_of_{minutes}_min": minutes for minutes in THRESHOLDS_MIN}
    return Label(
        tuple(keys), lambda known, _: [hours_by_threshold({keys[key]: float(hours) for key, hours in known.items()})]
    )


def _promise(known: Known, _: Finding) -> list[Sentence]:
    if float(known.get("stays_unused_probability") or 0) < HIGH_MIN:
        return []  # the failed condition says it
    horizon = Span(round(float(known["stays_unused_horizon_h"]) * HOUR_MS))
    share = at_most_below(float(known["stays_unused_probability"]))
    return [tr("stays unused for another {horizon} with a probability of {share}", horizon=horizon, share=share)]


def _memory_in_use(known: Known, _: Finding) -> list[Sentence]:
    value = float(known["mem_used_max_bytes"])
    return [tr("memory in use up to {value}", value=Bytes(value)) if value else tr("no memory in use")]


def _with_sm_activity(known: Known, finding: Finding) -> list[Sentence]:
    part = known["gpus_with_sm_activity"]
    if part == 0:
        return [tr("SM activity not measured")]
    return [tr("SM activity measured on {part} of {gpus}", part=shown_plainly(part), gpus=gpus_of(len(finding.gpus)))]


def bounded(key: str, text: str, limit: float) -> Label:
    """A value beside the limit that it was tested against, which the text has as `{limit}`."""
    return Label((key,), lambda known, _: [tr(text, value=shown_plainly(known[key]), limit=Number.as_given(limit))])


def rank_label(sentence: str) -> Label:
    """The rank among the users; the sentence, with `{rank}` and `{holders}`, names the figure of which rank 1 has the most."""

    def words(known: Known, _: Finding) -> list[Sentence]:
        rank, holders = str(known["rank_among_holders"]).split(" of ")
        return [tr(sentence, rank=rank, holders=holders)]

    return Label(("rank_among_holders",), words)


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


SOURCES = {"process": "process", "claim": "allocation", "memory": "memory"}
"""How the ledger knows a user."""

SHARED_LABELS = (
    label("holder_source", "user known by {value}", words_for(SOURCES)),
    counted("sample_count", "{number} sample", "{number} samples"),
    label("coverage", "observed {value}", Share),
    label("unconfirmed", "{value} of it idle by point samples alone", Share),
    _by_threshold("held"),
    _by_threshold("reserved"),
    counted("stretch_count", "in {number} interval", "in {number} intervals"),
    _at_the_end(
        "gpus_held_now",
        ("no longer held at the end", "none of the {number} GPUs still held at the end"),
        "{part} of {gpus} held at the end",
    ),
    _at_the_end(
        "gpus_reserved_now",
        ("no longer reserved at the end", "none of the {number} GPUs still reserved at the end"),
        "{part} of {gpus} reserved at the end",
    ),
    label("longest_h", "longest {value} h"),
    Label(("stays_unused_probability", "stays_unused_horizon_h"), _promise),
    Label(("mem_used_max_bytes",), _memory_in_use),
    label("mem_need_bytes", "memory needed {value}", Bytes),
    label("card_memory_bytes", "the card has {value}", Bytes),
    label("power_mean_w", "mean power {value} W"),
    label("power_limit_w", "power limit {value} W"),
    label("gpu_util_mean_pct", "mean utilization {value} %"),
    label("gpu_util_max_pct", "highest utilization {value} %"),
    label("sm_active_mean_pct", "mean SM activity {value} %"),
    Label(("gpus_with_sm_activity",), _with_sm_activity),
    label("reserved_gpu_hours", "{value} GPU-hours reserved"),
    label("used_gpu_hours", "{value} GPU-hours used"),
    label("history_days", "{value} days of history"),
    counted("works", "{number} job", "{number} jobs"),
    label("model", "model {value}"),
    label("commands", "commands {value}"),
    label("jobs", "jobs {value}"),
    label("gpus_of_the_job", "{value} GPUs in the job"),
    label("recommended_card", "{value} would do"),
    label("recommended_memory_bytes", "it has {value}", Bytes),
    # how many of a card there are does not say that any is free, and a note tells where there is none
    for_machines("recommended_in_fleet"),
    Label(("hourly", "recommended_hourly", "saving"), _prices),
)


ESTIMATED = tr(
    "its energy is an estimate: its slices' share of what the whole GPU drew in those hours, which is too much for an instance that idles beside busy ones"
)

SAVES_IN_A_PACKING = tr(
    "it saves nothing by itself: a whole card comes free only where a packing fills others with its work"
)
"""What is said of work that would do with a part of a card."""


def has_instances(stretches: pl.DataFrame) -> bool:
    return any(gpu.startswith(MIG_PREFIX) for gpu in set(stretches["gpu"].to_list()))


def with_estimates(context: Context, stretches: pl.DataFrame) -> pl.DataFrame:
    """The ledger rows with `energy_mj` and `energy_ms` of MIG instances: their share of what their GPU drew in the same hours.

    By slices and time: what each instance adds nobody can measure. One that idles beside one that works is given too much.
    """
    parents = {gpu: device.parent_gpu for gpu, device in context.inventory.devices.items() if device.parent_gpu}
    rows = stretches.with_row_index("_row")
    own = rows.filter(pl.col("gpu").str.starts_with(MIG_PREFIX)).select(
        "_row", "host", "gpu", "time", "end", "gpu_share"
    )
    own = own.with_columns(gpu=pl.col("gpu").replace_strict(parents, default=None, return_dtype=pl.String))
    hours = _drawn_by_hour(context).rows(own["gpu"].drop_nulls().unique().to_list())
    met = cut(own, HOUR_MS, "hour").join(
        hours.with_columns(hour=pl.col("time") // HOUR_MS).drop("time"), on=("host", "gpu", "hour")
    )
    told = pl.min_horizontal(SPAN_MS, "hour_known_ms")
    drawn = met.group_by("_row").agg(
        estimate_mj=(pl.col("hour_mj") / pl.col("hour_known_ms") * told * pl.col("gpu_share")).sum(),
        estimate_ms=told.sum(),
    )
    found = rows.join(drawn, on="_row", how="left", maintain_order="left")
    return found.with_columns(
        energy_mj=pl.coalesce("estimate_mj", "energy_mj"), energy_ms=pl.coalesce("estimate_ms", "energy_ms")
    ).drop("_row", "estimate_mj", "estimate_ms")


@once_per_context
def _drawn_by_hour(context: Context) -> RowIndex:
    """What each GPU drew in each hour, by GPU: host, time, hour_mj and for how long it is known."""
    hours = context.rollups.hourly("energy_mj", "energy_ms").filter(pl.col("energy_ms") > 0)
    known = hours.select("host", "gpu", "time", hour_mj="energy_mj", hour_known_ms=pl.col("energy_ms").cast(pl.Int64))
    return RowIndex(known, "gpu")


UNASKED = "unasked"
"""The `source` of a finding whose holder need not be known."""


def finding_of(
    context: Context,
    rule: Rule,
    stretches: pl.DataFrame,
    *,
    subject: str,
    numbers: Mapping[str, EvidenceValue],
    failed: Sequence[Sequence[str]] = (),
    source: str | None = UNASKED,
    next_command: str = "",
    reclaimable_gpus: Sequence[str] = (),
    holder: str | None = None,
    since_ms: int | None = None,
    gpus: Sequence[str] | None = None,
    host: str | None = None,
    notes: Sequence[str] = (),
    is_promised: bool = True,
) -> Finding:
    """A finding about some rows of `context.inside.stretches`, which must not be empty.

    Hosts, GPUs, GPU time, energy, cost, team, job and the conditions that any rule can fail (coverage, history, gap-free
    utilization) come from the rows; `failed` are the rule's own failed conditions. With a `source`, which is how the holder is
    known, the name has to be. Unless `is_promised` is false, a finding of GPUs to take back says how likely they stay unused.
    """
    # single columns, for a thousand findings are put together: a frame's own expressions take ten times as long
    uuids = tuple(sorted(set(stretches["gpu"].to_list()))) if gpus is None else tuple(gpus)
    seen = observe(context, uuids, stretches)
    where = joined(stretches, "host") or "" if host is None else host
    own = of_nobody_else(stretches, holder)
    accounts, jobs = (joined(own, name) for name in ("account", "job"))
    cost = context.costs.of(stretches)
    energy, said = _energy(context, stretches)
    if source != UNASKED:
        numbers = numbers if "holder_source" in numbers else {"holder_source": source, **numbers}
        failed = (known_holder(source, holder), *failed)
    promised = _outlook(context, reclaimable_gpus, holder) if is_promised and reclaimable_gpus else None
    return Finding(
        rule=rule.name,
        category=rule.category,
        sentence=agreeing(rule.sentence, len(uuids)),
        subject=subject,
        gpus=uuids,
        host=where,
        id_host=where if rule.per_host else "",
        holder=holder,
        since_ms=min(stretches["stretch_start"].to_list()) if since_ms is None else since_ms,
        gpu_ms=gpu_ms_of(stretches),
        energy_kwh=energy,
        confidence=grade(watched_enough(seen), right_clocks(context, stretches), *map(list, failed), outlook=promised),
        reclaimable_gpus=tuple(reclaimable_gpus),
        evidence=_evidence(stretches, numbers, jobs, promised, seen),
        next_command=next_command,
        simulated=all(context.inventory.simulated(gpu) for gpu in uuids),
        team=_team(context, stretches, holder, accounts),
        job=jobs,
        cost=cost,
        currency=context.costs.currency if cost is not None else None,
        notes=(*notes, *said),
        beside_unknown=_beside_unknown(context, stretches),
    )


def workload_finding(
    context: Context,
    rule: Rule,
    works: pl.DataFrame,
    *,
    numbers: Mapping[str, EvidenceValue],
    failed: Sequence[str],
    next_command: str,
    notes: Sequence[str],
) -> Finding:
    """A finding about works (columns of `workloads`) of one holder, account and model of card."""
    runs = runs_of(context, works)
    first: dict[str, Any] = works.row(0, named=True)
    return finding_of(
        context,
        rule,
        stretches_of(context, runs),
        subject="|".join((first["holder"] or runs["gpu"][0], first["account"] or "", first["model"])),
        holder=first["holder"],
        source=first["holder_source"],
        numbers={"works": works.height, "model": first["model"], **numbers},
        failed=[seen_long_enough(works), failed],
        next_command=next_command,
        notes=notes,
    )


def of_nobody_else(stretches: pl.DataFrame, holder: str | None) -> pl.DataFrame:
    """The rows in which none but the holder has a part: of the others nothing says whose the job and the account are."""
    if holder is None:
        return stretches
    own = set(holder.split(JOINER))
    strangers = [each for each in set(stretches["holder"].to_list()) if each and not set(each.split(JOINER)) <= own]
    return stretches.filter(~pl.col("holder").is_in(strangers).fill_null(value=False)) if strangers else stretches


def _team(context: Context, stretches: pl.DataFrame, holder: str | None, accounts: str | None) -> str | None:
    """The team of the holder; of nobody's own that of the accounts, and with it the teams of all who hold its GPUs."""
    team = context.owners.team(holder, accounts)
    if team is None or holder is not None:
        return team
    held = (name for each in set(stretches["holder"].to_list()) if each for name in each.split(JOINER))
    others = {context.owners.team(name, None) for name in held} - {None}
    return JOINER.join(sorted({*team.split(JOINER), *filter(None, others)}))


def _beside_unknown(context: Context, stretches: pl.DataFrame) -> bool:
    """Whether some of it may be the work of others whose names nobody knows."""
    foreign = _foreign_work(context)
    return (
        not foreign.is_empty()
        and not stretches.join(foreign, on=foreign.columns, how="semi", nulls_equal=True).is_empty()
    )


@once_per_context
def _foreign_work(context: Context) -> pl.DataFrame:
    """The distinct `foreign_work` of the window, as WORK_KEY."""
    rows = context.inside.stretches
    return rows.filter(foreign_work(rows, context.rollups)).select(WORK_KEY).unique()


def _outlook(context: Context, gpus: Sequence[str], holder: str | None) -> Outlook:
    """That of GPUs which the holder's processes are on is about the holder, that of others about anybody."""
    held = all(window_end(context).state.get(gpu) == "held" for gpu in gpus)
    return outlook(context, gpus, holder if held else None)


def _evidence(
    stretches: pl.DataFrame,
    numbers: Mapping[str, EvidenceValue],
    jobs: str | None,
    promised: Outlook | None,
    seen: Observation,
) -> Evidence:
    found = dict(numbers)
    if "jobs" in found:
        found["jobs"] = jobs
    if promised is not None:
        found["stays_unused_probability"] = promised.probability
        found["stays_unused_horizon_h"] = promised.horizon_ms / HOUR_MS
    found["sample_count"] = int(stretches["sample_count"].sum())
    found["coverage"] = seen.coverage
    if seen.unconfirmed_ratio:  # of its time that was seen by point samples alone
        found["unconfirmed"] = seen.unconfirmed_ratio
    return Evidence(min(stretches["time"].to_list()), max(stretches["end"].to_list()), found)


def _energy(context: Context, stretches: pl.DataFrame) -> tuple[float | None, tuple[str, ...]]:
    """What was drawn, and a word on it where MIG instances make it an estimate."""
    measured = energy_kwh(stretches)
    if measured is not None or not has_instances(stretches):
        return measured, ()
    estimated = energy_kwh(with_estimates(context, stretches))
    return estimated, () if estimated is None else (ESTIMATED,)
