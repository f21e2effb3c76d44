"""The whole report as one HTML page: no script, no address outside itself, every name escaped."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analytics.glossary import STATES
from analytics.language.language import Language, SentenceList
from analytics.language.sentences import tr
from analytics.render.html.charts import drawing
from analytics.render.html.marked import marked
from analytics.report.report import Report
from analytics.tables.facts import facts
from analytics.tables.key_figures import DECISION_FIGURES, key_figures
from analytics.tables.palette import DARK, HATCHED, LIGHT, Palette
from analytics.tables.report_sections import chapters
from analytics.tables.wording import lead, page_title

_ROLES = ("muted", "mark", "soft", "whole")
"""Of the palette, what marks of charts may have beside states."""

TEMPLATES = Path(__file__).parent / "templates"


def page(report: Report, language: Language) -> str:
    """The page; the same report gives the same bytes. Of a window in which nothing was seen only its head."""
    style = style_sheet()
    made = () if report.ledger.is_empty else tuple(chapters(report))
    return (
        environment()
        .get_template("page.html")
        .render(
            **head(report, language),
            style=style,
            style_hash=style_hash(style),
            chapters=made,
            draw=lambda section: drawing(section, language),
            states=STATES,
            left_off_paper=tr(
                "The HTML page has what paper leaves out: {chapters}.",
                chapters=SentenceList([each.title for each, _ in made if not each.on_paper], ", "),
            ),
        )
    )


def head(report: Report, language: Language) -> dict[str, Any]:
    """What the page and the body of a mail begin with, and what their templates call."""
    heading, ledger = report.heading, report.ledger
    return {
        "translate": language.translate,
        "mark": lambda cell: marked(cell, language),
        "language": language,
        "is_empty": ledger.is_empty,
        "lake": heading.lake,
        "version": heading.version,
        "title": language.translate(page_title(heading)),
        "edition": report.scope.parts(),
        "facts": facts(heading, ledger, language),
        **lead(report)._asdict(),
        "tiles": () if ledger.is_empty else key_figures(report, DECISION_FIGURES),
    }


@cache
def style_sheet() -> str:
    """The style sheet with the palette, for light and dark: shapes, keys and tiles."""
    rules = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    lines = "rgba(255,255,255,.6) 0 1px,transparent 1px 5px"
    for state in LIGHT.state:
        hatching = f"repeating-linear-gradient({HATCHED[state]}deg,{lines})," if state in HATCHED else ""
        rules += f".legend .{state}::before{{background:{hatching}var(--s-{state})}}"
        if hatching:  # the library that writes PDF draws no box for a gradient over a colour
            rules += f"@media print{{.legend .{state}::before{{background:var(--s-{state})}}}}"
    for name in (*LIGHT.state, *_ROLES):
        rules += (
            f".s-{name}{{fill:var(--s-{name})}}.l-{name}{{stroke:var(--s-{name})}}.i-{name}{{color:var(--s-{name})}}"
        )
    return minified(rules.replace("LIGHT", _variables(LIGHT)).replace("DARK", _variables(DARK)))


def _variables(palette: Palette) -> str:
    own = {f"s-{name}": palette.colour(name) for name in (*palette.state, *_ROLES)}
    return "".join(f"--{name}:{colour};" for name, colour in own.items())


_NEVER = {**dict.fromkeys([*range(32), *range(127, 160), 0x200E, 0x200F, *range(0x202A, 0x202F), 0x2066, 0x2067], "?")}
"""Characters that would be nothing to read: controls, and marks that turn the direction of what stands around them."""
_NEVER |= dict.fromkeys(map(ord, "\t\n\r"), " ")


def readable(value: object) -> object:
    """What a template shows, whoever wrote it, without characters that are not there to be read."""
    if not isinstance(value, str):
        return value
    return type(value)(value.translate(_NEVER)) if isinstance(value, Markup) else str(value).translate(_NEVER)


@cache
def environment() -> Environment:
    """The templates; whatever is not marked as safe is escaped."""
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=readable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def minified(css: str) -> str:
    """The style sheet without indents and line ends, which nobody reads in a mailed page."""
    return "".join(line.strip() for line in css.splitlines())


def style_hash(style: str) -> str:
    """What a content security policy calls the style element by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
