"""`fallow findings` as plain text of at most 100 columns: what it adds up to, then each finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.findings.sensitivity import in_words
from analytics.findings.text import findings_text, money
from analytics.findings.totals import totals
from analytics.ledger.text import count, moment, percent, plain, wrap
from fallow.clock import HOUR_MS, format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.findings.find import Review
    from analytics.findings.model import Finding
    from analytics.findings.reversals import Rate, Reversals
    from analytics.ledger.summary import Summary

_WIDTH = 100


def review_text(
    review: Review, summary: Summary, listed: Sequence[Finding], gone: Sequence[Finding], limit: int | None
) -> str:
    """The whole page: `listed` are the findings that the filters leave, `gone` what they leave of last week's."""
    blocks = [
        "\n".join(line for each in _head(review, summary, listed) for line in wrap(each, _WIDTH, "", "  ")),
        *(["\n".join(_by_rule(listed))] if listed else []),
        findings_text(listed, limit),
        *(["\n".join(["GONE SINCE LAST WEEK", *map(_gone, gone)])] if gone else []),
    ]
    return "\n\n".join(blocks)


def _head(review: Review, summary: Summary, listed: Sequence[Finding]) -> list[str]:
    span = f"{moment(summary.since_ms)} to {moment(summary.until_ms)}"
    hidden = len(review.suppressed)
    return [
        f"{count(len(listed), 'finding')} over {count(summary.totals.gpus, 'GPU')}, {span}",
        *([_worth(listed)] if listed else []),
        f"held without a kernel: {in_words(review.sensitivity)}",
        *([reversals_text(review.reversals)] if review.reversals else []),
        *([f"{count(hidden, 'finding')} suppressed; --all shows them"] if hidden else []),
    ]


def _worth(findings: Sequence[Finding]) -> str:
    sums = totals(findings)
    unpriced = (
        f" ({count(sums.unpriced, 'finding')} without a price)" if sums.unpriced and sums.cost is not None else ""
    )
    cost = "" if sums.cost is None else f", {money(sums.cost, sums.currency)}{unpriced}"
    surely = f", {sums.gpus_to_take_surely} with high confidence" if sums.gpus_to_take else ""
    taken = f"{count(sums.gpus_to_take, 'GPU') if sums.gpus_to_take else 'no GPU'} can be taken back{surely}"
    return f"{taken}; all findings together are about {sums.gpu_hours:,.1f} GPU-hours{cost}"


def reversals_text(found: Reversals) -> str:
    """How often last week's findings were wrong, in one sentence."""
    horizon = format_duration(found.horizon_ms - found.horizon_ms % HOUR_MS)
    if not found.n:
        unseen = f" ({found.not_judged} not observed since)" if found.not_judged else ""
        return (
            f"reversals: no finding up to {moment(found.until_ms)} named GPUs to take back that can be judged{unseen}"
        )
    low, high = found.total.interval
    unseen = f"; {found.not_judged} not judged, not observed since" if found.not_judged else ""
    return (
        f"reversals: of {count(found.n, 'finding')} up to {moment(found.until_ms)}, {found.total.wrong} "
        f"{'was' if found.total.wrong == 1 else 'were'} wrong within {horizon} ({percent(found.rate, 0)}; "
        f"{percent(low, 0)} to {percent(high, 0)} at 90 %): {_grades(found)}{unseen}"
    )


def _grades(found: Reversals) -> str:
    def shown(grade: str, rate: Rate) -> str:
        return f"{grade} {rate.wrong} of {rate.judged}"

    return ", ".join(shown(grade, rate) for grade, rate in found.by_grade.items())


def _by_rule(findings: Sequence[Finding]) -> list[str]:
    """A line for each rule, the most GPU time first."""
    rules: dict[str, list[Finding]] = {}
    for finding in findings:
        rules.setdefault(finding.rule, []).append(finding)
    lines = [f"  {'rule':<24} {'findings':>8} {'GPUs':>6} {'to take':>8} {'GPU-hours':>12} {'cost':>18}"]
    for rule, own in sorted(rules.items(), key=lambda item: (-sum(each.gpu_ms for each in item[1]), item[0])):
        sums = totals(own)
        cost = "-" if sums.cost is None else money(sums.cost, sums.currency)
        lines.append(
            f"  {rule:<24} {sums.findings:>8} {sums.gpus:>6} {sums.gpus_to_take:>8} {sums.gpu_hours:>12,.1f} {cost:>18}"
        )
    return lines


def _gone(finding: Finding) -> str:
    holder = plain(finding.holder, 30) if finding.holder else finding.without_holder
    what = f"{finding.finding_id}  {finding.status:<8}  {finding.rule:<20}  {holder} on {plain(finding.host, 30)}"
    return "\n".join(
        [f"  {what}", *(line for each in finding.notes for line in wrap(plain(each), _WIDTH, f"{'':26}", f"{'':26}"))]
    )
