"""Findings as plain text."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from analytics.ledger.text import moment, percent
from fallow.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.findings.model import Finding


def findings_text(findings: Sequence[Finding], limit: int | None = None) -> str:
    """A block of a few lines per finding, the most GPU-hours first; `limit` shortens the list and says so."""
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
    count = f"{len(finding.gpus)} GPU{'' if len(finding.gpus) == 1 else 's'}"
    simulated = " (simulated)" if finding.simulated else ""
    energy = "" if finding.energy_kwh is None else f", {finding.energy_kwh:,.1f} kWh"
    lines = [
        f"{finding.finding_id}  {finding.gpu_hours:,.1f} GPU-hours{energy}: {count} on {finding.host} {finding.sentence}{simulated}",
        f"  holder      {finding.holder or 'not known'}, since {moment(finding.since_ms)}",
        f"  gpus        {_gpus(finding)}",
        f"  confidence  {finding.confidence.grade}" + ("" if not finding.confidence.failed else ":"),
        *(f"              - {failure}" for failure in finding.confidence.failed),
        *_labelled("evidence", evidence_lines(finding)),
    ]
    if finding.next_command:
        lines.append(f"  next        {finding.next_command}")
    else:
        lines.append("  next        nothing to take back now: it has ended")
    return "\n".join(lines)


def _labelled(label: str, lines: list[str]) -> list[str]:
    return [f"  {label if number == 0 else '':<11} {line}" for number, line in enumerate(lines)]


def _gpus(finding: Finding) -> str:
    most = 2
    rest = len(finding.gpus) - most
    return ", ".join(finding.gpus[:most]) + (f" and {rest} more" if rest > 0 else "")


def evidence_lines(finding: Finding) -> list[str]:
    """The known numbers of the evidence in words, wrapped to 86 columns."""
    known = {name: value for name, value in finding.evidence.numbers.items() if value is not None}
    return textwrap.wrap("; ".join(_words(name, value) for name, value in known.items()), 86)


_UNITS = (("_pct", " %"), ("_w", " W"), ("_h", " h"))


def _words(name: str, value: float | str) -> str:
    if isinstance(value, str):
        return f"{name.replace('_', ' ')} {value}"
    if name == "coverage":
        return f"coverage {percent(value)}"
    if name.endswith("_bytes"):
        return f"{name.removesuffix('_bytes').replace('_', ' ')} {format_bytes(value)}"
    shown = f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
    for suffix, unit in _UNITS:
        if name.endswith(suffix):
            return f"{name.removesuffix(suffix).replace('_', ' ')} {shown}{unit}"
    return f"{name.replace('_', ' ')} {shown}"
