"""An inference server holds a GPU and nobody asks it anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.findings.alive import alive, is_service, last_rows, processes_of
from analytics.findings.base import finding_of, joined, whole_number
from analytics.findings.confidence import alone, known_holder
from analytics.findings.holders import look_command, release_command
from analytics.findings.work import AT_WORK, cut
from analytics.ledger.summary import ratio
from fallow.clock import DAY_MS, HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from analytics.findings.model import Context, Finding

QUIET_MS = DAY_MS
ANSWERED_MIN = 0.9

_SERVER = (
    r"(?i)vllm|sglang|tritonserver|text-generation|lmdeploy|trtllm-serve|tensorrt_llm|llama-server|llama\.cpp|\bollama|mii-server|"
    r"torchserve|lorax|aphrodite"
)
_STANDBY = r"(?i)stand-?by|fail-?over|backup|canary|\bdr\b|\bwarm\b"
_TRAFFIC = ("running_requests_max", "waiting_requests_max", "requests_per_s_mean", "generated_tokens_per_s_mean")


class LoadedNoTraffic:
    """Servers without a request for a day; one finding per host and model, or per host and holder where none is named."""

    name = "loaded_no_traffic"
    category = "reclaim"
    sentence = "loaded with a server that nobody asks anything"
    thresholds: Mapping[str, str] = {
        "quiet": f"no request running, waiting or finished for the last {QUIET_MS // HOUR_MS} h by the server's own metrics (a day with its "
        "night; ours)",
        "answered": f"metrics in at least {ANSWERED_MIN:.0%} of those hours (what was not asked is unknown)",
        "without metrics": f"a server by its command, and zero utilization for {QUIET_MS // HOUR_MS} h: less sure",
        "standby": "never where command, arguments, pod or labels speak of standby, failover, backup, canary or warm (meant to wait)",
    }

    def find(self, context: Context) -> Iterator[Finding]:
        """The findings, in no order."""
        there = alive(context).filter(~is_service()).with_columns(text=_text())
        waiting = there.filter(pl.col("text").str.contains(_STANDBY))["gpu"].unique()
        asked = _asked(context)
        measured = asked.filter(pl.col("quiet") & ~pl.col("gpu").is_in(waiting.implode()))
        yield from self._by_metrics(context, measured, asked, there)
        serving = pl.col("text").str.contains(_SERVER).all().over("gpu")
        silent = there.filter(
            serving & (pl.col("state") == "held") & (pl.col("stretch_start") <= context.until_ms - QUIET_MS)
        ).filter(~pl.col("gpu").is_in(asked["gpu"].implode()) & ~pl.col("gpu").is_in(waiting.implode()))
        yield from self._by_utilization(context, silent)

    def _by_metrics(
        self, context: Context, quiet: pl.DataFrame, asked: pl.DataFrame, there: pl.DataFrame
    ) -> Iterator[Finding]:
        busy_models = set(asked.filter(~pl.col("quiet"))["models"].drop_nulls())
        for (host, models), servers in quiet.group_by("host", "models", maintain_order=True):
            rows = _rows(context, servers.select("gpu", since="quiet_since"))
            # without a request the server does not work: whoever does shares the GPU with it
            rows = rows.filter(~(pl.col("state") == "active").any().over("gpu"))
            if rows.is_empty():
                continue
            servers = servers.join(rows.select("gpu").unique(), on="gpu", how="semi")
            processes = there.filter(pl.col("gpu").is_in(servers["gpu"].implode()))
            replica = models in busy_models
            failed = (
                ["the same model has traffic elsewhere: this may be a replica that waits for more"] if replica else []
            )
            yield self._finding(context, str(host), str(models or ""), rows, processes, servers, failed, kept=replica)

    def _by_utilization(self, context: Context, processes: pl.DataFrame) -> Iterator[Finding]:
        named = processes.with_columns(whom=pl.coalesce("holder", "gpu"))
        failed = ["no metrics of the server itself: that nobody asked is concluded from utilization alone"]
        for (host, whom), those in named.group_by("host", "whom", maintain_order=True):
            rows = _rows(context, those.select("gpu", since="stretch_start").unique())
            if not rows.is_empty():
                yield self._finding(
                    context, str(host), f"by utilization: {whom}", rows, those, None, failed, kept=False
                )

    def _finding(
        self,
        context: Context,
        host: str,
        subject: str,
        rows: pl.DataFrame,
        processes: pl.DataFrame,
        servers: pl.DataFrame | None,
        failed: list[str],
        *,
        kept: bool,
    ) -> Finding:
        last = rows.sort("time").row(-1, named=True)
        gpus = rows["gpu"].unique().sort().to_list()
        others = [gpu for gpu in context.holders.beyond(gpus) if _works(context, gpu)]
        safe = context.latest and not others and not kept and servers is not None and not processes.is_empty()
        release = release_command(host, processes_of(context, processes)) if safe else look_command(host)
        holder = joined(rows.filter(pl.col("time") == last["time"]), "holder")
        since = processes["stretch_start"] if servers is None else servers["quiet_since"]
        since_ms = int(since.max())  # type: ignore[arg-type]  # an integer column
        return finding_of(
            context,
            self,
            rows,
            subject=subject,
            numbers={
                "holder_source": last["holder_source"],
                "models": None if servers is None else joined(servers, "models"),
                "endpoints": None if servers is None else joined(servers, "endpoints"),
                "quiet_h": (context.until_ms - since_ms) / HOUR_MS,
                "answered_share": None if servers is None else servers.select(pl.col("answered").min()).item(),
                "commands": joined(processes, "command"),
                "gpu_util_max_pct": rows.select(pl.col("gpu_util_max_pct").max()).item(),
                "mem_used_max_bytes": rows.select(pl.col("mem_used_max_bytes").max()).item(),
            },
            failed=[known_holder(last["holder_source"], holder), failed, alone(len(others))],
            next_command=release,
            reclaimable_gpus=() if others or kept else _still_there(context, gpus),
            holder=holder,
            since_ms=since_ms,
            notes=_notes(rows, gpus),
        )


def _text() -> pl.Expr:
    """All that is known of what a process is."""
    return pl.concat_str(pl.col("command", "arguments", "job", "pod_labels").fill_null(""), separator=" ")


def _asked(context: Context) -> pl.DataFrame:
    """Per GPU with metrics of a server lately: models, endpoints, whether it is `quiet`, `quiet_since`, and hours `answered`."""
    hours = context.rollups.serving().filter(pl.col("gpu").is_not_null())
    traffic = pl.any_horizontal((pl.col(name) > 0).fill_null(value=False) for name in _TRAFFIC)
    known = pl.any_horizontal(pl.col(name).is_not_null() for name in _TRAFFIC) & (pl.col("scrape_count") > 0)
    per_hour = hours.group_by("host", "gpu", "time").agg(
        traffic=traffic.any(),
        known=known.all(),
        models=pl.col("model").drop_nulls().unique().sort().str.join("+"),
        endpoints=pl.col("endpoint").unique().sort().str.join("+"),
    )
    end = pl.col("time") + HOUR_MS
    busy_until = end.filter("traffic").max()
    return (
        per_hour.sort("time")
        .with_columns(quiet_since=pl.coalesce(busy_until.over("host", "gpu"), pl.col("time").min().over("host", "gpu")))
        .group_by("host", "gpu", maintain_order=True)
        .agg(
            pl.col("models", "endpoints").last(),
            pl.col("quiet_since").first(),
            last=end.max(),
            known_ms=HOUR_MS * (pl.col("known") & (pl.col("time") >= pl.col("quiet_since"))).sum().cast(pl.Int64),
        )
        .filter(pl.col("last") > context.until_ms - DAY_MS)
        .with_columns(quiet_ms=context.until_ms - pl.col("quiet_since"))
        .with_columns(answered=(pl.col("known_ms") / pl.col("quiet_ms")).clip(0, 1))
        .with_columns(quiet=(pl.col("quiet_ms") >= QUIET_MS) & (pl.col("answered") >= ANSWERED_MIN))
        .sort("host", "gpu")
    )


def _rows(context: Context, since: pl.DataFrame) -> pl.DataFrame:
    """The ledger's rows of GPUs in use, from `since` on, where they are in use at the end of the window."""
    now = last_rows(context).filter(pl.col("state").is_in(AT_WORK)).select("gpu")
    rows = context.inside.stretches.filter(pl.col("state").is_in(AT_WORK)).join(since.join(now, on="gpu"), on="gpu")
    late = rows.filter(pl.col("end") > pl.col("since"))
    return cut(late, pl.max_horizontal("time", "since"), pl.col("end")).drop("since")


def _works(context: Context, gpu: str) -> bool:
    last = last_rows(context).filter(pl.col("gpu") == gpu)["state"]
    return not last.is_empty() and last[0] in ("low", "active")


def _still_there(context: Context, gpus: Sequence[str]) -> list[str]:
    return sorted(set(gpus) & set(last_rows(context)["gpu"]))


def _notes(rows: pl.DataFrame, gpus: Sequence[str]) -> list[str]:
    share = ratio(float(rows["zero_ms"].sum()), float(rows["util_ms"].sum()))
    notes = [] if share is None else [f"{share:.1%} of the time at zero utilization on {len(gpus)} GPU(s)"]
    if any(str(job).startswith("pod:") for job in rows["job"].drop_nulls().unique()):
        notes.append(
            "a pod of a Deployment comes back by itself: scale its owner to zero (`kubectl scale --replicas=0`) instead"
        )
    return notes
