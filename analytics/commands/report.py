"""`fallow report`: writes the waste report in one of several formats, or sends it."""

from __future__ import annotations

import argparse

from analytics.commands.report_edition import add_edition_arguments, format_named, open_edition
from analytics.commands.table_verb import add_output_arguments
from analytics.commands.written_file import write_out
from analytics.render.report import FORMATS
from analytics.render.report.json_format import report_schema
from analytics.render.tables import VerbAnswer, document
from analytics.report.report import Report
from analytics.tables.report_sections import chapters
from analytics.tables.wording import lead, title
from analytics.window import add_common_arguments
from fallow.clock import SystemClock, format_ms
from fallow.errors import UsageError
from fallow.outside_text import json_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's own flags."""
    add_common_arguments(parser)
    add_edition_arguments(parser)
    add_output_arguments(parser, (*(each.name for each in FORMATS), "parquet"))
    parser.add_argument(
        "--compare",
        metavar="WITH",
        help="set the window beside another one: before (as much time just before), 13w (the same 13 weeks earlier) or two "
        "days, 2026-08-10..2026-08-16",
    )
    parser.add_argument(
        "--schema", action="store_const", const=True, help="print the JSON Schema of --format json, and no report"
    )
    _add_verbs(parser)


def _add_verbs(parser: argparse.ArgumentParser) -> None:
    from analytics.commands import report_nudge as nudge_command
    from analytics.commands import report_send as send_command

    verbs = parser.add_subparsers(dest="verb", metavar="send|nudge", title="to people")
    # what was given before the verb stays
    send = verbs.add_parser(
        "send",
        help="send it, each edition to each place once",
        epilog=f"example: {send_command.SEND_EXAMPLE}",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    send_command.add_send_arguments(send)
    nudge = verbs.add_parser(
        "nudge",
        help="notify users of their own findings",
        epilog=f"example: {nudge_command.NUDGE_EXAMPLE}",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    nudge_command.add_nudge_arguments(nudge)


def run(args: argparse.Namespace) -> int:
    """Writes the report, or sends it."""
    if args.verb is not None:
        from analytics.commands import report_nudge as nudge_command
        from analytics.commands import report_send as send_command

        _refuse_unused(args)
        return send_command.run_send(args) if args.verb == "send" else nudge_command.run_nudge(args)
    if args.schema:
        write_out(args.out, (json_text(report_schema()) + "\n").encode())
        return 0
    if args.compare is not None:
        from analytics.commands.report_compare import COMPARE

        return COMPARE.run(args)
    form = args.format or "text"
    if form == "pdf" and args.table is not None:
        raise UsageError("a PDF has the whole report", "leave out --table, or take --format html")
    edition = open_edition(args, SystemClock().now_ms())
    if args.table is None and form != "parquet":
        content = format_named(form).render(edition.report, edition.language)
    else:
        content = document(_answer(edition.report), form, edition.language, args.table)
    write_out(args.out, content, is_text=form not in ("pdf", "parquet"))
    return 0


def _answer(report: Report) -> VerbAnswer:
    """The tables of the report one by one, as every verb has them."""
    window = {"since": format_ms(report.part.summary.since_ms), "until": format_ms(report.part.summary.until_ms)}
    simulated, *about = lead(report)
    return VerbAnswer(
        title=title(report.heading),
        about=tuple(each for each in about if each),
        warning=simulated,
        facts={"window": window, "simulated_gpus": report.heading.simulated_gpus},
        tables=() if report.ledger.is_empty else tuple(table for _, tables in chapters(report) for table in tables),
    )


_UNUSED = {
    "send": ("since", "until", "out", "format", "table", "compare", "schema"),
    "nudge": ("week", "pool", "model", "team", "since", "until", "out", "format", "table", "compare", "schema"),
}
"""Flags of `fallow report` that say nothing to a verb: left unheard, they would send something else to somebody else."""


def _refuse_unused(args: argparse.Namespace) -> None:
    given = [f"--{name}" for name in _UNUSED[args.verb] if getattr(args, name) is not None]
    if given:
        raise UsageError(
            f"`fallow report {args.verb}` has no use for {' and '.join(given)} before the verb",
            f"leave it out, or see `fallow report {args.verb} --help` for what can be chosen",
        )
