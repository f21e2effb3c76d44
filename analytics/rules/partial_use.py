"""A job got several GPUs and never ran a kernel on some of them while others worked.

Look-alikes that it leaves alone: jobs that are starting, ranks that evaluate, cards that take turns, a standby in a pod
of its own, two programs of one user.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import polars as pl

from analytics.intervals import SPAN_MS, clip
from analytics.language.language import Sentence
from analytics.language.quantities import Number
from analytics.language.sentences import tr, tr_many
from analytics.states import IN_USE
from analytics.workloads import waste
from analytics.workloads.commands import ending_command, look_command, quote, ties
from analytics.workloads.finding_parts import finding_of, label
from analytics.workloads.ledger_rows import by_job, gpu_ms_of, highest, joined, mean_of, newest_source
from analytics.workloads.model import Context, Finding, HistoryNeed, Rule, of_gpus
from analytics.workloads.processes import program_stretches
from analytics.workloads.window_end import KNOWN_MIN, still_going, unseen_gpus
from fallow.clock import HOUR_MS, MINUTE_MS

UNUSED_BELOW_PCT = 0.5
USED_FROM_PCT = 5.0
MIN_MS = 61 * MINUTE_MS

_COUNTED = tr(
    "the allocation counts its GPUs and does not name them: they are inferred from where the job was never seen"
)


def partial_use_findings(context: Context) -> Iterator[Finding]:
    """GPUs of a job or program that never worked in all of its time: one finding per job."""
    # over the job's whole time: a GPU that worked before the window has been of use to it
    unseen = unseen_gpus(context, MIN_MS)
    owned = _owned(context, context.whole.stretches)
    counted = pl.col("work").is_in(unseen["work"].implode())
    per_gpu = _partial_use_per_gpu(owned.filter((pl.col("gpu").n_unique().over("work") > 1) | counted))
    yield from _never_seen_findings(context, unseen, per_gpu)
    several = per_gpu.filter(pl.len().over("work") > 1)
    judged = several.filter(pl.col("unused").any().over("work") & pl.col("used").any().over("work"))
    if judged.is_empty():
        return
    candidates = context.inside.stretches.join(judged.select("gpu").unique(), on="gpu", how="semi")
    inside = _owned(context, candidates).join(judged.select("work").unique(), on="work", how="semi")
    for (work,), gpus in judged.group_by("work", maintain_order=True):
        idle = gpus.filter("unused")["gpu"].to_list()
        rows = inside.filter((pl.col("work") == work) & pl.col("gpu").is_in(idle))
        if not rows.is_empty():
            holder = joined(rows, "holder")
            kept, unused = gpus.filter(~pl.col("unused")), gpus.filter("unused")
            now = still_going(context, rows)
            bound = _bound(context, work, now, kept["gpu"].to_list())
            free = () if bound else now
            yield finding_of(
                context,
                PARTIAL_USE,
                rows.drop("work"),
                subject=work,
                source=newest_source(rows),
                numbers={
                    "gpus_of_the_job": gpus.height,
                    "gpus_used": kept.height,
                    "gpus_never_used": unused.height,
                    "used_gpu_util_mean_pct": mean_of(gpus.filter("used"), "mean_pct"),
                    "unused_gpu_util_mean_pct": highest(unused, "mean_pct"),
                    "reserved_gpu_hours": gpu_ms_of(rows.filter(pl.col("state") == "reserved")) / HOUR_MS,
                    "mem_used_max_bytes": highest(rows, "mem_used_max_bytes"),
                },
                next_command=_partial_use_command(context, work, rows, kept, free),
                reclaimable_gpus=free,
                holder=holder,
                notes=_partial_use_notes(work, kept, bound=bool(now) and bound),
            )


PARTIAL_USE = Rule(
    name="partial_use",
    category="reclaim",
    sentence=of_gpus("that never worked while other GPUs of the same job did"),
    kinds=(waste.ALLOCATED_IDLE, waste.HELD_IDLE),
    precedence=40,
    history=HistoryNeed(MIN_MS),
    thresholds={
        "unused": f"mean utilization over the job's whole time under {UNUSED_BELOW_PCT} % (loading libraries takes seconds)",
        "used": f"another GPU of the job with a mean of at least {USED_FROM_PCT:g} % (more than a start-up)",
        "job time": f"at least {MIN_MS // MINUTE_MS} min beside working GPUs (Job Defense Shield looks from 61 min on)",
        "counted": "GPUs that the job's allocation counts and does not name, less those that it was seen on and those of its host with work of no "
        f"known job: where nobody was on as many others for {KNOWN_MIN:.0%} of its time (ours)",
        "known": f"utilization known for at least {KNOWN_MIN:.0%} of the job's time on the GPU",
    },
    labels=(
        label("gpus_used", "{value} of them used"),
        label("gpus_never_used", "{value} never used"),
        label("gpus_claimed", "{value} GPUs allocated on the host"),
        label("gpus_seen_of_the_claim", "seen on {value} of them"),
        label("gpus_never_seen_of_the_claim", "never on {value}"),
        label("used_gpu_util_mean_pct", "mean utilization of those that were used {value} %"),
        label("unused_gpu_util_mean_pct", "of the others {value} % at most"),
    ),
    find=partial_use_findings,
)


def _never_seen_findings(context: Context, claims: pl.DataFrame, per_gpu: pl.DataFrame) -> Iterator[Finding]:
    """GPUs that the job's allocation only counts, and that the job was never seen on."""
    worked = per_gpu.filter(pl.col("used") & (pl.col("busy_ms") >= MIN_MS))
    for claim in claims.join(worked.select("work").unique(), on="work", how="semi").iter_rows(named=True):
        met = context.inside.stretches.filter(
            pl.col("gpu").is_in(claim["candidates"]), pl.col("end") > claim["start"], pl.col("time") < claim["end"]
        )
        if not met.is_empty():
            rows = clip(met, claim["start"], claim["end"])
            seen = per_gpu.filter(pl.col("work") == claim["work"])
            unseen, candidates = int(claim["unseen"]), len(claim["candidates"])
            work = claim["work"]
            own = by_job(context.whole.stretches.filter(pl.col("gpu").is_in(seen["gpu"].implode())))
            own = own.filter(pl.col("work") == work)
            holder = joined(own, "holder")
            found = finding_of(
                context,
                PARTIAL_USE,
                rows,
                subject=f"{work}: counted on {claim['host']}",
                source=newest_source(own),
                numbers={
                    "gpus_claimed": claim["claimed"],
                    "gpus_seen_of_the_claim": claim["seen"],
                    "gpus_never_seen_of_the_claim": unseen,
                    "used_gpu_util_mean_pct": mean_of(seen.filter("used"), "mean_pct"),
                },
                failed=[[_counted(unseen, candidates)]],
                next_command=_partial_use_command(context, work, own, seen.filter(~pl.col("unused")), ()),
                holder=holder,
                since_ms=claim["start"],
                notes=_partial_use_notes(work, seen.filter(~pl.col("unused")), bound=True),
            )
            share = unseen / candidates
            alike = len({context.inventory.model(gpu) for gpu in found.gpus}) == 1
            yield replace(
                found,
                sentence=found.sentence
                if share == 1
                else tr_many(
                    "of which {number} never worked while other GPUs of the same job did",
                    "of which {number} never worked while other GPUs of the same job did",
                    unseen,
                ),
                job=work,
                team=context.owners.team(holder, joined(own, "account")),
                gpu_ms=share * found.gpu_ms,
                # which of them it is nobody knows: their energy may differ, and cards of one model cost the same
                energy_kwh=found.energy_kwh if share == 1 else None,
                cost=share * found.cost if found.cost is not None and (share == 1 or alike) else None,
            )


