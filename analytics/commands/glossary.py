"""`fallow glossary`: the words of messages, pages and columns, with their meanings."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from analytics.commands.reference_verb import ReferenceVerb, check_name, name_argument
from analytics.commands.table_verb import LakeInputs, Tables
from analytics.glossary import CONFIDENCE, STATES, STATUSES, TERMS, Term
from analytics.language.sentences import tr
from analytics.tables.table import Table, column, fact

_GROUPS: tuple[tuple[str, Iterable[Term]], ...] = (
    (tr("State"), STATES.values()),
    (tr("Confidence"), CONFIDENCE.values()),
    (tr("Status of a finding"), STATUSES.values()),
    ("", TERMS),
)
_WORDS = tuple((group, term) for group, terms in _GROUPS for term in terms)


def _titled(word: tuple[str, Term]) -> str:
    """Return the word, with its group in brackets."""
    group, term = word
    return tr("{name} ({kind})", name=tr(term.name), kind=group) if group else tr(term.name)


def _tables(_: LakeInputs, args: argparse.Namespace) -> Tables:
    chosen = tuple(each for each in _WORDS if args.name in (None, each[1].name))
    yield Table(
        "glossary",
        tr("Glossary"),
        tr("What does a word mean?"),
        tr("Words: {number}. `fallow glossary WORD` explains a word.", number=len(chosen)),
        (
            column("word", tr("word"), "words", _titled, lambda row: row[1].name),
            fact("group", "words", lambda row: row[0]),
            column("meaning", "", "sentence", lambda row: row[1].meaning),
            column("in_data", tr("in data"), "words", lambda row: row[1].column),
        ),
        chosen,
    )


VERB = ReferenceVerb(
    tr("Glossary"),
    _tables,
    flags=name_argument("WORD", "one word alone"),
    check=lambda args: check_name("word", args.name, [term.name for _, term in _WORDS]),
)
