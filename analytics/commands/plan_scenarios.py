"""`fallow plan scenarios`: the scenarios that are saved by name, side by side, and how one is saved and removed."""

from __future__ import annotations

import argparse
from pathlib import Path

from analytics.commands.actor import add_actor_argument
from analytics.commands.plan_inputs import PlanInputs, add_plan_arguments, open_plan, show_plan, show_plan_json
from analytics.commands.plan_replay import outcome_json
from analytics.language.plain_text import plain
from analytics.language.sentences import tr
from analytics.plan.replay.changed_fleet import changed_fleet
from analytics.plan.replay.compared_scenarios import ComparedScenario, saved_policy
from analytics.plan.scenarios import SavedScenario, load_scenarios, remove_scenario, save_scenario
from analytics.scope import Scope
from analytics.tables.plan_scenarios import scenario_table
from analytics.tables.table import Table
from fallow.actors import Actor, command_actor
from fallow.clock import format_ms
from fallow.errors import UsageError
from fallow.given_file import SETTINGS_BYTES, given_text
from fallow.output import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's own flags."""
    add_plan_arguments(parser)
    change = parser.add_mutually_exclusive_group()
    change.add_argument(
        "--save", metavar="FILE", help="save the scenario in this TOML file under its --name, see docs/planning.md"
    )
    change.add_argument("--remove", metavar="NAME", help="remove the scenario of this name")
    parser.add_argument("--name", metavar="NAME", help="with --save: its name (default: that of the file)")
    add_actor_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Saves or removes one where that is asked for, then prints all of them beside today."""
    if args.name is not None and args.save is None:
        raise UsageError("--name says how a scenario is saved", "give --save FILE as well")
    plan = open_plan(args)
    if plan.scope.is_personal:
        raise UsageError("a scenario is of everybody's jobs", "leave out --team and --holder, or name a --pool")
    lake, actor = plan.whole.inputs.lake, command_actor(args.actor)
    if args.save is not None:
        saved = _from_file(plan, args.save, args.name, actor)
        say(f"saved {plain(save_scenario(lake, saved.name, saved.policy, actor, now_ms=plan.now_ms).name)}")
    if args.remove is not None:
        say(f"removed {plain(remove_scenario(lake, args.remove, actor, now_ms=plan.now_ms).name)}")
    compared = plan.whole.plan.scenarios_of(plan.scope, load_scenarios(lake))
    if args.json:
        show_plan_json(plan, {"scenarios": [_as_json(each) for each in compared]})
    else:
        show_plan(plan, [scenario_table(compared, plan.whole.money) or _nothing()])
    return 0


def _from_file(plan: PlanInputs, path: str, name: str | None, actor: Actor) -> SavedScenario:
    """What is in a file, which is understood before it is kept."""
    text = given_text("the scenario", path, SETTINGS_BYTES, UsageError)
    saved = SavedScenario(Path(path).stem if name is None else name, text, actor, plan.now_ms)
    base = plan.whole.plan.replay_base(Scope())
    changed_fleet(base.fleet, saved_policy(base.policy, saved, plan.whole.inputs.settings.text("report.timezone")))
    return saved


def _nothing() -> Table:
    return Table(
        name="scenarios",
        title=tr("Scenarios side by side"),
        question=tr("What would each saved scenario have made of the same jobs?"),
        headline=tr("No scenario is saved: `fallow plan scenarios --save FILE` saves one, as does the page What if."),
    )


def _as_json(each: ComparedScenario) -> dict[str, object]:
    saved = {
        "name": each.saved.name,
        "policy": each.saved.policy,
        "saved": format_ms(each.saved.time_ms),
        "by": each.saved.by,
    }
    return {
        **saved,
        "why_not": each.why_not or None,
        "outcome": None if each.outcome is None else outcome_json(each.outcome),
    }
