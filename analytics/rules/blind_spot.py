"""Parts of the fleet that are not observed.

They are silent hosts, unknown time, GPUs without utilization or with readings that contradict each other, such as 100 %
beside no context, and use without a known user or account.

Look-alikes that it leaves alone: a driver reload, an agent update or a card that moved (under 24 GPU-hours or a tenth
of the host's time), and MIG instances, which change with each layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl

from analytics.contradictions import verdicts
from analytics.intervals import SPAN_MS
from analytics.language.sentences import Share, tr
from analytics.ledger.day_owners import UNWATCHED_SOURCES
from analytics.ledger.summary import SILENT_AFTER_MS
from analytics.states import OCCUPIED, WITHOUT_EVIDENCE
from analytics.workloads import waste
from analytics.workloads.commands import on_host
from analytics.workloads.confidence import grade
from analytics.workloads.finding_parts import label, words_for
from analytics.workloads.ledger_rows import GPU_MS, longest_h
from analytics.workloads.model import Context, EvidenceValue, of_gpus, once_per_context
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from fallow.clock import DAY_MS, HOUR_MS, floor_ms

SHARE_MAX = 0.1
GPU_HOURS_MIN = 24


KINDS = {
    "silent": "the host stopped reporting",
    "unknown time": "not observed",
    "no utilization": "utilization was not measured",
    verdicts.READINGS_REPEAT: "its readings repeat although one of them cannot",
    verdicts.UTIL_WITHOUT_CONTEXT: "utilization without a context on the card",
    "user not known": "the user is not known",
    "use not watched": "the user was not recorded",
}
"""Words for what was not observed, by kind."""


def blind_spot_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per host and kind of gap, for hosts with too little observed time."""
    spans = context.inside.segments.lazy()  # the columns of few rows are needed, and few columns of the others
    silent = _silent(context)
    yield from _silent_hosts(context, silent)
    seen = spans.filter(~pl.col("state").is_in(WITHOUT_EVIDENCE))
    used = spans.filter(pl.col("state").is_in(OCCUPIED))
    unknown = spans.filter(pl.col("state") == "unknown").collect()
    denied = _contradicted(context, unknown)
    uncontradicted = unknown.join(denied, on=("host", "gpu"), how="anti")
    mute = _mute(context, uncontradicted)
    unwatched = pl.col("user_source").is_in(UNWATCHED_SOURCES)
    for kind, whole, blind, command in (
        ("unknown time", spans, uncontradicted.join(mute, on=("host", "gpu"), how="anti").lazy(), _agent_status),
        ("no utilization", spans, uncontradicted.join(mute, on=("host", "gpu"), how="semi").lazy(), _doctor),
        ("user not known", used, used.filter(pl.col("user").is_null() & pl.col("account").is_null()), _doctor),
        ("use not watched", seen, seen.filter(unwatched), _doctor),
        *(
            (
                kind,
                spans,
                unknown.join(denied.filter(pl.col("kind") == kind), on=("host", "gpu"), how="semi").lazy(),
                _full_state,
            )
            for kind in verdicts.UNOBSERVED
        ),
    ):
        yield from _unseen_shares(context, kind, whole, blind, command)


BLIND_SPOT = Rule(
    name="blind_spot",
    category="coverage",
    sentence=of_gpus("insufficiently observed"),
    kinds=(waste.INEFFICIENT,),
    precedence=100,
    of_machine=True,
    advice=tr("Find out why the GPUs are not observed: the agent, the driver or the host."),
    per_host=True,
    history=HistoryNeed(gpu_hours=GPU_HOURS_MIN),
    thresholds={
        "share": f"more than {SHARE_MAX:.0%} of the host's GPU time (the coverage that high confidence wants)",
        "hours": f"at least {GPU_HOURS_MIN} GPU-hours in the window (from where Job Defense Shield sends a mail)",
        "silent": f"no GPU of the host seen in the last {SILENT_AFTER_MS // HOUR_MS} h of the window",
    },
    labels=(
        label("kind", "{value}", words_for(KINDS)),
        label("silent_h", "no data for {value} h"),
        label("gpus_of_the_host", "{value} GPUs in the host"),
        label("blind_gpu_hours", "{value} GPU-hours in this condition"),
        label("share_of_the_host", "{value} of the host's time", Share),
        label("pools", "pool {value}"),
        label("gpu_hours_of_the_host", "the host has {value} GPU-hours in total"),
    ),
    find=blind_spot_findings,
)


def _silent_hosts(context: Context, hosts: pl.DataFrame) -> Iterator[Candidate]:
    of_host = _by_host(context.inside.segments.lazy(), hosts)
    for row in hosts.iter_rows(named=True):
        last_seen_ms, host = int(row["last_seen"]), str(row["host"])
        rows = of_host[host,]
        missing_ms = context.until_ms - last_seen_ms
        numbers: dict[str, EvidenceValue] = {
            "kind": "silent",
            "silent_h": missing_ms / HOUR_MS,
            "gpus_of_the_host": rows["gpu"].n_unique(),
        }
        # the time after the last row is in no row: neither its energy nor its price is known
        after = {"gpu_ms": missing_ms * float(row["gpus"]), "energy_kwh": None, "cost": None, "currency": None}
        note = tr("if the host was retired on purpose, snooze this finding")
        command = _check(context, host, _agent_status)
        yield _candidate(context, host, rows, numbers, command, since_ms=last_seen_ms, notes=(note,), **after)


