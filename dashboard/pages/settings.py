"""Thresholds, prices and owners in force."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from dash import html

from analytics.delivery.settings import parse_targets
from analytics.language.sentences import Language, Number, plain, tr, tr_many
from analytics.money.window_money import newest_basis
from analytics.tables.palette import Palette
from analytics.tables.site_tables import owners, prices_in_force
from dashboard.access.people import ADMIN
from dashboard.pages.page import Page
from dashboard.render.panel import panel, section_panel
from dashboard.render.tables import scrolling
from dashboard.view import View
from fallow.clock import parse_duration_ms
from fallow.config import SETTINGS, Config, Setting
from fallow.errors import UsageError
from fallow.units import parse_bytes

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s,]+", re.IGNORECASE)
_LONGEST = 300


@dataclass(frozen=True)
class ShownSetting:
    """One setting: `value` as text, `origin` where it was set, `is_set` false for a default."""

    name: str
    value: str
    origin: str
    meaning: str
    is_set: bool


def shown_settings(config: Config, language: Language) -> tuple[ShownSetting, ...]:
    """Return every setting, in the order of the documentation."""
    return tuple(
        ShownSetting(
            name=setting.name,
            value=_value(setting, config, language),
            origin=_origin(config.origins[setting.name], setting),
            meaning=setting.meaning,
            is_set=config.origins[setting.name] != "default",
        )
        for setting in sorted(SETTINGS, key=lambda each: _SECTIONS.index(each.section))
    )


_SECTIONS = tuple(dict.fromkeys(setting.section for setting in SETTINGS))


def _origin(origin: str, setting: Setting) -> str:
    if origin == "default":
        return tr("default")
    if origin == "flag":
        return tr("command line")
    if origin == setting.variable:
        return tr("variable {name}", name=origin)
    return tr("file {name}", name=plain(origin, 200))


def _value(setting: Setting, config: Config, language: Language) -> str:
    """Return the value as it is written in the file; durations and sizes are in the reader's language."""
    value = config.values[setting.name]
    if setting.name in ("report.to", "report.operators"):
        return language.translate(_targets(config, setting.name))
    if isinstance(value, str):
        return plain(_ADDRESS.sub(_bare, value), _LONGEST) or language.translate(tr("not set"))
    if setting.parse in (parse_duration_ms, parse_bytes):
        return (language.duration if setting.parse is parse_duration_ms else language.size)(int(value))
    words = {"on": "on" if value else "off", "off": "on" if value else "off", "auto": "" if value else "auto"}
    return words.get(setting.default) or language.shown(Number.as_given(value))


def _targets(config: Config, name: str) -> str:
    """Return the targets without the paths of webhooks, with which any reader could post."""
    try:
        found = parse_targets(config.texts(name), config.text("webhook.kind"))
    except UsageError:
        return tr("a target that cannot be read")
    return plain(", ".join(target.shown for target in found), _LONGEST) or tr("not set")


def _bare(found: re.Match[str]) -> str:
    """Return the address without user name, password and query, which may contain secrets."""
    try:
        parts = urlsplit(found[0])
    except ValueError:
        return "…"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "…" if parts.query else "", ""))


_OF_AGENTS = ("agent", "metrics", "kubernetes", "slurm", "serving")


def _content(view: View, colours: Palette) -> html.Div:
    team = view.reader.team
    money, inventory = view.whole.money, view.whole.inventory
    # a reader who sees one team does not see the number of GPUs in the fleet
    basis = () if team is not None else newest_basis(inventory, money.costs)
    prices = prices_in_force(money.costs.prices, basis)
    tables = [
        section_panel(view, colours, prices, first=prices.shown),
        section_panel(view, colours, owners(money.owners, team)),
    ]
    return html.Div(html.Div([_settings(view), *tables], className="panels"))


def _settings(view: View) -> html.Section:
    """Return the settings of the figures and pages. Agents have their own files; only that of this machine is known."""
    found = shown_settings(view.whole.inputs.settings, view.language)
    own = [each for each in found if each.is_set]
    agents = [each for each in found if each.name.partition(".")[0] in _OF_AGENTS]
    changed, unchanged = (
        [each for each in found if each not in agents and each.is_set == is_set] for is_set in (True, False)
    )
    defaults = tr_many("{number} {setting|settings} with {its default|their defaults}", len(unchanged))
    summary = html.Summary(tr("Settings of agents, as this machine has them: each agent has its own"))
    question = tr(
        "Which thresholds are the figures made with, and where was each set? They are changed in the config file."
    )
    finding = tr_many(
        "{number} of {all} settings {is|are} not {its default|their defaults}.", len(own), all=Number(len(found))
    )
    return panel(
        name="settings",
        title=tr("Settings in force"),
        question=question,
        finding=finding,
        body=[
            *([_setting_table(view, changed)] if changed else []),
            html.Details([html.Summary(defaults), _setting_table(view, unchanged)], className="more"),
            html.Details([summary, _setting_table(view, agents)], className="more"),
        ],
        wide=True,
    )


def _setting_table(view: View, found: Sequence[ShownSetting]) -> html.Div:
    heads = [tr("setting"), tr("value"), tr("set by"), tr("meaning")]
    rows = [
        html.Tr(
            [
                html.Th(each.name, scope="row"),
                html.Td(each.value, className="of-value set" if each.is_set else "of-value"),
                html.Td(each.origin),
                _meaning(view, each),
            ]
        )
        for each in found
    ]
    header = html.Tr([html.Th(head, scope="col") for head in heads])
    return scrolling(html.Table([html.Thead(header), html.Tbody(rows)], className="settings"), "settings-title")


def _meaning(view: View, each: ShownSetting) -> html.Td:
    """Return the meaning in the reader's language if its catalogue has it, else in English."""
    text = view.translate(each.meaning)
    shown = [html.Code(part) if place % 2 else part for place, part in enumerate(text.split("`")) if part]
    return html.Td(shown) if text != each.meaning else html.Td(shown, lang="en")


SETTINGS_PAGE = Page(
    "/settings", tr("Settings"), _content, role=ADMIN, question=tr("Which settings and owners are in force?")
)
