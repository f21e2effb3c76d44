"""`fallow plan VERB`: the verbs. Each has an entry in VERBS and a module with `add_arguments` and `run`, or a VERB."""

from __future__ import annotations

from fallow.cli import Command, VerbGroup

_VERBS = (
    ("queue", "queue waits, and whether more GPUs would have helped", "--since 7d"),
    ("allocation", "who has GPUs, who starves, who hoards, and which GPUs end soon", "--days 14"),
    ("defrag", "which jobs could start now, and which moves make room", "--gpus 8"),
    ("forecast", "when each pool is full, and when to order GPUs", "--lead-time 12w"),
    ("carbon", "energy and CO2 of used and idle time, and savings in other hours", "--intensity grid.csv"),
    ("purchase", "what to buy, reserve or rent for the observed demand", "--pool train"),
    ("fit", "which card fits a model or an observed workload", "--params 8B --bits 4"),
    ("scenarios", "compare, save and remove scenarios", "--save more --gpus train=+16"),
    ("replay", "compare the same jobs with other GPUs or another policy", "--idle-timeout 2h"),
)
"""Name, summary, and the flags of the example."""

VERBS = tuple(
    Command(
        name, summary, f"fallow plan {name} --lake /srv/lake {flags}", f"analytics.commands.plan_{name}", "analytics"
    )
    for name, summary, flags in _VERBS
)

VERB = VerbGroup(VERBS)
