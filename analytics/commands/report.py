"""`fallow report`: write the waste report in one of several formats, or send it."""

from __future__ import annotations

import argparse

from analytics.commands.report_edition import Edition, add_edition_arguments, format_named, open_edition
from analytics.commands.table_verb import add_output_arguments, most_lines
from analytics.commands.written_file import write_out
from analytics.decide.review import waiting_rules
from analytics.language.sentences import tr
from analytics.render.report.formats import FORMATS
from analytics.render.report.json_format import report_schema
from analytics.render.report.text import for_text
from analytics.render.tables import VerbAnswer, document
from analytics.tables.facts import facts
from analytics.tables.report_sections import chapters
from analytics.tables.wording import lead, title, waiting
from analytics.window import add_common_arguments
from fallow.clock import SystemClock, format_ms
from fallow.errors import UsageError
from fallow.outside_text import json_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common_arguments(parser)
    add_edition_arguments(parser)
    add_output_arguments(parser, (*(each.name for each in FORMATS), "parquet"))
    parser.add_argument(
        "--compare",
        metavar="WITH",
        help="compare with another window: before (the same length just before), 13w (13 weeks earlier) or two "
        "days, 2026-08-10..2026-08-16",
    )
    parser.add_argument(
        "--schema", action="store_const", const=True, help="print the JSON Schema of --format json instead of a report"
    )
    _add_verbs(parser)


def _add_verbs(parser: argparse.ArgumentParser) -> None:
    from analytics.commands import report_nudge as nudge_command
    from analytics.commands import report_send as send_command

    verbs = parser.add_subparsers(dest="verb", metavar="send|nudge", title="verbs")
    # a value before the verb stays
    send = verbs.add_parser(
        "send",
        help="send the report to people, chats and folders, once each",
        epilog=f"example: {send_command.SEND_EXAMPLE}",
        argument_default=argparse.SUPPRESS,
    )
    send_command.add_send_arguments(send)
    nudge = verbs.add_parser(
        "nudge",
        help="send users their own recommendations",
        epilog=f"example: {nudge_command.NUDGE_EXAMPLE}",
        argument_default=argparse.SUPPRESS,
    )
    nudge_command.add_nudge_arguments(nudge)


def run(args: argparse.Namespace) -> int:
    if args.verb is not None:
        from analytics.commands import report_nudge as nudge_command
        from analytics.commands import report_send as send_command

        given = [f"--{name}" for name in _UNUSED[args.verb] if getattr(args, name) is not None]
        if given:
            raise UsageError(
                f"`fallow report {args.verb}` does not take {' and '.join(given)} before the verb",
                f"leave it out; `fallow report {args.verb} --help` lists the flags",
            )
        return send_command.run_send(args) if args.verb == "send" else nudge_command.run_nudge(args)
    if args.schema:
        write_out(args.out, (json_text(report_schema()) + "\n").encode())
        return 0
    if args.compare is not None:
        from analytics.commands.report_compare import COMPARE

        return COMPARE.run(args)
    form = args.format or "text"
    if form == "pdf" and args.table is not None:
        raise UsageError("a PDF holds the whole report", "leave out --table, or use --format html")
    edition = open_edition(args, SystemClock().now_ms())
    most = most_lines(args) if form == "text" else None
    if args.table is None and form != "parquet" and most is None:
        content = format_named(form).render(edition.report, edition.language)
    else:
        content = document(_answer(edition), form, edition.language, args.table, most_lines=most)
    write_out(args.out, content, is_text=form not in ("pdf", "parquet"))
    return 0


_FACTS = ("window", "fleet", "observed", "silent", "prices")
"""Facts of the head that one screen shows."""


def _answer(edition: Edition) -> VerbAnswer:
    """Return the tables of the report one by one, as every verb has them."""
    report = edition.report
    window = {"since": format_ms(report.part.summary.since_ms), "until": format_ms(report.part.summary.until_ms)}
    spoken = for_text(edition.language)
    known = facts(report.heading, report.ledger, spoken)
    wanted = {spoken.translate(tr(each)) for each in _FACTS}
    about = [tr("{label}: {value}", label=label, value=value) for label, value in known if label in wanted]
    return VerbAnswer(
        title=title(report.heading),
        about=tuple(
            each for each in (lead(report).headline, *about, waiting(waiting_rules(report.review.context))) if each
        ),
        warning=report.heading.simulated,
        facts={"window": window, "simulated_gpus": report.heading.simulated_gpus},
        tables=() if report.ledger.is_empty else tuple(table for _, tables in chapters(report) for table in tables),
    )


_UNUSED = {
    "send": ("since", "until", "out", "format", "table", "compare", "schema"),
    "nudge": ("week", "pool", "model", "team", "since", "until", "out", "format", "table", "compare", "schema"),
}
"""Flags of `fallow report` that a verb refuses: ignored, they would yield another report than asked for."""
