"""`fallow findings`: the evidence for recommendations, and what people do about findings."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from analytics.commands import finding_actions as action_command
from analytics.commands.finding_actions import as_listed, no_finding
from analytics.commands.reference_verb import check_name
from analytics.commands.table_verb import Tables, TableVerb, VerbInputs, add_output_arguments, most_lines
from analytics.decide.review import is_in_scope, waiting_rules
from analytics.decide.totals import FindingTotals, most_first, totals
from analytics.language.sentences import tr, tr_many
from analytics.quality.model import named
from analytics.render.one_screen import SCREEN_LINES
from analytics.report.parts import ScopedReview
from analytics.rules import RULES
from analytics.tables.finding_heading import more_of_low
from analytics.tables.finding_list import (
    FINDING_COLUMNS,
    REVERSALS,
    TOTALS_COLUMNS,
    closed_by_rule,
    finding_folds,
    finding_list,
    only_a_look,
    totals_by_rule,
    worth,
)
from analytics.tables.findings import gone
from analytics.tables.idle import idle
from analytics.tables.ledger_columns import WINDOW_COLUMNS
from analytics.tables.point_samples import point_samples
from analytics.tables.table import column_of, entries_column, fact, record_column, rows_column
from analytics.tables.wording import WAITING, waiting
from analytics.window import HISTORY_MS
from analytics.workloads.model import CATEGORIES, Finding
from fallow.errors import UsageError

_NONE = tr("no findings: no rule that has enough history found anything in this window")


@dataclass(frozen=True)
class _Chosen:
    """The findings of a window that scope and filters leave; `listed` are the findings to show."""

    review: ScopedReview
    listed: Sequence[Finding]
    limit: int | None
    is_emptied: bool
    has_all: bool

    @property
    def shown(self) -> Sequence[Finding]:
        """The listed findings, up to the limit."""
        return self.listed[: self.limit]

    @property
    def sums(self) -> FindingTotals:
        """The sums of the listed findings. Their number of low-confidence findings includes unlisted ones."""
        return totals([*self.listed, *(() if self.has_all else self.review.low)])


def _chosen(given: VerbInputs, args: argparse.Namespace) -> _Chosen:
    whole = given.whole

    def is_left(each: Finding) -> bool:
        return (
            is_in_scope(each, given.scope, whole.inventory)
            and (not args.rule or each.rule in args.rule)
            and (not args.category or each.category in args.category)
            and (args.min_cost is None or (each.cost is not None and each.cost >= args.min_cost))
        )

    found = whole.review.about(is_left, given.part.inside.segments)
    listed = most_first(found.findings if args.all else found.shown)
    is_emptied = bool(whole.review.findings) and not found.findings
    heading = given.report.heading
    # who may read the lake may know who did what, in any scope
    review = ScopedReview(
        **vars(found),
        scope=given.scope.of_gpus,
        people=frozenset(),
        gpus=heading.gpus,
        simulated_gpus=heading.simulated_gpus,
    )
    return _Chosen(review, listed, args.limit, is_emptied, args.all)


def _tables(given: VerbInputs, args: argparse.Namespace) -> Tables:
    """Yield the findings, their sums by rule, the idle threshold's effect, the evidence, and last week's findings."""
    found = _chosen(given, args)
    yield finding_list(found.listed, args.limit, headline=_headline(given, found), notes=tuple(_notes(given, found)))
    yield totals_by_rule(found.listed)
    yield idle(given.report.ledger)
    yield point_samples(given.report.ledger)
    # one screen has no room for the evidence of this many, and says where it is
    is_one_screen = args.format in (None, "text") and most_lines(args) is not None
    folded = found.shown[:SCREEN_LINES] if is_one_screen else found.shown
    yield finding_folds(folded, given.whole.inventory)
    if found.review.reversals is not None or found.review.gone:
        yield replace(gone(found.review), lines=tuple(closed_by_rule(found.review.ended)))


def _headline(given: VerbInputs, found: _Chosen) -> str:
    if found.review.findings:
        return worth(found.sums, found.sums.low_findings if found.has_all else 0)
    if found.is_emptied:
        number = len(given.whole.review.findings)
        return tr_many("The filters leave none of the {number} {finding|findings} of this window.", number)
    return _NONE


def _notes(given: VerbInputs, found: _Chosen) -> Iterator[str]:
    """Yield why commands only look, which hosts have a clock that is ahead, and how many findings are hidden."""
    context, hidden, low = found.review.context, len(found.review.snoozed), len(found.review.low)
    if found.listed and (look := only_a_look(context, given.now_ms)):
        yield look
    if context.ahead:
        yield tr(
            "The clock of {hosts} is ahead: nothing is taken back there until it is set.",
            hosts=named(sorted(context.ahead), "host"),
        )
    if low and not found.has_all:
        yield tr("{more}: --all", more=more_of_low(low))
    if hidden:
        yield tr_many("{number} {finding snoozed; --all shows it|findings snoozed; --all shows them}", hidden)


def _about(given: VerbInputs) -> Iterator[str]:
    gpus = tr_many("{number} {GPU|GPUs}", given.part.summary.totals.gpus)
    yield tr("{label}: {value}", label=tr("fleet"), value=gpus)
    yield waiting(waiting_rules(given.whole.review.context))


COLUMNS = (
    # a host whose clock is ahead does not move the end of what the findings rest on
    column_of("review.context", record_column("window", WINDOW_COLUMNS, "")),
    record_column(
        "totals",
        TOTALS_COLUMNS,
        "sums",
        "Sums of all findings that the filters leave, whatever the limit.",
    ),
    record_column(
        "sensitivity",
        (
            entries_column(
                "held_gpu_hours",
                fact("", "number"),
                lambda held: {f"{minutes}min": hours for minutes, hours in held.items()},
            ),
        ),
        "review.sensitivity",
    ),
    column_of("review", REVERSALS),
    fact("snoozed", "count", lambda found: len(found.review.snoozed)),
    rows_column("findings", FINDING_COLUMNS, "shown"),
    column_of(lambda found: waiting_rules(found.review.context), WAITING),
    rows_column("gone", FINDING_COLUMNS, "review.ended"),
)


def _flags(parser: argparse.ArgumentParser) -> None:
    chosen = parser.add_argument_group("which findings")
    chosen.add_argument("--rule", action="append", metavar="NAME", help="only findings of this rule; repeatable")
    chosen.add_argument(
        "--category", action="append", choices=CATEGORIES, help="only findings of this category; repeatable"
    )
    chosen.add_argument(
        "--min-cost",
        type=float,
        metavar="AMOUNT",
        help="only findings that cost at least this much; findings without a price are left out",
    )
    chosen.add_argument("--limit", type=int, metavar="N", help="only the first N findings")


def _check(args: argparse.Namespace) -> None:
    names = [rule.name for rule in RULES]
    for name in args.rule or ():
        check_name("rule", name, names, f"the rules are {', '.join(names)}")
    if args.limit is not None and args.limit < 1:
        raise UsageError(f"--limit {args.limit} is not above 0", "leave it out for all findings")
    # a comparison with not-a-number is false
    if args.min_cost is not None and not args.min_cost >= 0:
        raise UsageError(f"--min-cost {args.min_cost:g} is not 0 or more", "give an amount of money, such as 100")


_FINDINGS = TableVerb(
    tr("Findings"),
    _tables,
    about=_about,
    content=lambda given, args: (COLUMNS, _chosen(given, args)),
    flags=_flags,
    check=_check,
    since="all",
    history_ms=HISTORY_MS,
    all_shows="all rows and notes, findings of low confidence and snoozed findings",
)


def _add_show(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    verb = verbs.add_parser(
        "show",
        help="show findings in full",
        epilog="example: fallow findings show F-0123456789 --lake /srv/lake",
        argument_default=argparse.SUPPRESS,  # a value before the verb stays
    )
    verb.add_argument("ids", nargs="+", type=as_listed, metavar="ID", help="id of a finding: F-0123456789")
    verb.add_argument("--lake", metavar="DIR", help="the lake")
    verb.add_argument("--config", metavar="FILE", help="config file")
    add_output_arguments(verb)
    verb.set_defaults(all=True)


def _named(given: VerbInputs, args: argparse.Namespace) -> list[Finding]:
    """Return the findings with these ids, also snoozed and last week's. Raises FallowError for an unknown id."""
    found = given.whole.review
    known: dict[str, Finding] = {each.finding_id: each for each in (*found.gone, *found.findings)}
    for each in args.ids:
        if each not in known:
            raise no_finding(each, known)
    return [known[each] for each in dict.fromkeys(args.ids)]


def _whole(given: VerbInputs, args: argparse.Namespace) -> Tables:
    shown, look = _named(given, args), only_a_look(given.whole.review.context, given.now_ms)
    yield finding_list(shown, notes=(look,) if look else ())
    yield finding_folds(shown, given.whole.inventory, whole=True)


_SHOW = TableVerb(
    tr("Findings"),
    _whole,
    content=lambda given, args: ((rows_column("findings", FINDING_COLUMNS, ""),), _named(given, args)),
    since="all",
    history_ms=HISTORY_MS,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _FINDINGS.add_arguments(parser)
    verbs = parser.add_subparsers(dest="verb", metavar=f"show|{'|'.join(action_command.VERBS)}", title="verbs")
    _add_show(verbs)
    action_command.add_verbs(verbs)


def run(args: argparse.Namespace) -> int:
    """Print the findings, or act on some of them; return the exit code."""
    if args.verb == "show":
        return _SHOW.run(args)
    return action_command.run(args) if args.verb else _FINDINGS.run(args)
