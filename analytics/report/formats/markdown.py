"""The report as Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from analytics.findings.evidence_text import evidence
from analytics.findings.text import ENDED
from analytics.findings.totals import to_take
from analytics.ledger.text import MEANING, count, hours, moment, percent, plain
from analytics.money.text import basis_lines, energy_lines, state_amounts
from analytics.report.wording import TITLE, header, headline, how_made, how_sure, reclaimable, shown_groups
from fallow.schema import STATES

if TYPE_CHECKING:
    from analytics.findings.model import Finding
    from analytics.language.languages import Language
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
        blocks = [
            f"# {TITLE}",
            "  \n".join(header(report)),
            *([f"**{report.simulated}**"] if report.simulated else []),
            f"**{headline(report)}** {reclaimable(report)}",
            "\n".join(f"- {escape(line)}" for line in how_sure(report)),
            "## Where the time went",
            "\n".join(_states(report)),
            "## Money and energy",
            "\n".join(
                f"- {escape(line)}"
                for line in (*basis_lines(report.money), *energy_lines(report.money), *report.money.remarks)
            ),
            "## At zero utilization, whoever holds the GPU",
            "\n".join(_idle(report)),
            *(
                f"## By {section.name}\n\n" + "\n".join(_section(section))
                for section in report.sections
                if section.groups
            ),
            "## Findings: what can be taken back first, then by GPU-hours",
            *(_finding(finding) for finding in report.findings[:_TOP]),
            *_rest(report),
            "## Data quality",
            "\n".join(f"- {escape(remark.sentence)}" for remark in report.quality) or "Nothing to remark.",
            "## How each figure is made",
            "\n".join(f"- {line}" for line in how_made(report)),
            f"fallow {report.version}",
        ]
        return ("\n\n".join(blocks) + "\n").encode()


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


def _states(report: Report) -> list[str]:
    totals, amounts = report.summary.totals, state_amounts(report.money)
    heading, rule = (f" {report.money.currency} |", "---:|") if amounts else ("", "")
    lines = [f"| state | GPU-hours | of observed |{heading} meaning |", f"|---|---:|---:|{rule}---|"]
    for state in STATES:
        share = "" if state == "unknown" else percent(totals.share(state))
        paid = f" {amounts[state]} |" if amounts else ""
        lines.append(f"| {state} | {hours(totals.state_ms[state])} | {share} |{paid} {MEANING[state]} |")
    paid = f" **{amounts['total']}** |" if amounts else ""
    return [*lines, f"| **total** | **{hours(totals.total_ms)}** | |{paid} |"]


def _idle(report: Report) -> list[str]:
    observed, idle = report.summary.totals.observed_ms, report.summary.idle
    rows = {"in all": idle.zero_ms} | {f"in spells of at least {name}": spell for name, spell in idle.spell_ms.items()}
    lines = [f"| {name} | {percent(part / observed if observed else None)} |" for name, part in rows.items()]
    return ["| time at 0 % | of observed |", "|---|---:|", *lines]


def _section(section: Section) -> list[str]:
    shown = ("unavailable", "free", "reserved", "held", "low", "active")
    lines = [
        f"| {section.name} | GPUs | GPU-hours | observed | {' | '.join(shown)} |",
        "|---|---:|---:|---:|" + "---:|" * len(shown),
    ]
    groups, rest = shown_groups(section)
    for name, totals in groups:
        shares = " | ".join(percent(totals.share(state)) for state in shown)
        lines.append(
            f"| {_name(name)} | {totals.gpus} | {hours(totals.total_ms)} | {percent(totals.coverage)} | {shares} |"
        )
    return [*lines, "", f"{rest[0].upper()}{rest[1:]}."] if rest else lines


def _finding(finding: Finding) -> str:
    holder = _name(finding.holder) if finding.holder else finding.without_holder
    gpus = count(len(finding.gpus), "GPU")
    lines = [
        (
            f"### {finding.finding_id}: {finding.gpu_hours:,.1f} GPU-hours, {gpus} on {_name(finding.host)} "
            f"{finding.sentence}{' (simulated)' if finding.simulated else ''}"
        ),
        "",
        f"- holder: {holder}, since {moment(finding.since_ms)}",
        (
            f"- confidence: {finding.confidence.grade}{' (' if finding.confidence.failed else ''}"
            f"{escape('; '.join(finding.confidence.failed))}{')' if finding.confidence.failed else ''}"
        ),
        f"- evidence: {escape(evidence(finding))}",
        f"- next: {code(finding.next_command) if finding.next_command else ENDED}",
    ]
    return "\n".join(lines)


def _rest(report: Report) -> list[str]:
    rest = report.findings[_TOP:]
    if not report.findings:
        return ["No findings: no GPU was held for long without a kernel, and none went unused."]
    if not rest:
        return []
    further = len(to_take(report.findings) - to_take(report.findings[:_TOP]))
    return [f"And {len(rest)} more, with {count(further, 'further GPU')} to take back."]
