"""The report in JSON: every figure of it as columns over the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from analytics.decide.review import waiting_rules
from analytics.language.quantities import from_cents
from analytics.report.model import Report
from analytics.tables.finding_list import FINDING_COLUMNS, REVERSALS
from analytics.tables.findings import notes
from analytics.tables.ledger_columns import LEDGER_COLUMNS, SCOPE_COLUMNS, TOTALS_COLUMNS, WINDOW_COLUMNS
from analytics.tables.packings import PACKING_COLUMNS
from analytics.tables.people import people_columns
from analytics.tables.readiness import WAITING
from analytics.tables.recommendations import DECISIONS, RECLAIMABLE, SAVINGS
from analytics.tables.table import column_of, entries_column, fact, flag, record_column, rows_column
from analytics.tables.weeks import week_columns
from analytics.workloads.model import Finding
from fallow.clock import format_ms


def with_notes(report: Report, found: Sequence[Finding]) -> list[Finding]:
    """Return the findings with the notes that the report's readers may see."""
    return [replace(each, notes=notes(report, each)) for each in found]


def _notified(report: Report) -> Mapping[str, list[str]]:
    """When the users of the findings were notified, the earliest first, by finding."""
    return {
        each.finding_id: [
            format_ms(action.time_ms)
            for action in report.review.actions.get(each.finding_id, ())
            if action.kind == "notify"
        ]
        for each in report.findings
    }


def _weeks_before(report: Report) -> Iterator[tuple[str, float | None]]:
    if report.week is not None:
        for number, seen in enumerate(report.seen_before, start=1):
            yield report.week.before(number).label, seen.share


