"""The report as Markdown. Names come from users and may contain markup, so they are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from analytics.language.sentences import Language, tr
from analytics.render.report.text import for_text, written
from analytics.report.report import Report
from analytics.tables.facts import facts
from analytics.tables.table import Fold, Table
from analytics.tables.wording import lead, title
from fallow.outside_text import markdown_code, markdown_text

_WHOLE = 100_000
"""Most characters of uncut texts: names of GPUs, and evidence."""


class MarkdownFormat:
    name = "md"
    suffix = ".md"
    media_type = "text/markdown"

    def render(self, report: Report, language: Language) -> bytes:
        from analytics.tables.report_sections import chapters  # all tables, and a verb's document shows a few

        writer = for_text(language)
        known = (
            tr("{label}: {value}", label=label, value=value)
            for label, value in facts(report.heading, report.ledger, language)
        )
        simulated, asked, headline = map(writer.translate, lead(report))
        bold = [f"**{each}**" for each in (asked, headline) if each]
        parts = [
            f"# {markdown_text(writer.translate(title(report.heading)))}",
            _listed(map(writer.translate, known)),
            f"**{simulated}**" if simulated else "",
            f"{bold[0]} {headline}" if asked else bold[0],
        ]
        for chapter, sections in () if report.ledger.is_empty else chapters(report):
            parts.append(f"## {writer.translate(chapter.title)}")
            parts += [part for section in sections for part in section_parts(section, writer)]
        return ("\n\n".join(part for part in parts if part) + "\n").encode()


def section_parts(section: Table, language: Language) -> Iterator[str]:
    """Yield the heading, the headline, a table, a list, findings, and notes."""
    writer = language.translate
    yield f"### {markdown_text(writer(section.title))}"
    yield markdown_text(written(section.headline, language))
    yield _table(section, language)
    yield _listed(written(each, language) for each in section.lines)
    yield from (_fold(each, language) for each in section.folds)
    yield from (markdown_text(writer(each)) for each in (section.left_out, *section.notes) if each)
    terms = (tr("{label}: {value}", label=each.title, value=each.meaning) for each in section.terms)
    yield _listed(writer(each) for each in terms)


def _table(section: Table, language: Language) -> str:
    if not section.row_count:
        return ""
    shown = [place for place, column in enumerate(section.heads) if column.kind != "bar"]
    head = [language.translate(section.heads[place].title) for place in shown]
    rule = "|".join("---:" if section.heads[place].is_figure else "---" for place in shown)
    rows = ([written(row[place], language) for place in shown] for row in section.listed)
    first, *others = (f"| {' | '.join(map(markdown_text, row))} |" for row in (head, *rows))
    return "\n".join([first, f"|{rule}|", *others])


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {markdown_text(line)}" for line in lines)


def _fold(fold: Fold, language: Language) -> str:
    title = language.translate(tr("{id}: {sentence}", id=fold.key, sentence=fold.title))
    known = (tr("{label}: {value}", label=label, value=written(value, language)) for label, value in fold.facts)
    lines = [*map(language.translate, known), *(written(each, language) for each in fold.lines)]
    command = [f"- {markdown_code(fold.command)}"] if fold.command else []
    return "\n".join(
        [f"#### {markdown_text(title, _WHOLE)}", "", *(f"- {markdown_text(each, _WHOLE)}" for each in lines), *command]
    )
