"""One user's jobs: allocated GPU time and its use."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.capacity.user_jobs import JobUse, jobs
from analytics.glossary import state_label
from analytics.language.sentences import Amount, GpuHours, Number, Share, plain, tr, tr_many
from analytics.ledger.summary import ratio
from analytics.names import JOINER
from analytics.report.report import Report
from analytics.scope import Scope
from analytics.states import ALLOCATED_USED_FIRST, IDLE_ALLOCATED, IN_USE
from analytics.tables.findings import findings_about
from analytics.tables.names import more_with_hours
from analytics.tables.table import Cell, LinkedCell, StateBar, Table, column

_SHOWN = 100


def jobs_of_user(report: Report, user: str) -> Table:
    """Return a row per job, the most GPU time first."""
    own = report.whole.narrowed(report.part.inside, Scope(user=user)).segments
    found = jobs(own, report.money.costs)
    rest = found[_SHOWN:]
    longest_ms = max((each.allocated_ms for each in found), default=0.0)
    currency = report.money.currency

    def bar(job: JobUse) -> StateBar:
        return StateBar(
            {state: job.state_ms[state] / longest_ms for state in ALLOCATED_USED_FIRST} if longest_ms else {}
        )

    return Table(
        name="jobs",
        title=tr("Jobs"),
        question=tr(
            "Which jobs had the GPUs, and which jobs left them idle? First and last observation in this window."
        ),
        headline=_headline(found),
        columns=(
            column("job", tr("job"), "name", _name, "name"),
            column("bar", tr("used, stalled, held idle, allocated but unused"), "bar", bar, audience="people"),
            column("gpus", tr("GPUs"), "count", _gpus, lambda job: len(job.gpus)),
            column("allocated_gpu_hours", tr("GPU-hours allocated"), "gpu_hours", "allocated_ms"),
            column("used_gpu_hours", tr("used"), "gpu_hours", lambda job: sum(job.state_ms[state] for state in IN_USE)),
            *(
                column(f"{state}_gpu_hours", state_label(state), "gpu_hours", f"state_ms.{state}")
                for state in IDLE_ALLOCATED[::-1]
            ),
            column("first_seen", tr("first observed"), "moment", "first_ms"),
            column("last_seen", tr("last observed"), "moment", "last_ms"),
            column("cost", tr("cost"), "money", lambda job: Amount(job.cost, currency)),
        ),
        rows=found[:_SHOWN],
        notes=(more_with_hours([each.allocated_ms for each in rest]),) if rest else (),
        states=ALLOCATED_USED_FIRST,
        wide=True,
    )


def _headline(found: Sequence[JobUse]) -> str:
    idle = max(found, key=_unused_ms)
    if not _unused_ms(idle):
        return tr_many("{number} {job|jobs} used all of {its|their} allocated time.", len(found))
    return tr(
        "{name} left the most allocated time unused: {hours} GPU-hours, {share} of its time.",
        share=Share(ratio(_unused_ms(idle), idle.allocated_ms)),
        hours=GpuHours(_unused_ms(idle)),
        name=_name(idle),
    )


def _unused_ms(job: JobUse) -> float:
    return sum(job.state_ms[state] for state in IDLE_ALLOCATED)


def _name(job: JobUse) -> str:
    if job.name is not None:
        return plain(job.name)
    return tr("a GPU shared with other users") if job.shared else tr("no job")


def _gpus(job: JobUse) -> Cell:
    gpus = Number(len(job.gpus))
    return LinkedCell(gpus, "gpu", job.gpus[0]) if len(job.gpus) == 1 else gpus


def findings_about_user(report: Report, user: str) -> Table:
    return findings_about(
        report.review,
        lambda each: user in (each.user or "").split(JOINER),
        name="about",
        title=tr("Findings about this user"),
        question=tr("What can this user release or improve?"),
    )
