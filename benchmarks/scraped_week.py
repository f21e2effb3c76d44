"""The same week once through the agent and once through a Prometheus that scrapes dcgm-exporter: what differs.

The agent's rows are exact means of every 10 s. dcgm-exporter reads the driver every 30 s and repeats what it read: GPU_UTIL of the
0.2 s or the second before, or with profiling fields the mean of the 30 s. Raw samples of 15, 30 and 60 s scrapes go through
`host_rows` and the writer of `fallow import prometheus`. `python -m benchmarks scraped-week` stores the figures in
benchmarks/scraped_week.json; docs/prometheus.md has them as tables.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from analytics.decide.review import review
from analytics.ledger.sampled import samples_of
from analytics.states import IN_USE, UNOCCUPIED
from analytics.window import load_window_ledger, open_inputs
from analytics.workloads.ledger_rows import GPU_MS
from benchmarks.measure import Figure, between_marks
from benchmarks.recordings import TICK_MS
from benchmarks.scraped_lakes import SCRAPINGS, ScrapedLake, Scraping, write_agent_rows
from benchmarks.worked_week import IN_STEP, WorkedGpu, worked_gpus
from fallow.clock import HOUR_MS, WEEK_MS
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from analytics.ledger.summary import Totals
    from analytics.workloads.model import Finding
    from fallow.lake import Lake

STORED = Path(__file__).parent / "scraped_week.json"
PAGE = Path(__file__).parent.parent / "docs" / "prometheus.md"
AGENT = "agent, 10 s rows"

Pair = tuple[float, float]


@dataclass(frozen=True)
class WeekSeen:
    """What fallow says of the week by one source: GPU-hours, and shares of the observed time; pairs are bounds."""

    name: str
    in_use: float
    held: float
    held_between: Pair
    unoccupied: float
    unknown: float
    at_moments: float | None
    """Share of the observed time that readings of moments stand for; None for the truth."""

    idle_between: Pair
    idle_out_of_step_between: Pair
    held_by_kind: Mapping[str, float]
    findings: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """The confidence of each, by rule and GPU."""


@dataclass
class _Truth:
    """Ticks of GPUs by kind."""

    held: Counter[str] = field(default_factory=Counter)
    occupied: Counter[str] = field(default_factory=Counter)
    busy: Counter[str] = field(default_factory=Counter)
    ticks: Counter[str] = field(default_factory=Counter)

    def add(self, gpu: WorkedGpu) -> None:
        self.held[gpu.kind] += gpu.held_ticks()
        self.occupied[gpu.kind] += int(gpu.occupied.sum())
        self.busy[gpu.kind] += int(gpu.busy.sum())
        self.ticks[gpu.kind] += len(gpu.busy)

    def seen(self) -> WeekSeen:
        held, occupied, ticks = self.held.total(), self.occupied.total(), self.ticks.total()
        idle, out_of_step = self._idle(self.ticks), self._idle(self.ticks.keys() - set(IN_STEP))
        return WeekSeen(
            name="truth",
            in_use=_hours(occupied - held),
            held=_hours(held),
            held_between=(_hours(held), _hours(held)),
            unoccupied=_hours(ticks - occupied),
            unknown=0,
            at_moments=None,
            idle_between=(idle, idle),
            idle_out_of_step_between=(out_of_step, out_of_step),
            held_by_kind={kind: _hours(self.held[kind]) for kind in self.ticks},
        )

    def _idle(self, kinds: Iterable[str]) -> float:
        named = set(kinds)
        return 1 - sum(self.busy[kind] for kind in named) / sum(self.ticks[kind] for kind in named)


def _hours(ticks: int) -> float:
    return ticks * TICK_MS / HOUR_MS


def weeks_seen(folder: Path, length_ms: int = WEEK_MS, scrapings: Sequence[Scraping] = SCRAPINGS) -> list[WeekSeen]:
    """The truth, the agent's week and each scraped one."""
    agent = made_lake(folder / "agent")
    scraped = [ScrapedLake(made_lake(folder / f"scraped-{n}"), each, length_ms) for n, each in enumerate(scrapings)]
    truth, kinds = _Truth(), {}
    for _, gpus in groupby(worked_gpus(length_ms), key=lambda gpu: gpu.host):
        of_host = list(gpus)
        for gpu in of_host:
            write_agent_rows(agent, gpu)
            truth.add(gpu)
            kinds[gpu.uuid] = gpu.kind
        for lake in scraped:
            lake.add(of_host)
    lakes = {AGENT: agent} | {each.scraping.name: each.finish() for each in scraped}
    return [truth.seen(), *(_looked_at(name, lake, kinds) for name, lake in lakes.items())]


def _looked_at(name: str, lake: Lake, kinds: Mapping[str, str]) -> WeekSeen:
    inputs = open_inputs(argparse.Namespace(lake=lake.root, since=None, until=None, config=None))
    ledger = load_window_ledger(inputs)
    stretches, totals = ledger.inside.stretches, ledger.summary.totals
    in_step = [gpu for gpu, kind in kinds.items() if kind in IN_STEP]
    held, idle = totals.bound("held"), ledger.summary.samples.idle
    out_of_step = samples_of(stretches.filter(~pl.col("gpu").is_in(in_step))).idle
    observed = totals.observed_ms
    rest = observed * (1 - len(in_step) / len(kinds))
    return WeekSeen(
        name=name,
        in_use=_of(totals, IN_USE),
        held=_of(totals, ("held",)),
        held_between=(held.low_ms / HOUR_MS, held.high_ms / HOUR_MS),
        unoccupied=_of(totals, UNOCCUPIED),
        unknown=_of(totals, ("unknown",)),
        at_moments=totals.sampled or 0,
        idle_between=(idle.low_ms / observed, idle.high_ms / observed),
        idle_out_of_step_between=(out_of_step.low_ms / rest, out_of_step.high_ms / rest),
        held_by_kind=_held_by_kind(stretches, kinds),
        findings=_by_gpu(review(inputs, ledger).findings),
    )


