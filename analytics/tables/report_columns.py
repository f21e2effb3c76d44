"""The report's JSON: every figure as columns over the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from analytics.decide.review import waiting_rules
from analytics.report.parts import ScopedReview
from analytics.report.report import Report
from analytics.tables.finding_list import FINDING_COLUMNS, REVERSALS
from analytics.tables.findings import notes, nudges
from analytics.tables.goals import goal_columns
from analytics.tables.ledger_columns import LEDGER_COLUMNS, SCOPE_COLUMNS, TOTALS_COLUMNS, WINDOW_COLUMNS
from analytics.tables.off_peak import OFF_PEAK_COLUMNS
from analytics.tables.packings import PACKING_COLUMNS
from analytics.tables.people import people_columns
from analytics.tables.recommendations import DECISIONS, VALUES
from analytics.tables.table import Column, column_of, entries_column, fact, flag, record_column, rows_column
from analytics.tables.trends import trend_columns
from analytics.tables.verdicts import POOL_DEMAND
from analytics.tables.weeks import week_columns
from analytics.tables.wording import WAITING
from analytics.workloads.model import Finding
from fallow.clock import format_ms


def with_notes(review: ScopedReview, found: Sequence[Finding]) -> list[Finding]:
    """Return the findings with the notes that the report's readers may see."""
    return [replace(each, notes=notes(review, each)) for each in found]


def for_reading(review: ScopedReview, *, is_all: bool) -> list[Finding]:
    """Return the findings for programs, with the status of snoozed ones. Low confidence is included only on request."""
    return with_notes(review, review.findings if is_all else review.sure)


def _findings(key: str, part: str, about: str = "") -> Column:
    return rows_column(
        key, FINDING_COLUMNS, lambda report: with_notes(report.review, getattr(report.review, part)), about
    )


def _weeks_before(report: Report) -> Iterator[tuple[str, float | None]]:
    if report.weeks is not None and report.asked.week is not None:
        for number, seen in enumerate(report.weeks.seen_before, start=1):
            yield report.asked.week.before(number).label, seen.share


OBSERVED_COLUMNS = (
    *WINDOW_COLUMNS,
    fact("last_seen", "moment", "last_ms", about="When the last of the GPUs was seen."),
    fact("gpus", "count", about="Seen in the window or in the four weeks before its end."),
    fact("observed_gpu_hours", "gpu_hours", "observed_ms"),
    fact(
        "unseen_gpu_hours",
        "gpu_hours",
        "unseen_ms",
        about=(
            "GPU time of these GPUs of which nothing is known; more than `unknown` of the ledger, which ends with what "
            "was seen."
        ),
    ),
    fact(
        "outside_gpu_hours",
        "gpu_hours",
        "outside_ms",
        about=(
            "Of them, those before a host's first row or after its last, which are in no sum; the rest is `unknown` in "
            "the ledger."
        ),
    ),
    fact("share", "share", about="Observed of both together; null where no GPU is known."),
    rows_column(
        "silent",
        (
            fact("host", "host", nullable=False),
            fact("gpus", "count"),
            fact("since", "moment", "since_ms", nullable=False),
            flag("whole_host", about="False where other GPUs of the host were seen to the end."),
        ),
        about="Hosts that were not seen to the end, or of which GPUs were not, the most GPUs first.",
    ),
)
"""Columns of `Seen`."""

_PEOPLE = people_columns("user")

