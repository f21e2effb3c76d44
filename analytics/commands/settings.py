"""`fallow settings`: the settings with defaults, environment variables and meanings."""

from __future__ import annotations

import argparse

from analytics.commands.reference_verb import ReferenceVerb, check_name, name_argument
from analytics.commands.table_verb import LakeInputs, Tables
from analytics.language.sentences import tr
from analytics.tables.table import Table, column
from fallow.config import SETTINGS


def _tables(_: LakeInputs, args: argparse.Namespace) -> Tables:
    chosen = tuple(each for each in SETTINGS if args.name in (None, each.section, each.name))
    yield Table(
        "settings",
        tr("Settings"),
        tr("What can be set, where, and what is the default?"),
        tr("Settings: {number}. `fallow settings SECTION` shows a section of the config file.", number=len(chosen)),
        (
            column("setting", tr("setting"), "words", "name"),
            column("default", tr("default"), "words"),
            column("meaning", tr("meaning"), "words"),
        ),
        chosen,
    )
    yield Table(
        "details",
        tr("What the settings do"),
        "",
        "",
        (
            column("setting", tr("setting"), "words", "name"),
            column("default", tr("default"), "words"),
            column("variable", tr("variable"), "words"),
            column("meaning", "", "sentence"),
            column("reason", tr("reason for the default"), "words"),
        ),
        chosen,
    )


VERB = ReferenceVerb(
    tr("Settings"),
    _tables,
    flags=name_argument("SECTION", "one section alone, such as ledger, or one setting, such as lake.path"),
    check=lambda args: check_name(
        "setting", args.name, [name for each in SETTINGS for name in (each.section, each.name)]
    ),
)
