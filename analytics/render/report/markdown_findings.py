"""The findings of the Markdown report: all that the text report tells of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.language.plain_text import plain
from analytics.language.sentences import Listed, say
from analytics.render.evidence_text import evidence
from analytics.render.finding_block_text import ENDED, NONE, heading, holder_since, left_out, taken
from analytics.render.listed_findings import notes, notified, to_act_on
from analytics.render.report.markdown_words import code, escape
from analytics.render.wording import as_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analytics.language.languages import Language
    from analytics.report.model import Report
    from analytics.workloads.model import Finding

_TOP = 10
_WHOLE = 100_000
"""Characters, for what nothing is cut of: the names of GPUs, and evidence."""


def findings(report: Report, language: Language) -> list[str]:
    """The first ten to act on, and what that leaves out; or that there are none."""
    found = to_act_on(report)
    if not found:
        return [as_sentence(language.say(NONE))]
    shown = found[:_TOP]
    rest = [as_sentence(language.say(left_out(found, shown)))] if len(shown) < len(found) else []
    return [*(_finding(each, report, language) for each in shown), *rest]


def _finding(finding: Finding, report: Report, language: Language) -> str:
    def line(label: str, text: str) -> str:
        return f"- {language.say(say('{label}: {value}', label=say(label), value=text))}"

    title = say("{label}: {value}", label=finding.finding_id, value=heading(finding))
    rows = (line(label, text) for label, text in _rows(finding, report, language))
    return "\n".join([f"### {escape(language.say(title), _WHOLE)}", "", *rows])


def _rows(finding: Finding, report: Report, language: Language) -> Iterator[tuple[str, str]]:
    """Labels in English, and texts in the reader's language as Markdown."""

    def shown(text: str, most: int = _WHOLE) -> str:
        return escape(language.say(text), most)

    grade, failed = finding.confidence.grade, finding.confidence.failed
    yield "holder", shown(holder_since(finding))
    if finding.job:
        yield "job", shown(plain(finding.job, 400))
    yield from ((label, shown(gpus)) for label, gpus in taken(finding))
    yield "rule", f"{escape(finding.rule)}, {shown(finding.status)}"
    yield "notified", shown(notified(report, finding))
    yield "confidence", shown(grade) + (f" ({shown(Listed(failed))})" if failed else "")
    yield "evidence", shown(evidence(finding))
    yield from (("note", shown(each, 400)) for each in notes(report, finding))
    yield "next", code(finding.next_command) if finding.next_command else shown(ENDED)