REPORT_COLUMNS = (
    fact("fallow_version", "words", "heading.version", nullable=False),
    fact("lake", "words", "heading.lake", about="Where it lies; null in an edition for a team or a user."),
    flag("empty", "ledger.is_empty", "Whether nothing was seen in the window: figures are null then."),
    record_column(
        "known",
        (fact("since", "moment", "since_ms"), fact("until", "moment", "until_ms")),
        "heading.known",
        "From when to when the lake has rows.",
    ),
    record_column(
        "observed",
        OBSERVED_COLUMNS,
        "ledger.seen",
        "The window that was asked for, as far as it has passed, and how much of its GPU time was seen.",
    ),
    fact("simulated_gpus", "count", "heading.simulated_gpus", about="GPUs that do not exist."),
    fact("hosts", "count", "heading.hosts"),
    record_column(
        "settings",
        (
            fact("idle_after_ms", "count", "settings.idle_after_ms"),
            fact("low_below_pct", "number", "settings.low_below_pct"),
            fact("held_min_bytes", "count", "settings.held_min_bytes"),
            fact("held_min_ms", "count"),
        ),
        "heading",
        "The thresholds in force.",
    ),
    record_column("ledger", LEDGER_COLUMNS, about="The numbers of `fallow ledger --json`, to the digit."),
    *(column_of("recommendations", each) for each in (DECISIONS, *VALUES, POOL_DEMAND)),
    entries_column(
        "by",
        entries_column("", record_column("", TOTALS_COLUMNS)),
        "breakdown.by",
        "The same totals by pool, model, day of the report's time zone, and user.",
    ),
    _findings("findings", "shown", "Those that are not snoozed, what can be taken back first."),
    entries_column(
        "notified",
        fact("", "moment", json_type="array"),
        lambda report: {
            each.finding_id: [format_ms(nudge.time_ms) for nudge in nudges(report.review, each)]
            for each in report.review.shown
        },
        "By finding, when its user was notified, the earliest first.",
    ),
    column_of(lambda report: waiting_rules(report.review.context), WAITING),
    record_column(
        "week",
        (fact("label", "words", about="ISO week.", nullable=False), *WINDOW_COLUMNS),
        "asked.week",
        "Null where the window is no week.",
    ),
    record_column("scope", SCOPE_COLUMNS, about="What the report is narrowed to; null is everything."),
    fact(
        "timezone",
        "words",
        lambda report: str(report.asked.zone),
        None,
        "IANA name of the zone of weeks.",
        nullable=False,
    ),
    rows_column(
        "weeks_before",
        (
            fact("label", "words", lambda week: week[0], nullable=False),
            fact("observed_share", "share", lambda week: week[1]),
        ),
        _weeks_before,
        "How much was seen of the four weeks before, the newest first; empty where the window is no week.",
    ),
    rows_column(
        "weeks",
        week_columns(""),
        lambda report: report.weeks.weeks if report.weeks else (),
        "The week and the 13 before it, the newest first; empty where the window is no week.",
    ),
    rows_column(
        "goals",
        goal_columns(),
        lambda report: report.weeks.goals if report.weeks else (),
        "Where the goals of money.goals stand; empty where the window is no week.",
    ),
    entries_column(
        "trends",
        record_column("", trend_columns()),
        lambda report: {each.name: each for each in report.weeks.trends} if report.weeks else {},
        "By figure; empty where the window is no week. `last_week` is null where nothing of that week was seen, the"
        " median unless 90 % of each of the four weeks before was.",
    ),
    rows_column("teams", _PEOPLE, "people.teams"),
    rows_column("users", _PEOPLE, "people.users"),
    rows_column(
        "packings",
        PACKING_COLUMNS,
        "recommendations.sizing.packings",
        "Workloads that together fill some cards, so that others come free; docs/fit.md.",
    ),
    rows_column(
        "off_peak",
        OFF_PEAK_COLUMNS,
        lambda report: report.off_peak or (),
        "Hours of the week in which GPUs of a pool were not needed in nine weeks of ten.",
    ),
    _findings("snoozed", "snoozed"),
    _findings(
        "ended",
        "ended",
        "What became of last week's findings: the reversed ones, then the closed ones and those not seen to the end.",
    ),
    entries_column(
        "sensitivity",
        fact("", "number"),
        lambda report: {f"{minutes}min": hours for minutes, hours in report.review.sensitivity.items()},
        "GPU-hours held without a kernel, by the shortest interval that counts.",
    ),
    column_of("review", REVERSALS),
)
"""Columns of a `Report`."""
