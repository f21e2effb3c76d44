"""One holder: what they were given and what became of it, job by job, and the findings about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import dcc, html

from analytics.capacity.jobs import jobs
from analytics.capacity.quotas import against_quota
from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Number, Share
from analytics.language.sentences import say, say_many
from analytics.ledger.summary import ratio
from analytics.names import JOINER
from analytics.scope import Scope
from analytics.states import ALLOCATED_USED_FIRST
from dashboard.charts.bars import NAME_MOST, bar, finding_link, name_link, table, used_ms
from dashboard.charts.holders import paid
from dashboard.charts.panel import panel
from dashboard.charts.written import legend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.capacity.jobs import Job
    from analytics.report.figures import Person
    from analytics.workloads.model import Finding
    from dashboard.palette import Palette
    from dashboard.view import View

_MOST, _FINDINGS = 100, 8


def one_holder(view: View, colours: Palette, name: str) -> list[Any]:
    """The panels about one holder, as far as the view's scope has them."""
    person = next((each for each in view.report.holders if each.name == name), None)
    if person is None:
        said = say(
            "{name} was given nothing in this window, or nothing that you can see here.", name=plain(name, NAME_MOST)
        )
        return [html.P(view.say(said), className="headline")]
    own = view.whole.narrowed(view.part.inside, Scope(holder=name)).stretches
    everybody = view.whole.narrowed(view.whole.ledger.inside, view.report.scope.of_gpus).stretches
    found = jobs(own, everybody, view.whole.money.costs)
    return [_facts(view, person, own), _jobs(view, colours, found), _findings(view, name)]


def _facts(view: View, person: Person, own: Any) -> html.Dl:
    speaks = view.language
    account = next(each for each in view.report.money.accounts.by("holder") if each.label == person.label)
    quota = view.whole.money.owners.owner("user", person.label)
    shown = {
        say("holder"): html.Bdi(plain(person.label, NAME_MOST)),
        **({say("team"): name_link(person.team, "/holders", view.query.on_every_page.but(team=person.team))} if person.team else {}),
        say("GPU-hours given"): speaks.hours(account.allocated_ms),
        say("used"): speaks.hours(used_ms(account.state_ms)),
        say("held"): speaks.hours(account.state_ms["held"]),
        say("reserved"): speaks.hours(account.state_ms["reserved"]),
        say("efficiency"): _efficiency(view, person),
        say("cost"): paid(view, person.cents),
    }  # fmt: skip
    if quota is not None and quota.quota_gpus is not None and view.report.scope.of_gpus.is_all:
        summary = view.report.summary
        use = against_quota(own, quota.quota_gpus, summary.since_ms, summary.until_ms)
        said = say("{quota} GPUs at once; most {most}", quota=Number(use.quota_gpus), most=Number(use.most, 1))
        shown[say("quota")] = view.say(said)
    return html.Dl(
        [html.Div([html.Dt(view.say(label)), html.Dd(fact)]) for label, fact in shown.items()], className="facts"
    )


def _efficiency(view: View, person: Person) -> str:
    if person.rank_efficiency is None:
        return view.language.percent(person.efficiency)
    return view.say(
        say(
            "{share}, rank {rank} of {ranked}",
            share=Share(person.efficiency),
            rank=Number(person.rank_efficiency),
            ranked=Number(person.ranked),
        )
    )


def _jobs(view: View, colours: Palette, found: Sequence[Job]) -> html.Section:
    header = (
        "job",
        "used, held, reserved",
        "GPUs",
        "GPU-hours given",
        "used",
        "held",
        "reserved",
        "first seen",
        "last seen",
        "cost",
    )
    most_ms = max((each.allocated_ms for each in found), default=0.0)
    rows = [_row(view, colours, each, most_ms) for each in found[:_MOST]]
    rest = found[_MOST:]
    said = say(
        "and {number} more with {hours} GPU-hours",
        number=Number(len(rest)),
        hours=GpuHours(sum(each.allocated_ms for each in rest)),
    )
    return panel(
        name="jobs",
        title=view.say(say("Jobs")),
        question=view.say(
            say("What were the GPUs given for, and which jobs let them wait? First and last seen in this window.")
        ),
        finding=view.say(_finding(found)),
        body=[
            legend(view, colours, ALLOCATED_USED_FIRST),
            table([view.say(say(each)) for each in header], rows, "jobs-title", words=(0, 1)),
            *([html.P(view.say(said), className="note")] if rest else []),
        ],
        wide=True,
    )


def _finding(found: Sequence[Job]) -> str:
    idle = max(found, key=lambda each: each.state_ms["held"] + each.state_ms["reserved"])
    lost_ms = idle.state_ms["held"] + idle.state_ms["reserved"]
    if not lost_ms:
        return say_many(
            "{number} job, and it used all that it was given.",
            "{number} jobs, and they used all that they were given.",
            len(found),
        )
    return say(
        "{share} of what {name} was given, {hours} GPU-hours, was held or reserved without use: the most of all jobs.",
        share=Share(ratio(lost_ms, idle.allocated_ms)),
        hours=GpuHours(lost_ms),
        name=_name(idle),
    )


def _name(job: Job) -> str:
    """The job's own name, else what stands for it."""
    if job.name is not None:
        return plain(job.name, NAME_MOST)
    return say("a GPU that others hold as well") if job.shared else say("no job")


def _row(view: View, colours: Palette, job: Job, most_ms: float) -> tuple[Any, ...]:
    speaks = view.language
    return (
        html.Bdi(view.say(_name(job)) if job.name is None else plain(job.name, NAME_MOST)),
        bar(job.state_ms, most_ms, colours),
        _gpus(view, job),
        speaks.hours(job.allocated_ms),
        speaks.hours(used_ms(job.state_ms)),
        speaks.hours(job.state_ms["held"]),
        speaks.hours(job.state_ms["reserved"]),
        speaks.moment(job.first_ms),
        speaks.moment(job.last_ms),
        speaks.money(job.cost, view.report.money.currency),
    )


def _gpus(view: View, job: Job) -> Any:
    """How many; a link to the GPU where it is one."""
    written = view.language.number(len(job.gpus))
    if len(job.gpus) > 1:
        return written
    return dcc.Link(written, href="/gpu" + view.query.on_every_page.but(gpu=job.gpus[0]).search, title=job.gpus[0])


def _findings(view: View, name: str) -> html.Section:
    found = [each for each in view.report.findings if name in (each.holder or "").split(JOINER)]
    link = dcc.Link(view.say(say("All findings")), href="/findings" + view.query.on_every_page.but(holder=name).search)
    return panel(
        name="about",
        title=view.say(say("Findings about this holder")),
        question=view.say(say("What can be done about it?")),
        finding=view.say(say_many("{number} finding in this window.", "{number} findings in this window.", len(found))),
        body=[html.Ul([html.Li(finding_link(view, each, _sentence(view, each))) for each in found[:_FINDINGS]]), link],
        wide=True,
    )


def _sentence(view: View, finding: Finding) -> str:
    return view.say(
        say_many(
            "{number} GPU {sentence}: {hours} GPU-hours, confidence {grade}",
            "{number} GPUs {sentence}: {hours} GPU-hours, confidence {grade}",
            len(finding.gpus),
            sentence=finding.sentence,
            hours=GpuHours(finding.gpu_ms),
            grade=say(finding.confidence.grade),
        )
    )
