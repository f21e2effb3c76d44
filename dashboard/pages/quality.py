"""What was not seen, and what fallow made of it."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

from dash import html

from analytics.language.plain_text import plain
from analytics.language.quantities import Moment, Number, Share
from analytics.language.sentences import say, say_many
from analytics.ledger.summary import totals_by
from analytics.render.wording import placed
from dashboard.access.people import VIEWER
from dashboard.charts.coverage import coverage
from dashboard.charts.panel import panel
from dashboard.charts.tables import host_link, table

if TYPE_CHECKING:
    from analytics.ledger.summary import Totals
    from dashboard.palette import Palette
    from dashboard.source import Source
    from dashboard.view import View


class Quality:
    """`/quality`."""

    path = "/quality"
    name: str = say("Data quality")
    role = VIEWER
    listed = True

    def connect(self, app: Any, source: Source) -> None:
        """Nothing: what it shows comes with the page."""

    def content(self, view: View, colours: Palette) -> html.Div:
        """Remarks, silent hosts and coverage; for a team or a holder, why there is none of it."""
        if view.report.scope.is_personal:
            return html.Div(
                html.P(
                    view.say(say("The quality of the data is not shown for a single team: it names hosts and people of others.")),
                    className="headline",
                )
            )  # fmt: skip
        # days are many and pools few: in two columns of their own no card has to be as tall as its neighbour
        shares = html.Div([_days(view, colours), *_groups(view, colours)], className="balanced")
        return html.Div(
            [
                html.P(view.say(_headline(view)), className="headline"),
                html.Div([_remarks(view), _silent(view), shares], className="panels"),
            ]
        )


def _headline(view: View) -> str:
    seen = view.report.seen
    return say(
        "{share} of the GPU time of this window was observed, over {gpus} GPUs; the rest counts in no share.",
        share=Share(seen.share), gpus=Number(seen.gpus),
    )  # fmt: skip


def _remarks(view: View) -> html.Section:
    found = view.report.quality
    items = [html.Li(view.say(remark.sentence)) for remark in found]
    return panel(
        name="remarks",
        title=view.say(say("Remarks on the data")),
        question=view.say(say("What is wrong or thin in the data, and what was made of it?")),
        finding=view.say(say_many("{number} remark.", "{number} remarks.", len(found)))
        if found
        else view.say(say("Nothing to remark.")),
        body=[html.Ul(items)] if items else [],
        wide=True,
    )


def _silent(view: View) -> html.Section:
    """Hosts that were not seen to the end, or some of whose GPUs were not."""
    found = view.report.seen.silent
    heads = [say("host"), say("GPUs"), say("last seen"), say("what is silent")]
    rows = [
        [
            host_link(view, each.host),
            view.language.number(each.gpus),
            view.say(say("{moment}", moment=Moment(each.since_ms))),
            view.say(say("the whole host") if each.whole_host else say("some of its GPUs")),
        ]
        for each in found
    ]
    return panel(
        name="silent",
        title=view.say(say("Silent hosts")),
        question=view.say(say("Which hosts were not seen to the end of the window?")),
        finding=view.say(say_many("{number} host; the time after that is in no sum.", "{number} hosts; the time after that is in no sum.", len(found)))
        if found
        else view.say(say("All hosts were seen to the end of the window.")),
        body=[table([view.say(each) for each in heads], rows)] if found else [],
        wide=True,
    )  # fmt: skip


def _days(view: View, colours: Palette) -> html.Section:
    groups = {view.language.date(date.fromisoformat(day)): totals for day, totals in _section(view, "day").items()}
    question = say("On which days did nobody look? Observed share of the GPU time.")
    return coverage(
        view, colours, "day", title=view.say(say("Coverage by day")), question=view.say(question), groups=groups
    )


def _groups(view: View, colours: Palette) -> list[html.Section]:
    """Pools, models and hosts, the least observed first."""
    hosts = totals_by(view.part.inside.stretches, "host")
    named = {
        "pool": (say("Coverage by pool"), say("Which pools are seen less than others?"), _section(view, "pool")),
        "model": (say("Coverage by model"), say("Which models are seen less than others?"), _section(view, "model")),
        "host": (say("Coverage by host"), say("Which hosts are seen less than others?"), hosts),
    }
    found = []
    for name, (title, question, groups) in named.items():
        ordered = sorted(groups.items(), key=lambda each: (each[1].coverage or 0.0, each[0]))
        shown = {plain(placed(each, view.language)): totals for each, totals in ordered}
        links = {plain(host): host_link(view, host) for host in hosts} if name == "host" else None
        found.append(
            coverage(view, colours, name, title=view.say(title), question=view.say(question), groups=shown, links=links)
        )
    return found


def _section(view: View, name: str) -> dict[str, Totals]:
    return next(section.groups for section in view.report.sections if section.name == name)
