"""The sentences that more than one format says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.findings.review_text import reversals_text
from analytics.findings.sensitivity import in_words
from analytics.ledger.text import count, hours, moment, percent, stopped_lines
from fallow.clock import format_duration

if TYPE_CHECKING:
    from analytics.ledger.summary import Totals
    from analytics.report.model import Report, Section

TITLE = "GPU waste report"
WASTE_STATES = ("free", "reserved", "held")


def header(report: Report) -> list[str]:
    """Window, extent and coverage."""
    summary, totals = report.summary, report.summary.totals
    gpus, hosts = count(totals.gpus, "GPU"), count(report.hosts, "host")
    return [
        f"{moment(summary.since_ms)} to {moment(summary.until_ms)}",
        f"{gpus} on {hosts}, {percent(totals.coverage)} of their time observed",
        *stopped_lines(summary),
    ]


def headline(report: Report) -> str:
    """The one sentence that a reader takes away."""
    totals = report.summary.totals
    wasted = sum(totals.state_ms[state] for state in WASTE_STATES)
    if not totals.observed_ms:
        return "Nothing was observed in this window."
    parts = ", ".join(f"{percent(totals.share(state))} {state}" for state in WASTE_STATES)
    return (
        f"{hours(wasted)} of {hours(totals.observed_ms)} observed GPU-hours went unused: {parts}; "
        f"{percent(totals.share('active'))} were active."
    )


def reclaimable(report: Report) -> str:
    """What the findings add up to. A GPU in two findings counts once."""
    now = {gpu for finding in report.findings for gpu in finding.reclaimable_gpus}
    sure = {
        gpu for finding in report.findings if finding.confidence.grade == "high" for gpu in finding.reclaimable_gpus
    }  # fmt: skip
    if not now:
        return "No GPU could be taken back at the end of the window."
    return f"{count(len(now), 'GPU')} could be taken back at the end of the window, {len(sure)} with high confidence."


def how_sure(report: Report) -> list[str]:
    """What the threshold does to the idle headline, how last week's findings fared, and what is hidden."""
    found = report.review
    hidden = len(found.suppressed)
    return [
        f"Held without a kernel: {in_words(found.sensitivity)}.",
        *([_sentence(reversals_text(found.reversals))] if found.reversals else []),
        *([f"{count(hidden, 'finding')} suppressed."] if hidden else []),
    ]


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


_MOST_GROUPS = {"holder": 10}


def shown_groups(section: Section) -> tuple[list[tuple[str, Totals]], str]:
    """The groups that are listed, and a line that counts the others; the most GPU time first, days in their order.

    Left out: what would show as 0.0 GPU-hours, such as the 20 ms by which a last interval reaches into a day.
    """
    groups = list(section.groups.items())
    if section.name != "day":
        groups.sort(key=lambda item: -item[1].total_ms)
    sizeable = [item for item in groups if hours(item[1].total_ms) != "0.0"] or groups
    most = _MOST_GROUPS.get(section.name, 40)
    shown = sizeable[-most:] if section.name == "day" else sizeable[:most]
    if len(shown) == len(groups):
        return shown, ""
    rest_ms = sum(totals.total_ms for _, totals in groups) - sum(totals.total_ms for _, totals in shown)
    return shown, "" if hours(
        rest_ms
    ) == "0.0" else f"and {len(groups) - len(shown)} more with {hours(rest_ms)} GPU-hours"


def how_made(report: Report) -> list[str]:
    """How each figure is made, with the thresholds in force."""
    settings = report.settings
    return [
        "A sample stands for the time to the next one, at most three intervals; the rest is unknown.",
        (
            f"Held: a holder, and no kernel for at least {format_duration(settings.idle_after_ms)}. "
            f"Low: a mean below {settings.low_below_pct:g} % over the stretch."
        ),
        f"A held finding counts stretches of at least {format_duration(report.held_min_ms)}.",
        f"Without a process list, more than {settings.held_min_bytes / 1e9:g} GB in use stands for a holder.",
        "Shares are of the observed time. States add up to the total to the millisecond.",
    ]
