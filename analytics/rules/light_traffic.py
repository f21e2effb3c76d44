"""Servers of one model whose traffic fits on fewer of them or on a smaller card, by their own metrics.

Look-alikes that it leaves alone: traffic that fills the replicas in bursts or queues, replicas that an autoscaler adds
and removes, a standby by its name, replicas without any request (`held`). A smaller card is named only for servers of
one GPU whose weights are known by the model's name. A latency target may need the replicas or the card too, and no
metric states it: confidence is lower.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import polars as pl

from analytics.frames import with_mapped
from analytics.language.sentences import Bytes, Number, Share, tr
from analytics.mig import MIG_PREFIX
from analytics.names import CLUSTER
from analytics.rules.preallocated import CacheUse, bytes_per_parameter, parameters_of
from analytics.states import IN_USE
from analytics.workloads import waste
from analytics.workloads.cards import Demand, Offer, ask_for, shelf
from analytics.workloads.commands import monitor_command, quote
from analytics.workloads.finding_parts import counted, for_machines, label
from analytics.workloads.held_evidence import standbys
from analytics.workloads.ledger_rows import whole_hours
from analytics.workloads.model import Context, EvidenceValue, of_gpus
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from analytics.workloads.runs import NEED_MARGIN, PEAK_MAX_SHARE
from analytics.workloads.smaller_cards import UNMEASURED_BANDWIDTH, no_bfloat16, saving_of
from fallow.clock import HOUR_MS

OBSERVED_MIN_H = 72
WEEK_H = 7 * 24
QUANTILE = 0.95
FULL = 0.8
"""Highest share of a replica's KV cache, and of its GPUs' time, that the remaining replicas may use."""
REDUNDANT = 2
"""Replicas that remain of more, even if one would carry the traffic."""

ANSWERED_MIN = 0.9
STEADY_MIN = 0.9
_GROUP = ("user", "account", "cluster", "namespace", "model", "card")
_BUSY = (
    "kv_cache_used_max_ratio",
    "gpu_util_mean_pct",
    "running_requests_max",
    "waiting_requests_max",
    "tokens_max_per_s",
)
_OF_CARD = ("mem_used_max_bytes", "dram_active_mean_pct")


def light_traffic_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per user, account, cluster, namespace, served model and card.

    A finding is about the replicas with the fewest requests, or about all.
    """
    hours = _replica_hours(context)
    for group in hours.partition_by(_GROUP, maintain_order=True):
        yield from _group_findings(context, group)


LIGHT_TRAFFIC = Rule(
    name="light_traffic",
    category="right_size",
    sentence=of_gpus("with a server whose traffic fits on fewer replicas or a smaller card"),
    kinds=(waste.OVERSIZED,),
    precedence=5,
    history=HistoryNeed(OBSERVED_MIN_H * HOUR_MS),
    thresholds={
        "observed": (
            f"at least {OBSERVED_MIN_H} hours in which every replica answered {ANSWERED_MIN:.0%} of the time (three"
            " days and nights; confidence is lower below a week; ours)"
        ),
        "replicas": (
            f"their number is the same in {STEADY_MIN:.0%} of the hours (an autoscaler adds and removes its own); of"
            f" more than {REDUNDANT}, {REDUNDANT} remain"
        ),
        "fits": (
            f"KV caches of all replicas together, and the busy time of their GPUs, fill at most {FULL:.0%} of the"
            f" remaining replicas in {QUANTILE:.0%} of the hours (each hour counts with its highest use of each cache;"
            " answers one after another take as much time on fewer replicas; in batches they take less)"
        ),
        "smaller card": (
            f"where no replica is spare: weights and KV cache in {QUANTILE:.0%} of the hours, times {NEED_MARGIN:g},"
            f" fill at most {PEAK_MAX_SHARE:.0%} of its memory; its peak rate and bandwidth carry the busiest server at"
            f" {FULL:.0%} busy"
        ),
        "queue": f"no request waits in {QUANTILE:.0%} of the hours",
    },
    labels=(
        counted("replicas", "{number} {replica|replicas}"),
        label("replicas_needed", "{value} would carry the traffic"),
        label("weights_bytes", "weights {value}", Bytes),
        label("kv_cache_used_p95_ratio", "all KV caches together at most {value} of one for 95 % of the hours", Share),
        label("running_requests_p95", "at most {value} requests at once for 95 % of the hours"),
        label("tokens_p95_per_s", "at most {value} tokens/s for 95 % of the hours"),
        for_machines("served_model", "served_hours", "gpu_util_p95_sum_pct"),
    ),
    find=light_traffic_findings,
)


