"""Scraped hosts and series of kube-state-metrics, as short texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from analytics.allocations.model import KnownHosts
from analytics.allocations.publish import publish_allocations
from analytics.importers.model import Imported
from analytics.scraped.samples import SAMPLE_SCHEMA, Samples
from analytics.scraped.who.allocations import OpenAllocations, allocations_of
from analytics.scraped.who.label_runs import Given
from tests.allocations.conftest import stored
from tests.ledger.rows import T0, ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fallow.lake import Lake

STEP_S = 30


def host_rows(host: str, first_s: float, last_s: float, **users: Sequence[str | None]) -> Imported:
    """A host whose GPUs (`G0=...`) were scraped every 30 s in [first_s, last_s), with who each sample names.

    A user is `NAMESPACE/POD` or `slurm:JOB`; None: no user; `-`: a scrape that failed. The list is as long as the
    window, or has one user for all samples.
    """
    given, gpus = [], []
    count = int((last_s - first_s) // STEP_S)
    for gpu, named in users.items():
        each = list(named) * count if len(named) == 1 else list(named)
        assert len(each) == count
        times = [ms(first_s) + 1_000 * STEP_S * number for number in range(count)]
        gpus += [(gpu, at, 0, 1_000 * STEP_S) for at, who in zip(times, each, strict=True) if who != "-"]
        given += _segments(gpu, [(at, who) for at, who in zip(times, each, strict=True) if who != "-"])
    names = ("gpu", "start_ms", "end_ms", "namespace", "pod", "container", "slurm_job", "user")
    schema: dict[str, Any] = {name: pl.Int64 if name.endswith("_ms") else pl.String for name in names}
    rows = pl.DataFrame(gpus, schema=["gpu", "time", "offset_ms", "interval_ms"], orient="row")
    told = pl.DataFrame(given, schema=schema, orient="row")
    return Imported(host, rows.with_columns(health=pl.lit(None, pl.String)), pl.DataFrame(), given=told)


def _segments(gpu: str, named: Sequence[tuple[int, str | None]]) -> list[tuple[Any, ...]]:
    """As `analytics.scraped.rows` gives them: a segment ends with its last sample, and where scrapes are missing."""
    found: list[list[Any]] = []
    for at, who in named:
        if found and found[-1][3] == who and at - found[-1][2] <= 3_000 * STEP_S:
            found[-1][2] = at
        else:
            found.append([gpu, at, at, who])
    return [(each[0], each[1], each[2], *_user(each[3])) for each in found if each[3] is not None]


def _user(who: str) -> tuple[str | None, ...]:
    if who.startswith("slurm:"):
        job, _, user = who.removeprefix("slurm:").partition("@")
        return None, None, None, job, user or None
    namespace, _, pod = who.partition("/")
    return namespace, pod, "main", None, None


def given(*hosts: Imported) -> Given:
    return Given.of(hosts)


def kube(*series: tuple[Mapping[str, str], Mapping[float, float]]) -> Samples:
    """Series of labels, with values by seconds."""
    rows = [
        (number, ms(at), value) for number, (_, values) in enumerate(series) for at, value in sorted(values.items())
    ]
    return Samples(tuple(labels for labels, _ in series), pl.DataFrame(rows, schema=SAMPLE_SCHEMA, orient="row"))


def bring(
    lake: Lake,
    *windows: tuple[float, Sequence[Imported]],
    before: OpenAllocations | None = None,
    series: Samples | None = None,
) -> OpenAllocations:
    """Publish windows (end in seconds, hosts) in order; return what they leave open; no `before`: as a new process."""
    left = OpenAllocations.of(lake) if before is None else before
    for until_s, hosts in windows:
        found = allocations_of(given(*hosts), series, left, as_of_ms=ms(until_s), hosts=KnownHosts())
        publish_allocations(lake, found.read, replace=False)
        left = found.open
    return left


def spans(lake: Lake) -> list[tuple[str, str | None, float, float | None]]:
    """allocation_id, GPU, and start and end in seconds, of every row."""
    rows = [(each, each.get("end")) for each in stored(lake)]
    return [
        (each["allocation_id"], each.get("gpu"), (each["time"] - T0) / 1000, None if end is None else (end - T0) / 1000)
        for each, end in rows
    ]


@dataclass(frozen=True)
class KubePod:
    """A pod whose containers ask for GPUs, by seconds; it is told of until `gone`."""

    namespace: str
    name: str
    created: float
    placed: float | None = None
    ended: float | None = None
    gone: float | None = None
    gpus: int = 1
    node: str = "h1"
    owner: tuple[str, str] = ("<none>", "<none>")
    resource: str = "nvidia_com_gpu"
    uid: str = ""
    is_completed: bool = True
    """Whether its end is told of, apart from its phase: not that of a pod which was evicted."""

    def series(self, since_s: float, until_s: float) -> list[tuple[dict[str, str], dict[float, float]]]:
        """What kube-state-metrics has of it, scraped every 30 s."""
        until_s = until_s if self.gone is None else min(until_s, self.gone)
        times = [since_s + STEP_S * number for number in range(int((until_s - since_s) // STEP_S))]
        times = [at for at in times if at >= self.created]
        base = {"namespace": self.namespace, "pod": self.name, "uid": self.uid or f"u-{self.name}"}
        kind, owner = self.owner
        info = {"created_by_kind": kind, "created_by_name": owner, "priority_class": "high"}
        found = [
            ("kube_pod_info", info | ({} if self.placed is None else {"node": self.node}), 1.0),
            ("kube_pod_owner", {"owner_kind": kind, "owner_name": owner, "owner_is_controller": "true"}, 1.0),
            ("kube_pod_created", {}, T0 / 1000 + self.created),
        ]
        if self.gpus:
            asked = {"container": "main", "resource": self.resource, "unit": "integer"}
            found.append(("kube_pod_container_resource_limits", asked, float(self.gpus)))
        found += [
            (name, {}, T0 / 1000 + at)
            for name, at in (
                ("kube_pod_status_scheduled_time", self.placed),
                ("kube_pod_start_time", None if self.placed is None else self.placed + 2),
                ("kube_pod_completion_time", self.ended if self.is_completed else None),
            )
            if at is not None
        ]
        if self.placed is None:
            found.append(("kube_pod_status_unschedulable", {}, 1.0))
        constant = [
            ({"__name__": name, **base, **labels}, dict.fromkeys(times, value)) for name, labels, value in found
        ]
        return constant + self._phases(base, times)

    def _phases(self, base: dict[str, str], times: Sequence[float]) -> list[tuple[dict[str, str], dict[float, float]]]:
        def phase(at: float) -> str:
            if self.ended is not None and at >= self.ended:
                return "Succeeded"
            return "Running" if self.placed is not None and at >= self.placed else "Pending"

        return [
            (
                {"__name__": "kube_pod_status_phase", **base, "phase": each},
                {at: float(phase(at) == each) for at in times},
            )
            for each in ("Pending", "Running", "Succeeded", "Failed", "Unknown")
        ]
