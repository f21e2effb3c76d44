"""Thresholds, prices and owners in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from analytics.language.plain_text import plain
from analytics.language.quantities import Number
from analytics.language.sentences import say, say_many
from analytics.money.in_force import gpus_at, in_force
from analytics.money.window_money import newest_basis, open_prices
from analytics.render.money_text import price_source
from analytics.render.wording import placed
from dashboard.access.people import ADMIN
from dashboard.charts.panel import panel
from dashboard.charts.tables import scrolling
from dashboard.settings_shown import shown_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.money.prices import Price
    from analytics.money.window_money import Basis
    from dashboard.palette import Palette
    from dashboard.settings_shown import Shown
    from dashboard.source import Source
    from dashboard.view import View

_KINDS = {"account": say("accounts"), "namespace": say("namespaces"), "user": say("users")}
_OF_AGENTS = ("agent", "metrics", "kubernetes", "slurm", "serving")
_RIGHT = (say("per GPU-hour"), say("GPUs"), *_KINDS.values(), say("quota, GPUs"))
_ORIGINS = {"site": say("the site's own"), "catalog": say("public list price")}


class Settings:
    """`/settings`."""

    path = "/settings"
    name: str = say("Settings")
    role = ADMIN
    listed = True

    def connect(self, app: Any, source: Source) -> None:
        """Nothing: it is read only."""

    def content(self, view: View, colours: Palette) -> html.Div:  # noqa: ARG002  # tables have no colours of states
        """Every setting, the prices and the owners."""
        return html.Div(html.Div([_settings(view), _prices(view), _owners(view)], className="panels"))


def _settings(view: View) -> html.Section:
    """Those that make the figures and these pages; agents have files of their own, and only this machine's is known."""
    found = shown_settings(view.whole.inputs.settings, view.language)
    own = [each for each in found if each.is_set]
    agents = [each for each in found if each.name.partition(".")[0] in _OF_AGENTS]
    summary = html.Summary(view.say(say("Settings of agents, as this machine has them: each agent has its own")))
    question = say(
        "Which thresholds are the figures made with, and where was each set? They are changed in the config file."
    )
    finding = say_many(
        "{number} of {all} settings is not its default.", "{number} of {all} settings are not their defaults.",
        len(own), all=Number(len(found)),
    )  # fmt: skip
    return panel(
        name="settings",
        title=view.say(say("Settings in force")),
        question=view.say(question),
        finding=view.say(finding),
        body=[
            _setting_table(view, [each for each in found if each not in agents]),
            html.Details([summary, _setting_table(view, agents)], className="more"),
        ],
        wide=True,
    )


def _setting_table(view: View, found: Sequence[Shown]) -> html.Div:
    heads = [say("setting"), say("value"), say("set by"), say("meaning")]
    rows = [
        html.Tr(
            [
                html.Th(each.name, scope="row"),
                html.Td(each.value, className="of-value set" if each.is_set else "of-value"),
                html.Td(view.say(each.origin)),
                _meaning(view, each),
            ]
        )
        for each in found
    ]
    return _table(view, heads, rows, "settings-title")


def _meaning(view: View, each: Shown) -> html.Td:
    """In the reader's language, as far as its catalogue knows it."""
    said = view.say(each.meaning)
    shown = _with_code(said)
    return html.Td(shown) if said != each.meaning else html.Td(shown, lang="en")


def _with_code(text: str) -> list[Any]:
    """What stands between backquotes as what it is: something to type."""
    return [html.Code(part) if place % 2 else part for place, part in enumerate(text.split("`")) if part]


