"""The content of a delivery: one edition of the report for every channel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from analytics.delivery.channels import safe as file_safe
from analytics.delivery.model import Brief, BriefLine, Message, MessagePart
from analytics.language.sentences import Language, Sentence, SentenceList, tr, tr_many
from analytics.render.report.formats import Format
from analytics.render.report.text import TextFormat
from analytics.report.report import Report
from analytics.report.weeks import Week
from analytics.scope import Scope
from analytics.tables.facts import SILENT_HOSTS, facts
from analytics.tables.recommendations import first_decisions
from analytics.tables.value import a_year
from analytics.tables.wording import TITLE, lead, scope_parts

MailBody = Callable[[Report, Language], tuple[str, bytes | None]]

_TOP = 5
_SUBJECT_BELOW = 70
"""Most characters of a subject; telephones cut longer ones."""


def edition_name(scope: Scope, code: str) -> str:
    """Return the name of an edition within a week: the part of the fleet and the language."""
    parts = ",".join(f"{name}={value}" for name, value in vars(scope).items() if value is not None)
    return f"{parts or 'all'}/{code}"


def pack(
    report: Report, week: Week, language: Language, formats: Sequence[Format], mail_body: MailBody | None
) -> Message:
    """Return the message, with the formats as documents; with `mail_body` if mail is among the channels.

    Raises MissingExtraError if a format needs packages that are not installed.
    """
    html, picture = (None, None) if mail_body is None else mail_body(report, language)
    name = f"fallow-{week.label}-{_file_part(report, language)}"
    return Message(
        subject=subject(report, week, language),
        language=language.code,
        text=TextFormat().render(report, language).decode(),
        html=html,
        picture=picture,
        attachments=tuple(_part(each, name, report, language) for each in formats),
        brief=_brief(report, week, language),
        week=week.label,
        scope=language.translate(SentenceList(scope_parts(report.scope), ", ")),
        since_ms=report.ledger.seen.since_ms,
        until_ms=report.ledger.seen.until_ms,
        finding_ids=tuple(finding.finding_id for finding in report.review.shown),
    )


def subject(report: Report, week: Week, language: Language) -> str:
    """Return the request in fewer than 70 characters. SIMULATED and the week are never cut off."""
    scope = SentenceList(scope_parts(report.scope), ", ")
    ends = [
        tr("{week}, {scope}{simulated}", week=week.label, scope=scope, simulated=_simulated(report)),
        tr("{week}{simulated}", week=week.label, simulated=_simulated(report)),
    ]
    whole = ""
    for request in _requests(report):
        for end in ends if scope else ends[1:]:
            whole = language.translate(tr("{label}: {value}", label=request, value=end))
            if len(whole) < _SUBJECT_BELOW:
                return whole
    return whole


def _simulated(report: Report) -> str:
    return tr(", SIMULATED") if report.heading.simulated else ""


def _requests(report: Report) -> Iterator[Sentence]:
    """Yield the request to the reader, from the longest wording to the shortest."""
    if report.ledger.is_empty:
        yield tr("Nothing observed")
        return
    found = report.recommendations
    currency = found.waste.currency
    going = sum(len(each.gpus_now) for each in found.ranked if each.action == "release")
    give = tr_many("Release {number} {GPU|GPUs}", going)
    value, back = found.value, found.value_of_return
    if back is not None and back.cash is not None and back.cash.point:
        cash = a_year(back.cash.point, currency)
        yield tr("{give}, save {cash} in cash a year", give=give, cash=cash)
    if back is not None and back.freed is not None:
        freed = a_year(back.freed.point, currency)
        if back.list_price_share:
            yield tr("{give}, GPU time of {freed} a year at list prices", give=give, freed=freed)
        yield tr("{give}, GPU time of {freed} a year", give=give, freed=freed)
    elif value is not None and value.freed is not None:
        yield tr("Free GPU time worth {freed} a year", freed=a_year(value.freed.point, currency))
    yield give if going else TITLE


def _part(form: Format, name: str, report: Report, language: Language) -> MessagePart:
    return MessagePart(f"{name}{form.suffix}", form.media_type, form.render(report, language))


def _file_part(report: Report, language: Language) -> str:
    """Return the edition as a part of a file name, which is unique."""
    scope, _, code = edition_name(report.scope, language.code).rpartition("/")
    return f"{file_safe(scope)}-{code}"


def _title(report: Report, week: Week) -> Sentence:
    """Return the title: `GPU waste report 2026-W46 (team vision)`."""
    named = tr("{title} {week}", title=TITLE, week=week.label)
    scope = scope_parts(report.scope)
    return tr("{title} ({scope})", title=named, scope=SentenceList(scope, ", ")) if scope else named


def _brief(report: Report, week: Week, language: Language) -> Brief:
    ranked = report.recommendations.ranked
    rest = len(ranked) - _TOP
    more = tr_many("and {number} more {recommendation|recommendations} in the report", rest)
    return Brief(
        title=language.translate(_title(report, week)),
        window=_window(report, language),
        sentences=tuple(language.translate(each) for each in lead(report) if each),
        heading=language.translate(tr("Recommendations")) if ranked else "",
        lines=tuple(_line(each, language) for each in first_decisions(report.recommendations, _TOP)),
        rest=language.translate(more) if rest > 0 else "",
    )


def _window(report: Report, language: Language) -> str:
    """Return the window, its coverage and its silent hosts: the figures below need this context."""
    known = dict(facts(report.heading, report.ledger, language))
    labels = [language.translate(each) for each in ("observed", *([SILENT_HOSTS] if report.ledger.seen.silent else []))]
    beside = [tr("{label}: {value}", label=label, value=known[label]) for label in labels if label in known]
    return language.translate(SentenceList([known[language.translate("window")], *beside]))


def _line(each: Mapping[str, Any], language: Language) -> BriefLine:
    """Return a recommendation as a chat shows it, with both figures of its value."""
    text = (
        tr("{recommendation}: GPU time per year {freed}, cash {cash}", **each)
        if each["freed"]
        else each["recommendation"]
    )
    detail = tr("{owner}, by {deadline}; confidence: {confidence}; {key}", **each)
    return BriefLine(each["key"], language.shown(text), language.translate(detail))
