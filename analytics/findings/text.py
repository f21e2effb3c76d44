"""Findings as plain text: a block of a few lines each, or one compact line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from analytics.findings.evidence_text import evidence, money
from analytics.findings.totals import to_take
from analytics.ledger.text import count, moment, plain, wrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from analytics.devices import Inventory
    from analytics.findings.model import Finding

ENDED = "nothing to take back now, it has ended"
_WIDTH = 98
"""100 columns less the report's indent."""
_LABEL = 12
_INNER = _WIDTH - _LABEL - 3
_NAMES = 4
"""GPUs in a line that is shortened. Those that can be taken back are always all named."""
_WHOLE = 100_000


@dataclass(frozen=True)
class Beside:
    """What is known beside the findings.

    The inventory tells the index of a GPU on its host, and `look` why no command that ends anything is given, where that is
    the same for all of them.
    """

    inventory: Inventory | None = None
    look: str = ""


def findings_text(
    findings: Sequence[Finding], limit: int | None = None, beside: Beside | None = None, blocks: int | None = None
) -> str:
    """The findings in their order; `limit` shortens the list and says so, and beyond the first `blocks` each is one line."""
    if not findings:
        return "no findings: no GPU was held for long without a kernel, and none went unused"
    shown = findings[:limit]
    parts = [block(finding, beside) for finding in shown[:blocks]]
    if len(parts) < len(shown):
        parts.append("\n".join(compact(shown[len(parts) :])))
    if len(shown) < len(findings):
        parts.append(_more(findings, shown))
    return "\n\n".join(parts)


def _more(findings: Sequence[Finding], shown: Sequence[Finding]) -> str:
    """What a shortened list leaves out; its GPUs are those of the header that are not listed."""
    rest = len(to_take(findings) - to_take(shown))
    taken = count(rest, "more GPU") if rest else "no more GPU"
    return f"and {count(len(findings) - len(shown), 'more finding')} with {taken} to take back; `fallow findings` lists all"


def block(finding: Finding, beside: Beside | None = None, *, whole: bool = False) -> str:
    """One finding on a few lines; `whole` shortens nothing."""
    simulated = " (simulated)" if finding.simulated else ""
    host = f" on {plain(finding.host)}" if finding.host else ""
    headline = f"{_sums(finding)}: {count(len(finding.gpus), 'GPU')}{host} {finding.sentence}{simulated}"
    long = _WHOLE if whole else _INNER
    beside = beside or Beside()
    look = beside.look if finding.reclaimable and finding.category == "reclaim" else ""
    lines = [
        *wrap(headline, _WIDTH, f"{finding.finding_id}  ", "  "),
        *_labelled("holder", _holder(finding)),
        *(_labelled("job", plain(finding.job, long)) if finding.job else []),
        *_taken(finding, beside.inventory, whole=whole),
        *_labelled("rule", f"{finding.rule}, {finding.status}"),
        *_labelled("confidence", finding.confidence.grade + ("" if not finding.confidence.failed else ":")),
        *(line for each in finding.confidence.failed for line in wrap(each, _WIDTH, f"{'':15}- ", f"{'':17}")),
        *_labelled("evidence", evidence(finding)),
        *(line for each in finding.notes for line in _labelled("note", plain(each, _WHOLE if whole else 400))),
        *(_labelled("note", look) if look else []),
        f"  {'next':<{_LABEL}} {finding.next_command or ENDED}",
    ]
    return "\n".join(lines)


def _taken(finding: Finding, inventory: Inventory | None, *, whole: bool) -> list[str]:
    """Which GPUs can be taken back, all of them by name, and which others the finding is about."""
    own = finding.reclaimable_gpus
    others = [gpu for gpu in finding.gpus if gpu not in own]
    if not own:
        names = _names(others, finding, inventory, None if whole else _NAMES)
        return [*_labelled("to take back", "none now"), *_labelled("seen on", names)]
    taken = f"{_names(own, finding, inventory, None)} ({len(own)} of {len(finding.gpus)})"
    if not others:
        return _labelled("to take back", taken)
    names = _names(others, finding, inventory, None if whole else _NAMES)
    also = f"{count(len(others), 'more GPU')}, in use or given back: {names}"
    return [*_labelled("to take back", taken), *_labelled("also seen on", also)]


def _names(gpus: Sequence[str], finding: Finding, inventory: Inventory | None, most: int | None) -> str:
    """GPUs with their indexes, by host where the finding is not about a single one."""
    devices = {} if inventory is None else inventory.devices
    several = not finding.host or "+" in finding.host
    hosts: dict[str, list[str]] = {}
    for gpu in gpus[:most]:
        device = devices.get(gpu)
        index = "" if device is None or device.gpu_index is None else f" (index {device.gpu_index})"
        host = device.host if device is not None and several else ""
        hosts.setdefault(host, []).append(plain(gpu) + index)
    rest = len(gpus) - len(gpus[:most])
    parts = [f"{plain(host)}: {', '.join(names)}" if host else ", ".join(names) for host, names in hosts.items()]
    return "; ".join(parts) + (f" and {rest:,} more" if rest else "")


def compact(findings: Sequence[Finding]) -> list[str]:
    """A table with a line for each finding, of at most 100 columns."""
    currency = next((finding.currency for finding in findings if finding.currency), None)
    price = f"cost {plain(currency, 5)}" if currency else "cost"
    head = f"{'finding':<12} {'to take':>7} {price:>10} {'GPU-hours':>9}  {'holder':<13} {'host':<14} {'rule':<17} confidence"
    return [head, *map(_line, findings)]


def _line(finding: Finding) -> str:
    cost = "-" if finding.cost is None else f"{finding.cost:,.2f}" if finding.cost < 1e6 else f"{finding.cost:,.0f}"
    host = f"{finding.host.count('+') + 1} hosts" if "+" in finding.host else plain(finding.host, 14) or "-"
    holder = plain(finding.holder, 13) if finding.holder else finding.without_holder
    return (
        f"{finding.finding_id:<12} {len(finding.reclaimable_gpus):>7,} {cost:>10} {finding.gpu_hours:>9,.1f}  "
        f"{holder:<13} {host:<14} {finding.rule:<17} {finding.confidence.grade}"
    )


def _sums(finding: Finding) -> str:
    """GPU time, what it cost and the energy, as far as they are known."""
    cost = [] if finding.cost is None else [money(finding.cost, finding.currency)]
    energy = [] if finding.energy_kwh is None else [f"{finding.energy_kwh:,.1f} kWh"]
    return ", ".join([f"{finding.gpu_hours:,.1f} GPU-hours", *cost, *energy])


def _holder(finding: Finding) -> str:
    holder = plain(finding.holder) if finding.holder else finding.without_holder
    team = f" (team {plain(finding.team)})" if finding.team else ""
    return f"{holder}{team}, since {moment(finding.since_ms)}"


def _labelled(label: str, text: str) -> list[str]:
    return [
        f"  {label if number == 0 else '':<{_LABEL}} {line}" for number, line in enumerate(wrap(text, _INNER) or [""])
    ]


def gone_lines(gone: Iterable[Finding]) -> list[str]:
    """Each of last week's findings that are not there any more, with its notes."""
    return [line for finding in gone for line in _gone(finding)]


def _gone(finding: Finding) -> list[str]:
    holder = plain(finding.holder, 30) if finding.holder else finding.without_holder
    what = f"  {finding.finding_id}  {finding.status:<8}  {finding.rule:<20}  {holder} on {plain(finding.host, 30)}"
    return [what, *(line for each in finding.notes for line in wrap(plain(each), 100, f"{'':26}", f"{'':26}"))]
