"""The differences between the agent's view of a week and that of a Prometheus that scrapes dcgm-exporter.

The agent's rows are exact means of every 10 s. dcgm-exporter reads the driver every 30 s and repeats its readings:
GPU_UTIL of the last 0.2 s or second, or with profiling fields the mean of the 30 s. Raw samples of 15, 30 and 60 s
scrapes go through `host_rows` and the writer of `fallow import prometheus`. `python -m benchmarks scraped-week` stores
the figures in benchmarks/scraped_week.json; docs/prometheus.md has them as tables. Two further weeks have GPUs that are
left idle among look-alikes; the week after judges their findings.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from analytics.decide.deadlines import Deadlines
from analytics.decide.decisions import decide
from analytics.decide.review import review
from analytics.decide.savings import recommendations_in
from analytics.ledger.sampled import samples_of
from analytics.states import IN_USE, UNOCCUPIED
from analytics.window import load_window_ledger, open_inputs
from analytics.workloads.ledger_rows import GPU_MS
from analytics.workloads.model import GRADES
from benchmarks.measure import Figure, between_marks
from benchmarks.recordings import TICK_MS
from benchmarks.scraped_lakes import SCRAPINGS, ScrapedLake, Scraping, write_agent_rows
from benchmarks.worked_week import IN_STEP, LEFT_IDLE, START_MS, WorkedGpu, worked_gpus
from fallow.clock import HOUR_MS, SECOND_MS, WEEK_MS, format_ms
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from analytics.ledger.summary import Totals
    from analytics.workloads.model import Finding
    from fallow.lake import Lake

STORED = Path(__file__).parent / "scraped_week.json"
PAGE = Path(__file__).parent.parent / "docs" / "prometheus.md"
AGENT = "agent, 10 s rows"

Pair = tuple[float, float]


@dataclass(frozen=True)
class WeekSeen:
    """fallow's figures of the week from one source: GPU-hours, and shares of the observed time; pairs are bounds."""

    name: str
    in_use: float
    held: float
    held_between: Pair
    unoccupied: float
    unknown: float
    at_moments: float | None
    """Share of the observed time that was sampled at moments; None for the truth."""

    idle_between: Pair
    idle_out_of_step_between: Pair
    held_by_kind: Mapping[str, float]
    findings: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """The confidence of findings, by rule and GPU."""


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
    """Return the truth, the agent's week and every scraped week."""
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
    segments, totals = ledger.inside.segments, ledger.summary.totals
    in_step = [gpu for gpu, kind in kinds.items() if kind in IN_STEP]
    held, idle = totals.bound("held"), ledger.summary.samples.idle
    out_of_step = samples_of(segments.filter(~pl.col("gpu").is_in(in_step))).idle
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
        held_by_kind=_held_by_kind(segments, kinds),
        findings=_by_gpu(review(inputs, ledger).findings),
    )


def _of(totals: Totals, states: Iterable[str]) -> float:
    return sum(totals.state_ms[state] for state in states) / HOUR_MS


def _held_by_kind(segments: pl.DataFrame, kinds: Mapping[str, str]) -> dict[str, float]:
    held = segments.filter(pl.col("state") == "held").with_columns(kind=pl.col("gpu").replace_strict(kinds))
    spent = held.group_by("kind").agg(hours=GPU_MS.sum() / HOUR_MS)
    found = dict(spent.iter_rows())
    return {kind: found.get(kind, 0.0) for kind in dict.fromkeys(kinds.values())}


def _by_gpu(findings: Iterable[Finding]) -> dict[tuple[str, str], str]:
    return {(each.rule, gpu): each.confidence.grade for each in findings for gpu in each.gpus}


@dataclass(frozen=True)
class LeftIdle:
    """fallow's figures of two scraped weeks, and the outcome in the third: GPU-hours, and GPUs."""

    name: str
    held: float
    true_held: float
    confirmed: float
    very_likely: float
    wrongly: float
    """The part of confirmed or very likely time that was not held idle in truth."""

    named: Mapping[str, tuple[int, int]]
    """By confidence, the number of GPUs that findings would reclaim, and how many stayed unused in the week after."""

    stay_unused: int
    ranked: int
    """Ranked recommendations."""


JUDGED_MS = WEEK_MS
LEFT_IDLE_SCRAPINGS = tuple(Scraping(60 * SECOND_MS, counter=counter) for counter in (True, False))


