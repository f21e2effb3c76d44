"""The report as plain text, 100 columns wide."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING

from analytics.language.plain_text import PAGE_COLUMNS, plain, wrap
from analytics.language.sentences import say
from analytics.ledger.summary import SPELLS, ratio
from analytics.render.blocks import capacity, lists, people
from analytics.render.blocks import trends as course
from analytics.render.facts import facts
from analytics.render.finding_block_text import NONE, block, left_out
from analytics.render.ledger_text import cost_lines, state_lines
from analytics.render.listed_findings import notes, notified, to_act_on
from analytics.render.money_text import basis_lines, energy_lines, state_amounts
from analytics.render.report.columns import columns
from analytics.render.wording import (
    BY,
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

if TYPE_CHECKING:
    from analytics.language.languages import Language
    from analytics.render.blocks.block import Block
    from analytics.report.model import Report, Section
    from analytics.workloads.model import Finding

_TOP = 10
_WIDTH = PAGE_COLUMNS
_SHORT = {"unavailable": say("unavail.")}


class TextFormat:
    """`--format text`."""

    name = "text"
    suffix = ".txt"

    def render(self, report: Report, language: Language) -> bytes:
        """The whole document."""
        said = for_text(language)
        if report.is_empty:
            lines = wrap(said.say(headline(report)), _WIDTH)
            return "\n".join([_head(report, said), "", *lines, ""]).encode()
        blocks = [
            _head(report, said),
            *(["\n".join(wrap(said.say(report.simulated), _WIDTH))] if report.simulated else []),
            "\n".join(
                line
                for each in (said.say(headline(report)), said.say(reclaimable(report)), *how_sure(report, said))
                for line in wrap(each, _WIDTH)
            ),
            _shown(course.against_before(report, said)),
            _titled(said.say("Where the time went"), _states(report, said)),
            _shown(course.from_paid_to_useful(report, said)),
            _titled(said.say("Money and energy"), _money(report, said)),
            _idle(report, said),
            _shown(capacity.beyond_need(report, said)),
            *(_section(section, said) for section in report.sections if section.groups),
            _shown(people.teams(report, said)),
            _shown(people.holders(report, said)),
            _titled(
                said.say("Findings: what can be taken back first, then by cost"),
                _findings(report, said),
            ),
            *(_shown(make(report, said)) for make in (lists.inefficient, lists.winding_down)),
            _shown(capacity.off_peak(report, said)),
            *(_shown(make(report, said)) for make in (lists.gone, lists.suppressed)),
            "" if report.scope.is_personal else _titled(said.say("Data quality"), _remarks(report, said)),
            _titled(said.say("How each figure is made"), [
                line for each in how_made(report) for line in wrap(said.say(each), _WIDTH, "  ", "    ")
            ]),
        ]  # fmt: skip
        return ("\n\n".join(block for block in blocks if block) + "\n").encode()


def _head(report: Report, language: Language) -> str:
    told = facts(report, language)
    widest = max(len(label) for label, _ in told)
    lines = wrap(language.say(title(report)), _WIDTH)
    for label, value in told:
        lines += wrap(value, _WIDTH, f"  {label:<{widest}}  ", " " * (widest + 4))
    return "\n".join(lines)


def _titled(heading: str, lines: list[str], about: str = "") -> str:
    return "\n".join([*wrap(heading.upper() + (f" ({about})" if about else ""), _WIDTH), *lines])


def _shown(block: Block | None) -> str:
    """A table, a list and lines, two columns in."""
    if block is None:
        return ""
    lines = columns(block.head, block.rows, block.words, _WIDTH) if block.rows else []
    lines += [line for each in block.items for line in wrap(each, _WIDTH, "  - ", "    ")]
    lines += [line for each in block.lines for line in wrap(each, _WIDTH, "  ", "  ")]
    return _titled(block.title, lines, block.about)


def _states(report: Report, language: Language) -> list[str]:
    totals, amounts = report.summary.totals, state_amounts(report.money, language)
    if amounts:
        return cost_lines(totals, amounts, report.money.currency, _WIDTH, language)
    return state_lines(totals, _WIDTH, language)


def _money(report: Report, language: Language) -> list[str]:
    """The lines of `fallow ledger`, two columns in."""
    remarks = [language.say(remark) for remark in report.money.remarks]
    lines = [
        *basis_lines(report.money, _WIDTH - 2, language),
        *energy_lines(report.money, _WIDTH - 2, language),
        *remarks,
    ]
    return [
        each
        for line in lines
        for each in (wrap(line, _WIDTH, "  ", "    ") if len(line) > _WIDTH - 2 else [f"  {line}"])
    ]


def _idle(report: Report, language: Language) -> str:
    observed, idle = report.summary.totals.observed_ms, report.summary.idle
    shares = [language.percent(ratio(spell, observed)) for spell in (idle.zero_ms, *idle.spell_ms.values())]
    names = [language.say("in all"), *(f">= {language.minutes(SPELLS[name])}" for name in idle.spell_ms)]
    return _titled(
        language.say("At zero utilization, whoever holds the GPU"),
        ["  " + "".join(f"{name:>12}" for name in names), "  " + "".join(f"{share:>12}" for share in shares)],
        language.say("of observed time; the threshold makes the headline"),
    )


def _section(section: Section, language: Language) -> str:
    shown, rest = shown_groups(section)
    width = 21
    heads = [language.say(_SHORT.get(state, state)) for state in OBSERVED]
    wide = [max(8, len(head) + 1) for head in heads]
    first, gpus, total, observed = (language.say(each) for each in (section.name, "GPUs", "GPU-hours", "observed"))
    lines = [
        f"  {first:<{width}} {gpus:>5} {total:>10} {observed:>9}"
        + "".join(f"{head:>{each}}" for head, each in zip(heads, wide, strict=True))
    ]
    for full_name, totals in shown:
        name = plain(group_name(section, full_name, language), width)
        spent, seen = language.hours(totals.total_ms), language.percent(totals.coverage)
        shares = "".join(
            f"{language.percent(totals.share(state)):>{each}}" for state, each in zip(OBSERVED, wide, strict=True)
        )
        lines.append(f"  {name:<{width}} {language.number(totals.gpus):>5} {spent:>10} {seen:>9}{shares}")
    about = language.say("GPU-hours; share of the observed time")
    return _titled(language.say(BY[section.name]), [*lines, f"  {language.say(rest)}"] if rest else lines, about)


def _findings(report: Report, language: Language) -> list[str]:
    found = to_act_on(report)
    shown = found[:_TOP]
    parts = [_block(finding, report, language) for finding in shown] or [language.say(NONE)]
    more = [language.say(left_out(found, shown))] if len(shown) < len(found) else []
    return textwrap.indent("\n\n".join([*parts, *more]), "  ").splitlines()


def _block(finding: Finding, report: Report, language: Language) -> str:
    return block(
        replace(finding, notes=notes(report, finding)), language=language, told=notified(report, finding)
    )  # fmt: skip


def _remarks(report: Report, language: Language) -> list[str]:
    if not report.quality:
        return [f"  {language.say('nothing to remark')}"]
    return [
        line
        for remark in report.quality
        for line in wrap(plain(language.say(remark.sentence), 400), _WIDTH, "  - ", "    ")
    ]