def _replica_hours(context: Context) -> pl.DataFrame:
    """Return whole hours of replicas: _GROUP, host, endpoint, gpus, time, job, and figures, null where unknown."""
    served = context.rollups.serving(context.since_ms).filter(
        pl.col("gpu").is_not_null() & pl.col("model").is_not_null(), pl.col("answered_ms") >= ANSWERED_MIN * HOUR_MS
    )
    alone = pl.struct("endpoint", "model").n_unique().over("host", "gpu", "time") == 1
    used = whole_hours(context).select("host", "gpu", "time", "user", "account", "job", "gpu_util_mean_pct", *_OF_CARD)
    hours = served.filter(alone).rename({"gpu": "on"}).join(used.rename({"gpu": "on"}), on=("host", "on", "time"))
    inventory = context.inventory
    known = hours.filter(pl.col("on").is_in(list(inventory.devices)))
    carded = with_mapped(
        known.with_columns(cluster=CLUSTER),
        ("on",),
        {"card": pl.String()},
        lambda gpu: (inventory.model(inventory.card_of(gpu)),),
    )
    return carded.group_by(*_GROUP, "host", "endpoint", "time").agg(
        pl.col(*_BUSY, *_OF_CARD).max(),
        pl.col("requests").max(),
        pl.col("job").min(),
        gpus=pl.col("on").unique().sort(),
    )