def _counted(unseen: int, candidates: int) -> Sentence:
    if unseen >= candidates:
        return _COUNTED
    return tr("{counted} ({part} of these {all} GPUs)", counted=_COUNTED, part=Number(unseen), all=Number(candidates))


def _owned(context: Context, stretches: pl.DataFrame) -> pl.DataFrame:
    """The ledger's rows of jobs and programs, once for each, with `work`."""
    return pl.concat([by_job(stretches), program_stretches(context, stretches)])


def _partial_use_per_gpu(rows: pl.DataFrame) -> pl.DataFrame:
    """Per work and GPU: host, busy_ms, mean_pct over all its time, and whether it counts as unused or used."""
    busy = pl.col("state").is_in(IN_USE)
    return (
        rows.group_by("work", "gpu")
        .agg(
            pl.col("host").last(),
            span_ms=SPAN_MS.sum(),
            busy_ms=SPAN_MS.filter(busy).sum(),
            known_ms=pl.col("util_ms").sum(),
            mean_pct=(pl.col("gpu_util_mean_pct") * pl.col("util_ms")).sum() / pl.col("util_ms").sum(),
        )
        .with_columns(
            # beside GPUs that have worked for an hour: before that, the job may still be loading
            worked_ms=pl.col("busy_ms").max().over("work"),
            known=pl.col("known_ms") >= KNOWN_MIN * pl.col("span_ms"),
        )
        .with_columns(
            unused=pl.col("known")
            & (pl.col("mean_pct") < UNUSED_BELOW_PCT)
            & (pl.min_horizontal("span_ms", "worked_ms") >= MIN_MS),
            used=pl.col("known") & (pl.col("mean_pct") >= USED_FROM_PCT),
        )
        .sort("work", "host", "gpu")
    )