def _of(totals: Totals, states: Iterable[str]) -> float:
    return sum(totals.state_ms[state] for state in states) / HOUR_MS


def _held_by_kind(stretches: pl.DataFrame, kinds: Mapping[str, str]) -> dict[str, float]:
    held = stretches.filter(pl.col("state") == "held").with_columns(kind=pl.col("gpu").replace_strict(kinds))
    spent = held.group_by("kind").agg(hours=GPU_MS.sum() / HOUR_MS)
    found = dict(spent.iter_rows())
    return {kind: found.get(kind, 0.0) for kind in dict.fromkeys(kinds.values())}


def _by_gpu(findings: Iterable[Finding]) -> dict[tuple[str, str], str]:
    return {(each.rule, gpu): each.confidence.grade for each in findings for gpu in each.gpus}


def measure() -> Iterator[Figure]:
    """Stores the figures and writes the tables; what is told is how many bounds hold."""
    with tempfile.TemporaryDirectory() as folder:
        found = weeks_seen(Path(folder))
    STORED.write_text(json.dumps([as_json(each, found[1]) for each in found], indent=2) + "\n", encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    truth, seen = found[0], found[1:]
    pairs = [(each.held_between, truth.held) for each in seen]
    pairs += [(each.idle_out_of_step_between, truth.idle_out_of_step_between[0]) for each in seen]
    yield Figure(
        "scraped_week_bounds_held", 100 * sum(low <= true <= high for (low, high), true in pairs) / len(pairs), "%",
        f"{len(seen)} ways to see one week of 24 GPUs: held time, and idle time of work out of step, lie inside the stated bounds",
    )  # fmt: skip


def as_json(seen: WeekSeen, agent: WeekSeen) -> dict[str, Any]:
    """The figures, and the findings beside the agent's by rule: the same, lost, and those that the agent has not, by confidence."""
    content = dataclasses.asdict(dataclasses.replace(seen, findings={}))
    if seen.findings:
        found: dict[str, dict[str, int]] = defaultdict(lambda: {"same": 0, "lost": 0, "more": 0, "more_low": 0})
        for key in sorted(seen.findings.keys() | agent.findings.keys()):
            counts = found[key[0]]
            if key in agent.findings:
                counts["same" if key in seen.findings else "lost"] += 1
            else:
                counts["more"] += 1
                counts["more_low"] += seen.findings[key] == "low"
        content["findings"] = dict(found)
    return content


def page(text: str) -> str:
    """The page with the stored figures between its marks."""
    weeks = json.loads(STORED.read_text(encoding="utf-8"))
    lines = [*_seen_table(weeks), "", *_held_table(weeks), "", *_findings_table(weeks)]
    return between_marks(text, "scraped week", "\n".join(lines) + "\n")


def _seen_table(weeks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| seen by | at moments | in use | held | held, between | nobody on it | no kernel, between | the same, out of step |"
    yield "|---|---|---|---|---|---|---|---|"
    for each in weeks:
        held = _span(each["held_between"], _whole)
        idle, out_of_step = (_span(each[name], _percent) for name in ("idle_between", "idle_out_of_step_between"))
        moments = "-" if each["at_moments"] is None else _percent(each["at_moments"])
        yield (
            f"| {each['name']} | {moments} | {_whole(each['in_use'])} | {_whole(each['held'])} | {held} | "
            f"{_whole(each['unoccupied'])} | {idle} | {out_of_step} |"
        )


def _held_table(weeks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"| held, GPU-hours | {' | '.join(each['name'] for each in weeks)} |"
    yield "|---" * (len(weeks) + 1) + "|"
    for kind in weeks[0]["held_by_kind"]:
        yield f"| {kind} | {' | '.join(_whole(each['held_by_kind'][kind]) for each in weeks)} |"


def _findings_table(weeks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    agent, scraped = weeks[1]["findings"], weeks[2:]
    yield f"| GPUs in findings | {' | '.join(each['name'] for each in weeks[1:])} |"
    yield "|---" * len(weeks) + "|"
    for rule in sorted({rule for each in weeks for rule in each["findings"]}):
        cells = [str(agent.get(rule, {}).get("same", 0)), *(_found(each["findings"].get(rule, {})) for each in scraped)]
        yield f"| {rule} | {' | '.join(cells)} |"


def _found(counts: Mapping[str, int]) -> str:
    """How many of the agent's it has, and how many that the agent has not."""
    if not counts:
        return "-"
    of = counts["same"] + counts["lost"]
    parts = [f"{counts['same']} of {of}"] if of else []
    if counts["more"]:
        low = f", {counts['more_low']} of low confidence" if counts["more_low"] else ""
        parts.append(f"{counts['more']} more{low}")
    return "; ".join(parts)


def _span(pair: Sequence[float], shown: Callable[[float], str]) -> str:
    low, high = (shown(each) for each in pair)
    return low if low == high else f"{low} to {high}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
