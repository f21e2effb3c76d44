"""Puts a finding together from the ledger rows that it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from analytics.intervals import SPAN_MS, cut
from analytics.language.sentences import tr
from analytics.ledger.shared_work import WORK_KEY, foreign_work
from analytics.mig import MIG_PREFIX
from analytics.names import JOINER
from analytics.workloads.confidence import Observation, grade, observe, right_clocks, watched_enough
from analytics.workloads.ledger_rows import RowIndex, energy_kwh, gpu_ms_of, joined
from analytics.workloads.model import Context, Evidence, EvidenceValue, Finding, Outlook, Rule, once_per_context
from analytics.workloads.persistence import outlook
from analytics.workloads.window_end import window_end
from analytics.workloads.wording import agreeing
from fallow.clock import HOUR_MS

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
    hours = context.rollups.hourly("energy_mj", "energy_ms").filter((pl.col("energy_ms") > 0).fill_null(value=False))
    known = hours.select("host", "gpu", "time", hour_mj="energy_mj", hour_known_ms=pl.col("energy_ms").cast(pl.Int64))
    return RowIndex(known, "gpu")


def finding_of(
    context: Context,
    rule: Rule,
    stretches: pl.DataFrame,
    *,
    subject: str,
    numbers: Mapping[str, EvidenceValue],
    failed: Sequence[Sequence[str]] = (),
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
    utilization) come from the rows; `failed` are the rule's own failed conditions. Unless `is_promised` is false, a finding of GPUs
    to take back says how likely they stay unused.
    """
    # single columns, for a thousand findings are put together: a frame's own expressions take ten times as long
    uuids = tuple(sorted(set(stretches["gpu"].to_list()))) if gpus is None else tuple(gpus)
    seen = observe(context, uuids, stretches)
    where = joined(stretches, "host") or "" if host is None else host
    own = of_nobody_else(stretches, holder)
    accounts, jobs = (joined(own, name) for name in ("account", "job"))
    cost = context.costs.of(stretches)
    energy, said = _energy(context, stretches)
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