def _prices(view: View) -> html.Section:
    """What the site states and what its GPUs cost by the catalog; the rest of the catalog folded away."""
    money, inventory = view.whole.money, view.whole.inventory
    # how many GPUs of a fleet there are is not for who may see one team
    basis: Sequence[Basis] = () if view.reader.team is not None else newest_basis(inventory, money.costs)
    prices = in_force(open_prices(view.whole.inputs.settings))
    used = [price for price in prices if price.origin == "site" or gpus_at(price, basis)]
    others = [price for price in prices if price not in used]
    missing = [each for each in basis if each.price is None]
    lacking = say_many("{number} group of GPUs has no price.", "{number} groups of GPUs have no price.", len(missing))
    body: list[Any] = [_price_table(view, used, basis)] if used else []
    if others:
        summary = html.Summary(
            view.say(say_many("{number} other list price", "{number} other list prices", len(others)))
        )
        body.append(html.Details([summary, _price_table(view, others, basis)], className="more"))
    if missing:
        body.append(html.Ul([html.Li(_missing(view, each)) for each in missing]))
    return panel(
        name="prices",
        title=view.say(say("Prices in force")),
        question=view.say(say("What does a GPU-hour cost, since when, and who says so? In {currency}.", currency=money.currency)),
        finding=view.say(lacking if missing else say("Every GPU has a price.")) if basis else "",
        body=body,
        wide=True,
    )  # fmt: skip


def _missing(view: View, each: Basis) -> str:
    return view.say(
        say_many("no price: {number} GPU {model} ({pool})", "no price: {number} GPUs {model} ({pool})", each.gpus,
                 model=plain(placed(each.model, view.language)), pool=plain(placed(each.pool, view.language)))
    )  # fmt: skip


def _price_table(view: View, prices: Sequence[Price], basis: Sequence[Basis]) -> html.Div:
    heads = [say("model"), say("pool"), say("per GPU-hour"), say("date"), say("origin"), say("source"), say("GPUs")]
    rows = [
        html.Tr(
            [
                html.Th(plain(price.model) if price.model else view.say(say("any model")), scope="row"),
                html.Td(plain(price.pool) if price.pool else view.say(say("any pool"))),
                html.Td(f"{view.language.number(price.hourly, 4)} {price.currency}", className="right"),
                html.Td(view.language.date(price.date) if price.date else view.say(say("not stated"))),
                html.Td(view.say(_ORIGINS[price.origin])),
                html.Td(plain(price_source(price), 200)),
                html.Td(view.language.number(gpus_at(price, basis)) if basis else "", className="right"),
            ]
        )
        for price in prices
    ]
    return _table(view, heads, rows, "prices-title")


def _owners(view: View) -> html.Section:
    """Teams and how many lines each has; who may see one team sees that one."""
    teams = [team for team in view.whole.money.owners.teams().values() if view.reader.team in (None, team.name)]
    heads = [say("team"), say("organisation"), *_KINDS.values(), say("quota, GPUs")]
    rows = [
        html.Tr(
            [
                html.Th(plain(team.name), scope="row"),
                html.Td(plain(team.organisation or "")),
                *(
                    html.Td(view.language.number(sum(owner.kind == kind for owner in team.owners)), className="right")
                    for kind in _KINDS
                ),
                html.Td(view.say(say("none")) if team.quota_gpus is None else view.language.number(team.quota_gpus), className="right"),
            ]
        )
        for team in teams
    ]  # fmt: skip
    return panel(
        name="owners",
        title=view.say(say("Owners")),
        question=view.say(say("Which teams does the owners file name, and how many lines has each?")),
        finding=view.say(say_many("{number} team.", "{number} teams.", len(teams)))
        if teams
        else view.say(say("No owners file is set: nothing is said of teams.")),
        body=[_table(view, heads, rows, "owners-title")] if teams else [],
        wide=True,
    )


def _table(view: View, heads: Sequence[str], rows: list[html.Tr], labelled: str) -> html.Div:
    header = html.Tr(
        [html.Th(view.say(head), scope="col", className="right" if head in _RIGHT else "") for head in heads]
    )
    table = html.Table([html.Thead(header), html.Tbody(rows)], className="settings")
    return scrolling(table, labelled)
