"""The report as the body of a mail: tables with inline styles, and one image.

Mail programs remove style sheets, SVG and scripts, and many show no image at first, so every figure is also in words.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

from PIL import Image, ImageDraw

from analytics.glossary import state_label
from analytics.language.sentences import Language, SentenceList, from_cents, tr, tr_many
from analytics.ledger.summary import ratio
from analytics.render.html.marked import marked
from analytics.render.html.page import head, rendered
from analytics.report.report import Report
from analytics.tables.days import bins_of
from analytics.tables.palette import HATCHED, LIGHT, ORDER
from analytics.tables.recommendations import first_decisions
from analytics.tables.trends import unfinished

IMAGE_ID = "states@fallow"
"""The Content-ID of the image in the body."""

DECISIONS = 8
_SCALE = 2
"""Image pixels per body pixel, for sharp images on fine screens."""
_WIDTH, _BAR, _GAP, _DAYS = 562, 40, 14, 96


def mail_body(report: Report, language: Language) -> tuple[str, bytes | None]:
    """Return the body as HTML, at most 600 pixels wide, and its PNG (None without data).

    The body shows the PNG as `cid:` IMAGE_ID.
    """
    body = rendered(
        "mail.html",
        language,
        **head(report, language),
        labelled=lambda label, value: marked(
            tr("{label}: {value}", label=tr(label), value=tr("{value}", value=value)), language
        ),
        **({} if report.ledger.is_empty else _content(report, language)),
    )
    return body, None if report.ledger.is_empty else states_image(report)


def _content(report: Report, language: Language) -> dict[str, object]:
    return {
        "unfinished": SentenceList(unfinished(report.weeks), " "),
        "heads": [
            *map(language.translate, ("state", "GPU-hours", "of observed")),
            language.translate(tr("cost, {currency}", currency=report.money.currency)),
        ],
        "states": list(_states(report, language)),
        "decisions": first_decisions(report.recommendations, DECISIONS),
        "others": _others(report),
        "image_id": IMAGE_ID,
        "width": _WIDTH,
        "height": _height(report),
    }


def states_image(report: Report) -> bytes:
    """Return the whole window's states as one bar, and those of each day as columns below; the image has no words."""
    image = Image.new("RGB", (_WIDTH * _SCALE, _height(report) * _SCALE), "#ffffff")
    draw = ImageDraw.Draw(image)
    state_ms, at = report.ledger.summary.totals.state_ms, 0.0
    for state in ORDER:
        width = (ratio(state_ms[state], sum(state_ms.values())) or 0.0) * _WIDTH * _SCALE
        _box(draw, (at, 0.0, at + width, _BAR * _SCALE), state)
        at += width
    days = [each.totals for each in bins_of(report.breakdown)]
    if len(days) > 1:
        most = max(totals.total_ms for totals in days)
        for place, totals in enumerate(days):
            left, right = (at * _WIDTH * _SCALE / len(days) for at in (place, place + 0.86))
            at = float((_BAR + _GAP + _DAYS) * _SCALE)
            for state in ORDER:
                height = (ratio(totals.state_ms[state], most) or 0.0) * _DAYS * _SCALE
                _box(draw, (left, at - height, right, at), state)
                at -= height
    target = io.BytesIO()
    image.convert("P", palette=Image.Palette.ADAPTIVE, colors=32).save(target, "PNG", optimize=True)
    return target.getvalue()


def _height(report: Report) -> int:
    return _BAR + (_GAP + _DAYS if len(bins_of(report.breakdown)) > 1 else 0)


def _box(draw: ImageDraw.ImageDraw, corners: tuple[float, float, float, float], state: str) -> None:
    """Draw a rectangle, with lines over states that have a pattern on the page."""
    left, top, right, bottom = (round(corner) for corner in corners)
    if right <= left or bottom <= top:
        return
    draw.rectangle((left, top, right - 1, bottom - 1), fill=LIGHT.state[state])
    if state in HATCHED:
        for x in range(left + 6, right, 12):
            draw.line((x, top, x, bottom - 1), fill="#ffffff", width=2)


def _states(report: Report, language: Language) -> Iterator[tuple[str, str, str, str, str]]:
    """Return colour, name, GPU-hours, share and cost of each state, then the sum."""
    totals, account = report.ledger.summary.totals, report.money.accounts.total
    priced = account.paid_cents is not None
    for state in ORDER:
        spent = account.state_cents[state] if priced else None
        share = "" if state == "unknown" else language.percent(totals.share(state))
        label, hours = language.translate(state_label(state)), language.hours(totals.state_ms[state])
        yield LIGHT.state[state], label, hours, share, language.number(from_cents(spent), 2)
    paid = language.number(from_cents(account.paid_cents), 2)
    yield "", language.translate("paid"), language.hours(totals.total_ms), "", paid


def _others(report: Report) -> str:
    """Return what the body leaves out. It does not name attachments, because each site chooses its documents."""
    found = report.recommendations
    rest = max(0, len(found.ranked) - DECISIONS)
    more = [tr_many("{number} more {recommendation|recommendations}.", rest)] if rest else []
    look = len(found.to_look_at)
    unsure = [tr_many("{number} {recommendation has|recommendations have} no known value.", look)] if look else []
    return SentenceList(
        [*more, *unsure, tr("The HTML report has the evidence; `fallow recommendations` lists all recommendations.")],
        " ",
    )
