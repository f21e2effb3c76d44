"""Causes of queue waits: name, meaning, and the scheduler's reasons that lead to each cause."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from analytics.language.sentences import tr


@dataclass(frozen=True)
class WaitCause:
    """A cause of a queue wait.

    Attributes:
        name: the name in data.
        title: the name for readers.
        means: the situation while the job waited.
        reasons: a regular expression for the scheduler's reasons that lead to this cause; empty for none.
    """

    name: str
    title: str
    means: str
    reasons: str = ""


CAUSES = (
    WaitCause(
        "never",
        tr("can never start"),
        tr("the job asks for more than a limit allows, or the scheduler is not allowed to run it"),
        r"(Assoc|QOS)Max\w*Per(Job|Node)|QOSMin|Max\w*PerJob|MaxMemPerLimit|AssociationTimeLimit|QOSTimeLimit"
        r"|Partition(TimeLimit|NodeLimit|Config)|AccountNotAllowed|QOSNotAllowed|Invalid(Account|QOS)|BadConstraints"
        r"|ReservationDeleted|\w+, which allows \d+ of its",
    ),
    WaitCause("account_limit", tr("account limit"),
            tr("the account, or the user in this account, already had all that the limit allows"),
            r"Assoc|MaxJobs|Max\w*PerAccount"),
    WaitCause("qos_limit", tr("QOS limit"), tr("the quality of service already had all that the limit allows"), r"QOS"),
    WaitCause("partition", tr("partition closed"), tr("the partition was down or started no jobs"), r"Partition"),
    WaitCause("licence", tr("no licence"), tr("a licence that the job needs was in use"), r"Licenses"),
    WaitCause("hold", tr("held on purpose"),
            tr("a hold by the user or an operator, or the job's own limit of simultaneous tasks"),
            r"JobHeld|JobHoldMaxRequeue|JobArrayTaskLimit|BeginTime|Dependency|DeadLine|launch failed"),
    WaitCause("order", tr("queue order or a hold"),
            tr("enough GPUs were free on hosts of the partition, for the job's whole time limit")),
    WaitCause("head_of_line", tr("blocked by the job ahead"),
            tr("enough GPUs were free on hosts of the partition, but this scheduler starts jobs strictly in order")),
    WaitCause("limits", tr("time limit too long"),
            tr("enough GPUs were free for the job's real run time, but not for its time limit")),
    WaitCause("block", tr("free outside the partition"),
            tr("enough GPUs were free in the pool, on hosts that the partition never used")),
    WaitCause("pool", tr("free in another pool"),
            tr("enough GPUs were free in another pool, on cards with at least as much memory")),
    WaitCause("reservation", tr("kept by a reservation"),
            tr("enough GPUs, with free GPUs that a reservation keeps for others"),
            r"Reservation|ReqNodeNotAvail.*[Rr]eserved"),
    WaitCause("drained", tr("hosts drained or down"),
            tr("enough GPUs, with free GPUs on hosts where the scheduler starts no jobs"),
            r"ReqNodeNotAvail|NodeDown|Nodes required|Required node|FrontEndDown"),
    WaitCause("unused", tr("idle while allocated"),
            tr("enough GPUs, with GPUs that were held idle, stalled or allocated but unused")),
    WaitCause("scattered", tr("scattered"), tr("enough GPUs were free, but not together on hosts")),
    WaitCause("unknown", tr("not known"),
            tr("enough GPUs, with GPUs that were not observed, or the job's pool is unknown")),
    WaitCause("shortage", tr("shortage"), tr("none of the above: the job could have started only with more GPUs")),
)  # fmt: skip
"""The causes in their precedence. Slurm's words are those of squeue and scontrol (squeue(1), JOB REASON CODES).

A hold that the scheduler itself reports comes first. Every other moment of a wait gets the first cause whose remedy
would have ended the wait.
"""

BY_NAME = {cause.name: cause for cause in CAUSES}
SHORTAGE, UNKNOWN = "shortage", "unknown"
KEPT_BACK = tuple(cause.name for cause in CAUSES if cause.reasons)
"""Causes that are due neither to a lack of GPUs nor to queue order: limits, holds, and GPUs closed to the scheduler."""

NOT_YET = ("Dependency", "DependencyNeverSatisfied", "BeginTime", "JobHeldUser")
"""Reasons of jobs that, by their user's wish, do not ask for GPUs yet, where their earliest start is unknown."""


def cause_of(reason: pl.Expr) -> pl.Expr:
    """Return the cause for a scheduler's reason; null if the reason is the queue itself (Priority, Resources)."""
    chosen: pl.Expr = pl.lit(None, pl.String)
    for cause in reversed(CAUSES):
        if cause.reasons:
            chosen = pl.when(reason.str.contains(f"^(?:{cause.reasons})")).then(pl.lit(cause.name)).otherwise(chosen)
    return chosen
