"""`fallow plan queue`: how long jobs waited for GPUs, and whether more GPUs would have helped."""

from __future__ import annotations

import argparse

from analytics.commands.table_verb import Tables, TableVerb, VerbInputs
from analytics.language.sentences import tr
from analytics.plan.queue_waits import GROUPS
from analytics.tables.plan_queue import (
    back_test,
    counted_jobs,
    goodput_table,
    idle_while_waiting,
    wait_causes,
    wait_table,
)


def _tables(given: VerbInputs, _: argparse.Namespace) -> Tables:
    """Yield the waits by cause and by group, the idle GPUs meanwhile, and the outcome of the jobs' GPU time."""
    plan = given.whole.plan
    used = plan.used_share(given.scope, given.part)
    waits, open_ms = plan.waits_of(given.scope), plan.open_ms(given.scope, given.part)
    yield wait_causes(waits)
    yield from (wait_table(waits, by) for by in GROUPS)
    if not given.scope.is_personal:
        yield idle_while_waiting(waits, open_ms)
    yield goodput_table(waits, used, open_ms)
    yield counted_jobs(waits, used)
    yield back_test(waits)


VERB = TableVerb(tr("Who waited for GPUs"), _tables)
