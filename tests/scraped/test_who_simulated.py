"""Pods and jobs of a known small cluster, scraped with gaps, read whole, by hours, by new processes, latest first."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from analytics.scraped.lake_writer import LakeWriter, WriterSettings
from analytics.scraped.reading import SiteReader
from analytics.scraped.totals import ReadTotals
from analytics.scraped.windows import WindowWork
from tests.lakes import made_lake
from tests.ledger.rows import ms
from tests.scraped.exposed import Exposed
from tests.scraped.held_server import HeldServer
from tests.scraped.test_follow import SOURCE
from tests.scraped.who_rows import spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from fallow.lake import Lake

END_S = 5400
STEP_S = 30
GPUS = ("GPU-0", "GPU-1", "GPU-2")


@dataclass
class Cluster:
    """Three GPUs of one host; `held` has who had which of them from when to when, in seconds."""

    drawn: random.Random
    held: list[tuple[str, str, float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        free_at, left = dict.fromkeys(GPUS, 0.0), dict.fromkeys(("nlp/web-0", "nlp/web-1"), 0.0)
        at = 0.0
        while (at := at + self.drawn.expovariate(1 / 60)) < END_S:
            free = [gpu for gpu in GPUS if free_at[gpu] < at]
            back = [pod for pod, since in left.items() if since < at - 2 * 60]
            who = self.drawn.choice([*back, *back, f"nlp/p{at:.0f}", f"slurm:{at:.0f}"])
            until = at + self.drawn.choice([self.drawn.uniform(1, 60), self.drawn.uniform(60, 2400)])
            for gpu in self.drawn.sample(free, min(len(free), self.drawn.choice([1, 1, 2]))):
                self.held.append((who, gpu, at, until))
                free_at[gpu] = until
                left[who] = until
        first = self.drawn.uniform(0, STEP_S)
        gap = self.drawn.uniform(0, END_S)
        moments = [round(first + STEP_S * number + self.drawn.uniform(0, 1), 3) for number in range(END_S // STEP_S)]
        self.looks = [at for at in moments if not gap <= at < gap + self.drawn.choice([100, 900])]

    def at(self, gpu: str, at: float) -> str | None:
        return next((who for who, had, since, until in self.held if had == gpu and since <= at < until), None)

    def pages(self) -> Iterator[Exposed]:
        for at in self.looks:
            for gpu in GPUS:
                who = self.at(gpu, at) or ""
                labels = {"UUID": gpu, "gpu": gpu[-1], "Hostname": "h1", "instance": "h1:9400", "job": "dcgm"}
                told = Exposed("DCGM_FI_DEV_GPU_UTIL", tuple(sorted(labels.items())), 50.0, ms(at))
                if who.startswith("slurm:"):
                    yield told.labelled(hpc_job=who.removeprefix("slurm:"))
                else:
                    yield told.labelled(exported_namespace="nlp" if who else "", exported_pod=who.removeprefix("nlp/"))


def read(server: HeldServer, lake: Lake, *imports: Sequence[float]) -> Lake:
    """Each import is a process of its own, which reads windows between the seconds."""
    for seconds in imports:
        settings = WriterSettings(until_ms=ms(seconds[-1]))
        with SiteReader(server, SOURCE) as reader:  # type: ignore[arg-type]
            writer = LakeWriter(lake, settings, ReadTotals())
            work = WindowWork(SOURCE, server, reader, writer, lambda _: None, lambda _: None)  # type: ignore[arg-type]
            for since, until in pairwise(seconds):
                work.run(ms(since), ms(until))
    return lake


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_who_held_what_is_as_it_was_however_it_is_read(seed: int, tmp_path: Path) -> None:
    cluster = Cluster(random.Random(seed))  # noqa: S311
    server = HeldServer()
    server.write(cluster.pages())
    cut, later = sorted(cluster.drawn.sample(range(300, END_S - 300), 2))
    ways = {
        "whole": [(0, END_S)],
        "parts": [(0, cut, later, END_S)],
        "anew": [(0, cut), (cut, later), (later, END_S)],
        "latest first": [(later, END_S), (cut, later), (0, cut)],
        "again": [(0, END_S), (0, cut, later)],
    }
    found = {way: spans(read(server, made_lake(tmp_path / way), *imports)) for way, imports in ways.items()}
    for rows in found.values():
        for gpu in GPUS:
            own = sorted((since, until or END_S) for _, had, since, until in rows if had == gpu)
            assert all(until <= since for (_, until), (since, _) in pairwise(own))
        for at in cluster.looks:
            for gpu in GPUS:
                who = cluster.at(gpu, at)
                named = {row[0] for row in rows if row[1] == gpu and row[2] <= at and (row[3] is None or at < row[3])}
                assert named == ({who.removeprefix("slurm:")} if who else set()), (gpu, at)
        bounds = [(who, gpu, since, until is None) for who, gpu, since, until in rows]
        assert bounds == [(who, gpu, since, until is None) for who, gpu, since, until in found["whole"]]
