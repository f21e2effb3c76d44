"""`fallow allocations import kubernetes`: pods that have or await GPUs, and Kueue's Workloads that wait for quota."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from analytics.allocations.kubernetes_demand import CLAIMS, NO_GPU, GpuDemand
from analytics.allocations.kubernetes_objects import (
    EXPORT,
    ClusterObject,
    KueueWorkload,
    Node,
    Object,
    Pod,
    ResourceClaim,
    ResourceSlice,
    claim_of,
    job_of,
    node_of,
    pod_of,
    read_objects,
    slice_of,
    workload_of,
)
from analytics.allocations.model import ROW_SCHEMA, ReadAllocations, Surroundings, conform
from analytics.frames import empty, typed
from analytics.importers.kinds import with_progress
from analytics.importers.model import FileReport, Tally
from analytics.importers.records import fault_of
from analytics.importers.source import InputLimits, open_source
from analytics.names import single_names
from fallow.clock import MINUTE_MS, SECOND_MS
from fallow.errors import InputError, UsageError
from fallow.schema import REQUEST

_WITH_ADMISSION_MS = 10 * MINUTE_MS
"""Pods created within this time after their Workload's admission started with it; later ones replace ended pods."""

_Row = dict[str, Any]


@dataclass
class ClusterRows:
    """Rows of the tables, the number of objects that they stand for, and why other objects have no row."""

    allocations: list[_Row] = field(default_factory=list)
    requests: list[_Row] = field(default_factory=list)
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    @staticmethod
    def frames(found: Sequence[ClusterRows]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the allocations and the requests of several files."""
        allocations = pl.DataFrame([row for each in found for row in each.allocations], schema=ROW_SCHEMA)
        requests = pl.DataFrame([row for each in found for row in each.requests], schema=empty(REQUEST).schema)
        named = single_names("account")
        return conform(allocations.with_columns(named)), typed(requests.with_columns(named), REQUEST)


@dataclass(frozen=True)
class Counted:
    """The GPUs of one pod: their number, or why there is none."""

    gpus: int
    reason: str = ""
    ratio: float | None = None
    """Part of each GPU that it may use; None for whole GPUs."""
    names: tuple[str, ...] = ()
    """UUIDs of all of them, where they are known."""


_Key = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True)
class KnownObjects:
    """All objects of an import in their latest state, indexed for look-ups."""

    by_uid: Mapping[str, ClusterObject]
    workloads: Mapping[_Key, KueueWorkload]
    owned: Mapping[str, KueueWorkload]
    """By the UID of the object that each was created for."""
    nodes: Mapping[str, Node]
    claims: Mapping[_Key, ResourceClaim]
    templates: Mapping[_Key, ResourceClaim]
    generated_claims: Mapping[_Key, ResourceClaim]
    """Claims that Kubernetes generated from templates, by the UID of their pod and their name there."""
    claim_users: Mapping[_Key, int]
    """Pods that a claim serves now."""
    reservations: Mapping[str, Pod]
    """Pods that keep a GPU for others, by their group."""
    uuids: Mapping[tuple[str, str], str]
    """GPUs of resource claims, by pool and device."""

    @classmethod
    def of(cls, objects: Iterable[ClusterObject]) -> KnownObjects:
        by_uid: dict[str, ClusterObject] = {}
        for each in objects:
            if each.uid not in by_uid or by_uid[each.uid].latest <= each.latest:
                by_uid[each.uid] = each
        workloads = [each for each in by_uid.values() if isinstance(each, KueueWorkload)]
        claims = [each for each in by_uid.values() if isinstance(each, ResourceClaim)]
        pods = [each for each in by_uid.values() if isinstance(each, Pod)]
        slices = sorted(
            (each for each in by_uid.values() if isinstance(each, ResourceSlice)), key=lambda each: each.generation
        )
        users = {(each.namespace, each.name): set(each.users) for each in claims if not each.is_template}
        for pod in pods:
            for _, name, _ in pod.demand.claims if not pod.is_over else ():
                users.get((pod.namespace, name or ""), set()).add(pod.uid)
        return cls(
            by_uid,
            {(each.namespace, each.name): each for each in workloads},
            {uid: each for each in workloads for uid, _ in each.owners},
            {each.name: each for each in by_uid.values() if isinstance(each, Node)},
            {(each.namespace, each.name): each for each in claims if not each.is_template},
            {(each.namespace, each.name): each for each in claims if each.is_template},
            {(uid, each.pod_claim): each for each in claims if each.pod_claim for uid, _ in each.owners},
            {key: len(found) for key, found in users.items()},
            {group: pod for pod in pods if pod.groups.is_reservation for group in pod.groups.groups},
            {name: uuid for each in slices for name, uuid in each.uuids.items()},
        )

    def workload_of(self, pod: Pod) -> KueueWorkload | None:
        """Return the Workload that the pod names, else the Workload of the pod, of its Job or of the Job's parent."""
        if pod.workload is not None and (named := self.workloads.get((pod.namespace, pod.workload))):
            return named
        uids = [pod.uid, *(uid for uid, _ in pod.owners)]
        uids += [uid for owner in uids[1:] if owner in self.by_uid for uid, _ in self.by_uid[owner].owners]
        return next((self.owned[uid] for uid in uids if uid in self.owned), None)

    def job_of(self, pod: Pod) -> ClusterObject | None:
        return next((self.by_uid[uid] for uid, _ in pod.owners if uid in self.by_uid), None)

    def gpus_of(self, pod: Pod) -> Counted:
        """Return a pod's GPUs, or those of which it has a part; a reserved GPU belongs to the pods that share it."""
        groups = pod.groups
        if groups.is_reservation:
            return Counted(0, "reservation of a GPU, which the pods that share it have")
        if groups.gpus and groups.ratio == 1:
            return Counted(groups.gpus)
        if groups.gpus:
            reserved = [self.reservations[group] for group in groups.groups if group in self.reservations]
            if groups.ratio is None or pod.placed is None or len(reserved) < groups.gpus:
                return Counted(0, pod.demand.uncounted(groups.text))
            names = tuple(each.groups.gpu for each in reserved if each.groups.gpu is not None)
            return Counted(groups.gpus, "", groups.ratio, names if len(names) == groups.gpus else ())
        node, (names, share) = self.nodes.get(pod.node or ""), pod.given
        if share is not None:
            return Counted(0, pod.demand.uncounted(share))
        found = self.counted(pod, pod.demand, {} if node is None else node.labels)
        return replace(found, names=names) if found.gpus == len(names) else found

    def counted(self, owner: ClusterObject, demand: GpuDemand, node: Mapping[str, str]) -> Counted:
        """Return the whole GPUs of a demand of a pod or a Workload, on a node with these labels."""
        share = demand.share_on(node)
        gpus, others, is_missing = demand.gpus if share is None else 0, set[str](), False
        names = list[str]()
        for name, claim, template in demand.claims:
            key = (owner.namespace, claim or "")
            found = self.claims.get(key) or self.generated_claims.get((owner.uid, name))
            found = found or self.templates.get((owner.namespace, template or ""))
            if found is None:
                is_missing = True
                continue
            users = self.claim_users.get(key, 1)
            if found.devices.gpus and (found.devices.is_share or users > 1):
                share = f"one of {users} pods with its claim" if users > 1 else share or ""
            else:
                gpus += found.devices.gpus
                names += [self.uuids[name] for name in found.devices.names if name in self.uuids]
            others |= set(found.devices.others)
        if gpus:
            return Counted(gpus, names=tuple(names) if len(names) == gpus else ())
        if share is None and not demand.others and (others or is_missing):
            named = f" of {', '.join(sorted(others))}, which this import does not count"
            return Counted(0, f"{CLAIMS}{', which the export lacks' if is_missing else named}")
        return Counted(0, demand.uncounted(share))


def rows_of(
    objects: Iterable[ClusterObject], as_of_ms: int | None, known: KnownObjects, host_of: Callable[[str], str]
) -> ClusterRows:
    """Return the rows of one file's objects, in their state at `as_of_ms`."""
    found = ClusterRows()
    for each in objects:
        if isinstance(each, Pod):
            reason = _add_pod(found, each, as_of_ms, known, host_of)
        elif isinstance(each, KueueWorkload):
            reason = _add_workload(found, each, as_of_ms, known)
        else:
            reason = _REPRESENTED[type(each)]
        if reason:
            found.dropped[reason] += 1
        else:
            found.kept += 1
    return found


_REPRESENTED: Mapping[type[ClusterObject], str] = {
    ClusterObject: "Job, which its pods represent",
    ResourceClaim: "resource claim, which its pods represent",
    ResourceSlice: "resource slice, which tells the UUIDs of claimed GPUs",
    Node: "node, which tells whether pods share its GPUs",
}


def _add_pod(
    found: ClusterRows, pod: Pod, as_of_ms: int | None, known: KnownObjects, host_of: Callable[[str], str]
) -> str:
    """Add the rows of a pod. Return why it has none, or an empty string."""
    workload, counted = known.workload_of(pod), known.gpus_of(pod)
    if not counted.gpus:
        return counted.reason
    if pod.is_rejected:
        return "rejected by its node, so it never had its GPUs"
    if pod.is_over and pod.ended is None:
        return "ended at an unknown time"
    if pod.placed is None and workload is not None and workload.admitted is None:
        return "pod of a Workload that waits itself"
    if pod.placed is not None and pod.ended is not None and pod.ended <= pod.placed:
        return "ended when it started"
    row = _pod_row(pod, workload, known.job_of(pod)) | {"gpu_count": counted.gpus}
    if pod.placed is None:
        row |= {
            "time": row["submitted"],
            "as_of": as_of_ms,
            "withdrawn": pod.ended,
            "reason": pod.reason,
            "task_count": 1,
        }
        found.requests.append(row)
    else:
        limit_s = row["time_limit_s"]
        row |= {
            "host": host_of(str(pod.node)),
            "time": pod.placed,
            "end": pod.ended,
            "as_of": as_of_ms,
            "gpu_share_ratio": counted.ratio,
            "planned_end": None if limit_s is None else pod.placed + limit_s * SECOND_MS,
        }
        found.allocations += [row | {"gpu": name} for name in counted.names] or [row | {"host_gpu_count": counted.gpus}]
    return ""


def _pod_row(pod: Pod, workload: KueueWorkload | None, job: ClusterObject | None) -> _Row:
    """Return the values that both tables have for a pod."""
    submitted, eligible = _submission_times(pod, workload, job)
    limits = [each.time_limit_s for each in (pod, workload, job) if each is not None and each.time_limit_s is not None]
    ranked = pod if workload is None or workload.priority is None else workload
    return {
        "allocation_id": pod.allocation_id,
        "scheduler": "kubernetes",
        "account": pod.namespace,
        "name": pod.name,
        "gpu_model": pod.demand.model,
        "host_count": 1,
        "state": pod.state,
        "partition": (workload.partition if workload else None) or pod.partition or pod.demand.pool,
        "qos": (workload.qos if workload else None) or pod.demand.priority_class,
        "priority": ranked.priority,
        "project": pod.project,
        "time_limit_s": min(limits, default=None),
        "submitted": submitted,
        "eligible": eligible,
    }


def _submission_times(pod: Pod, workload: KueueWorkload | None, job: ClusterObject | None) -> tuple[int, int]:
    """Return when the workload was submitted, and when this pod could have started."""
    if workload is None:
        return (pod.created if job is None else min(job.created, pod.created)), pod.created
    waited_once = workload.admitted is not None and not workload.was_evicted
    if waited_once and pod.created <= int(workload.admitted or 0) + _WITH_ADMISSION_MS:
        return workload.created, workload.created
    return pod.created, pod.created


def _add_workload(found: ClusterRows, each: KueueWorkload, as_of_ms: int | None, known: KnownObjects) -> str:
    """Add the request of a Workload. Return why it has none that counts, or an empty string."""
    sets = [(pods, demand, known.counted(each, demand, {})) for pods, demand in each.sets]
    if not any(counted.gpus for _, _, counted in sets):
        return next((each.reason for _, _, each in sets if each.reason != NO_GPU), NO_GPU)
    models = {demand.model for _, demand, counted in sets if counted.gpus}
    waits_since = each.created if each.evicted is None else each.evicted
    row = vars(each) | {
        "time": waits_since,
        "as_of": as_of_ms,
        "allocation_id": each.allocation_id,
        "scheduler": "kubernetes",
        "account": each.namespace,
        "name": next((name for _, name in each.owners), each.name),
        "task_count": 1,
        "gpu_count": sum(pods * counted.gpus for pods, _, counted in sets),
        "gpu_model": models.pop() if len(models) == 1 else None,
        "eligible": waits_since,
        "granted": each.admitted,
        "withdrawn": each.finished if each.admitted is None else None,
    }
    found.requests.append(row)
    return "" if each.admitted is None else "admitted Workload, which its pods represent"


_READERS: Mapping[str, Callable[[Object], ClusterObject]] = {
    "Pod": pod_of,
    "Workload": workload_of,
    "Job": job_of,
    "Node": node_of,
    "ResourceClaim": claim_of,
    "ResourceClaimTemplate": claim_of,
    "ResourceSlice": slice_of,
}


@dataclass(frozen=True)
class ClusterExport:
    """Objects of one file, and the number of objects of other kinds; `as_of_ms` is the newest moment in it."""

    path: str
    objects: Sequence[ClusterObject]
    others: int

    @property
    def as_of_ms(self) -> int | None:
        return max((each.latest for each in self.objects), default=None)


class Kubernetes:
    name = "kubernetes"
    summary = "pods with GPUs and Workloads of Kueue, as kubectl get ... -o json prints them"
    example = "fallow allocations import kubernetes cluster.json --lake /srv/lake"
    remedies = (
        ("which the export lacks", f"export the claims as well: {EXPORT.replace(' -A', ',resourceclaims -A')}"),
        ("a share of a GPU", "run the agent on the nodes: it reads from the kubelet which pods share a GPU"),
        ("which this import does not count", "import these GPUs from a table: fallow allocations import csv --help"),
        ("ended", "import every hour, so that the lake knows pods while they run"),
        ("", f"export every namespace: {EXPORT}"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "files",
            nargs="+",
            metavar="FILE",
            help=(
                f"output of {EXPORT}, plain or gzipped; name workloads.kueue.x-k8s.io, resourceclaims and"
                " resourceslices too where the cluster has them"
            ),
        )

        parser.add_argument(
            "--cluster",
            metavar="NAME",
            help=(
                "the cluster of the files, where clusters share names of nodes: hosts are NODE@NAME, as exporters have"
                " them with --cluster-label"
            ),
        )

    def read(self, args: argparse.Namespace, around: Surroundings) -> ReadAllocations:
        """Return the allocations of all files, read together. Raises InputError and UsageError."""
        if args.cluster is not None and (not args.cluster.strip() or "@" in args.cluster):
            raise UsageError(
                f"--cluster '{args.cluster}' is not the name of a cluster",
                "leave it out, or give the value that the label of --cluster-label has",
            )

        def host_of(node: str) -> str:
            host = around.hosts.named(node, cluster=args.cluster)
            return host if args.cluster is None or host in around.hosts.names else f"{node}@{args.cluster}"

        limits = InputLimits.of(around.settings)
        exports = [read_export(path, limits) for path in with_progress(args.files, "reading")]
        if not any(export.objects or export.others for export in exports):
            raise InputError(f"{', '.join(args.files)} lists no object", self.remedies[-1][1])
        known = KnownObjects.of(each for export in exports for each in export.objects)
        found = [
            rows_of(
                [each for each in export.objects if known.by_uid[each.uid] is each], export.as_of_ms, known, host_of
            )
            for export in exports
        ]
        reports = tuple(_file_report(export, rows) for export, rows in zip(exports, found, strict=True))
        allocations, requests = ClusterRows.frames(found)
        as_of_ms = max((each.as_of_ms for each in exports if each.as_of_ms is not None), default=None)
        return ReadAllocations(allocations, requests, reports, "UTC (as written)", as_of_ms)


def read_export(path: str, limits: InputLimits) -> ClusterExport:
    """Return the content of one file. Raises InputError that names an unusable object."""
    source = open_source(path, limits)
    if source.text is None or source.cut_off:
        raise InputError(f"{path} is {'cut off' if source.cut_off else 'no JSON'}", f"export it with: {EXPORT}")
    objects, kinds = [], Counter[str]()
    for each in read_objects(path, source.text, limits):
        kind = str(each.get("kind"))
        kinds[kind] += 1
        limits.check_rows(path, kinds.total())
        if kind in _READERS:
            objects.append(_read_object(path, kind, each))
    return ClusterExport(path, objects, kinds.total() - len(objects))


def _read_object(path: str, kind: str, each: Object) -> ClusterObject:
    try:
        return _READERS[kind](each)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        meta = each.get("metadata")
        name = f" {meta.get('namespace')}/{meta.get('name')}" if isinstance(meta, dict) else ""
        raise InputError(
            f"{path}: the {kind}{name} does not have the form that Kubernetes writes: {fault_of(error)}",
            f"export it again with: {EXPORT}",
        ) from error


def _file_report(export: ClusterExport, rows: ClusterRows) -> FileReport:
    again = len(export.objects) - rows.kept - rows.dropped.total()
    tally = Tally(dropped=rows.dropped)
    tally.drop("of a kind that tells nothing of GPUs", export.others)
    tally.drop("listed more than once, of which the newest state counts", again)
    return tally.report(export.path, len(export.objects) + export.others, rows.kept)
