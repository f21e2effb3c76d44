"""Scraped hosts and series of kube-state-metrics, as short texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from analytics.scraped.host_rows import HostRows
from analytics.scraped.samples import SAMPLE_SCHEMA, Samples
from analytics.scraped.who.given import Given
from tests.ledger.rows import ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STEP_S = 30


def host_rows(host: str, first_s: float, last_s: float, **holders: Sequence[str | None]) -> HostRows:
    """A host whose GPUs (`G0=...`) were scraped every 30 s in [first_s, last_s), with who each sample names.

    A holder is `NAMESPACE/POD` or `slurm:JOB`, None for nobody, and `-` for a scrape that failed. The list is as long as the window, or
    one that all samples have.
    """
    given, gpus = [], []
    count = int((last_s - first_s) // STEP_S)
    for gpu, named in holders.items():
        each = list(named) * count if len(named) == 1 else list(named)
        assert len(each) == count
        times = [ms(first_s) + 1_000 * STEP_S * number for number in range(count)]
        gpus += [(gpu, at, 0, 1_000 * STEP_S) for at, who in zip(times, each, strict=True) if who != "-"]
        given += _stretches(gpu, [(at, who) for at, who in zip(times, each, strict=True) if who != "-"])
    names = ("gpu", "start_ms", "end_ms", "namespace", "pod", "container", "slurm_job", "user")
    schema: dict[str, Any] = {name: pl.Int64 if name.endswith("_ms") else pl.String for name in names}
    return HostRows(
        host,
        pl.DataFrame(gpus, schema=["gpu", "time", "offset_ms", "interval_ms"], orient="row"),
        pl.DataFrame(),
        pl.DataFrame(),
        pl.DataFrame(given, schema=schema, orient="row"),
    )


def _stretches(gpu: str, named: Sequence[tuple[int, str | None]]) -> list[tuple[Any, ...]]:
    """As `analytics.scraped.rows` gives them: a stretch ends with its last sample, and where scrapes are missing."""
    found: list[list[Any]] = []
    for at, who in named:
        if found and found[-1][3] == who and at - found[-1][2] <= 3_000 * STEP_S:
            found[-1][2] = at
        else:
            found.append([gpu, at, at, who])
    return [(each[0], each[1], each[2], *_holder(each[3])) for each in found if each[3] is not None]


def _holder(who: str) -> tuple[str | None, ...]:
    if who.startswith("slurm:"):
        job, _, user = who.removeprefix("slurm:").partition("@")
        return None, None, None, job, user or None
    namespace, _, pod = who.partition("/")
    return namespace, pod, "main", None, None


def given(*hosts: HostRows) -> Given:
    return Given.of(hosts)


def kube(*series: tuple[Mapping[str, str], Mapping[float, float]]) -> Samples:
    """Series of labels, with values by seconds."""
    rows = [
        (number, ms(at), value) for number, (_, values) in enumerate(series) for at, value in sorted(values.items())
    ]
    return Samples(tuple(labels for labels, _ in series), pl.DataFrame(rows, schema=SAMPLE_SCHEMA, orient="row"))
