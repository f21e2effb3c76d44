"""A process keeps a GPU although its parent, its job or the person at the notebook is gone.

Look-alikes that it leaves alone: systemd services and MPS daemons (parent 1 too), a job that still runs, a notebook
over night, an orphan that computes on the CPU, servers.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analytics.language.sentences import tr
from analytics.workloads import waste
from analytics.workloads.commands import Ties, ending_command, listed_now, look_command, on_host, own_processes, ties
from analytics.workloads.finding_parts import counted, finding_of, label, words_for
from analytics.workloads.ledger_rows import highest, joined, rows_since, whole_number
from analytics.workloads.model import Context, Finding, HistoryNeed, Rule, of_gpus
from analytics.workloads.process_lists import NOTEBOOK_COMMAND, NOTEBOOK_POD, SERVER, is_service
from analytics.workloads.processes import alive, processes_of
from analytics.workloads.window_end import allocations
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS

ORPHAN_IDLE_MS = DAY_MS
NOTEBOOK_IDLE_MS = DAY_MS
GRACE_MS = 15 * MINUTE_MS
CPU_IDLE_PCT = 10.0


ENDED, PARENT_GONE, NOTEBOOK = "job ended", "parent gone", "notebook idle"
"""Why it is a zombie, the surest first."""


_REASONS = {ENDED: "their job has ended", PARENT_GONE: "their parent process is gone", NOTEBOOK: "the notebook is idle"}


def zombie_holder_findings(context: Context) -> Iterator[Finding]:
    """Idle GPUs whose every process has outlived its purpose: one finding per host, user and reason."""
    # of a list that is no longer good nobody knows who is still there
    there = alive(context).filter(~is_service() & pl.col("gpu").is_in(list(listed_now(context))))
    idle_ms = context.until_ms - pl.col("stretch_start")
    idle = there.filter((pl.col("state") == "held") & (idle_ms >= context.settings.held_min_ms))
    if idle.is_empty():
        return
    judged = _zombie_holder_judged(context, idle)
    # one process with a purpose is enough for the GPU to be somebody's
    dead = judged.filter(pl.col("why").is_not_null().all().over("gpu")).with_columns(
        why=pl.col("why").sort_by("rank").last().over("gpu")
    )
    for (host, _, why), processes in dead.with_columns(whom=pl.coalesce("holder", "gpu")).group_by(
        "host", "whom", "why", maintain_order=True
    ):
        gpus = processes["gpu"].unique().sort().to_list()
        rows = _since(context, processes)
        if rows.is_empty():
            continue
        first = processes.row(0, named=True)
        # what a job left behind when it ended is ended by pid
        bound = ties(context, gpus, as_jobs=why != ENDED)
        shortest_ms = context.until_ms - whole_number(processes, pl.col("stretch_start").max())
        ageless = why == ENDED and processes["started"].null_count() > 0
        yield finding_of(
            context,
            ZOMBIE_HOLDER,
            rows,
            subject=f"{why}: {first['whom']}",
            source=first["holder_source"],
            numbers={
                "why": why,
                "process_count": processes["pid"].n_unique(),
                "pids": "+".join(map(str, processes["pid"].unique().sort())),
                "commands": joined(processes, "command"),
                "idle_h": shortest_ms / HOUR_MS,
                "cpu_util_mean_pct": highest(processes, "cpu_util_mean_pct"),
                "mem_used_max_bytes": highest(rows, "mem_used_max_bytes"),
            },
            failed=[
                [tr("the start of the processes is not known: they may belong to a later run of the job")]
                if ageless
                else [],
                bound.failed,
            ],
            next_command=_zombie_holder_command(context, host, why, processes, bound, sure=not ageless),
            reclaimable_gpus=() if bound or ageless else gpus,
            holder=first["holder"],
            since_ms=whole_number(rows, pl.col("time").min()) if why == ENDED else None,
            # what a job left behind when it ended is not waited for
            is_promised=why != ENDED,
            notes=[tr("a notebook's unsaved results are lost with its kernel: ask first")] if why == NOTEBOOK else [],
        )


ZOMBIE_HOLDER = Rule(
    name="zombie_holder",
    category="reclaim",
    sentence=of_gpus("held by processes that outlived their purpose"),
    kinds=(waste.HELD_IDLE,),
    precedence=10,
    per_host=True,
    history=HistoryNeed(setting="held_min_ms"),
    thresholds={
        ENDED: f"the source of the allocations says that the processes' Slurm job or pod ended {GRACE_MS // MINUTE_MS} min ago or earlier (its epilog's "
        "time; ours), they were started before, and no kernel ran for findings.held_min",
        PARENT_GONE: f"parent 1 after another parent, no kernel ran for {ORPHAN_IDLE_MS // HOUR_MS} h, and the process used under {CPU_IDLE_PCT:g} % of a "
        "CPU; never in containers or by servers. What had parent 1 from the start may be a service of systemd or a daemon: `held` speaks of it (ours)",
        NOTEBOOK: f"an IPython kernel or a notebook server, no kernel ran for {NOTEBOOK_IDLE_MS // HOUR_MS} h (Kubeflow's culling: 1,440 min)",
    },
    labels=(
        label("why", "{value}", words_for(_REASONS)),
        counted("process_count", "{number} process", "{number} processes"),
        label("pids", "pids {value}"),
        label("idle_h", "idle for {value} h"),
        label("cpu_util_mean_pct", "mean CPU use {value} %"),
    ),
    find=zombie_holder_findings,
    # an idle notebook still belongs to its user
    has_lost_user=lambda finding: finding.evidence.numbers.get("why") != NOTEBOOK,
)


def _zombie_holder_command(
    context: Context, host: str, why: str, processes: pl.DataFrame, bound: Ties, *, sure: bool
) -> str:
    if not context.latest:
        return look_command(host)  # a pid at the end of a past window may be somebody else's by now
    gpus = processes["gpu"].unique().sort().to_list()
    if bound and bound.slurm and not bound.gpus:
        return bound.look(host)
    holder = processes["holder"][0]
    if bound or not sure or not own_processes(context, gpus, holder):
        pids = ",".join(map(str, processes["pid"].unique().sort()))
        return on_host(host, "ps", "-o", "pid,ppid,lstart,user,args", "-p", pids)
    ended = processes_of(context, processes, bare=why == ENDED)
    return ending_command(context, host, gpus, holder, ended, bound=bound)


def _zombie_holder_judged(context: Context, processes: pl.DataFrame) -> pl.DataFrame:
    """Adds `why` (null: not a zombie), its `rank` and `job_end`, when the job's last allocation ended."""
    idle_ms = context.until_ms - pl.col("stretch_start")
    text = pl.concat_str(pl.col("command", "arguments").fill_null(""), separator=" ")
    pod = pl.concat_str(pl.col("pod_labels", "job").fill_null(""), separator=" ")
    notebook = text.str.contains(NOTEBOOK_COMMAND) | pod.str.contains(NOTEBOOK_POD)
    contained = pl.col("container_id").is_not_null() | pl.col("job").str.starts_with("pod:")
    # systemd's services and daemons have parent 1 from the start, as what a closed session left behind has later on
    orphan = (
        (pl.col("parent_pid") == 1)
        & (pl.col("first_parent_pid") > 1)
        & ~(contained | text.str.contains(SERVER)).fill_null(value=False)
    )
    still = (pl.col("cpu_util_mean_pct") < CPU_IDLE_PCT).fill_null(value=True)
    # a process that began later is of a run whose claim is not known yet; of one without a start nobody can say
    before = (pl.col("started") < pl.col("job_end")).fill_null(value=True)
    ended = (pl.col("job_end") <= context.until_ms - GRACE_MS) & before
    why = (
        pl.when(ended)
        .then(pl.lit(ENDED))
        .when(orphan & still & (idle_ms >= ORPHAN_IDLE_MS))
        .then(pl.lit(PARENT_GONE))
        .when(notebook & (idle_ms >= NOTEBOOK_IDLE_MS))
        .then(pl.lit(NOTEBOOK))
    )
    rank = pl.col("why").replace_strict({ENDED: 0, PARENT_GONE: 1, NOTEBOOK: 2}, default=3, return_dtype=pl.Int8)
    known = processes.join(_job_ends(context), on="job", how="left")
    return known.with_columns(why=why).with_columns(rank=rank)


def _job_ends(context: Context) -> pl.DataFrame:
    """Per job the end of the last of its claims, where the source stated it: `job`, `job_end`.

    A time limit is no end, for it may be raised, nor is the start of a next run; a claim that still runs has none.
    """
    ends = allocations(context).group_by("job").agg(pl.col("end").max(), job_end=pl.col("stated").max())
    return ends.filter(pl.col("end") == pl.col("job_end")).drop("end")


def _since(context: Context, processes: pl.DataFrame) -> pl.DataFrame:
    """The ledger's rows of the idle intervals that still run, from the job's end on where it has ended."""
    from_ms = (
        pl.when(pl.col("why") == ENDED).then(pl.max_horizontal("stretch_start", "job_end")).otherwise("stretch_start")
    )
    spans = processes.group_by("gpu", "stretch_start").agg(since=from_ms.min())
    return rows_since(context.inside.stretches.filter(pl.col("state") == "held"), spans)