OBSERVED_COLUMNS = (
    *WINDOW_COLUMNS,
    fact("last_seen", "moment", "last_ms", about="When the last of the GPUs was seen."),
    fact("gpus", "count", about="Seen in the window or in the four weeks before its end."),
    fact("observed_gpu_hours", "gpu_hours", "observed_ms"),
    fact(
        "unseen_gpu_hours",
        "gpu_hours",
        "unseen_ms",
        about="GPU time of these GPUs of which nothing is known; more than `unknown` of the ledger, which ends with what "
        "was seen.",
    ),
    fact(
        "outside_gpu_hours",
        "gpu_hours",
        "outside_ms",
        about="Of them, those before a host's first row or after its last, which are in no sum; the rest is `unknown` in "
        "the ledger.",
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
"""Of `Seen`."""

_GOAL = (
    fact("pool", "pool", "goal.scope.pool"),
    fact("team", "team", "goal.scope.team"),
    fact("measure", "words", "goal.measure", about="unused_share, or waste: the cost of a week."),
    fact("goal", "number", "goal.level", about="At most."),
    fact("by", "moment", "goal.by", nullable=False),
    fact("week", "words", "week.label", about="The newest week that was over and observed as a whole."),
    *(fact(name, "number") for name in ("now", "four_weeks_before", "thirteen_weeks_before")),
    fact("course", "words", nullable=False),
    fact("weeks", "count", about="Weeks between the first and the newest whole one, 13 at most."),
    fact("weeks_left", "number"),
    fact("pace", "number", about="Median change a week; null below five whole weeks."),
    fact(
        "needed_pace",
        "number",
        about="Change a week from now on that leads to the goal in time; null once the day has passed.",
    ),
)
_TREND = (
    fact("unit", "words", about="gpu_hours, money, share or gpus.", nullable=False),
    fact("now", "number"),
    fact("last_week", "number", about="Null where nothing of that week was seen; `weeks_before` says how much was."),
    fact("median_4_weeks", "number", about="Null unless 90 % of each of the four weeks before was seen."),
)
_SURPLUS = (
    fact("pool", "pool"),
    fact("model", "name"),
    fact("gpus", "number"),
    *(fact(name, "count") for name in ("low", "point", "high")),
    entries_column(
        "blocks", fact("", "count"), about="How many can go if only whole blocks of that many on one host do."
    ),
    fact("history_days", "number"),
    record_column(
        "back_test",
        (
            *(fact(name, "count") for name in ("since_ms", "until_ms", "point", "hours")),
            fact(
                "short_hours",
                "count",
                about="Hours in which more were needed at once than the estimate of a week earlier would have left.",
            ),
        ),
    ),
)
_OFF_PEAK = (
    fact("pool", "pool"),
    fact("weekday", "count", about="0 is Monday."),
    fact("from_hour", "count"),
    fact("until_hour", "count", about="From the weekday's midnight: may lie beyond 24."),
    fact("gpus", "count"),
    fact("weeks", "count", about="How many weeks it rests on."),
)
_PEOPLE = people_columns("holder")

REPORT_COLUMNS = (
    fact("fallow_version", "words", "version", nullable=False),
    fact("lake", "words", about="Where it lies; null in an edition for a team or a user."),
    flag("empty", "is_empty", "Whether nothing was seen in the window: figures are null then."),
    record_column(
        "known",
        (fact("since", "moment", "since_ms"), fact("until", "moment", "until_ms")),
        about="From when to when the lake has rows.",
    ),
    record_column(
        "observed",
        OBSERVED_COLUMNS,
        "seen",
        "The window that was asked for, as far as it has passed, and how much of its GPU time was seen.",
    ),
    fact("simulated_gpus", "count", about="GPUs that do not exist."),
    fact("hosts", "count"),
    record_column(
        "settings",
        (
            fact("idle_after_ms", "count", "settings.idle_after_ms"),
            fact("low_below_pct", "number", "settings.low_below_pct"),
            fact("held_min_bytes", "count", "settings.held_min_bytes"),
            fact("held_min_ms", "count"),
        ),
        "",
        "The thresholds in force.",
    ),
    record_column("ledger", LEDGER_COLUMNS, "", "The numbers of `fallow ledger --json`, to the digit."),
    *(column_of("recommendations", each) for each in (DECISIONS, *SAVINGS)),
    column_of("recommendations", RECLAIMABLE, "reclaimable_now"),
    entries_column(
        "by",
        entries_column("", record_column("", TOTALS_COLUMNS)),
        "groups",
        "The same totals by pool, model, day of the report's time zone, and holder.",
    ),
    rows_column(
        "findings",
        FINDING_COLUMNS,
        lambda report: with_notes(report, report.findings),
        "Those that are not suppressed, what can be taken back first.",
    ),
    entries_column(
        "notified",
        fact("", "moment", json_type="array"),
        _notified,
        "By finding, when its user was notified, the earliest first.",
    ),
    column_of(lambda report: waiting_rules(report.review.context), WAITING),
    record_column(
        "week",
        (fact("label", "words", about="ISO week.", nullable=False), *WINDOW_COLUMNS),
        about="Null where the window is no week.",
    ),
    record_column(
        "scope",
        SCOPE_COLUMNS,
        about="What the report is narrowed to; null is everything.",
    ),
    fact("timezone", "words", lambda report: str(report.zone), about="IANA name of the zone of weeks.", nullable=False),
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
        about="The week and the 13 before it, the newest first; empty where the window is no week.",
    ),
    rows_column("goals", _GOAL, about="Where the goals of money.goals stand; empty where the window is no week."),
    entries_column(
        "trends",
        record_column("", _TREND),
        lambda report: {each.name: each for each in report.trends},
        "By figure; empty where the window is no week.",
    ),
    rows_column(
        "waterfall",
        (
            fact("state", "state", nullable=False),
            fact("gpu_hours", "gpu_hours", "gpu_ms"),
            fact("amount", "money", lambda step: from_cents(step.cents)),
        ),
        "steps",
        "What each state takes of what was paid, and at last what was useful.",
    ),
    rows_column("teams", _PEOPLE),
    rows_column("holders", _PEOPLE),
    rows_column("reclaimable", _SURPLUS, about="GPUs of a model in a pool beyond what was needed at once."),
    rows_column(
        "packings",
        PACKING_COLUMNS,
        "right_sizing.packings",
        "Workloads that together fill some cards, so that others come free; docs/packings.md.",
    ),
    rows_column(
        "off_peak",
        _OFF_PEAK,
        about="Hours of the week in which GPUs of a pool were not needed in nine weeks of ten.",
    ),
    rows_column("suppressed", FINDING_COLUMNS, lambda report: with_notes(report, report.review.suppressed)),
    rows_column(
        "ended",
        FINDING_COLUMNS,
        lambda report: with_notes(report, report.review.ended),
        "What became of last week's findings: the reversed ones, then the closed ones and those not seen to the end.",
    ),
    entries_column(
        "sensitivity",
        fact("", "number"),
        lambda report: {f"{minutes}min": hours for minutes, hours in report.review.sensitivity.items()},
        "GPU-hours held without a kernel, by the shortest interval that counts.",
    ),
    column_of("review", REVERSALS),
    rows_column(
        "data_quality",
        (
            fact("kind", "words", nullable=False),
            fact("sentence", "words", nullable=False),
            fact("count", "count"),
            fact("example", "words"),
        ),
        "quality",
    ),
)
"""Of a `Report`."""