def _group_findings(context: Context, group: pl.DataFrame) -> Iterator[Candidate]:
    together = group.group_by("time").agg(
        replicas=pl.len(),
        # a replica that does not tell may queue
        waits=pl.when(
            (pl.col("waiting_requests_max") > 0).any() | (pl.col("waiting_requests_max").null_count() == 0)
        ).then(pl.col("waiting_requests_max").max() > 0),
        **{name: pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum()) for name in _BUSY},
    )
    if group["requests"].max() == 0:  # without any request the replicas are held
        return
    replicas = int(together["replicas"].mode().sort()[-1])
    whole = together.filter(
        pl.col("replicas") == replicas, pl.col("kv_cache_used_max_ratio", "gpu_util_mean_pct").is_not_null()
    )
    queued = float(whole["waits"].fill_null(value=False).mean() or 0.0)  # type: ignore[arg-type]  # of booleans
    if whole.height < max(OBSERVED_MIN_H, STEADY_MIN * together.height) or queued > 1 - QUANTILE:
        return
    usual, most = (_replicas_needed(whole, quantile) for quantile in (QUANTILE, 1.0))
    kept = usual if replicas <= REDUNDANT else max(usual, REDUNDANT)
    seen = group.join(whole.select("time"), on="time", how="semi")
    smaller = _smaller_card(context, seen, QUANTILE)
    if kept > replicas or (kept == replicas and smaller is None):
        return
    last = group.filter(pl.col("time") == whole["time"].max())  # a rollout gives replicas other addresses
    about = last.sort("requests", "host", "endpoint").head(replicas - kept or replicas)
    gpus = sorted({gpu for own in about["gpus"] for gpu in own})
    rows = context.inside.segments.filter(
        pl.col("gpu").is_in(gpus),
        pl.col("state").is_in(IN_USE),
        pl.col("job").is_in(group["job"].unique().to_list(), nulls_equal=True),  # others may have had these GPUs before
        *(pl.col(name).eq_missing(pl.lit(group[name][0])) for name in ("user", "account")),
    )
    if rows.is_empty() or not standbys(context).isdisjoint(gpus):
        return
    first = group.row(0, named=True)
    numbers: dict[str, EvidenceValue] = {
        "served_model": first["model"],
        "replicas": replicas,
        "kv_cache_used_p95_ratio": _p95(whole, "kv_cache_used_max_ratio"),
        "gpu_util_p95_sum_pct": _p95(whole, "gpu_util_mean_pct"),
        "running_requests_p95": _p95(whole, "running_requests_max"),
        "tokens_p95_per_s": _p95(whole, "tokens_max_per_s"),
        "served_hours": whole.height,
        "model": first["card"],
    }
    if kept == replicas and smaller is not None:
        offer, need = smaller
        saving, unknown_because = saving_of(context, rows, offer)
        numbers |= _card_numbers(context, first["card"], offer, need) | {"saving": saving}
        failed = _smaller_unsure(context, seen, offer)
        command, note = _card_command(context, about, first["card"], offer)
        notes = [note, *unknown_because]
    else:
        numbers |= {"replicas_needed": kept, "saving": context.costs.of(rows)}
        failed, notes = (
            _fewer_unsure(kept, min(most, replicas)),
            _fewer_notes(seen, usual, kept, numbers["tokens_p95_per_s"]),
        )
        command = _look(first["namespace"])
        if smaller is not None:
            card = smaller[0].card.name
            notes.append(tr("instead, all {number} replicas would fit on {card}", number=Number(replicas), card=card))
    host = rows["host"][0]
    if whole.height < WEEK_H:
        failed.append(tr("less than a week of traffic is known"))
    if whole["waits"].null_count():
        failed.append(tr("whether requests wait is not known"))
    yield Candidate(
        rows,
        subject="|".join(
            (first["namespace"] or first["account"] or first["user"] or "", first["model"], first["card"])
            + (() if first["cluster"] is None else (first["cluster"],))
        ),
        user=first["user"],
        numbers=numbers,
        failed=[failed],
        next_command=command
        or monitor_command(host, [gpu for gpu in gpus if gpu in set(rows.filter(host=host)["gpu"])]),
        notes=notes,
    )


def _card_numbers(context: Context, present: str, offer: Offer, need: CacheUse) -> dict[str, EvidenceValue]:
    return {
        "weights_bytes": need.weights_bytes,
        "mem_need_bytes": need.need_bytes,
        "recommended_card": offer.model or offer.card.name,
        "recommended_memory_bytes": offer.card.memory_bytes,
        "hourly": shelf(context).fleet[present].hourly,
        "recommended_hourly": offer.hourly,
    }


def _card_command(context: Context, about: pl.DataFrame, present: str, offer: Offer) -> tuple[str, str]:
    """Return the command that requests the card, empty where the fleet has none, and what to do."""
    if offer.model is None:
        return "", tr("no card of this fleet fits; {card} is from the catalog", card=offer.card.name)
    return ask_for(context, about["job"].to_list(), offer, present=present, gpus_per_host=1)


def _fewer_unsure(kept: int, most: int) -> list[str]:
    """Return the conditions that fewer replicas fail."""
    failed: list[str] = [tr("a latency target may need these replicas: no metric states it")]
    if kept == 1:
        failed.append(tr("one replica has no redundancy: requests fail while it restarts"))
    if most > kept:
        failed.append(tr("bursts: the busiest hour needed {number} replicas", number=Number(most)))
    return failed


