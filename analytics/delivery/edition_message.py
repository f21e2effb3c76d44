"""One edition of the report, made once into everything that any channel may send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.delivery.folder import safe
from analytics.delivery.model import Brief, Line, Parcel, Part
from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, GpuHours, Moment
from analytics.language.sentences import Listed, say, say_many
from analytics.render.report.text import TextFormat
from analytics.sections.facts import facts
from analytics.sections.findings import costliest
from analytics.sections.wording import TITLE, headline, reclaimable, scope_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from analytics.language.languages import Language
    from analytics.language.sentences import Sentence
    from analytics.render.report import Format
    from analytics.report.model import Report
    from analytics.report.weeks import Week
    from analytics.scope import Scope
    from analytics.workloads.model import Finding

    MailBody = Callable[[Report, Language], tuple[str, bytes | None]]

_TOP = 5
_MEDIA_TYPES = {
    "html": "text/html",
    "pdf": "application/pdf",
    "json": "application/json",
    "md": "text/markdown",
    "csv": "text/csv",
    "zip": "application/zip",
    "txt": "text/plain",
}


def edition_name(scope: Scope, code: str) -> str:
    """What tells the editions of one week apart: the part of the fleet and the language."""
    parts = ",".join(f"{name}={value}" for name, value in vars(scope).items() if value is not None)
    return f"{parts or 'all'}/{code}"


def pack(
    report: Report, week: Week, language: Language, formats: Sequence[Format], mail_body: MailBody | None
) -> Parcel:
    """The parcel with the named formats as documents; `mail_body` where mail is among the channels.

    Raises MissingExtraError where a format needs packages that are not installed.
    """
    html, picture = (None, None) if mail_body is None else mail_body(report, language)
    name = f"fallow-{week.label}-{_file_part(report, language)}"
    return Parcel(
        subject=language.say(say("{title}: {headline}", title=_title(report, week), headline=headline(report))),
        language=language.code,
        text=TextFormat().render(report, language).decode(),
        html=html,
        picture=picture,
        attachments=tuple(_part(each, name, report, language) for each in formats),
        brief=_brief(report, week, language),
        week=week.label,
        scope=language.say(Listed(scope_parts(report.scope), ", ")),
        since_ms=report.seen.since_ms,
        until_ms=report.seen.until_ms,
        finding_ids=tuple(finding.finding_id for finding in report.findings),
    )


def _part(form: Format, name: str, report: Report, language: Language) -> Part:
    suffix = form.suffix.lstrip(".")
    media_type = _MEDIA_TYPES.get(suffix, "application/octet-stream")
    return Part(f"{name}.{suffix}", media_type, form.render(report, language))


def _file_part(report: Report, language: Language) -> str:
    """The edition as part of a file's name; two editions never share one."""
    scope, _, code = edition_name(report.scope, language.code).rpartition("/")
    return f"{safe(scope)}-{code}"


def _title(report: Report, week: Week) -> Sentence:
    """`GPU waste report 2026-W46 (team vision)`."""
    named = say("{title} {week}", title=TITLE, week=week.label)
    scope = scope_parts(report.scope)
    return say("{title} ({scope})", title=named, scope=Listed(scope, ", ")) if scope else named


def _brief(report: Report, week: Week, language: Language) -> Brief:
    shown = costliest(report)[:_TOP]
    rest = len(report.findings) - len(shown)
    more = say_many("and {number} more finding in the report", "and {number} more findings in the report", rest)
    return Brief(
        title=language.say(_title(report, week)),
        window=_window(report, language),
        sentences=tuple(
            language.say(each) for each in (report.simulated, headline(report), reclaimable(report)) if each
        ),
        heading=language.say(say("The costliest findings")),
        lines=tuple(line(finding, language) for finding in shown),
        rest=language.say(more) if rest > 0 else "",
    )


def _window(report: Report, language: Language) -> str:
    """The window, how much of it was seen, and which hosts fell silent: without that no figure below it says anything."""
    told = dict(facts(report, language))
    labels = [language.say(each) for each in ("observed", *(["silent"] if report.seen.silent else []))]
    beside = [say("{label}: {value}", label=label, value=told[label]) for label in labels if label in told]
    return language.say(Listed([told[language.say("window")], *beside]))


def line(finding: Finding, language: Language) -> Line:
    """A finding as a chat shows it, with its cost where there is a price."""
    gpus = say_many("{number} GPU", "{number} GPUs", len(finding.gpus))
    cost = [] if finding.cost is None else [say("{cost}", cost=Amount(finding.cost, plain(finding.currency or "")))]
    sums = Listed([say("{hours} GPU-hours", hours=GpuHours(finding.gpu_ms)), *cost], ", ")
    what = language.say(finding.sentence)
    text = (
        say("{sums}: {gpus} on {host} {what}", sums=sums, gpus=gpus, host=plain(finding.host), what=what)
        if finding.host
        else say("{sums}: {gpus} {what}", sums=sums, gpus=gpus, what=what)
    )
    detail = say(
        "{holder}, since {when}; confidence: {grade}; {finding_id}",
        holder=plain(finding.holder) if finding.holder else language.say(finding.without_holder),
        when=Moment(finding.since_ms),
        grade=language.say(finding.confidence.grade),
        finding_id=finding.finding_id,
    )
    return Line(finding.finding_id, language.say(text), language.say(detail))