def _unseen_shares(
    context: Context, kind: str, whole: pl.LazyFrame, blind: pl.LazyFrame, command: Callable[[str], str]
) -> Iterator[Candidate]:
    parts = blind.group_by("host").agg(blind_ms=GPU_MS.sum())
    shares = whole.group_by("host").agg(whole_ms=GPU_MS.sum()).join(parts, on="host")
    fired = shares.with_columns(share=pl.col("blind_ms") / pl.col("whole_ms")).filter(
        (pl.col("share") > SHARE_MAX) & (pl.col("blind_ms") >= GPU_HOURS_MIN * HOUR_MS)
    )
    hosts = fired.sort("host").collect()
    of_host = _by_host(blind, hosts)
    for row in hosts.iter_rows(named=True):
        host = str(row["host"])
        rows = of_host[host,]
        numbers: dict[str, EvidenceValue] = {
            "kind": kind,
            "blind_gpu_hours": float(row["blind_ms"]) / HOUR_MS,
            "share_of_the_host": row["share"],
            "longest_h": longest_h(rows),
        }
        yield _candidate(context, host, rows, numbers, _check(context, host, command))


def _candidate(
    context: Context, host: str, rows: pl.DataFrame, numbers: dict[str, EvidenceValue], command: str, **known: Any
) -> Candidate:
    """Return the candidate; `known` are fields of its finding that the rows do not give."""
    pools = {context.inventory.pool(gpu) for gpu in rows["gpu"].unique()}
    return Candidate(
        rows,
        subject=str(numbers["kind"]),
        numbers={
            **numbers,
            "pools": "+".join(sorted(pools)),
            "gpu_hours_of_the_host": _gpu_ms_by_host(context)[host] / HOUR_MS,
        },
        next_command=command,
        host=host,
        # that it was not observed is itself known for sure
        revised=partial(replace, confidence=grade(), **known),
    )


def _by_host(rows: pl.LazyFrame, hosts: pl.DataFrame) -> dict[tuple[object, ...], pl.DataFrame]:
    """Return the rows of these hosts by host."""
    if hosts.is_empty():
        return {}
    own = rows.join(hosts.lazy().select("host"), on="host", how="semi", maintain_order="left").collect()
    return own.partition_by("host", as_dict=True, maintain_order=True)


@once_per_context
def _gpu_ms_by_host(context: Context) -> Mapping[str, float]:
    rows = context.inside.segments.sort("host", maintain_order=True)
    return dict(rows.group_by("host").agg(GPU_MS.sum()).iter_rows())


def _mute(context: Context, unknown: pl.DataFrame) -> pl.DataFrame:
    """Return GPUs (host, gpu) whose unknown time mostly has rows with memory or energy and without utilization."""
    has_readings = pl.col("mem_used_max_bytes").is_not_null() | (pl.col("energy_ms") > 0)
    hours = context.rollups.hourly("observed_ms", "mem_used_max_bytes", "energy_ms", since_ms=context.since_ms).filter(
        (pl.col("time") >= context.since_ms) & (pl.col("observed_ms") == 0) & has_readings
    )
    mute = hours.group_by("host", "gpu").agg(mute_ms=HOUR_MS * pl.len().cast(pl.Int64))
    gpus = unknown.group_by("host", "gpu").agg(unknown_ms=SPAN_MS.sum()).join(mute, on=("host", "gpu"))
    return gpus.filter(2 * pl.col("mute_ms") >= pl.col("unknown_ms")).select("host", "gpu")


def _contradicted(context: Context, unknown: pl.DataFrame) -> pl.DataFrame:
    """Return GPUs whose unknown time has mostly contradicting readings, with the largest kind: host, gpu, kind."""
    faults = context.rollups.quality(floor_ms(context.since_ms, DAY_MS)).filter(
        pl.col("kind").is_in(verdicts.UNOBSERVED) & (pl.col("time") < context.until_ms)
    )
    sums = faults.group_by("host", "gpu", "kind").agg(pl.col("affected_ms").sum()).sort("affected_ms", "kind")
    kinds = sums.group_by("host", "gpu").agg(pl.col("kind").last(), denied_ms=pl.col("affected_ms").sum())
    gpus = unknown.group_by("host", "gpu").agg(unknown_ms=SPAN_MS.sum()).join(kinds, on=("host", "gpu"))
    return gpus.filter(2 * pl.col("denied_ms") >= pl.col("unknown_ms")).select("host", "gpu", "kind")


def _silent(context: Context) -> pl.DataFrame:
    """Return hosts of which no GPU was observed recently on any host. Columns: host, last_seen and gpus."""
    rows = context.inside.segments.select("gpu", "host", "gpu_share", "end")
    rows = rows.filter(pl.col("end") == pl.col("end").max().over("gpu")).sort("end", "host")
    gpus = rows.group_by("gpu").agg(pl.col("host", "gpu_share").last(), last_seen=pl.col("end").last())
    hosts = gpus.group_by("host").agg(pl.col("last_seen").max(), gpus=pl.col("gpu_share").sum()).sort("host")
    missing_ms = (context.until_ms - pl.col("last_seen")) * pl.col("gpus")
    silent = pl.col("last_seen") <= context.until_ms - SILENT_AFTER_MS
    return hosts.filter(silent & (missing_ms >= GPU_HOURS_MIN * HOUR_MS))


def _check(context: Context, host: str, command: Callable[[str], str]) -> str:
    """Return the command that checks the host's agent, or the metrics server if all rows come from it."""
    return "fallow import prometheus --check" if context.inventory.is_scraped(host) else command(host)


def _agent_status(host: str) -> str:
    return on_host(host, "systemctl", "status", "fallow-agent")


def _full_state(host: str) -> str:
    return on_host(host, "nvidia-smi", "-q")


def _doctor(host: str) -> str:
    return on_host(host, "fallow", "doctor")
