"""`fallow allocations import kubernetes`: pods that have GPUs or wait for them, and the Workloads of Kueue that wait for quota."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from analytics.allocations.cluster_rows import ClusterRows, KnownObjects, rows_of
from analytics.allocations.kubernetes_list import EXPORT, Object, read_objects
from analytics.allocations.kubernetes_objects import ClusterObject, job_of, pod_of, workload_of
from analytics.allocations.model import ReadAllocations, Surroundings
from analytics.importers.kinds import with_progress
from analytics.importers.limits import InputLimits
from analytics.importers.model import FileReport, Tally
from analytics.importers.source import open_source
from fallow.errors import InputError

_READERS: Mapping[str, Callable[[Object], ClusterObject]] = {"Pod": pod_of, "Workload": workload_of, "Job": job_of}


@dataclass(frozen=True)
class ClusterExport:
    """What one file holds, and how many objects of other kinds; `as_of_ms` is the newest moment in it."""

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

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("files", nargs="+", metavar="FILE", help=f"output of {EXPORT}, plain or gzipped")

    def read(self, args: argparse.Namespace, around: Surroundings) -> ReadAllocations:
        """Reads the files together; raises InputError."""
        limits = InputLimits.of(around.settings)
        exports = [read_export(path, limits) for path in with_progress(args.files, "reading")]
        known = KnownObjects.of(each for export in exports for each in export.objects)
        found = [
            rows_of([each for each in export.objects if known.is_newest(each)], export.as_of_ms, known, around.hosts)
            for export in exports
        ]
        reports = tuple(_report(export, rows) for export, rows in zip(exports, found, strict=True))
        claims, requests = ClusterRows.frames(found)
        as_of_ms = max((each.as_of_ms for each in exports if each.as_of_ms is not None), default=None)
        return ReadAllocations(claims, requests, reports, "UTC (as written)", as_of_ms)


def read_export(path: str, limits: InputLimits) -> ClusterExport:
    """One file; raises InputError that names the object that cannot be used."""
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
            f"{path}: the {kind}{name} is not as Kubernetes writes it ({error!r})", f"export it again with: {EXPORT}"
        ) from error


def _report(export: ClusterExport, rows: ClusterRows) -> FileReport:
    again = len(export.objects) - rows.kept - rows.dropped.total()
    tally = Tally(dropped=rows.dropped)
    tally.drop("neither a pod, nor a Workload, nor a Job", export.others)
    tally.drop("in another file as well, and newer there", again)
    return tally.report(export.path, len(export.objects) + export.others, rows.kept)
