"""Findings as plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.findings.evidence_text import evidence
from analytics.ledger.text import count, moment, plain, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.findings.model import Finding

ENDED = "nothing to take back now, it has ended"
_WIDTH = 98
"""100 columns less the report's indent."""
_INNER = _WIDTH - 14


def findings_text(findings: Sequence[Finding], limit: int | None = None) -> str:
    """A block of a few lines per finding, in their order; `limit` shortens the list and says so."""
    if not findings:
        return "no findings: no GPU was held for long without a kernel, and none went unused"
    shown = findings[:limit]
    blocks = [_block(finding) for finding in shown]
    if len(shown) < len(findings):
        rest = sum(finding.gpu_hours for finding in findings[len(shown) :])
        blocks.append(
            f"and {len(findings) - len(shown)} more with {rest:,.1f} GPU-hours; `fallow findings` lists them all"
        )
    return "\n\n".join(blocks)


def _block(finding: Finding) -> str:
    simulated = " (simulated)" if finding.simulated else ""
    host = f" on {plain(finding.host)}" if finding.host else ""
    headline = f"{_sums(finding)}: {count(len(finding.gpus), 'GPU')}{host} {finding.sentence}{simulated}"
    lines = [
        *wrap(headline, _WIDTH, f"{finding.finding_id}  ", "  "),
        *_labelled("holder", wrap(_holder(finding), _INNER)),
        *(_labelled("job", wrap(plain(finding.job, _INNER), _INNER)) if finding.job else []),
        *_labelled("gpus", wrap(_gpus(finding), _INNER)),
        f"  {'status':<11} {finding.status}",
        f"  {'confidence':<11} {finding.confidence.grade}" + ("" if not finding.confidence.failed else ":"),
        *(line for each in finding.confidence.failed for line in wrap(each, _WIDTH, f"{'':14}- ", f"{'':16}")),
        *_labelled("evidence", wrap(evidence(finding), _INNER)),
        *(line for each in finding.notes for line in _labelled("note", wrap(plain(each, 400), _INNER))),
        f"  {'next':<11} {finding.next_command or ENDED}",
    ]
    return "\n".join(lines)


def _sums(finding: Finding) -> str:
    """GPU time, what it cost and the energy, as far as they are known."""
    cost = [] if finding.cost is None else [money(finding.cost, finding.currency)]
    energy = [] if finding.energy_kwh is None else [f"{finding.energy_kwh:,.1f} kWh"]
    return ", ".join([f"{finding.gpu_hours:,.1f} GPU-hours", *cost, *energy])


def money(amount: float, currency: str | None) -> str:
    """`1,234.50 USD`."""
    return f"{amount:,.2f} {plain(currency or '')}".rstrip()


def _holder(finding: Finding) -> str:
    holder = plain(finding.holder) if finding.holder else finding.without_holder
    team = f" (team {plain(finding.team)})" if finding.team else ""
    return f"{holder}{team}, since {moment(finding.since_ms)}"


def _labelled(label: str, lines: list[str]) -> list[str]:
    return [f"  {label if number == 0 else '':<11} {line}" for number, line in enumerate(lines)]


def _gpus(finding: Finding) -> str:
    most = 4
    rest = len(finding.gpus) - most
    return ", ".join(map(plain, finding.gpus[:most])) + (f" and {rest} more" if rest > 0 else "")
