"""The words of fallow with their meanings: for pages on hover, reports beside figures, and docs/glossary.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analytics.language.sentences import tr


@dataclass(frozen=True)
class Term:
    """One word of the field and its meaning, one sentence without a full stop.

    `column` is its name in data where that differs; `short` is the meaning in a few words, for the narrow columns of a
    table. `label` is what people read where `name` is a value in data, such as a state.
    """

    name: str
    meaning: str
    column: str = ""
    short: str = ""
    label: str = ""

    @property
    def title(self) -> str:
        """The label, or else the name in the reader's language."""
        return self.label or tr(self.name)


STATES: Mapping[str, Term] = {
    each.name: each
    for each in (
        Term(
            "unknown",
            tr(
                "nothing was observed: the agent was down, no row came for longer than the allowed gap (default: 3"
                " intervals), or the values cannot be true together"
            ),
            short=tr("not observed"),
            label=tr("Not observed"),
        ),
        Term(
            "unavailable",
            tr("the GPU could not work: lost, not responding, waiting for a reset, or without a driver"),
            short=tr("lost, blocked or without a driver"),
            label=tr("Down"),
        ),
        Term(
            "free", tr("no process and no allocation"), short=tr("no process, no allocation"), label=tr("Unallocated")
        ),
        Term(
            "reserved",
            tr("allocated, but no process on it"),
            short=tr("allocated, no process"),
            label=tr("Allocated, unused"),
        ),
        Term(
            "held",
            tr("a process holds it but has run no kernel for the idle threshold or longer (default: 5 minutes)"),
            short=tr("a process holds it, no kernel ran"),
            label=tr("Held idle"),
        ),
        Term(
            "stalled",
            tr(
                "kernels are reported, and at least two witnesses agree that they do no work, for 7 minutes or longer"
                " by default: a hung job, a kernel without a process, a keep-alive"
            ),
            short=tr("kernels are reported, no work is done"),
            label=tr("Stalled"),
        ),
        Term(
            "low",
            tr("kernels ran, but mean utilization stayed below the low threshold (default: 10 %)"),
            short=tr("kernels ran, low utilization"),
            label=tr("Low use"),
        ),
        Term(
            "active",
            tr("kernels ran, and mean utilization reached the low threshold (default: 10 %)"),
            short=tr("working"),
            label=tr("Busy"),
        ),
    )
}
"""The ledger's states; the thresholds are `ledger.idle_after`, `ledger.stalled_after` and `ledger.low_below_pct`."""

CONFIDENCE: Mapping[str, Term] = {
    each.name: each
    for each in (
        Term("high", tr("no condition of confidence failed")),
        Term("medium", tr("one condition of confidence failed, or the GPUs stay unused with 80 to 95 % probability")),
        Term(
            "low",
            tr(
                "two or more conditions of confidence failed, or that probability is below 80 %: not listed by default,"
                " and in no headline"
            ),
        ),
    )
}
"""The grades of confidence of a finding; docs/recommendations.md lists the conditions."""

STATUSES: Mapping[str, Term] = {
    each.name: each
    for each in (
        Term("new", tr("last week's findings did not contain it")),
        Term("standing", tr("last week's findings contained it too")),
        Term("open", tr("no action is recorded; behind recommendations, new and standing findings are open")),
        Term("notified", tr("its user was notified")),
        Term("acknowledged", tr("a person has taken it on")),
        Term("snoozed", tr("hidden until a date, for a stated reason")),
        Term("closed", tr("last week's findings contained it, this week's do not")),
        Term("unseen", tr("last week's findings contained it, but its GPUs were not observed to the end of this week")),
        Term("reversed", tr("the GPUs were used again within a week, so the finding was wrong")),
    )
}
"""How a finding stands over time."""

