"""The whole report as one HTML page: no script, no outside address, every name escaped."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analytics.glossary import STATES, state_label
from analytics.language.sentences import Language, SentenceList, tr
from analytics.render.html.charts import drawing
from analytics.render.html.marked import marked
from analytics.report.report import Report
from analytics.tables.facts import facts
from analytics.tables.key_figures import DECISION_FIGURES, key_figures
from analytics.tables.palette import DARK, HATCHED, LIGHT, SCALE, SIZES, with_palette
from analytics.tables.report_sections import chapters
from analytics.tables.wording import lead, page_title

TEMPLATES = Path(__file__).parent / "templates"


def page(report: Report, language: Language) -> str:
    """Return the page. The same report gives the same bytes. Without data in the window it has only its head."""
    style = style_sheet()
    shown = () if report.ledger.is_empty else tuple(chapters(report))
    return rendered(
        "page.html",
        language,
        **head(report, language),
        style=style,
        style_hash=style_hash(style),
        chapters=shown,
        draw=lambda section: drawing(section, language),
        states=STATES,
        left_off_paper=tr(
            "The HTML page has more chapters than paper: {chapters}.",
            chapters=SentenceList([each.title for each, _ in shown if not each.on_paper], ", "),
        ),
    )


def head(report: Report, language: Language) -> dict[str, Any]:
    """Return the common head of page and mail body."""
    heading, ledger = report.heading, report.ledger
    return {
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
    """Return the style sheet with the palette, for light and dark: shapes, keys and tiles."""
    rules = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    lines = "color-mix(in srgb,var(--card) 60%,transparent) 0 1px,transparent 1px 5px"
    for state in LIGHT.state:
        hatching = f"repeating-linear-gradient({HATCHED[state]}deg,{lines})," if state in HATCHED else ""
        rules += f".legend .{state}::before{{background:{hatching}var(--s-{state})}}"
        if hatching:  # the library that writes PDF draws no box for a gradient over a colour
            rules += f"@media print{{.legend .{state}::before{{background:var(--s-{state})}}}}"
    return "".join(line.strip() for line in with_palette(rules).splitlines())


_NEVER = {**dict.fromkeys([*range(32), *range(127, 160), 0x200E, 0x200F, *range(0x202A, 0x202F), 0x2066, 0x2067], "?")}
"""Characters that cannot be read: controls, and marks that change the direction of the text around them."""
_NEVER |= dict.fromkeys(map(ord, "\t\n\r"), " ")


def readable(value: object) -> object:
    """Return the text without invisible characters, for any author."""
    if not isinstance(value, str):
        return value
    return type(value)(value.translate(_NEVER)) if isinstance(value, Markup) else str(value).translate(_NEVER)


@cache
def environment() -> Environment:
    """Return the templates; values that are not marked as safe are escaped."""
    templates = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=readable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals |= {"light": LIGHT, "dark": DARK, "size": SIZES, "scale": SCALE, "state_label": state_label}
    return templates


def rendered(template: str, language: Language, **values: Any) -> str:
    """Return the page of a template, whose cells and sentences are in this language."""
    page = environment().get_template(template)
    writers = {"translate": language.translate, "mark": lambda cell: marked(cell, language)}
    return page.render(language=language, **writers, **values)


def style_hash(style: str) -> str:
    """Return the hash of the style element for a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
