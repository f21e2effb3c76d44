"""`fallow plan scenarios`: compare, save and remove scenarios."""

from __future__ import annotations

import argparse

from analytics.commands.actor import add_actor_argument
from analytics.commands.plan_replay import add_change_flags, asked_change
from analytics.commands.table_verb import PEOPLE, Tables, TableVerb, VerbInputs
from analytics.language.sentences import plain, tr
from analytics.plan.replay.comparisons import (
    SavedScenario,
    as_toml,
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
from fallow.output import say


def _flags(parser: argparse.ArgumentParser) -> None:
    change = parser.add_mutually_exclusive_group()
    change.add_argument("--save", metavar="NAME", help="save the change of the flags below under this name")
    change.add_argument("--remove", metavar="NAME", help="remove the scenario with this name")
    add_change_flags(parser)
    add_actor_argument(parser)


def _check(args: argparse.Namespace) -> None:
    table, compared = asked_change(args)
    if compared is not None:
        raise UsageError("--gpus names several numbers, and a scenario has one", "give one number, such as train=+16")
    if bool(table) != (args.save is not None):
        problem = "a change needs a name" if table else "--save needs a change"
        raise UsageError(problem, "give both, such as --save more --gpus train=+16")


def _tables(given: VerbInputs, args: argparse.Namespace) -> Tables:
    """Yield all scenarios beside today, after the flags have saved or removed one."""
    lake, actor = given.whole.inputs.lake, command_actor(args.actor)
    if args.save is not None:
        saved = _asked_scenario(given, args, actor)
        say(f"saved {plain(save_scenario(lake, saved.name, saved.policy, actor, now_ms=given.now_ms).name)}")
    if args.remove is not None:
        say(f"removed {plain(remove_scenario(lake, args.remove, actor, now_ms=given.now_ms).name)}")
    compared = given.whole.plan.scenarios_of(given.scope, load_scenarios(lake))
    yield scenario_table(compared, given.whole.money)
    yield saved_scenarios(compared, given.whole.money)


def _asked_scenario(given: VerbInputs, args: argparse.Namespace, actor: Actor) -> SavedScenario:
    """Return the scenario of the flags; raise UsageError where it cannot be replayed on today's fleet."""
    saved = SavedScenario(args.save, as_toml(asked_change(args)[0]), actor, given.now_ms)
    base = given.whole.plan.replay_base(Scope())
    changed_fleet(base.fleet, saved_policy(base.policy, saved, given.whole.inputs.settings.text("report.timezone")))
    return saved


VERB = TableVerb(
    tr("Scenarios side by side"),
    _tables,
    flags=_flags,
    check=_check,
    refused=PEOPLE,
    why="a scenario takes the jobs of all users",
)
