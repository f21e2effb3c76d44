"""Pods with GPUs in kube-state-metrics, and their rows: pods that labels name, unnamed pods, and pods that wait."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from analytics.allocations.kubernetes_demand import RESERVED
from analytics.allocations.model import ROW_SCHEMA, KnownHosts, conform
from analytics.frames import empty, typed
from analytics.language.sentences import count
from analytics.scraped.who.kube_metrics import OTHERS, SHARES, KubeTables
from analytics.scraped.who.label_runs import NEAR_MS
from fallow.clock import HOUR_MS, MINUTE_MS, SECOND_MS
from fallow.schema import REQUEST

_POD = ("namespace", "pod", "uid")
_OVER = ("Succeeded", "Failed")
_QUEUE, _PROJECTS = "label_kueue_x_k8s_io_queue_name", ("label_project", "label_app_kubernetes_io_part_of")
_MISSED, _LEAST_STEP_MS = 3, MINUTE_MS
"""Samples that a pod's series misses, while its target has others, before the pod counts as gone; and the least
distance between these.
"""


def pods_of(kube: KubeTables) -> pl.DataFrame:
    """Return one row per pod that asked for GPUs, times in milliseconds and null where they are not known.

    namespace, pod, uid, node, gpus, gpu_model (a MIG profile), qos, owner (`Deployment/web`), created, submitted,
    placed, ended, over_by_ms (the first sample in which it was over: an end is known only where an earlier sample
    showed it alive), is_over, state, reason, partition, project, time_limit_s, last_ms (its last sample) and gone_ms
    (the last moment at which it may have existed; null unless its target has later samples of others).
    """
    pods = _demands(kube).filter(~_is_left_out())
    for table in (_infos(kube), _owners(kube), _moments(kube), _phases(kube), _reasons(kube), _labels(kube)):
        pods = pods.join(table, on=_POD, how="left", nulls_equal=True)
    pods = pods.join(_jobs(kube), on=["namespace", "job"], how="left")
    is_over = pl.col("phase").is_in(_OVER).fill_null(value=False)
    return pods.with_columns(
        owner=pl.coalesce("owner", pl.col("own_owner")),
        submitted=pl.coalesce(pl.min_horizontal("job_created", "created"), "created"),
        placed=pl.coalesce("scheduled", "started"),
        is_over=is_over,
        ended=pl.when(is_over).then(pl.coalesce("completed", "over_ms")),
        state=pl.coalesce("reason", "phase"),
        gone_ms=pl.when("is_gone").then(pl.col("last_ms") + kube.step_ms),
    )


def _is_left_out() -> pl.Expr:
    return pl.col("is_share") | pl.col("is_other") | pl.col("namespace").is_in(RESERVED).fill_null(value=False)


def left_out_notes(kube: KubeTables) -> tuple[str, ...]:
    """Return a sentence about pods that no allocation counts, because each shares a GPU or only reserves one."""
    found = _demands(kube).filter(_is_left_out())
    shares, others = (int(found[name].sum()) for name in ("is_share", "is_other"))
    reservations = found.height - found.filter(pl.col("is_share") | pl.col("is_other")).height
    sentences = {
        "with a share of a GPU: counted only where labels name the GPU": shares,
        "with GPUs of another vendor: counted only where labels name the GPU": others,
        "in a reservation namespace: not counted, because the pods that share the GPU have it": reservations,
    }
    return tuple(f"{count(number, 'pod')} {text}" for text, number in sentences.items() if number)


def _demands(kube: KubeTables) -> pl.DataFrame:
    """Return the pods' requests: the sum of containers that run together, or the largest init container if larger.

    `is_share`: its containers are limited to a part of their GPUs. All cores of a GPU are a whole GPU. `is_other`: it
    asks for GPUs of another vendor.
    """
    at_once = _requested_counts(kube, "container").group_by(*_POD, "resource").agg(pl.col("count").sum())
    before = _requested_counts(kube, "init_container").group_by(*_POD, "resource").agg(pl.col("count").max())
    kinds = pl.concat([at_once, before]).group_by(*_POD, "resource").agg(pl.col("count").max())
    profile = pl.col("resource").str.extract(r"^nvidia_com_(mig_.+)$", 1)
    is_all_memory = (pl.col("resource") == SHARES[2]) & (pl.col("count") >= _ALL_PCT)
    is_part = pl.col("resource").is_in(SHARES) | pl.col("resource").str.ends_with("_shared")
    is_other = pl.col("resource").str.contains(f"^({OTHERS})$")
    limits = kinds.filter(is_part, pl.col("count") > 0, ~is_all_memory)
    others = kinds.filter(is_other, pl.col("count") > 0).select(*_POD, is_other=pl.lit(value=True)).unique()
    is_whole = ((pl.col("resource") == SHARES[0]) & (pl.col("count") >= _ALL_PCT)).any()
    shares = limits.group_by(_POD).agg(is_share=~is_whole)
    kinds = kinds.filter(~is_part, ~is_other)
    each = kinds.filter(pl.col("count") > 0).group_by(_POD, maintain_order=True)
    found = each.agg(gpus=pl.col("count").sum().cast(pl.Int64, strict=False), model=profile.unique(), kinds=pl.len())
    name = pl.col("model").list.first().str.replace("_", "-").str.replace("_", ".")
    found = found.with_columns(gpu_model=pl.when(pl.col("kinds") == 1).then(name)).drop("model", "kinds")
    known = found.join(shares, on=_POD, how="full", nulls_equal=True, coalesce=True)
    known = known.join(others, on=_POD, how="full", nulls_equal=True, coalesce=True)
    return known.with_columns(pl.col("is_share", "is_other").fill_null(value=False))


_ALL_PCT = 100


def _requested_counts(kube: KubeTables, kind: str) -> pl.DataFrame:
    """Return the count of each container and resource; requests and limits of a GPU are equal if both are given."""
    tables = [
        kube.table(f"kube_pod_{kind}_resource_{which}", *_POD, "container", "resource")
        for which in ("limits", "requests")
    ]
    both = pl.concat(tables)
    return both.group_by(*_POD, "container", "resource").agg(count=pl.col("value").max())


def _infos(kube: KubeTables) -> pl.DataFrame:
    rows = kube.table(
        "kube_pod_info", *_POD, "node", "priority_class", "created_by_kind", "created_by_name", "instance"
    )
    lasted_ms = _MISSED * max(kube.step_ms, _LEAST_STEP_MS)
    rows = rows.with_columns(is_gone=pl.col("last_ms") < pl.col("last_ms").max().over("instance") - lasted_ms)
    creator = pl.col("created_by_kind") + "/" + pl.col("created_by_name")
    # a waiting pod has a series without a node, and another one once it has been placed
    return (
        rows.sort("last_ms")
        .group_by(_POD)
        .agg(
            node=pl.col("node").drop_nulls().last(),
            qos=pl.col("priority_class").drop_nulls().last(),
            own_owner=creator.filter(pl.col("created_by_kind") != "<none>").last(),
            last_ms=pl.col("last_ms").max(),
            is_gone=pl.col("is_gone").last(),
        )
    )


def _owners(kube: KubeTables) -> pl.DataFrame:
    """Return `owner` and `job` of pods, by controller references.

    The owner of a ReplicaSet's pod is the Deployment, and the owner of a Job's pod is the Job's controller.
    """
    own = _owner_table(kube, "kube_pod_owner", *_POD)
    sets = _owner_table(kube, "kube_replicaset_owner", "namespace", "replicaset").rename({"replicaset": "name"})
    jobs = _owner_table(kube, "kube_job_owner", "namespace", "job_name").rename({"job_name": "name"})
    above = pl.concat([sets.with_columns(kind=pl.lit("ReplicaSet")), jobs.with_columns(kind=pl.lit("Job"))])
    above = above.select("namespace", "kind", "name", above=pl.col("owner_kind") + "/" + pl.col("owner_name"))
    met = own.join(
        above, left_on=["namespace", "owner_kind", "owner_name"], right_on=["namespace", "kind", "name"], how="left"
    )
    return met.select(
        *_POD,
        owner=pl.coalesce("above", pl.col("owner_kind") + "/" + pl.col("owner_name")),
        job=pl.when(pl.col("owner_kind") == "Job").then("owner_name"),
    )


def _owner_table(kube: KubeTables, name: str, *key: str) -> pl.DataFrame:
    rows = kube.table(name, *key, "owner_kind", "owner_name", "owner_is_controller")
    named = rows.filter((pl.col("owner_kind") != "<none>") & pl.col("owner_name").is_not_null())
    ordered = named.sort(pl.col("owner_is_controller") == "true", "owner_name", nulls_last=False)
    return ordered.unique(key, keep="last").select(*key, "owner_kind", "owner_name")


def _moments(kube: KubeTables) -> pl.DataFrame:
    """Return when a pod was created, bound to its node, started there, and ended."""
    names = {
        "created": "kube_pod_created",
        "scheduled": "kube_pod_status_scheduled_time",
        "started": "kube_pod_start_time",
        "completed": "kube_pod_completion_time",
    }
    reported = [kube.table(name, *_POD).with_columns(what=pl.lit(what)) for what, name in names.items()]
    rows = pl.concat(reported).with_columns(ms=(pl.col("value") * SECOND_MS).round().cast(pl.Int64, strict=False))
    of = {what: pl.col("ms").filter((pl.col("what") == what) & (pl.col("ms") > 0)).max() for what in names}
    return rows.group_by(_POD).agg(**of)


def _phases(kube: KubeTables) -> pl.DataFrame:
    rows = kube.table("kube_pod_status_phase", *_POD, "phase").drop_nulls("one_last_ms")
    over = pl.col("one_first_ms").filter(pl.col("phase").is_in(_OVER)).min()
    alive = pl.col("first_ms").min()
    phases = rows.sort("one_last_ms").group_by(_POD).agg(pl.col("phase").last(), over_by_ms=over, alive_ms=alive)
    # a pod that is over in its first sample ended at any time before
    return phases.with_columns(over_ms=pl.when(pl.col("over_by_ms") > pl.col("alive_ms")).then("over_by_ms")).drop(
        "alive_ms"
    )


def _reasons(kube: KubeTables) -> pl.DataFrame:
    """Return the `reason` of its state (Evicted, say), and whether the scheduler found no place for it."""
    stated = kube.table("kube_pod_status_reason", *_POD, "reason").drop_nulls("one_last_ms").sort("one_last_ms")
    stated = stated.group_by(_POD).agg(pl.col("reason").last())
    waits = kube.table("kube_pod_status_unschedulable", *_POD).drop_nulls("one_last_ms").select(_POD).unique()
    return stated.join(
        waits.with_columns(is_unschedulable=pl.lit(value=True)), on=_POD, how="full", coalesce=True, nulls_equal=True
    )


def _labels(kube: KubeTables) -> pl.DataFrame:
    rows = kube.table("kube_pod_labels", *_POD, _QUEUE, *_PROJECTS).sort("last_ms")
    return rows.group_by(_POD).agg(
        partition=pl.col(_QUEUE).drop_nulls().last(), project=pl.coalesce(_PROJECTS).drop_nulls().last()
    )


def _jobs(kube: KubeTables) -> pl.DataFrame:
    created = kube.table("kube_job_created", "namespace", "job_name").group_by("namespace", job="job_name")
    limits = kube.table("kube_job_spec_active_deadline_seconds", "namespace", "job_name").group_by(
        "namespace", job="job_name"
    )
    return created.agg(job_created=(pl.col("value").max() * SECOND_MS).cast(pl.Int64, strict=False)).join(
        limits.agg(time_limit_s=pl.col("value").min().cast(pl.Int64, strict=False)),
        on=["namespace", "job"],
        how="full",
        coalesce=True,
    )


POD_SCHEMA = ROW_SCHEMA | {"seen_ms": pl.Int64()}
"""Allocations of pods that no label names, and the time of their last sample."""

WAITING_SCHEMA = {**empty(REQUEST).schema, "recorded_ms": pl.Int64()}
"""Requests, and the time up to which the lake knows them."""

_AGAIN_MS = HOUR_MS
"""How often a waiting pod is recorded again: each time is a row."""


def with_pods(rows: pl.DataFrame, pods: pl.DataFrame) -> pl.DataFrame:
    """Return rows of Kubernetes' runs with facts of their pods.

    `rows` have `allocation_id`, `host`, `gpu`, `time`, `first_ms`, `end`, `is_new`, `is_begun` and `reported`. A new
    run begins when its pod was placed, and none lasts longer than its pod's containers ran: labels may name an ended
    pod until its GPU is allocated again. Pods of one name, one after another, are separate runs.
    """
    placed = pods.drop_nulls("placed")
    facts = _facts(placed).with_columns(over_by=placed["over_by_ms"]).drop("host_gpu_count").sort("placed")
    facts = facts.with_columns(next=pl.col("placed").shift(-1).over("allocation_id"))
    numbered = rows.with_row_index("_run")
    of_pods = numbered.join(facts, on="allocation_id").filter(
        (pl.col("placed") <= pl.col("end")).fill_null(value=True),
        (pl.col("next") > pl.col("first_ms")).fill_null(value=True),
        (pl.col("gone_ms") > pl.col("first_ms")).fill_null(value=True),
        ~pl.col("is_begun") | (pl.col("pod_end") + NEAR_MS > pl.col("first_ms")).fill_null(value=True),
    )
    unknown = numbered.join(of_pods, on="_run", how="anti")
    follows = (pl.col("placed") > pl.col("time") + NEAR_MS) | (pl.col("placed") > pl.col("placed").min().over("_run"))
    began = pl.when("is_new").then("first_ms").otherwise("time")
    known = of_pods.with_columns(
        time=pl.when(pl.col("is_new") | ~pl.col("reported") | follows).then("placed").otherwise("time"),
        end=pl.min_horizontal("end", pl.coalesce("pod_end", "over_by"), "next"),
        is_new=pl.col("is_new") | follows,
        reported=pl.col("reported") & ~follows,
        planned_end=pl.col("placed") + pl.col("time_limit_s") * SECOND_MS,
        # of a pod that was over in its first sample, the label alone does not tell of any time
        _lingers=(pl.col("pod_end") <= began).fill_null(pl.col("over_by").is_not_null() & pl.col("is_new")),
    ).filter(~pl.col("_lingers"))
    return pl.concat([known, unknown], how="diagonal_relaxed").filter(
        (pl.col("end") > pl.col("time")).fill_null(value=True)
    )


def _facts(pods: pl.DataFrame) -> pl.DataFrame:
    """Return columns of allocations and requests that a pod fills."""
    return pods.select(
        "placed",
        "submitted",
        "project",
        "partition",
        "qos",
        "state",
        "gpu_model",
        "time_limit_s",
        "gone_ms",
        allocation_id=pl.col("namespace") + "/" + pl.col("pod"),
        name=pl.coalesce("owner", "pod"),
        eligible="created",
        gpu_count="gpus",
        host_gpu_count="gpus",
        host_count=pl.lit(1),
        pod_end="ended",
    )


@dataclass(frozen=True)
class PodRows:
    """`rows` are new rows for the lake; `known` is what the next window must know of these pods."""

    rows: pl.DataFrame
    known: pl.DataFrame


def unnamed_pods(
    pods: pl.DataFrame, named: pl.DataFrame, before: pl.DataFrame, hosts: KnownHosts, step_ms: int
) -> PodRows:
    """Return pods with GPUs that no label names, by number; `named`: runs (allocation_id, time, end) of the others."""
    has_end = ~pl.col("is_over") | pl.col("ended").is_not_null()
    placed = pods.filter(pl.col("placed").is_not_null() & pl.col("node").is_not_null() & has_end)
    facts = _facts(placed).with_columns(
        host=placed["node"],
        end=pl.coalesce("pod_end", "gone_ms"),
        time="placed",
        planned_end=pl.col("placed") + pl.col("time_limit_s") * SECOND_MS,
        seen_ms=placed["last_ms"],
    )
    nodes = {node: hosts.named(node) for node in facts["host"].unique()}
    own = _unnamed_pods(facts, named).filter((pl.col("end") > pl.col("time")).fill_null(value=True))
    now = _pod_rows(own.with_columns(pl.col("host").replace(nodes)))
    lost = before.filter(pl.col("end").is_null()).join(now, on=["allocation_id", "time"], how="anti")
    lost = _unnamed_pods(lost.with_columns(end=pl.col("seen_ms") + step_ms), named)
    news = now.join(before, on=["allocation_id", "time", "end"], how="anti", nulls_equal=True)
    return PodRows(conform(pl.concat([news, lost])), now)


def _unnamed_pods(pods: pl.DataFrame, named: pl.DataFrame) -> pl.DataFrame:
    """Return the pods (allocation_id, time, end), except those whose time has a label with their name.

    Other pods of that name differ in time.
    """
    numbered = pods.with_row_index("_pod")
    runs = named.select("allocation_id", named_from="time", named_until="end")
    met = numbered.join(runs, on="allocation_id").filter(
        (pl.col("named_from") < pl.col("end")).fill_null(value=True),
        (pl.col("named_until") > pl.col("time")).fill_null(value=True),
    )
    return numbered.join(met, on="_pod", how="anti").drop("_pod")


def _pod_rows(facts: pl.DataFrame) -> pl.DataFrame:
    rows = facts.with_columns(
        scheduler=pl.lit("kubernetes"), account=pl.col("allocation_id").str.split("/").list.first()
    )
    return pl.concat([conform(rows), rows.select("seen_ms")], how="horizontal")


def waiting_pods(pods: pl.DataFrame, before: pl.DataFrame, step_ms: int) -> PodRows:
    """Return requests of unplaced pods; pods without further samples were withdrawn, unless they were placed since."""
    waits = pods.filter(pl.col("placed").is_null() & (pl.col("state") != "Running") & ~pl.col("is_over"))
    reason = pl.when(waits["is_unschedulable"].fill_null(value=False)).then(pl.lit("Unschedulable"))
    facts = (
        _facts(waits)
        .with_columns(
            scheduler=pl.lit("kubernetes"),
            account=waits["namespace"],
            time="submitted",
            as_of=waits["last_ms"],
            task_count=1,
            withdrawn="gone_ms",
            reason=reason,
        )
        .drop_nulls("time")
    )
    now = typed(facts, REQUEST).join(
        before.select("allocation_id", "time", "recorded_ms"), on=["allocation_id", "time"], how="left"
    )
    is_due = pl.col("recorded_ms").is_null() | (pl.col("as_of") >= pl.col("recorded_ms") + _AGAIN_MS)
    now = now.with_columns(_due=is_due | pl.col("withdrawn").is_not_null())
    there = pods.select(allocation_id=pl.col("namespace") + "/" + pl.col("pod")).unique()
    lost = before.join(there, on="allocation_id", how="anti").with_columns(withdrawn=pl.col("as_of") + step_ms)
    rows = pl.concat([now.filter("_due").select(REQUEST.names), lost.select(REQUEST.names)])
    open_ones = now.filter(pl.col("withdrawn").is_null())
    known = open_ones.with_columns(recorded_ms=pl.when("_due").then("as_of").otherwise("recorded_ms"))
    return PodRows(rows, known.select(list(WAITING_SCHEMA)))
