"""Parts of the fleet that are not observed: silent hosts, unknown time, GPUs without utilization, use of which neither user nor account is known.

Look-alikes that it leaves alone: a driver reload, an agent update or a card that moved (under 24 GPU-hours or a tenth
of the host's time), and MIG instances, which come and go with each layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import polars as pl

from analytics.intervals import SPAN_MS
from analytics.language.quantities import Share
from analytics.language.sentences import tr
from analytics.ledger.day_owners import NOBODY_LOOKED
from analytics.ledger.summary import SILENT_AFTER_MS
from analytics.states import OCCUPIED, WITHOUT_EVIDENCE
from analytics.workloads import waste
from analytics.workloads.commands import on_host
from analytics.workloads.confidence import grade
from analytics.workloads.finding_parts import finding_of, label, words_for
from analytics.workloads.ledger_rows import GPU_MS, gpu_ms_of, longest_h
from analytics.workloads.model import Context, EvidenceValue, Finding, HistoryNeed, Rule, of_gpus
from fallow.clock import HOUR_MS

SHARE_MAX = 0.1
GPU_HOURS_MIN = 24


KINDS = {
    "silent": "the host fell silent",
    "unknown time": "not observed",
    "no utilization": "utilization was not measured",
    "holder not known": "the user is not known",
    "use not watched": "nobody recorded who used it",
}
"""What was not observed, by the word for it in the evidence."""


def blind_spot_findings(context: Context) -> Iterator[Finding]:
    """One finding per host and kind of gap, for hosts whose figures rest on too little."""
    spans = context.inside.stretches
    silent = _silent(context)
    yield from _silent_hosts(context, silent)
    seen = spans.filter(~pl.col("state").is_in(WITHOUT_EVIDENCE))
    used = spans.filter(pl.col("state").is_in(OCCUPIED))
    unknown = spans.filter(pl.col("state") == "unknown")
    mute = _mute(context, unknown)
    unwatched = pl.col("holder_source").is_in(NOBODY_LOOKED)
    for kind, whole, blind, command in (
        ("unknown time", spans, unknown.join(mute, on=("host", "gpu"), how="anti"), _agent_status),
        ("no utilization", spans, unknown.join(mute, on=("host", "gpu"), how="semi"), _doctor),
        ("holder not known", used, used.filter(pl.col("holder").is_null() & pl.col("account").is_null()), _doctor),
        ("use not watched", seen, seen.filter(unwatched), _doctor),
    ):
        yield from _unseen_shares(context, kind, whole, blind, command)


BLIND_SPOT = Rule(
    name="blind_spot",
    category="coverage",
    sentence=of_gpus("not observed well enough"),
    kinds=(waste.INEFFICIENT,),
    precedence=100,
    of_machine=True,
    advice=tr("Find out why nobody sees it: the agent, the driver or the host."),
    per_host=True,
    history=HistoryNeed(gpu_hours=GPU_HOURS_MIN),
    thresholds={
        "share": f"more than {SHARE_MAX:.0%} of the host's GPU time (the coverage that high confidence wants)",
        "hours": f"at least {GPU_HOURS_MIN} GPU-hours in the window (from where Job Defense Shield sends a mail)",
        "silent": f"no GPU of the host seen in the last {SILENT_AFTER_MS // HOUR_MS} h of the window",
    },
    labels=(
        label("kind", "{value}", words_for(KINDS)),
        label("silent_h", "silent for {value} h"),
        label("gpus_of_the_host", "{value} GPUs in the host"),
        label("blind_gpu_hours", "{value} such GPU-hours"),
        label("share_of_the_host", "{value} of the host's time", Share),
        label("pools", "pool {value}"),
        label("gpu_hours_of_the_host", "{value} GPU-hours of the host in all"),
    ),
    find=blind_spot_findings,
)


def _silent_hosts(context: Context, hosts: pl.DataFrame) -> Iterator[Finding]:
    for row in hosts.iter_rows(named=True):
        last_seen_ms, host = int(row["last_seen"]), str(row["host"])
        rows = context.inside.stretches.filter(pl.col("host") == host)
        missing_ms = context.until_ms - last_seen_ms
        numbers: dict[str, EvidenceValue] = {
            "kind": "silent",
            "silent_h": missing_ms / HOUR_MS,
            "gpus_of_the_host": rows["gpu"].n_unique(),
        }
        finding = _blind_spot_finding(context, host, rows, numbers, _check(context, host, _agent_status))
        # the time after the last row is in no row: neither its energy nor its price is known
        yield replace(
            finding,
            since_ms=last_seen_ms,
            gpu_ms=missing_ms * float(row["gpus"]),
            energy_kwh=None,
            cost=None,
            currency=None,
            notes=(tr("if the host was retired on purpose, suppress this finding"),),
        )


def _unseen_shares(
    context: Context, kind: str, whole: pl.DataFrame, blind: pl.DataFrame, command: Callable[[str], str]
) -> Iterator[Finding]:
    parts = blind.group_by("host").agg(blind_ms=GPU_MS.sum())
    shares = whole.group_by("host").agg(whole_ms=GPU_MS.sum()).join(parts, on="host")
    fired = shares.with_columns(share=pl.col("blind_ms") / pl.col("whole_ms")).filter(
        (pl.col("share") > SHARE_MAX) & (pl.col("blind_ms") >= GPU_HOURS_MIN * HOUR_MS)
    )
    for row in fired.sort("host").iter_rows(named=True):
        host = str(row["host"])
        rows = blind.filter(pl.col("host") == host)
        numbers: dict[str, EvidenceValue] = {
            "kind": kind,
            "blind_gpu_hours": float(row["blind_ms"]) / HOUR_MS,
            "share_of_the_host": row["share"],
            "longest_h": longest_h(rows),
        }
        yield _blind_spot_finding(context, host, rows, numbers, _check(context, host, command))


def _blind_spot_finding(
    context: Context, host: str, rows: pl.DataFrame, numbers: dict[str, EvidenceValue], command: str
) -> Finding:
    pools = {context.inventory.pool(gpu) for gpu in rows["gpu"].unique()}
    whole = context.inside.stretches.filter(pl.col("host") == host)
    finding = finding_of(
        context,
        BLIND_SPOT,
        rows,
        subject=str(numbers["kind"]),
        numbers={**numbers, "pools": "+".join(sorted(pools)), "gpu_hours_of_the_host": gpu_ms_of(whole) / HOUR_MS},
        next_command=command,
        host=host,
    )
    # that it was not observed is itself known for sure
    return replace(finding, confidence=grade())


def _mute(context: Context, unknown: pl.DataFrame) -> pl.DataFrame:
    """GPUs (host, gpu) whose unknown time is mostly that of rows with memory or energy, and without utilization."""
    told = pl.col("mem_used_max_bytes").is_not_null() | (pl.col("energy_ms") > 0)
    hours = context.rollups.hourly("observed_ms", "mem_used_max_bytes", "energy_ms", since_ms=context.since_ms).filter(
        (pl.col("time") >= context.since_ms) & (pl.col("observed_ms") == 0) & told
    )
    mute = hours.group_by("host", "gpu").agg(mute_ms=HOUR_MS * pl.len().cast(pl.Int64))
    gpus = unknown.group_by("host", "gpu").agg(unknown_ms=SPAN_MS.sum()).join(mute, on=("host", "gpu"))
    return gpus.filter(2 * pl.col("mute_ms") >= pl.col("unknown_ms")).select("host", "gpu")


def _silent(context: Context) -> pl.DataFrame:
    """Hosts none of whose GPUs was seen lately, anywhere: host, last_seen and how many GPUs."""
    rows = context.inside.stretches.select("gpu", "host", "gpu_share", "end").sort("end", "host")
    gpus = rows.group_by("gpu").agg(pl.col("host", "gpu_share").last(), last_seen=pl.col("end").last())
    hosts = gpus.group_by("host").agg(pl.col("last_seen").max(), gpus=pl.col("gpu_share").sum()).sort("host")
    missing_ms = (context.until_ms - pl.col("last_seen")) * pl.col("gpus")
    silent = pl.col("last_seen") <= context.until_ms - SILENT_AFTER_MS
    return hosts.filter(silent & (missing_ms >= GPU_HOURS_MIN * HOUR_MS))


def _check(context: Context, host: str, command: Callable[[str], str]) -> str:
    """What to look at: the host's agent, or the metrics server that all of its rows are from."""
    return "fallow import prometheus --check" if context.inventory.is_scraped(host) else command(host)


def _agent_status(host: str) -> str:
    return on_host(host, "systemctl", "status", "fallow-agent")


def _doctor(host: str) -> str:
    return on_host(host, "fallow", "doctor")
