"""`fallow plan scenarios`: the scenarios that are saved by name, side by side, and how one is saved and removed."""

from __future__ import annotations

import argparse
from pathlib import Path

from analytics.commands.actor import add_actor_argument
from analytics.commands.table_verb import PEOPLE, Tables, TableVerb, VerbInputs
from analytics.language.plain_text import plain
from analytics.language.sentences import tr
from analytics.plan.replay.comparisons import (
    SavedScenario,
    load_scenarios,
    remove_scenario,
    save_scenario,
    saved_policy,
)
from analytics.plan.replay.policy import changed_fleet
from analytics.scope import Scope
from analytics.tables.plan_scenarios import saved_scenarios, scenario_table
from fallow.actors import Actor, command_actor
from fallow.errors import UsageError
from fallow.given_file import SETTINGS_BYTES, given_text
from fallow.output import say


def _flags(parser: argparse.ArgumentParser) -> None:
    change = parser.add_mutually_exclusive_group()
    change.add_argument(
        "--save", metavar="FILE", help="save the scenario in this TOML file under its --name, see docs/planning.md"
    )
    change.add_argument("--remove", metavar="NAME", help="remove the scenario of this name")
    parser.add_argument("--name", metavar="NAME", help="with --save: its name (default: that of the file)")
    add_actor_argument(parser)


def _check(args: argparse.Namespace) -> None:
    if args.name is not None and args.save is None:
        raise UsageError("--name says how a scenario is saved", "give --save FILE as well")


def _tables(given: VerbInputs, args: argparse.Namespace) -> Tables:
    """All scenarios beside today, after the one that the flags name is saved or removed."""
    lake, actor = given.whole.inputs.lake, command_actor(args.actor)
    if args.save is not None:
        saved = _from_file(given, args.save, args.name, actor)
        say(f"saved {plain(save_scenario(lake, saved.name, saved.policy, actor, now_ms=given.now_ms).name)}")
    if args.remove is not None:
        say(f"removed {plain(remove_scenario(lake, args.remove, actor, now_ms=given.now_ms).name)}")
    compared = given.whole.plan.scenarios_of(given.scope, load_scenarios(lake))
    yield scenario_table(compared, given.whole.money)
    yield saved_scenarios(compared, given.whole.money)


def _from_file(given: VerbInputs, path: str, name: str | None, actor: Actor) -> SavedScenario:
    """What is in a file, which is understood before it is kept."""
    text = given_text("the scenario", path, SETTINGS_BYTES, UsageError)
    saved = SavedScenario(Path(path).stem if name is None else name, text, actor, given.now_ms)
    base = given.whole.plan.replay_base(Scope())
    changed_fleet(base.fleet, saved_policy(base.policy, saved, given.whole.inputs.settings.text("report.timezone")))
    return saved


VERB = TableVerb(
    tr("Scenarios side by side"),
    _tables,
    flags=_flags,
    check=_check,
    refused=PEOPLE,
    why="a scenario is of everybody's jobs",
)