def _bound(context: Context, work: str, idle: Sequence[str], busy: Sequence[str]) -> bool:
    """Whether the idle GPUs cannot be freed without ending what works on the others."""
    if not work.startswith("claim:"):
        return True  # one job, or one program: its scheduler, launcher or collective operations end it as a whole
    processes = context.holders.on(idle)
    if not processes or any(gpu not in {process.gpu for process in processes} for gpu in idle):
        return True
    return bool(ties(context, idle)) or not set(busy).isdisjoint(context.holders.beyond(idle))


def _partial_use_command(
    context: Context, work: str, rows: pl.DataFrame, kept: pl.DataFrame, free: Sequence[str]
) -> str:
    """The directive for the next submission; for an allocation with processes of its own, what ends them."""
    kind, _, name = work.partition(":")
    hosts = kept.group_by("host", maintain_order=True).len()
    if kind == "slurm":
        return f"#SBATCH {_request(hosts)}"
    if kind == "pod":
        space, _, pod = name.partition("/")
        return f"kubectl get pod -n {quote(space)} {'-- ' if pod.startswith('-') else ''}{quote(pod)} -o yaml"
    if kind == "claim":
        host = rows["host"][0]
        return ending_command(context, host, free, joined(rows, "holder")) if free else look_command(host)
    if kind == "ray":
        return look_command(rows["host"][0])
    return f"export CUDA_VISIBLE_DEVICES={quote(','.join(kept['gpu']))}"


def _request(hosts: pl.DataFrame) -> str:
    counts = hosts["len"]
    if counts.n_unique() > 1:
        return f"--gpus={counts.sum()}"
    nodes = f"--nodes={hosts.height} " if hosts.height > 1 else ""
    return f"{nodes}--gres=gpu:{counts[0]}"


def _partial_use_notes(work: str, kept: pl.DataFrame, *, bound: bool) -> list[str]:
    wanted = kept.height
    notes: list[str] = (
        [tr("resubmit with {number} of nvidia.com/gpu", number=Number(wanted))] if work.startswith("pod:") else []
    )
    if work.startswith("ray:"):
        notes.append(tr("start it again with num_gpus={number}", number=wanted))
    if bound:
        notes.append(tr("taking the unused GPUs would end the work on the others: change the next submission instead"))
    return notes
