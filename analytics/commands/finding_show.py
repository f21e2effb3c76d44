"""`fallow findings show`: whole findings, with every GPU, job and note."""

from __future__ import annotations

import argparse

from analytics.commands.finding_actions import as_listed, no_finding
from analytics.commands.table_verb import Tables, TableVerb, VerbInputs, add_output_arguments
from analytics.language.sentences import tr
from analytics.tables.finding_list import FINDING_COLUMNS, finding_folds, finding_list, only_a_look
from analytics.tables.table import rows_column
from analytics.workloads.model import Finding


def add_verb(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand."""
    verb = verbs.add_parser(
        "show",
        help="show whole findings, nothing shortened",
        epilog="example: fallow findings show F-0123456789 --lake /srv/lake",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,  # what was given before the verb stays
    )
    verb.add_argument("ids", nargs="+", type=as_listed, metavar="ID", help="id of a finding: F-0123456789")
    verb.add_argument("--lake", metavar="DIR", help="the lake")
    verb.add_argument("--config", metavar="FILE", help="config file")
    add_output_arguments(verb)


def _shown(given: VerbInputs, args: argparse.Namespace) -> list[Finding]:
    """Those of the ids, suppressed ones and those of last week too; raises FallowError where one is not there."""
    found = given.whole.review
    known: dict[str, Finding] = {each.finding_id: each for each in (*found.gone, *found.findings)}
    for each in args.ids:
        if each not in known:
            raise no_finding(each, known)
    return [known[each] for each in dict.fromkeys(args.ids)]


def _tables(given: VerbInputs, args: argparse.Namespace) -> Tables:
    shown, look = _shown(given, args), only_a_look(given.whole.review.context, given.now_ms)
    yield finding_list(shown, notes=(look,) if look else ())
    yield finding_folds(shown, given.whole.inventory, whole=True)


COLUMNS = (rows_column("findings", FINDING_COLUMNS, ""),)
VERB = TableVerb(tr("Findings"), _tables, content=lambda given, args: (COLUMNS, _shown(given, args)), since="all")