def _fewer_notes(seen: pl.DataFrame, usual: int, kept: int, tokens_per_s: EvidenceValue) -> list[str]:
    notes: list[str] = [tr("scale down by one replica at a time, and watch the time to the first token")]
    if kept > usual:
        notes.append(tr("{number} replicas remain for redundancy", number=Number(kept)))
    most = seen["tokens_max_per_s"].max()
    if isinstance(tokens_per_s, float) and isinstance(most, float) and tokens_per_s / kept > most:
        notes.append(
            tr(
                "each remaining replica would have up to {each} tokens/s; the most of one replica so far is {most}",
                each=Number(tokens_per_s / kept),
                most=Number(most),
            )
        )
    return notes


def _smaller_card(context: Context, seen: pl.DataFrame, quantile: float) -> tuple[Offer, CacheUse] | None:
    """Return a card with less memory for each server of a GPU, with its need; None where unknown, or without one.

    The card does what the busiest server did in the hours up to a quantile.
    """
    first = seen.row(0, named=True)
    parameters, width = parameters_of(first["model"]), bytes_per_parameter(first["model"])
    alone = (seen["gpus"].list.len() == 1).all() and not seen["gpus"].list.first().str.starts_with(MIG_PREFIX).any()
    hourly = seen.group_by("time").agg(pl.col(*_BUSY, *_OF_CARD).max())
    hourly = hourly.with_columns(
        flow_pct=pl.col("dram_active_mean_pct").fill_null(UNMEASURED_BANDWIDTH * pl.col("gpu_util_mean_pct"))
    )
    reserved, cache, busy_pct, flow_pct = (
        float(hourly[name].quantile(quantile, "higher") or 0.0)
        for name in ("mem_used_max_bytes", "kv_cache_used_max_ratio", "gpu_util_mean_pct", "flow_pct")
    )
    if parameters is None or not alone or not reserved:
        return None
    need = CacheUse(
        model=first["model"],
        used_max_ratio=cache,
        hours=hourly.height,
        reserved_bytes=int(reserved),
        gpus=1,
        bytes_per_parameter=width,
        weights_bytes=round(parameters * width),
    )
    if need.need_bytes is None:
        return None
    demand = Demand(need.need_bytes, busy_pct / 100 / FULL, flow_pct / 100 / FULL, less_memory=True)
    offer = shelf(context).choose(first["card"], demand)
    return None if offer is None else (offer, need)


def _smaller_unsure(context: Context, seen: pl.DataFrame, offer: Offer) -> list[str]:
    """Return the conditions that a smaller card fails."""
    present, card = shelf(context).fleet[seen["card"][0]].card, offer.card
    had, has = present.bandwidth_gb_per_s or 0.0, card.bandwidth_gb_per_s or 0.0
    failed: list[str] = [tr("a latency target may need this card: no metric states it")]
    if has and had > has:
        failed = [
            tr(
                "a latency target may need this card: a token takes up to {factor} times as long on {card}",
                factor=Number(had / has, 1),
                card=card.name,
            )
        ]
    failed += no_bfloat16(offer)
    most = _smaller_card(context, seen, 1.0)
    if most is None or most[0].card != card:
        failed.append(tr("bursts: the busiest hour needed more than {card}", card=card.name))
    return failed


def _replicas_needed(whole: pl.DataFrame, quantile: float) -> int:
    """Return the replicas whose KV caches and GPUs the hours up to a quantile fill to at most FULL."""
    cache, busy_pct = (
        float(whole[name].quantile(quantile, "higher"))  # type: ignore[arg-type]  # of numbers
        for name in ("kv_cache_used_max_ratio", "gpu_util_mean_pct")
    )
    return max(1, math.ceil(cache / FULL), math.ceil(busy_pct / (100 * FULL)))


def _p95(whole: pl.DataFrame, name: str) -> float | None:
    known = whole[name]
    return None if known.null_count() else known.quantile(QUANTILE, "higher")


def _look(namespace: str | None) -> str:
    return f"kubectl --namespace {quote(namespace)} get deployments,statefulsets" if namespace else ""
