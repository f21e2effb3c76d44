"""Findings as plain text: a block of a few lines each, or one compact line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analytics.language.plain_text import plain, wrap
from analytics.render.finding_block_text import ENDED, NONE, Beside, block, left_out
from analytics.workloads.confidence import UNCONFIRMED_MAX
from analytics.workloads.model import Finding

__all__ = ["ENDED", "Beside", "block", "compact", "findings_text", "gone_lines"]


def findings_text(
    findings: Sequence[Finding], limit: int | None = None, beside: Beside | None = None, blocks: int | None = None
) -> str:
    """The findings in their order; `limit` shortens the list and says so, and beyond the first `blocks` each is one line."""
    if not findings:
        return NONE
    shown = findings[:limit]
    parts = [block(finding, beside) for finding in shown[:blocks]]
    if len(parts) < len(shown):
        parts.append("\n".join(compact(shown[len(parts) :])))
    if len(shown) < len(findings):
        parts.append(left_out(findings, shown))
    return "\n\n".join(parts)


def compact(findings: Sequence[Finding]) -> list[str]:
    """A table with a line for each finding, of at most 100 columns."""
    currency = next((finding.currency for finding in findings if finding.currency), None)
    price = f"cost {plain(currency, 5)}" if currency else "cost"
    head = f"{'finding':<12} {'to take':>7} {price:>10} {'GPU-hours':>9}  {'holder':<13} {'host':<14} {'rule':<17} confidence"
    return [head, *map(_line, findings)]


def _line(finding: Finding) -> str:
    cost = "-" if finding.cost is None else f"{finding.cost:,.2f}" if finding.cost < 1e6 else f"{finding.cost:,.0f}"
    cost = f"<={cost}" if finding.cost is not None and finding.unconfirmed > UNCONFIRMED_MAX else cost
    host = f"{finding.host.count('+') + 1} hosts" if "+" in finding.host else plain(finding.host, 14) or "-"
    holder = plain(finding.holder, 13) if finding.holder else finding.without_holder
    return (
        f"{finding.finding_id:<12} {len(finding.reclaimable_gpus):>7,} {cost:>10} {finding.gpu_hours:>9,.1f}  "
        f"{holder:<13} {host:<14} {finding.rule:<17} {finding.confidence.grade}"
    )


def gone_lines(gone: Iterable[Finding]) -> list[str]:
    """Each of last week's findings that are not there any more, with its notes."""
    return [line for finding in gone for line in _gone(finding)]


def _gone(finding: Finding) -> list[str]:
    holder = plain(finding.holder, 30) if finding.holder else finding.without_holder
    what = f"  {finding.finding_id}  {finding.status:<8}  {finding.rule:<20}  {holder} on {plain(finding.host, 30)}"
    return [what, *(line for each in finding.notes for line in wrap(plain(each), 100, f"{'':26}", f"{'':26}"))]
