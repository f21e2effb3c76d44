"""What is sent: one edition of the report for every channel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from analytics.delivery.channels import safe
from analytics.delivery.model import Brief, BriefLine, Message, MessagePart
from analytics.language.language import Language, Sentence, SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Moment
from analytics.language.sentences import tr, tr_many
from analytics.render.report import Format
from analytics.render.report.text import TextFormat
from analytics.report.model import Report
from analytics.report.weeks import Week
from analytics.scope import Scope
from analytics.sections.facts import facts
from analytics.sections.finding_heading import cost_of
from analytics.sections.findings import costliest
from analytics.sections.wording import TITLE, headline, reclaimable, scope_parts
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
    """Identifies an edition within a week: the part of the fleet and the language."""
    parts = ",".join(f"{name}={value}" for name, value in vars(scope).items() if value is not None)
    return f"{parts or 'all'}/{code}"


def pack(
    report: Report, week: Week, language: Language, formats: Sequence[Format], mail_body: MailBody | None
) -> Message:
    """The message, with the formats as documents; `mail_body` where mail is among the channels.

    Raises MissingExtraError where a format needs packages that are not installed.
    """
    html, picture = (None, None) if mail_body is None else mail_body(report, language)
    name = f"fallow-{week.label}-{_file_part(report, language)}"
    return Message(
        subject=language.translate(tr("{title}: {headline}", title=_title(report, week), headline=headline(report))),
        language=language.code,
        text=TextFormat().render(report, language).decode(),
        html=html,
        picture=picture,
        attachments=tuple(_part(each, name, report, language) for each in formats),
        brief=_brief(report, week, language),
        week=week.label,
        scope=language.translate(SentenceList(scope_parts(report.scope), ", ")),
        since_ms=report.seen.since_ms,
        until_ms=report.seen.until_ms,
        finding_ids=tuple(finding.finding_id for finding in report.findings),
    )


def _part(form: Format, name: str, report: Report, language: Language) -> MessagePart:
    suffix = form.suffix.lstrip(".")
    media_type = _MEDIA_TYPES.get(suffix, "application/octet-stream")
    return MessagePart(f"{name}.{suffix}", media_type, form.render(report, language))


def _file_part(report: Report, language: Language) -> str:
    """The edition as part of a file's name; two editions never share one."""
    scope, _, code = edition_name(report.scope, language.code).rpartition("/")
    return f"{safe(scope)}-{code}"


def _title(report: Report, week: Week) -> Sentence:
    """`GPU waste report 2026-W46 (team vision)`."""
    named = tr("{title} {week}", title=TITLE, week=week.label)
    scope = scope_parts(report.scope)
    return tr("{title} ({scope})", title=named, scope=SentenceList(scope, ", ")) if scope else named


def _brief(report: Report, week: Week, language: Language) -> Brief:
    shown = costliest(report)[:_TOP]
    rest = len(report.findings) - len(shown)
    more = tr_many("and {number} more finding in the report", "and {number} more findings in the report", rest)
    return Brief(
        title=language.translate(_title(report, week)),
        window=_window(report, language),
        sentences=tuple(
            language.translate(each) for each in (report.simulated, headline(report), reclaimable(report)) if each
        ),
        heading=language.translate(tr("The costliest findings")),
        lines=tuple(line(finding, language) for finding in shown),
        rest=language.translate(more) if rest > 0 else "",
    )


def _window(report: Report, language: Language) -> str:
    """The window, its coverage and its silent hosts: the figures below it mean nothing without them."""
    told = dict(facts(report, language))
    labels = [language.translate(each) for each in ("observed", *(["silent"] if report.seen.silent else []))]
    beside = [tr("{label}: {value}", label=label, value=told[label]) for label in labels if label in told]
    return language.translate(SentenceList([told[language.translate("window")], *beside]))


def line(finding: Finding, language: Language) -> BriefLine:
    """A finding as a chat shows it, with its cost if there is a price."""
    gpus = tr_many("{number} GPU", "{number} GPUs", len(finding.gpus))
    cost = [] if finding.cost is None else [cost_of(finding)]
    sums = SentenceList([tr("{hours} GPU-hours", hours=GpuHours(finding.gpu_ms)), *cost], ", ")
    what = language.translate(finding.sentence)
    text = (
        tr("{sums}: {gpus} on {host} {what}", sums=sums, gpus=gpus, host=plain(finding.host), what=what)
        if finding.host
        else tr("{sums}: {gpus} {what}", sums=sums, gpus=gpus, what=what)
    )
    detail = tr(
        "{holder}, since {when}; confidence: {grade}; {finding_id}",
        holder=plain(finding.holder) if finding.holder else language.translate(finding.without_holder),
        when=Moment(finding.since_ms),
        grade=language.translate(finding.confidence.grade),
        finding_id=finding.finding_id,
    )
    return BriefLine(finding.finding_id, language.translate(text), language.translate(detail))
