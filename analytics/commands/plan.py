"""`fallow plan VERB`: the table of verbs. A verb is one entry in VERBS and one module, with a command's two functions."""

from __future__ import annotations

import argparse

from fallow.cli import Command, add_verbs

VERBS: tuple[Command, ...] = (
    Command(
        "queue",
        "say who waited for GPUs, and whether more would have helped",
        "fallow plan queue --lake /srv/lake --since 7d",
        "analytics.commands.plan_queue",
        "analytics",
    ),
    Command(
        "allocation",
        "say who has GPUs, who starves while who hoards, and what comes free",
        "fallow plan allocation --lake /srv/lake --days 14",
        "analytics.commands.plan_allocation",
        "analytics",
    ),
    Command(
        "defrag",
        "which jobs on several GPUs could start, and what makes room",
        "fallow plan defrag --lake /srv/lake --gpus 8",
        "analytics.commands.plan_defrag",
        "analytics",
    ),
    Command(
        "forecast",
        "say when each pool is full, and until when to order",
        "fallow plan forecast --lake /srv/lake --lead-time 12w",
        "analytics.commands.plan_forecast",
        "analytics",
    ),
    Command(
        "carbon",
        "energy and CO2 of use and of parking, and what other hours would save",
        "fallow plan carbon --lake /srv/lake --intensity grid.csv",
        "analytics.commands.plan_carbon",
        "analytics",
    ),
    Command(
        "purchase",
        "say what to buy, reserve and rent for the need that was observed",
        "fallow plan purchase --lake /srv/lake --pool train",
        "analytics.commands.plan_purchase",
        "analytics",
    ),
    Command(
        "fit",
        "say which card does for a model or for work that was seen",
        "fallow plan fit --lake /srv/lake --params 8B --bits 4",
        "analytics.commands.plan_fit",
        "analytics",
    ),
    Command(
        "scenarios",
        "compare saved scenarios, save and remove them",
        "fallow plan scenarios --lake /srv/lake --save merged.toml",
        "analytics.commands.plan_scenarios",
        "analytics",
    ),
    Command(
        "replay",
        "say what another fleet or another policy would have made of the same jobs",
        "fallow plan replay --lake /srv/lake --idle-timeout 2h",
        "analytics.commands.plan_replay",
        "analytics",
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds every verb with its own flags."""
    add_verbs(parser, VERBS)


def run(args: argparse.Namespace) -> int:
    """Runs the verb."""
    code: int = args.run_verb(args)
    return code
