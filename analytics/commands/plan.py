"""`fallow plan VERB`: the verbs. A verb has an entry in VERBS and a module with `add_arguments` and `run`, or a VERB."""

from __future__ import annotations

from fallow.cli import Command, VerbGroup

VERBS: tuple[Command, ...] = (
    Command("queue", "queue waits, and whether more GPUs would have helped",
            "fallow plan queue --lake /srv/lake --since 7d", "analytics.commands.plan_queue", "analytics"),
    Command("allocation", "who has GPUs, who starves, who hoards, and which GPUs end soon",
            "fallow plan allocation --lake /srv/lake --days 14", "analytics.commands.plan_allocation", "analytics"),
    Command("defrag", "which jobs could start now, and which moves make room",
            "fallow plan defrag --lake /srv/lake --gpus 8", "analytics.commands.plan_defrag", "analytics"),
    Command("forecast", "when each pool is full, and when to order GPUs",
            "fallow plan forecast --lake /srv/lake --lead-time 12w", "analytics.commands.plan_forecast", "analytics"),
    Command("carbon", "energy and CO2 of used and idle time, and savings in other hours",
            "fallow plan carbon --lake /srv/lake --intensity grid.csv", "analytics.commands.plan_carbon", "analytics"),
    Command("purchase", "what to buy, reserve or rent for the observed demand",
            "fallow plan purchase --lake /srv/lake --pool train", "analytics.commands.plan_purchase", "analytics"),
    Command("fit", "which card fits a model or an observed workload",
            "fallow plan fit --lake /srv/lake --params 8B --bits 4", "analytics.commands.plan_fit", "analytics"),
    Command("scenarios", "compare, save and remove scenarios",
            "fallow plan scenarios --lake /srv/lake --save more --gpus train=+16",
            "analytics.commands.plan_scenarios", "analytics"),
    Command("replay", "compare the same jobs with other GPUs or another policy",
            "fallow plan replay --lake /srv/lake --idle-timeout 2h", "analytics.commands.plan_replay", "analytics"),
)  # fmt: skip

VERB = VerbGroup(VERBS)
