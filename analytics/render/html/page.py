"""The whole report as one HTML page: no script, no address outside itself, every name escaped."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analytics.render.facts import facts
from analytics.render.html import findings, head, prices
from analytics.render.html.charts.days import days
from analytics.render.html.charts.idle import idle
from analytics.render.html.charts.owners import owners
from analytics.render.html.charts.reclaim import reclaim
from analytics.render.html.charts.waterfall import waterfall
from analytics.render.html.drawings import drawing
from analytics.render.html.film import film_strip
from analytics.render.html.marked import marked
from analytics.render.wording import headline, how_made, reclaimable, reversals
from analytics.sections.off_peak import off_peak

if TYPE_CHECKING:
    from analytics.language.languages import Language
    from analytics.render.html.chart import Table
    from analytics.report.model import Report

TEMPLATES = Path(__file__).parent / "templates"


def page(report: Report, language: Language) -> str:
    """The page; the same report gives the same bytes. Of a window in which nothing was seen only its head."""
    style = minified((TEMPLATES / "style.css").read_text(encoding="utf-8"))
    say = language.say
    return environment().get_template("page.html").render(
        say=say,
        language=language,
        style=style,
        style_hash=style_hash(style),
        report=report,
        title=head.title(report, language),
        edition=head.edition(report, language),
        facts=facts(report, language),
        headline=say(headline(report)),
        taken=say(reclaimable(report)),
        **({} if report.is_empty else _content(report, language)),
    )  # fmt: skip


def _content(report: Report, language: Language) -> dict[str, object]:
    say = language.say
    return {
        "tiles": head.tiles(report, language),
        "compared": head.compared(report, language),
        "waterfall": waterfall(report, language),
        "days": days(report, language),
        "idle": idle(report, language),
        "reclaim": reclaim(report, language),
        "off_peak": off_peak(report),
        "mark": lambda cell: marked(cell, language),
        "draw": lambda section: drawing(section, language),
        "film": film_strip(report, language),
        "owners": owners(report, language),
        "cards": findings.cards(report, language),
        "others": findings.others(report, language),
        "tables": _tables(report, language),
        "reversals": say(reversals(report)),
        "energy": [say(line) for line in prices.energy(report.money)],
        "prices": prices.price_table(report.money, language),
        "price_remarks": [say(line) for line in prices.price_remarks(report.money)],
        "quality": [say(remark.sentence) for remark in report.quality],
        "made": [say(line) for line in how_made(report)],
    }


def _tables(report: Report, language: Language) -> dict[str, Table | None]:
    makers = (findings.inefficient, findings.winding_down, findings.gone, findings.suppressed)
    return {each.__name__: each(report, language) for each in makers}


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
