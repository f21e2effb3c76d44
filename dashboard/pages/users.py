"""Users and teams: the GPUs that were allocated to them, and how they used them."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from analytics.capacity.user_jobs import against_quota
from analytics.glossary import state_label
from analytics.language.sentences import GpuHours, Number, Share, from_cents, plain, tr
from analytics.report.figures import UserFigures
from analytics.scope import Scope
from analytics.states import IDLE_ALLOCATED
from analytics.tables.card_use import card_use_facts
from analytics.tables.jobs import findings_about_user, jobs_of_user
from analytics.tables.names import card_name
from analytics.tables.palette import Palette
from analytics.tables.people import efficiency, efficiency_on_model, teams, users
from analytics.tables.quotas import quotas
from dashboard.pages.page import Page, PlacedSection, TablesPage
from dashboard.render.panel import section_panel
from dashboard.render.tables import address, facts_list
from dashboard.view import View

_FIRST = 10


_EVERYBODY = TablesPage(
    (
        PlacedSection(lambda view: teams(view.report.people) if view.report.scope.team is None else None),
        PlacedSection(lambda view: quotas(view.report)),
        PlacedSection(lambda view: users(view.report.people), first=_FIRST),
    ),
    export="users",
)


def _content(view: View, colours: Palette) -> html.Div:
    if view.query.user:
        back = dcc.Link(tr("All users"), href="/users" + view.query.on_every_page.search)
        own = _one_user(view, colours, view.query.user)
        return html.Div([html.P(back, className="back"), html.Div(own, className="panels")])
    return html.Div([_EVERYBODY(view, colours), *_no_quotas(view)])


def _no_quotas(view: View) -> list[html.P]:
    """Return why existing quotas are not shown; empty if they are shown or no team has one."""
    teams = view.whole.money.owners.teams().values()
    if view.report.scope.of_gpus.is_all or all(each.quota_gpus is None for each in teams):
        return []
    note = tr("Quotas are for all GPUs: they are shown for all pools and models together.")
    return [html.P(note, className="note")]


def _one_user(view: View, colours: Palette, name: str) -> list[Any]:
    """Return the panels about one user, limited to the view's scope."""
    person = next((each for each in view.report.people.users if each.name == name), None)
    if person is None:
        sentence = tr("No GPU that you can see here was allocated to {name} in this window.", name=plain(name))
        return [html.P(sentence, className="headline")]
    link = dcc.Link(tr("All findings"), href="/findings" + view.query.on_every_page.but(user=name).search)
    return [
        _facts(view, person),
        section_panel(view, colours, jobs_of_user(view.report, name)),
        section_panel(view, colours, findings_about_user(view.report, name), after=[link]),
    ]


def _facts(view: View, person: UserFigures) -> html.Dl:
    speaks = view.language
    team = person.team
    shown: dict[str, Any] = {
        tr("user"): html.Bdi(plain(person.label)),
        **({tr("team"): dcc.Link(html.Bdi(plain(team)), href=address(view, "team", team))} if team else {}),
        tr("GPU-hours allocated"): speaks.hours(person.allocated_ms),
        tr("effective"): speaks.hours(person.effective_ms),
        tr("low, unused"): speaks.hours(person.low_unused_ms),
        **{state_label(state): speaks.hours(person.state_ms[state]) for state in IDLE_ALLOCATED[::-1]},
        tr("efficiency"): _efficiency(view, person),
        **{label: speaks.shown(value) for label, value in card_use_facts(person.card_use)},
        tr("cost"): speaks.money(from_cents(person.paid_cents), view.report.money.currency),
    }
    quota = view.whole.money.owners.owner("user", person.label)
    if quota is not None and quota.quota_gpus is not None and view.report.scope.of_gpus.is_all:
        own = view.whole.narrowed(view.part.inside, Scope(user=person.label)).segments
        use = against_quota(
            own, quota.quota_gpus, view.report.ledger.summary.since_ms, view.report.ledger.summary.until_ms
        )
        sentence = tr("{quota} GPUs at once; peak {most}", quota=Number(use.quota_gpus), most=Number(use.most, 1))
        shown[tr("quota")] = sentence
    return facts_list(shown.items())


def _efficiency(view: View, person: UserFigures) -> str:
    share, rank = efficiency(person) or Share(None), person.efficiency_rank
    if rank is None:
        return view.language.shown(share)
    place = tr(
        "{share}, rank {rank} of {compared} on {model} ({hours} GPU-hours, {on_model})",
        share=share,
        rank=Number(rank.place),
        compared=Number(rank.compared),
        model=card_name(rank.model),
        hours=GpuHours(rank.allocated_ms),
        on_model=efficiency_on_model(rank),
    )
    return tr("{place}, unconfirmed", place=place) if rank.unconfirmed else place


USERS = Page(
    "/users",
    tr("Users"),
    _content,
    question=tr("Who was allocated GPUs, and how much did they use?"),
    has_findings=True,
)
