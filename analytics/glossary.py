"""The words of fallow, each with its meaning: what pages show on hover, reports print beside a figure, and docs/glossary.md lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from analytics.language.sentences import say

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Term:
    """One word of the field and its meaning, one sentence without a full stop; `column` is its name in data where that differs."""

    name: str
    meaning: str
    column: str = ""


STATES: Mapping[str, Term] = {
    each.name: each
    for each in (
        Term("unknown", say("nothing was observed: the agent was down, or no row came for more than 3 intervals")),
        Term(
            "unavailable", say("the GPU could not work: lost, not responding, waiting for a reset, or without a driver")
        ),
        Term("free", say("no process and no allocation")),
        Term("reserved", say("allocated, but no process on it")),
        Term("held", say("a process holds it but has run no kernel for at least 5 minutes")),
        Term("low", say("kernels ran, but mean utilization stayed below 10 %")),
        Term("active", say("kernels ran, and mean utilization was 10 % or more")),
    )
}
"""The ledger's states; thresholds are the defaults of `ledger.idle_after` and `ledger.low_below_pct`."""

CONFIDENCE: Mapping[str, Term] = {
    each.name: each
    for each in (
        Term("high", say("no condition of confidence failed")),
        Term("medium", say("one condition of confidence failed")),
        Term("low", say("two or more conditions of confidence failed")),
    )
}
"""The grades of confidence of a finding; docs/findings.md lists the conditions."""

STATUSES: Mapping[str, Term] = {
    each.name: each
    for each in (
        Term("new", say("last week's findings did not contain it")),
        Term("standing", say("last week's findings contained it too")),
        Term("notified", say("its user was notified")),
        Term("acknowledged", say("somebody has taken it on")),
        Term("suppressed", say("hidden until a date, for a stated reason")),
        Term("closed", say("last week's findings contained it, this week's do not")),
        Term(
            "unseen", say("last week's findings contained it, but its GPUs were not observed to the end of this week")
        ),
        Term("reversed", say("the GPUs were used again within a week, so the finding was wrong")),
    )
}
"""How a finding stands over time."""

TERMS: tuple[Term, ...] = (
    Term("active time", say("GPU time in the state active")),
    Term("agent", say("the daemon on each GPU host that samples the GPUs and publishes rows to the lake")),
    Term("allocated time", say("GPU time in which somebody had the GPU: reserved, held, low or active")),
    Term("allocation", say("GPUs given to somebody for a time, by a scheduler or a table"), "claim"),
    Term("back-test", say("an estimate made from older data, compared with what happened afterwards")),
    Term("block", say("GPUs on one host that are free at the same time, in groups of 1, 2, 4 or 8")),
    Term("cache", say("derived data kept so that it need not be computed again; safe to delete")),
    Term("confidence", say("how sure a finding is: high, medium or low, by the number of conditions that failed")),
    Term("coverage", say("the share of the GPU time that was observed")),
    Term("demand", say("GPUs that are allocated or in use at the same moment")),
    Term("demand duration curve", say("for each number of GPUs, the hours in which at least that many were needed")),
    Term("efficiency", say("the used share of the allocated time")),
    Term("evidence", say("the figures behind a finding and the time that they cover")),
    Term("finding", say("one waste of GPU time that somebody can act on, with evidence, confidence and the next command")),
    Term("gang", say("GPUs that one job needs at the same time, often on one host")),
    Term("gap-free utilization", say("utilization over the whole interval, not at single moments")),
    Term("GPU-hour", say("one GPU for one hour; a MIG instance counts by its share of the GPU")),
    Term("host", say("a machine with GPUs")),
    Term("idle interval", say("a time without a kernel on one GPU, whoever holds it"), "spell"),
    Term("interval", say("a time with a start and an end; the end does not belong to it")),
    Term("lake", say("the Parquet files that agents write and analytics read, in a folder or an object store")),
    Term("ledger", say("every GPU-second in exactly one state; the states add up to the capacity and to what was paid")),
    Term("low efficiency", say("much allocated time, little of it used")),
    Term("message", say("one edition of the report, as it is sent to people or chats")),
    Term("off-peak hours", say("hours of the week in which GPUs of a pool are not needed in nine weeks of ten")),
    Term("organisation", say("the level above teams in the owners table")),
    Term("owner", say("the team, project or organisation that pays for GPU time")),
    Term("point sample", say("a value read at one moment; it says nothing about the time before and after")),
    Term("pool", say("GPUs of one kind that a site manages together")),
    Term("quarantine", say("GPUs or workers that the agent leaves alone for a while because driver calls block or crash")),
    Term("reclaimable", say("GPUs that can be taken back at the end of the window without ending work")),
    Term("reserve", say("GPUs kept free for peaks of demand")),
    Term("reversal rate", say("the share of last week's reclaimable findings whose GPUs were used again within a week")),
    Term("rule", say("one check over the ledger that produces one kind of finding")),
    Term("section", say("one table or chart of the report and the pages, with its question and its headline")),
    Term("segment", say("the time of one GPU in one state under one user"), "stretch"),
    Term("SM activity", say("the share of time in which the multiprocessors had work, averaged over them")),
    Term("spool", say("rows on the agent's local disk until the lake has confirmed them")),
    Term("surplus", say("GPUs of a pool beyond the most that were needed at once, with the reserve kept")),
    Term("used time", say("GPU time in the states low and active")),
    Term("user", say("whoever the processes on a GPU belong to, or whoever it is allocated to"), "holder"),
    Term("utilization", say("the share of time in which at least one kernel ran on the GPU")),
    Term("waterfall", say("from the paid GPU time, state by state, down to the active time")),
    Term("window", say("the time that a command, report or page is about")),
    Term("workload", say("all runs of one job, or the processes of one user on one GPU")),
)  # fmt: skip
"""The other words, in alphabetical order."""


def term(name: str) -> Term:
    """The state, grade, status or other term of that name; KeyError for any other word."""
    for terms in (STATES, CONFIDENCE, STATUSES, {each.name: each for each in TERMS}):
        if name in terms:
            return terms[name]
    raise KeyError(name)


def meaning(name: str) -> str:
    """Its meaning; KeyError for any other word."""
    return term(name).meaning
