"""An inference server occupies a GPU and gets no requests.

Look-alikes that it leaves alone: a warm standby or canary that says so, a replica of a model that has traffic, quiet
nights, a server whose metrics count no requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from analytics.language.quantities import Share
from analytics.language.sentences import tr
from analytics.states import OCCUPIED
from analytics.workloads import waste
from analytics.workloads.commands import Ties, ending_command, listed_now, look_command, ties
from analytics.workloads.finding_parts import finding_of, label
from analytics.workloads.ledger_rows import highest, joined, rows_since, whole_number
from analytics.workloads.model import Context, Finding, HistoryNeed, Rule, of_gpus
from analytics.workloads.process_lists import SERVER, is_service
from analytics.workloads.processes import alive, processes_of
from analytics.workloads.window_end import last_rows
from fallow.clock import DAY_MS, HOUR_MS

_STANDBY = r"(?i)stand-?by|fail-?over|backup|canary|\bdr\b|\bwarm\b"
_COMES_BACK = tr(
    "a pod of a Deployment restarts by itself: scale its owner to zero (`kubectl scale --replicas=0`) instead"
)


QUIET_MS = DAY_MS
ANSWERED_MIN = 0.9

_COUNTED = ("requests_mean_per_s", "generated_tokens_mean_per_s")
"""From counters: a request between two scrapes is in them. What runs at a scrape shows some requests only."""
_SEEN = ("running_requests_max", "waiting_requests_max")


@dataclass(frozen=True)
class _Server:
    """One server that nobody asks: its ledger rows since then and its processes; metrics are None where there are none."""

    host: str
    subject: str
    rows: pl.DataFrame
    processes: pl.DataFrame
    since_ms: int
    models: str | None = None
    endpoints: str | None = None
    answered: float | None = None
    replica: bool = False

    @property
    def shared(self) -> bool:
        """Whether there is more on its GPUs than this one server: somebody else's work, or several users' servers."""
        return not self.processes["serves"].all() or self.processes["user"].n_unique() > 1


def loaded_no_traffic_findings(context: Context) -> Iterator[Finding]:
    """Servers without a request for a day: one finding per host and model, or per host and user where none is named."""
    # of a list that is no longer good nobody knows who is still there
    listed = pl.col("gpu").is_in(list(listed_now(context)))
    started, named = ("command", "arguments"), ("job", "pod_labels")
    text, own = (pl.concat_str(pl.col(*names).fill_null(""), separator=" ") for names in (started + named, started))
    # a server by what was started, whatever its pod is called
    there = alive(context).filter(~is_service() & listed).with_columns(text=text, serves=own.str.contains(SERVER))
    waiting = there.filter(pl.col("text").str.contains(_STANDBY))["gpu"].unique()
    asked = server_traffic(context)
    found = [*_by_metrics(context, asked, waiting, there), *_by_utilization(context, asked, waiting, there)]
    for server in found:
        rows, processes = server.rows, server.processes
        last = rows.sort("time").row(-1, named=True)
        gpus = rows["gpu"].unique().sort().to_list()
        bound = ties(context, gpus)
        safe = server.answered is not None and not server.replica and not server.shared
        holder = joined(rows.filter(pl.col("time") == last["time"]), "holder")
        yield finding_of(
            context,
            LOADED_NO_TRAFFIC,
            rows,
            subject=server.subject,
            source=last["holder_source"],
            numbers={
                "models": server.models,
                "endpoints": server.endpoints,
                "quiet_h": (context.until_ms - server.since_ms) / HOUR_MS,
                "answered_share": server.answered,
                "commands": joined(processes, "command"),
                "gpu_util_max_pct": highest(rows, "gpu_util_max_pct"),
                "mem_used_max_bytes": highest(rows, "mem_used_max_bytes"),
            },
            failed=[_loaded_no_traffic_doubts(server), bound.failed],
            next_command=_loaded_no_traffic_command(context, server, holder, bound, safe=safe),
            reclaimable_gpus=() if bound or server.replica or server.shared else gpus,
            holder=holder,
            since_ms=server.since_ms,
            notes=[_COMES_BACK] if rows["job"].str.contains("pod:").any() else [],
        )


LOADED_NO_TRAFFIC = Rule(
    name="loaded_no_traffic",
    category="reclaim",
    sentence=of_gpus("loaded with a server that gets no requests"),
    kinds=(waste.HELD_IDLE,),
    precedence=20,
    per_host=True,
    history=HistoryNeed(QUIET_MS),
    thresholds={
        "quiet": f"no request running, waiting or finished for the last {QUIET_MS // HOUR_MS} h by the server's own metrics (a day with its "
        "night; ours)",
        "answered": f"metrics in at least {ANSWERED_MIN:.0%} of those hours (what was not asked is unknown)",
        "without metrics": f"a server by its command, and zero utilization for {QUIET_MS // HOUR_MS} h: less sure",
        "standby": "never where command, arguments, pod or labels speak of standby, failover, backup, canary or warm (meant to wait)",
    },
    labels=(
        label("models", "models {value}"),
        label("endpoints", "endpoints {value}"),
        label("quiet_h", "no request for {value} h"),
        label("answered_share", "its metrics cover {value} of that time", Share),
    ),
    find=loaded_no_traffic_findings,
)


def _by_metrics(context: Context, asked: pl.DataFrame, waiting: pl.Series, there: pl.DataFrame) -> Iterator[_Server]:
    busy_models = set(asked.filter(~pl.col("quiet"))["models"].drop_nulls())
    quiet = asked.filter(pl.col("quiet") & ~pl.col("gpu").is_in(waiting.implode()))
    for (host, models), servers in quiet.group_by("host", "models", maintain_order=True):
        in_use = _loaded_no_traffic_rows(context, servers.select("gpu", since="quiet_since"))
        # without a request the server does little more than answer health checks: whoever works shares the GPU with it
        served_alone = there.filter(pl.col("serves").all().over("gpu"))["gpu"].unique()
        alone = pl.col("gpu").is_in(served_alone.implode())
        works = (pl.col("state") == "active") | ((pl.col("state") == "low") & ~alone)
        rows = in_use.filter(~works.any().over("gpu"))
        if rows.is_empty():
            continue
        own = servers.join(rows.select("gpu").unique(), on="gpu", how="semi")
        yield _Server(
            host=host,
            subject=models or "",
            rows=rows,
            processes=there.filter(pl.col("gpu").is_in(own["gpu"].implode())),
            since_ms=whole_number(own, pl.col("quiet_since").max()),
            models=joined(own, "models"),
            endpoints=joined(own, "endpoints"),
            answered=float(own["answered"].bottom_k(1)[0]),
            replica=models in busy_models,
        )


def _by_utilization(
    context: Context, asked: pl.DataFrame, waiting: pl.Series, there: pl.DataFrame
) -> Iterator[_Server]:
    serving = pl.col("text").str.contains(SERVER).all().over("gpu")
    silent = there.filter(
        serving & (pl.col("state") == "held") & (pl.col("stretch_start") <= context.until_ms - QUIET_MS)
    ).filter(~pl.col("gpu").is_in(asked["gpu"].implode()) & ~pl.col("gpu").is_in(waiting.implode()))
    named = silent.with_columns(whom=pl.coalesce("holder", "gpu"))
    for (host, whom), processes in named.group_by("host", "whom", maintain_order=True):
        rows = _loaded_no_traffic_rows(context, processes.select("gpu", since="stretch_start").unique())
        since_ms = whole_number(processes, pl.col("stretch_start").max())
        if not rows.is_empty():
            yield _Server(host, f"by utilization: {whom}", rows, processes, since_ms)


def _loaded_no_traffic_doubts(server: _Server) -> list[str]:
    if server.answered is None:
        return [tr("no metrics of the server itself: only its utilization suggests that it got no requests")]
    if server.replica:
        return [tr("the same model has traffic elsewhere: this may be a spare replica")]
    if server.shared:
        return [tr("other processes share the GPUs with the server")]
    return []


def _loaded_no_traffic_command(
    context: Context, server: _Server, holder: str | None, bound: Ties, *, safe: bool
) -> str:
    """What ends the server, where that ends nothing else."""
    gpus = server.rows["gpu"].unique().sort().to_list()
    if not safe and not bound:
        return look_command(server.host)
    ended = processes_of(context, server.processes)
    return ending_command(context, server.host, gpus, holder, ended, bound=bound)


def _loaded_no_traffic_rows(context: Context, since: pl.DataFrame) -> pl.DataFrame:
    """The ledger's rows of GPUs in use, from `since` on, where they are in use at the end of the window."""
    now = last_rows(context).filter(pl.col("state").is_in(OCCUPIED)).select("gpu")
    return rows_since(context.inside.stretches.filter(pl.col("state").is_in(OCCUPIED)), since.join(now, on="gpu"))


