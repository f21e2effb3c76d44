"""The settings in force as they may be shown: values in their units, and nothing of which somebody could make use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from analytics.delivery.targets import parse_targets
from analytics.language.plain_text import plain
from analytics.language.sentences import say
from fallow.clock import parse_duration_ms
from fallow.config import SETTINGS, Config
from fallow.errors import UsageError
from fallow.units import parse_bytes

if TYPE_CHECKING:
    from analytics.language.languages import Language
    from fallow.config import Setting

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s,]+", re.IGNORECASE)
_LONGEST = 300


@dataclass(frozen=True)
class Shown:
    """One setting: `value` as text, `origin` where it was set, `is_set` whether anybody set it."""

    name: str
    value: str
    origin: str
    meaning: str
    is_set: bool


def shown_settings(config: Config, language: Language) -> tuple[Shown, ...]:
    """Every setting, in the order of the documentation."""
    return tuple(
        Shown(
            name=setting.name,
            value=_value(setting, config, language),
            origin=_origin(config.origins[setting.name], setting),
            meaning=setting.meaning,
            is_set=config.origins[setting.name] != "default",
        )
        for setting in sorted(SETTINGS, key=_section)
    )


_SECTIONS = tuple(dict.fromkeys(setting.section for setting in SETTINGS))


def _section(setting: Setting) -> int:
    return _SECTIONS.index(setting.section)


def _origin(origin: str, setting: Setting) -> str:
    if origin == "default":
        return say("default")
    if origin == "flag":
        return say("command line")
    if origin == setting.variable:
        return say("variable {name}", name=origin)
    return say("file {name}", name=plain(origin, 200))


def _value(setting: Setting, config: Config, language: Language) -> str:
    """As somebody would write it; durations and sizes in the reader's language."""
    value = config.values[setting.name]
    if setting.name == "report.to":
        return language.say(_targets(config))
    if isinstance(value, str):
        return plain(_ADDRESS.sub(_bare, value), _LONGEST) or language.say(say("not set"))
    if setting.parse in (parse_duration_ms, parse_bytes):
        return (language.duration if setting.parse is parse_duration_ms else language.size)(int(value))
    words = {"on": "on" if value else "off", "off": "on" if value else "off", "auto": "" if value else "auto"}
    figure = language.number(value, len(f"{value:.6f}".rstrip("0").partition(".")[2]))
    return words.get(setting.default) or figure


def _targets(config: Config) -> str:
    """Without the paths of webhooks, with which anybody could post."""
    try:
        found = parse_targets(config.texts("report.to"), config.text("webhook.kind"))
    except UsageError:
        return say("a target that cannot be read")
    return plain(", ".join(target.shown for target in found), _LONGEST) or say("not set")


def _bare(found: re.Match[str]) -> str:
    """An address without a name, a password and a query, where tokens stand."""
    try:
        parts = urlsplit(found[0])
    except ValueError:
        return "…"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "…" if parts.query else "", ""))
