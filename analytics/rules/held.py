"""Processes occupy GPUs and run no kernel for an hour or more.

The evidence shows whether an ended job left the processes over, whether their parent is gone, whether they are a
notebook's, and for how long a server got no request. As rules of their own these signs were unreliable: on fleets
labelled by others, 0 of 90 and 23 of 182 such GPUs stayed unused.

Look-alikes that it leaves alone: pauses for evaluation and checkpoints, compilation, servers with rare requests (all
under an hour), display servers and monitors, GPUs without measured utilization.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from analytics.intervals import SPAN_MS
from analytics.states import UNOCCUPIED
from analytics.workloads import waste
from analytics.workloads.commands import ending_command, ties
from analytics.workloads.finding_parts import label, words_for
from analytics.workloads.held_evidence import ANSWERED_MIN, ENDED, GRACE_MS, REASONS, held_evidence
from analytics.workloads.ledger_rows import NEWEST_SOURCE, SEGMENT_MS, highest, idle_numbers
from analytics.workloads.model import Context, of_gpus
from analytics.workloads.processes import held_by_work
from analytics.workloads.row_sums import by_candidate, of_candidates, parts_of
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from analytics.workloads.window_end import on_host_ahead, still_going_each
from fallow.clock import MINUTE_MS


def held_findings(context: Context) -> Iterator[Candidate]:
    """Yield findings about held intervals of at least `findings.held_min`.

    One finding per host and user, or per GPU without a known user.
    """
    # an unknown user on one GPU need not be the unknown user on the next
    whom = pl.coalesce("user", "gpu")
    held = held_by_work(context, context.inside.segments.filter(pl.col("state") == "held")).with_columns(whom=whom)
    is_long = context.settings.held_min_ms <= SEGMENT_MS
    every = of_candidates(held, held.filter(is_long), ("host", "user", "whom"))
    rows = every.filter(is_long)
    now = still_going_each(context, rows)
    # a process list says nothing of a GPU that its processes have left since
    idle = _left(context).union(*now.values())
    about = by_candidate(rows).agg(NEWEST_SOURCE, pl.col("host", "user", "whom").first())
    sources = about["user_source"].to_list()
    figures, power_w = idle_numbers("held", every, rows, now, sources), _power_means(rows)
    names = about.select("host", "user", "whom").iter_rows()
    for number, (segments, (host, user, whose)) in enumerate(zip(parts_of(rows, len(sources)), names, strict=True)):
        current = now.get(number, ())
        listed = (gpu for gpu in context.users.beyond(current) if gpu not in idle)
        known = held_evidence(context, current)
        # what a job left behind is ended by process: no other task of the job is touched
        bound = ties(context, current, as_jobs=not known.job_has_ended)
        bound = replace(bound, gpus=tuple(sorted({*listed, *bound.gpus})))
        commands = {process.command for process in context.users.on(current) if process.command}
        yield Candidate(
            segments,
            subject=whose,
            user=user,
            source=sources[number],
            numbers={
                **figures[number],
                "power_mean_w": power_w.get(number),
                "gpu_util_max_pct": highest(segments, "gpu_util_max_pct"),
                "commands": "+".join(sorted(commands)) or None,
                **known.numbers,
            },
            failed=[known.failed, bound.failed],
            reclaimable_gpus=() if bound else current,
            # nothing to take back where the user has gone or works again
            next_command=ending_command(context, host, current, user, bound=bound, as_jobs=not known.job_has_ended)
            if current
            else "",
            notes=known.notes,
        )


HELD = Rule(
    name="held",
    category="reclaim",
    sentence=of_gpus("held idle, without a running kernel"),
    kinds=(waste.HELD_IDLE,),
    precedence=30,
    per_host=True,
    history=HistoryNeed(setting="held_min_ms"),
    thresholds={
        "findings.held_min": (
            "60 min, a setting (after 60 idle minutes 42 % of idle intervals last another hour, after 5 only 4.7 %: "
            "GenTD26 serving trace)"
        ),
        "left by a job": (
            "the source of the allocations says that the Slurm job or pod of all processes ended"
            f" {GRACE_MS // MINUTE_MS} min ago or earlier (its epilog's time; ours), and they were started before:"
            " operators end them"
        ),
        "no request": (
            f"the server's own metrics count requests and cover {ANSWERED_MIN:.0%} of that time (what was not asked is"
            " unknown)"
        ),
    },
    labels=(
        label("processes", "every process is {value}", words_for(REASONS)),
        label("quiet_h", "a server without a request for {value} h"),
    ),
    find=held_findings,
    has_lost_user=lambda finding: finding.evidence.numbers.get("processes") == ENDED,
)


def _left(context: Context) -> frozenset[str]:
    """Return the GPUs without a user at the end of the window."""
    rows = context.inside.segments
    last = rows.filter(pl.col("end") == pl.col("end").max().over("gpu"))
    return frozenset(last.filter(pl.col("state").is_in(UNOCCUPIED) & ~on_host_ahead(context))["gpu"])


def _power_means(rows: pl.DataFrame) -> dict[int, float]:
    """Return by CANDIDATE the mean power (W) over the time in which it is known; candidates without it are left out."""
    powered = by_candidate(rows.filter(pl.col("power_mean_w").is_not_null()))
    sums = powered.agg((SPAN_MS * pl.col("power_mean_w")).sum(), known_ms=SPAN_MS.sum())
    return {number: product / known_ms for number, product, known_ms in sums.iter_rows()}