def server_traffic(context: Context) -> pl.DataFrame:
    """Per GPU whose server answered lately: host, gpu, models, endpoints, quiet_since, answered (share of hours) and `quiet`.

    `quiet_since` is the end of the last hour with a request, or the first hour that was asked about.
    """
    hours = context.rollups.serving().filter(pl.col("gpu").is_not_null())
    busy = pl.any_horizontal(pl.col(name) > 0 for name in (*_COUNTED, *_SEEN))
    known = pl.any_horizontal(pl.col(name).is_not_null() for name in _COUNTED) & (pl.col("scrape_count") > 0)
    per_hour = hours.group_by("host", "gpu", "time").agg(
        busy=busy.any(),
        known=known.all(),
        models=pl.col("model").drop_nulls().unique().sort().str.join("+"),
        endpoints=pl.col("endpoint").unique().sort().str.join("+"),
    )
    key = ("host", "gpu")
    end = pl.col("time") + HOUR_MS
    last_busy = end.filter("busy").max().over(key)
    asked = per_hour.filter((pl.col("known") | pl.col("busy")).any().over(key)).sort("time")
    quiet_hour = pl.col("known") & (pl.col("time") >= pl.col("quiet_since"))
    found = (
        asked.with_columns(quiet_since=pl.coalesce(last_busy, pl.col("time").min().over(key)))
        .group_by(key, maintain_order=True)
        .agg(
            pl.col("models", "endpoints").last(),
            pl.col("quiet_since").first(),
            last=end.max(),
            known_ms=HOUR_MS * quiet_hour.sum().cast(pl.Int64),
        )
        .filter(pl.col("last") > context.until_ms - DAY_MS)
    )
    quiet_ms = context.until_ms - pl.col("quiet_since")
    return (
        found.with_columns(answered=(pl.col("known_ms") / quiet_ms).clip(0, 1))
        .with_columns(quiet=(quiet_ms >= QUIET_MS) & (pl.col("answered") >= ANSWERED_MIN))
        .drop("last", "known_ms")
        .sort(key)
    )