def left_idle(folder: Path, seen_ms: int = 2 * WEEK_MS) -> list[LeftIdle]:
    """Return the figures of idle GPUs for each scraping, judged by their use in the week after."""
    length_ms = seen_ms + JUDGED_MS
    lakes = [
        ScrapedLake(made_lake(folder / f"left-{n}"), each, length_ms) for n, each in enumerate(LEFT_IDLE_SCRAPINGS)
    ]
    held: dict[str, list[tuple[int, int]]] = {}
    unused: set[str] = set()
    for _, gpus in groupby(worked_gpus(length_ms, kinds=LEFT_IDLE), key=lambda gpu: gpu.host):
        of_host = list(gpus)
        for gpu in of_host:
            held[gpu.uuid] = gpu.held_spans_ms()
            if not gpu.busy[seen_ms // TICK_MS :].any():
                unused.add(gpu.uuid)
        for lake in lakes:
            lake.add(of_host)
    until = format_ms(START_MS + seen_ms)
    return [_judged(each.scraping.name, each.finish(), until, held, unused) for each in lakes]


def _judged(
    name: str, lake: Lake, until: str, held: Mapping[str, Sequence[tuple[int, int]]], unused: set[str]
) -> LeftIdle:
    inputs = open_inputs(argparse.Namespace(lake=lake.root, since=None, until=until, config=None))
    ledger = load_window_ledger(inputs)
    found = review(inputs, ledger)
    decisions = decide(found, Deadlines.of(inputs.settings, UTC))
    recommendations = recommendations_in(decisions, ledger.inside.segments).listed
    named: dict[str, set[str]] = {grade: set() for grade in GRADES}
    for each in found.findings:
        named[each.confidence.grade].update(each.reclaimable_gpus)
    rows = ledger.inside.segments.filter(pl.col("state") == "held")
    wrongly = true_held = 0
    for gpu, start, end, confirmed_ms, likely_ms in rows.select(
        "gpu", "time", "end", "confirmed_ms", "likely_ms"
    ).iter_rows():
        true_ms = sum(max(0, min(end, until_ms) - max(start, from_ms)) for from_ms, until_ms in held[gpu])
        true_held += true_ms
        wrongly += max(0, confirmed_ms + likely_ms - true_ms)
    return LeftIdle(
        name=name,
        held=rows.select(GPU_MS.sum()).item() / HOUR_MS,
        true_held=true_held / HOUR_MS,
        confirmed=rows["confirmed_ms"].sum() / HOUR_MS,
        very_likely=rows["likely_ms"].sum() / HOUR_MS,
        wrongly=wrongly / HOUR_MS,
        named={grade: (len(own), len(own & unused)) for grade, own in named.items()},
        stay_unused=len(unused),
        ranked=sum(each.ranked for each in recommendations),
    )


def measure() -> Iterator[Figure]:
    """Store figures, write tables; yield the shares of bounds that hold and of named GPUs that stay unused."""
    with tempfile.TemporaryDirectory() as folder:
        found, left = weeks_seen(Path(folder)), left_idle(Path(folder))
    stored = {
        "weeks": [as_json(each, found[1]) for each in found],
        "left_idle": [dataclasses.asdict(each) for each in left],
    }
    STORED.write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    truth, seen = found[0], found[1:]
    pairs = [(each.held_between, truth.held) for each in seen]
    pairs += [(each.idle_out_of_step_between, truth.idle_out_of_step_between[0]) for each in seen]
    yield Figure(
        "scraped_week_bounds_held", 100 * sum(low <= true <= high for (low, high), true in pairs) / len(pairs), "%",
        f"{len(seen)} ways to see one week of 24 GPUs: held time, and idle time of work out of step, lie"
        " inside the stated bounds",
    )  # fmt: skip
    surer = [left[0].named[grade] for grade in ("high", "medium")]
    yield Figure(
        "scraped_findings_right", 100 * sum(right for _, right in surer) / sum(count for count, _ in surer), "%",
        "GPUs of findings of medium or high confidence from two weeks of 60 s scrapes with the energy"
        " counter: unused in the week after",
    )  # fmt: skip


def as_json(seen: WeekSeen, agent: WeekSeen) -> dict[str, Any]:
    """Return the figures, and findings by rule beside the agent's: same, lost, more, and more of low confidence."""
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
    """Return the page with the stored figures between its marks."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    text = between_marks(text, "scraped week", "\n".join(_seen_table(stored["weeks"])) + "\n")
    return between_marks(text, "left idle", "\n".join(_left_table(stored["left_idle"])) + "\n")


def _left_table(left: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield (
        "| seen by | held idle | truly so | confirmed | very likely | wrongly so | GPUs to reclaim: high | medium |"
        " low |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for week in left:
        hours = (_whole(week[name]) for name in ("held", "true_held", "confirmed", "very_likely"))
        named = (f"{right} of {count} right" if count else "-" for count, right in week["named"].values())
        yield f"| {week['name']} | {' | '.join(hours)} | {week['wrongly']:.1f} | {' | '.join(named)} |"


def _seen_table(weeks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| seen by | in use | held idle | held idle, bounds |"
    yield "|---|---|---|---|"
    for week in weeks:
        low, high = (_whole(bound) for bound in week["held_between"])
        bounds = low if low == high else f"{low} to {high}"
        yield f"| {week['name']} | {_whole(week['in_use'])} | {_whole(week['held'])} | {bounds} |"


def _whole(value: float) -> str:
    return f"{value:,.0f}"
