"""One holder's jobs: what they were given and what became of it."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.capacity.user_jobs import JobUse, jobs
from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, GpuHours, Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.ledger.summary import ratio
from analytics.names import JOINER
from analytics.report.report import Report
from analytics.scope import Scope
from analytics.states import IN_USE
from analytics.tables.findings import findings_about
from analytics.tables.palette import GIVEN
from analytics.tables.table import Cell, LinkedCell, StateBar, Table, column

_SHOWN = 100


def jobs_of_user(report: Report, holder: str) -> Table:
    """The most GPU time first."""
    own = report.whole.narrowed(report.part.inside, Scope(holder=holder)).stretches
    found = jobs(own, report.money.costs)
    rest = found[_SHOWN:]
    longest_ms = max((each.allocated_ms for each in found), default=0.0)
    currency = report.money.currency

    def bar(job: JobUse) -> StateBar:
        return StateBar({state: job.state_ms[state] / longest_ms for state in GIVEN} if longest_ms else {})

    return Table(
        name="jobs",
        title=tr("Jobs"),
        question=tr("What were the GPUs given for, and which jobs left them idle? First and last seen in this window."),
        headline=_headline(found),
        columns=(
            column("job", tr("job"), "name", _name, "name"),
            column("bar", tr("used, held, reserved"), "bar", bar, audience="people"),
            column("gpus", tr("GPUs"), "count", _gpus, lambda job: len(job.gpus)),
            column("allocated_gpu_hours", tr("GPU-hours given"), "gpu_hours", "allocated_ms"),
            column("used_gpu_hours", tr("used"), "gpu_hours", lambda job: sum(job.state_ms[state] for state in IN_USE)),
            column("held_gpu_hours", tr("held"), "gpu_hours", lambda job: job.state_ms["held"]),
            column("reserved_gpu_hours", tr("reserved"), "gpu_hours", lambda job: job.state_ms["reserved"]),
            column("first_seen", tr("first seen"), "moment", "first_ms"),
            column("last_seen", tr("last seen"), "moment", "last_ms"),
            column("cost", tr("cost"), "money", lambda job: Amount(job.cost, currency)),
        ),
        rows=found[:_SHOWN],
        notes=(
            tr(
                "and {number} more with {hours} GPU-hours",
                number=len(rest),
                hours=GpuHours(sum(each.allocated_ms for each in rest)),
            ),
        )
        if rest
        else (),
        states=GIVEN,
        wide=True,
    )


def _headline(found: Sequence[JobUse]) -> str:
    idle = max(found, key=_unused_ms)
    if not _unused_ms(idle):
        return tr_many(
            "{number} job, and it used all that it was given.",
            "{number} jobs, and they used all that they were given.",
            len(found),
        )
    return tr(
        "{share} of what {name} was given, {hours} GPU-hours, was held or reserved without use: the most of all jobs.",
        share=Share(ratio(_unused_ms(idle), idle.allocated_ms)),
        hours=GpuHours(_unused_ms(idle)),
        name=_name(idle),
    )


def _unused_ms(job: JobUse) -> float:
    return job.state_ms["held"] + job.state_ms["reserved"]


def _name(job: JobUse) -> str:
    """The job's own name, else what stands for it."""
    if job.name is not None:
        return plain(job.name)
    return tr("a GPU that others hold as well") if job.shared else tr("no job")


def _gpus(job: JobUse) -> Cell:
    gpus = Number(len(job.gpus))
    return LinkedCell(gpus, "gpu", job.gpus[0]) if len(job.gpus) == 1 else gpus


def findings_about_user(report: Report, holder: str) -> Table:
    found = [each for each in report.review.shown if holder in (each.holder or "").split(JOINER)]
    return findings_about(
        found,
        name="about",
        title=tr("Findings about this user"),
        question=tr("What can be done about it?"),
    )
