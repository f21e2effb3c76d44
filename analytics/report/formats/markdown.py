"""The report as Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from analytics.findings.block_text import ENDED
from analytics.findings.evidence_text import evidence
from analytics.findings.totals import to_take
from analytics.language.quantities import GpuHours, Moment, Number
from analytics.language.sentences import say, say_many
from analytics.ledger.summary import ratio
from analytics.ledger.text import MEANING, plain
from analytics.money.text import basis_lines, energy_lines, state_amounts
from analytics.report.blocks import capacity, course, lists, people
from analytics.report.facts import facts
from analytics.report.listed import notified, to_act_on
from analytics.report.wording import (
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
from fallow.schema import STATES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analytics.findings.model import Finding
    from analytics.language.languages import Language
    from analytics.report.blocks.block import Block
    from analytics.report.model import Report, Section

_TOP = 10
_SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|#~&@$"})
_LINK = re.compile(r"(://|www\.)", re.IGNORECASE)
"""What GitHub's Markdown turns into a link although nobody asked for one."""


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
            *(_finding(finding, report, said) for finding in to_act_on(report)[:_TOP]),
            *_rest(report, said),
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


def escape(text: str) -> str:
    """Text that Markdown shows as it is: names come from users and may hold markup."""
    literal = plain(text, 400).translate(_SPECIAL)
    return _LINK.sub(lambda found: found[0][:-1] + "\\" + found[0][-1], literal)


def _name(text: str) -> str:
    return escape(plain(text))


def code(text: str) -> str:
    """Text as a code span, in a fence longer than any run of backticks in it."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


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
    return [*basis_lines(report.money, language=language), *energy_lines(report.money, language), *remarks]


def _idle(report: Report, language: Language) -> list[str]:
    observed, idle = report.summary.totals.observed_ms, report.summary.idle
    rows = {language.say("in all"): idle.zero_ms}
    rows |= {
        language.say(say("in spells of at least {span}", span=name)): spell for name, spell in idle.spell_ms.items()
    }
    lines = [f"| {name} | {language.percent(ratio(part, observed))} |" for name, part in rows.items()]
    return [f"| {language.say('time at 0 %')} | {language.say('of observed')} |", "|---|---:|", *lines]


def _section(section: Section, language: Language) -> list[str]:
    shown = ("unavailable", "free", "reserved", "held", "low", "active")
    heads = [language.say(each) for each in (section.name, "GPUs", "GPU-hours", "observed", *shown)]
    lines = [f"| {' | '.join(heads)} |", "|---|---:|---:|---:|" + "---:|" * len(shown)]
    groups, rest = shown_groups(section)
    for name, totals in groups:
        cells = (
            _name(group_name(section, name, language)),
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


def _finding(finding: Finding, report: Report, language: Language) -> str:
    say_it = language.say
    gpus = say_many("{number} GPU", "{number} GPUs", len(finding.gpus))
    where = say("{gpus} on {host}", gpus=gpus, host=_name(finding.host)) if finding.host else gpus
    what = say(
        "{hours} GPU-hours, {where} {sentence}", hours=GpuHours(finding.gpu_ms), where=where, sentence=finding.sentence
    )
    holder = say(
        "{holder}, since {moment}",
        holder=_name(finding.holder) if finding.holder else say(finding.without_holder), moment=Moment(finding.since_ms),
    )  # fmt: skip
    failed = escape("; ".join(say_it(each) for each in finding.confidence.failed))
    rows = {
        "holder": say_it(holder),
        "confidence": say_it(finding.confidence.grade) + (f" ({failed})" if failed else ""),
        "notified": say_it(notified(report, finding)),
        "evidence": escape(say_it(evidence(finding))),
        "next": code(finding.next_command) if finding.next_command else say_it(ENDED),
    }
    simulated = f" ({say_it('simulated')})" if finding.simulated else ""
    heading = say("{label}: {value}", label=finding.finding_id, value=what)
    lines = [f"### {say_it(heading)}{simulated}", ""]
    labelled = (say("{label}: {value}", label=say(label), value=text) for label, text in rows.items())
    return "\n".join([*lines, *(f"- {say_it(each)}" for each in labelled)])


def _rest(report: Report, language: Language) -> list[str]:
    found = to_act_on(report)
    rest = found[_TOP:]
    if not found:
        return [language.say("No findings: no GPU was held for long without a kernel, and none went unused.")]
    if not rest:
        return []
    further = len(to_take(found) - to_take(found[:_TOP]))
    gpus = say_many("{number} further GPU", "{number} further GPUs", further)
    return [language.say(say("And {number} more, with {gpus} to take back.", number=Number(len(rest)), gpus=gpus))]
