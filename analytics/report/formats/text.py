"""The report as plain text, 100 columns wide."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from analytics.findings.text import findings_text
from analytics.ledger.text import cost_lines, hours, percent, plain, state_lines, wrap
from analytics.money.text import basis_lines, energy_lines, state_amounts
from analytics.report.wording import TITLE, header, headline, how_made, how_sure, reclaimable, shown_groups

if TYPE_CHECKING:
    from analytics.language.languages import Language
    from analytics.report.model import Report, Section

_TOP = 10
_WIDTH = 100
_SHOWN = ("unavailable", "free", "reserved", "held", "low", "active")
_HEADING = {"unavailable": " unavail.", "reserved": " reserved"}


class TextFormat:
    """`--format text`."""

    name = "text"
    suffix = ".txt"

    def render(self, report: Report, language: Language) -> bytes:
        """The whole document."""
        blocks = [
            "\n".join([f"{TITLE} (fallow {report.version})", *header(report)]),
            *(["\n".join(wrap(report.simulated, _WIDTH))] if report.simulated else []),
            "\n".join(
                line
                for each in (headline(report), reclaimable(report), *how_sure(report))
                for line in wrap(each, _WIDTH)
            ),
            "\n".join(["WHERE THE TIME WENT", *_states(report)]),
            "\n".join(["MONEY AND ENERGY", *_money(report)]),
            "\n".join(_idle(report)),
            *("\n".join(_section(section)) for section in report.sections if section.groups),
            "FINDINGS: WHAT CAN BE TAKEN BACK FIRST, THEN BY GPU-HOURS\n"
            + textwrap.indent(findings_text(report.findings, _TOP), "  "),
            "\n".join(["DATA QUALITY", *_remarks(report)]),
            "\n".join(
                [
                    "HOW EACH FIGURE IS MADE",
                    *(line for each in how_made(report) for line in wrap(each, _WIDTH, "  ", "    ")),
                ]
            ),
        ]
        return ("\n\n".join(blocks) + "\n").encode()


def _states(report: Report) -> list[str]:
    totals, amounts = report.summary.totals, state_amounts(report.money)
    return cost_lines(totals, amounts, report.money.currency) if amounts else state_lines(totals)


def _money(report: Report) -> list[str]:
    """The lines of `fallow ledger`, two columns in."""
    lines = [*basis_lines(report.money), *energy_lines(report.money), *report.money.remarks]
    return [
        each
        for line in lines
        for each in (wrap(line, _WIDTH, "  ", "    ") if len(line) > _WIDTH - 2 else [f"  {line}"])
    ]


def _idle(report: Report) -> list[str]:
    observed, idle = report.summary.totals.observed_ms, report.summary.idle
    shares = [percent(spell / observed if observed else None) for spell in (idle.zero_ms, *idle.spell_ms.values())]
    names = ["in all", *(f">= {name}" for name in idle.spell_ms)]
    return [
        "AT ZERO UTILIZATION, WHOEVER HOLDS THE GPU (of observed time; the threshold makes the headline)",
        "  " + "".join(f"{name:>12}" for name in names),
        "  " + "".join(f"{share:>12}" for share in shares),
    ]


def _section(section: Section) -> list[str]:
    shown, rest = shown_groups(section)
    width = 21
    lines = [
        f"BY {section.name.upper()} (GPU-hours; share of the observed time)",
        f"  {section.name:<{width}} {'GPUs':>5} {'GPU-hours':>10} {'observed':>9}"
        + "".join(_heading(state) for state in _SHOWN),
    ]
    for full_name, totals in shown:
        name = plain(full_name, width)
        shares = "".join(f"{percent(totals.share(state)):>{len(_heading(state))}}" for state in _SHOWN)
        lines.append(
            f"  {name:<{width}} {totals.gpus:>5} {hours(totals.total_ms):>10} {percent(totals.coverage):>9}{shares}"
        )
    return [*lines, f"  {rest}"] if rest else lines


def _heading(state: str) -> str:
    return _HEADING.get(state, f"{state:>8}")


def _remarks(report: Report) -> list[str]:
    if not report.quality:
        return ["  nothing to remark"]
    return [line for remark in report.quality for line in wrap(plain(remark.sentence, 400), _WIDTH, "  - ", "    ")]
