"""The report as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.language.sentences import say
from analytics.ledger.summary import SPELLS, ratio
from analytics.render.blocks import capacity, lists, people
from analytics.render.blocks import trends as course
from analytics.render.facts import facts
from analytics.render.ledger_text import MEANING
from analytics.render.money_text import basis_lines, energy_sentences, state_amounts
from analytics.render.report.markdown_findings import findings
from analytics.render.report.markdown_words import escape, name
from analytics.render.wording import (
    BY,
    as_sentence,
    for_text,
    group_name,
    headline,
    how_made,
    how_sure,
    reclaimable,
    shown_groups,
    title,
)
from analytics.states import OBSERVED
from fallow.schema import STATES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analytics.language.languages import Language
    from analytics.render.blocks.block import Block
    from analytics.report.model import Report, Section

_WHOLE = 1_000
"""Columns that no line of prices has."""


class MarkdownFormat:
    """`--format md`."""

    name = "md"
    suffix = ".md"

    def render(self, report: Report, language: Language) -> bytes:
        """The whole document."""
        said = for_text(language)
        say_it = said.say
        if report.is_empty:
            return ("\n\n".join([*_head(report, said), say_it(headline(report))]) + "\n").encode()
        blocks = [
            *_head(report, said),
            *([f"**{say_it(report.simulated)}**"] if report.simulated else []),
            f"**{say_it(headline(report))}** {say_it(reclaimable(report))}",
            _listed(how_sure(report, said)),
            *_shown(course.against_before(report, said)),
            f"## {say_it('Where the time went')}",
            "\n".join(_states(report, said)),
            *_shown(course.from_paid_to_useful(report, said)),
            f"## {say_it('Money and energy')}",
            _listed(_money(report, said)),
            f"## {say_it('At zero utilization, whoever holds the GPU')}",
            "\n".join(_idle(report, said)),
            *_shown(capacity.beyond_need(report, said)),
            *(
                f"## {say_it(BY[section.name])}\n\n" + "\n".join(_section(section, said))
                for section in report.sections
                if section.groups
            ),
            *_shown(people.teams(report, said)),
            *_shown(people.holders(report, said)),
            f"## {say_it('Findings: what can be taken back first, then by cost')}",
            *findings(report, said),
            *(part for make in (lists.inefficient, lists.winding_down) for part in _shown(make(report, said))),
            *_shown(capacity.off_peak(report, said)),
            *(part for make in (lists.gone, lists.suppressed) for part in _shown(make(report, said))),
            *_quality(report, said),
            f"## {say_it('How each figure is made')}",
            "\n".join(f"- {say_it(line)}" for line in how_made(report)),
        ]
        return ("\n\n".join(blocks) + "\n").encode()


def _head(report: Report, language: Language) -> list[str]:
    told = (say("{label}: {value}", label=label, value=value) for label, value in facts(report, language))
    return [f"# {escape(language.say(title(report)))}", _listed(map(language.say, told))]


def _shown(block: Block | None) -> list[str]:
    """A heading, then a table, a list and lines."""
    if block is None:
        return []
    table = []
    if block.rows:
        rule = "|".join("---" if place in block.words else "---:" for place in range(len(block.head)))
        rows = (" | ".join(map(escape, row)) for row in (block.head, *block.rows))
        table = [f"| {row} |" for row in rows]
        table.insert(1, f"|{rule}|")
    about = f" ({block.about})" if block.about else ""
    parts = [f"## {escape(block.title + about)}", "\n".join(table), _listed(block.items)]
    return [part for part in (*parts, *map(escape, block.lines)) if part]


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {escape(line)}" for line in lines)


def _states(report: Report, language: Language) -> list[str]:
    totals, amounts = report.summary.totals, state_amounts(report.money, language)
    state_head, hours, observed, meaning = map(language.say, ("state", "GPU-hours", "of observed", "meaning"))
    heading, rule = (f" {report.money.currency} |", "---:|") if amounts else ("", "")
    lines = [f"| {state_head} | {hours} | {observed} |{heading} {meaning} |", f"|---|---:|---:|{rule}---|"]
    for state in STATES:
        share = "" if state == "unknown" else language.percent(totals.share(state))
        paid = f" {amounts[state]} |" if amounts else ""
        name, spent = language.say(state), language.hours(totals.state_ms[state])
        lines.append(f"| {name} | {spent} | {share} |{paid} {language.say(MEANING[state])} |")
    paid = f" **{amounts['total']}** |" if amounts else ""
    return [*lines, f"| **{language.say('total')}** | **{language.hours(totals.total_ms)}** | |{paid} |"]


def _money(report: Report, language: Language) -> list[str]:
    remarks = (language.say(remark) for remark in report.money.remarks)
    return [*basis_lines(report.money, _WHOLE, language), *energy_sentences(report.money, language), *remarks]


def _idle(report: Report, language: Language) -> list[str]:
    observed, idle = report.summary.totals.observed_ms, report.summary.idle
    rows = {language.say("in all"): idle.zero_ms}
    rows |= {
        language.say(say("in spells of at least {span}", span=language.minutes(SPELLS[name]))): spell
        for name, spell in idle.spell_ms.items()
    }
    lines = [f"| {spells} | {language.percent(ratio(part, observed))} |" for spells, part in rows.items()]
    return [f"| {language.say('time at 0 %')} | {language.say('of observed')} |", "|---|---:|", *lines]


def _section(section: Section, language: Language) -> list[str]:
    shown = OBSERVED
    heads = [language.say(each) for each in (section.name, "GPUs", "GPU-hours", "observed", *shown)]
    lines = [f"| {' | '.join(heads)} |", "|---|---:|---:|---:|" + "---:|" * len(shown)]
    groups, rest = shown_groups(section)
    for each, totals in groups:
        cells = (
            name(group_name(section, each, language)),
            language.number(totals.gpus),
            language.hours(totals.total_ms),
            language.percent(totals.coverage),
            *(language.percent(totals.share(state)) for state in shown),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", as_sentence(language.say(rest))] if rest else lines


def _quality(report: Report, language: Language) -> list[str]:
    """Nothing in an edition for people, which has no data quality."""
    if report.scope.is_personal:
        return []
    remarks = _listed(language.say(remark.sentence) for remark in report.quality)
    return [f"## {language.say('Data quality')}", remarks or language.say("Nothing to remark.")]