TERMS: tuple[Term, ...] = (
    Term("agent", tr("the daemon on each GPU host that samples the GPUs and publishes rows to the lake")),
    Term(
        "allocated time",
        tr("GPU time in which a user had the GPU: allocated and unused, held idle, stalled, low use or busy"),
    ),
    Term("allocation", tr("GPUs that a scheduler or a table gives to a user, a job or a team for a time")),
    Term("back-test", tr("an estimate made from older data, compared with what happened afterwards")),
    Term("block", tr("GPUs on one host that are free at the same time, in groups of 1, 2, 4 or 8")),
    Term("confidence", tr("how sure a finding is: high, medium or low, by the number of conditions that failed")),
    Term("confirmed", tr("watched without a gap, or supported by the energy counter")),
    Term("coverage", tr("the share of the GPU time that was observed")),
    Term(
        "demand",
        tr(
            "GPUs that work, GPUs that are held idle, stalled or allocated and unused unless a finding says that they"
            " may go, and GPUs that queued jobs could have used"
        ),
    ),
    Term("effective time", tr("busy time, and low use by its activity: SM activity where measured, else utilization")),
    Term("efficiency", tr("the effective share of the allocated time")),
    Term("ending", tr("GPUs that come free on a day, because a job or a project ends or work has faded")),
    Term(
        "finding",
        tr("the evidence for a recommendation: one waste of GPU time, its GPUs, figures, confidence and next command"),
    ),
    Term(
        "fragmentation",
        tr("the share of unallocated GPUs that the jobs of a pool cannot use, because they are scattered over hosts"),
    ),
    Term("goodput", tr("the share of GPU time that led to jobs that completed")),
    Term("GPU-hour", tr("one GPU for one hour; a MIG instance counts by its share of the GPU")),
    Term("idle interval", tr("a time without a kernel on one GPU, with or without a user"), "idle_interval"),
    Term("job", tr("work that a scheduler runs")),
    Term("lake", tr("the Parquet files that agents write and analytics read, in a folder or an object store")),
    Term("lead time", tr("the days from an order to the first use of what was ordered")),
    Term("ledger", tr("every GPU-second in exactly one state; the states add up to the capacity and to what was paid")),
    Term(
        "nudge",
        tr("a message to one person with their recommendations, or to operators with those that only they can act on"),
    ),
    Term("off-peak hours", tr("hours of the week in which GPUs of a pool are not needed in nine weeks of ten")),
    Term("organisation", tr("the level above teams in the owners table")),
    Term("owner", tr("the team, project or organisation that pays for GPU time")),
    Term("packing", tr("workloads that together fill some cards of a pool, so that others come free as a whole")),
    Term(
        "peak demand",
        tr(
            "the demand that 95 % of the hours of four weeks, or of the last week if that is more, stay within; 99 % in"
            " pools with `prod` in their name"
        ),
    ),
    Term("pool", tr("GPUs of one kind that a site manages together")),
    Term("queue wait", tr("the time from when a job could have begun until it was allocated GPUs")),
    Term("reclaim", tr("take back GPUs that a user holds or has allocated without use")),
    Term(
        "reclaimable",
        tr("GPUs, held idle, stalled or allocated and unused, that findings of at least medium confidence say may go"),
    ),
    Term(
        "recommendation",
        tr("one action on named GPUs, with its value, its owner and a deadline; no wasted time is in two of them"),
    ),
    Term(
        "releasable",
        tr(
            "unallocated and reclaimable GPUs of a pool beyond its peak demand, its reserve and the whole hosts that"
            " jobs need"
        ),
    ),
    Term("release", tr("give up GPUs that a pool does not need")),
    Term("reserve", tr("GPUs kept beyond the peak demand of a pool")),
    Term("reversal rate", tr("the share of last week's reclaimable findings whose GPUs were used again within a week")),
    Term("rule", tr("one check over the ledger that produces one kind of finding")),
    Term("sampled", tr("seen at moments only: the time between two samples is not known")),
    Term("segment", tr("the time of one GPU in one state under one user")),
    Term(
        "share of peak",
        tr(
            "how close busy time came to what the card can do: at least the largest measured share of its tensor cores,"
            " FP64, FP32 or FP16 units and memory bandwidth, at most its SM activity"
        ),
    ),
    Term(
        "shortage", tr("the part of queue waits that no idle GPU of the site would have ended: only more GPUs cure it")
    ),
    Term(
        "shortfall",
        tr(
            "the hours in which demand exceeded an earlier estimate while the pool had more GPUs, and by how many GPUs"
            " at most"
        ),
    ),
    Term("SM activity", tr("the share of time in which the multiprocessors had work, averaged over them")),
    Term("snooze", tr("hide a recommendation until a date, for a stated reason")),
    Term("spool", tr("rows on the agent's local disk until the lake has confirmed them")),
    Term("timeline", tr("the states of GPUs over time, a coloured row for each")),
    Term("used time", tr("GPU time in the states Low use and Busy")),
    Term("user", tr("the person or account that owns the processes on a GPU, else the one to which it is allocated")),
    Term("utilization", tr("the share of time in which at least one kernel ran on the GPU")),
    Term(
        "waste",
        tr(
            "time in which a GPU is down, unallocated, allocated and unused, held idle or stalled, and the unused part"
            " of low use"
        ),
    ),
    Term("waterfall", tr("from the paid GPU time, state by state, down to the busy time")),
    Term("window", tr("the time that a command, report or page is about")),
    Term("workload", tr("all runs of one job, or the processes of one user on one GPU")),
)
"""The other words, in alphabetical order."""


def state_label(state: str) -> str:
    """Return what people read for a state of the ledger: `Held idle` for `held`."""
    return STATES[state].title


def term(name: str) -> Term:
    """The state, grade, status or other term of that name; KeyError for any other word."""
    for terms in (STATES, CONFIDENCE, STATUSES, {each.name: each for each in TERMS}):
        if name in terms:
            return terms[name]
    raise KeyError(name)


def meaning(name: str) -> str:
    """Its meaning; KeyError for any other word."""
    return term(name).meaning
