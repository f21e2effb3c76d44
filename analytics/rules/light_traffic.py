"""Replicas of one model whose traffic fits on fewer of them, by the servers' own metrics.

Look-alikes that it leaves alone: traffic that fills the replicas in bursts or queues, replicas that an autoscaler adds and
removes, a standby by its name, replicas without any request (`held`), a single server (`preallocated` names a smaller card for
what its KV cache needs). A latency target may need the replicas too, and no metric states it: confidence is lower.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import polars as pl

from analytics.frames import with_mapped
from analytics.language.quantities import Number, Share
from analytics.language.sentences import tr
from analytics.states import IN_USE
from analytics.workloads import waste
from analytics.workloads.commands import monitor_command, quote
from analytics.workloads.finding_parts import for_machines, label
from analytics.workloads.held_evidence import standbys
from analytics.workloads.ledger_rows import whole_hours
from analytics.workloads.model import Context, EvidenceValue, of_gpus
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from fallow.clock import HOUR_MS

OBSERVED_MIN_H = 72
WEEK_H = 7 * 24
QUANTILE = 0.95
FULL = 0.8
"""Highest share of a replica's KV cache, and of its GPUs' time, that the remaining replicas may use."""

ANSWERED_MIN = 0.9
STEADY_MIN = 0.9
_GROUP = ("user", "account", "namespace", "model", "card")
_BUSY = (
    "kv_cache_used_max_ratio",
    "gpu_util_mean_pct",
    "running_requests_max",
    "waiting_requests_max",
    "tokens_max_per_s",
)


def light_traffic_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per user, account, namespace, served model and card, about the replicas with the fewest requests."""
    hours = _replica_hours(context)
    for group in hours.partition_by(_GROUP, maintain_order=True):
        yield from _group_findings(context, group)


LIGHT_TRAFFIC = Rule(
    name="light_traffic",
    category="right_size",
    sentence=of_gpus("with a replica of a model whose traffic fits on fewer replicas"),
    kinds=(waste.OVERSIZED,),
    precedence=5,
    history=HistoryNeed(OBSERVED_MIN_H * HOUR_MS),
    thresholds={
        "observed": f"at least {OBSERVED_MIN_H} hours in which every replica answered {ANSWERED_MIN:.0%} of the time (three days and nights; confidence is lower below a week; ours)",
        "replicas": f"two or more, their number the same in {STEADY_MIN:.0%} of the hours (an autoscaler adds and removes its own)",
        "fits": f"KV caches of all replicas together, and the busy time of their GPUs, fill at most {FULL:.0%} of the remaining replicas in {QUANTILE:.0%} of the hours; each hour counts with its highest use of each cache (answers one after another take as much time on fewer replicas; in batches they take less)",
        "queue": f"no request waits in {QUANTILE:.0%} of the hours",
    },
    labels=(
        label("replicas", "{value} replicas"),
        label("replicas_needed", "{value} would carry the traffic"),
        label("kv_cache_used_p95_ratio", "all KV caches together at most {value} of one for 95 % of the hours", Share),
        label("running_requests_p95", "at most {value} requests at once for 95 % of the hours"),
        label("tokens_p95_per_s", "at most {value} tokens/s for 95 % of the hours"),
        for_machines("served_model", "served_hours", "gpu_util_p95_sum_pct"),
    ),
    find=light_traffic_findings,
)


def _replica_hours(context: Context) -> pl.DataFrame:
    """Return whole hours of each replica: _GROUP, `host`, `endpoint`, `gpus`, `time`, and figures of the replica, null where unknown."""
    served = context.rollups.serving(context.since_ms).filter(
        pl.col("gpu").is_not_null() & pl.col("model").is_not_null(), pl.col("answered_ms") >= ANSWERED_MIN * HOUR_MS
    )
    alone = pl.struct("endpoint", "model").n_unique().over("host", "gpu", "time") == 1
    used = whole_hours(context).select("host", "gpu", "time", "user", "account", "gpu_util_mean_pct")
    hours = served.filter(alone).rename({"gpu": "on"}).join(used.rename({"gpu": "on"}), on=("host", "on", "time"))
    inventory = context.inventory
    known = hours.filter(pl.col("on").is_in(list(inventory.devices)))
    carded = with_mapped(known, ("on",), {"card": pl.String()}, lambda gpu: (inventory.model(inventory.card_of(gpu)),))
    return carded.group_by(*_GROUP, "host", "endpoint", "time").agg(
        pl.col(_BUSY).max(), pl.col("requests").max(), gpus=pl.col("on").unique().sort()
    )


def _group_findings(context: Context, group: pl.DataFrame) -> Iterator[Candidate]:
    together = group.group_by("time").agg(
        replicas=pl.len(),
        waits=pl.col("waiting_requests_max").max() > 0,
        **{name: pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum()) for name in _BUSY},
    )
    if group["requests"].max() == 0:  # without any request the replicas are held
        return
    replicas = int(together["replicas"].mode().sort()[-1])
    whole = together.filter(
        pl.col("replicas") == replicas, pl.col("kv_cache_used_max_ratio", "gpu_util_mean_pct").is_not_null()
    )
    if replicas < 2 or whole.height < max(OBSERVED_MIN_H, STEADY_MIN * together.height):
        return
    usual, most = (_replicas_needed(whole, quantile) for quantile in (QUANTILE, 1.0))
    queued = float(whole["waits"].fill_null(value=False).mean())  # type: ignore[arg-type]  # of booleans
    if usual >= replicas or queued > 1 - QUANTILE:
        return
    last = group.filter(pl.col("time") == whole["time"].max())  # a rollout gives replicas other addresses
    spare = last.sort("requests", "host", "endpoint").head(replicas - usual)
    gpus = sorted({gpu for own in spare["gpus"] for gpu in own})
    rows = context.inside.segments.filter(pl.col("gpu").is_in(gpus), pl.col("state").is_in(IN_USE))
    if rows.is_empty() or not standbys(context).isdisjoint(gpus):
        return
    first = group.row(0, named=True)
    numbers: dict[str, EvidenceValue] = {
        "served_model": first["model"],
        "replicas": replicas,
        "replicas_needed": usual,
        "kv_cache_used_p95_ratio": _p95(whole, "kv_cache_used_max_ratio"),
        "gpu_util_p95_sum_pct": _p95(whole, "gpu_util_mean_pct"),
        "running_requests_p95": _p95(whole, "running_requests_max"),
        "tokens_p95_per_s": _p95(whole, "tokens_max_per_s"),
        "served_hours": whole.height,
        "model": first["card"],
        "saving": context.costs.of(rows),
    }
    failed = [tr("a latency target may need these replicas: no metric states it")]
    if most > usual:
        failed.append(tr("bursts: the busiest hour needed {number} replicas", number=Number(most)))
    if whole.height < WEEK_H:
        failed.append(tr("less than a week of traffic is known"))
    if whole["waits"].null_count():
        failed.append(tr("whether requests wait is not known"))
    host = rows["host"][0]
    yield Candidate(
        rows,
        subject="|".join(
            (first["namespace"] or first["account"] or first["user"] or "", first["model"], first["card"])
        ),
        user=first["user"],
        numbers=numbers,
        failed=[failed],
        next_command=_look(first["namespace"])
        or monitor_command(host, [gpu for gpu in gpus if gpu in set(rows.filter(host=host)["gpu"])]),
        notes=[tr("scale down by one replica at a time, and watch the time to the first token")],
    )


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
