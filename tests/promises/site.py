"""A small site for promises: GPUs that change hands, waste of every kind, two teams that share a card."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from analytics.decide.nudge_items import NudgeBasis, NudgeItems, nudge_items
from analytics.report.model import Whole
from analytics.scope import Scope
from analytics.window import load_window_ledger, open_inputs
from analytics.workloads.window_end import newest_rows
from tests.findings.scenarios.builder import H100, L40S, T_END, Fleet
from tests.findings.scenarios.situations import train
from tests.findings.scenarios.stalled import spin
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from analytics.decide.recommendations import Recommendations
    from fallow.lake import Lake

OWNERS = """kind,name,team,organisation
user,ann,vision,research
user,bob,speech,research
user,cy,vision,research
user,dan,speech,research
user,eve,speech,research
user,fay,vision,research
"""
PRICES = "model,pool,hourly,currency,source\n,train,2.17,USD,ours\n,dev,0.93,USD,ours\n"
HALF_HOUR = 1800


def changed_hands() -> Fleet:
    """Each GPU of h1 and h2 had another user before; until a day ago most were idle under the first one."""
    fleet = Fleet(15, interval_s=HALF_HOUR)
    first, second = fleet.host("h1", H100, 8), fleet.host("h2", H100, 8)
    fleet.run(first[0], "ann", fleet.between(-4, -2))
    fleet.run(first[0], "bob", fleet.between(-2))
    fleet.run(first[1], "ann", fleet.between(-4, -1))
    train(fleet, first[1], "bob", fleet.between(-1), job="2001")
    fleet.run(first[2], "bob", fleet.between(-6, -0.5))
    fleet.run(first[2], "ann", fleet.between(-0.5))
    fleet.run(first[3], "ann", fleet.between(-3))
    fleet.run(first[3], "bob", fleet.between(-3))
    fleet.allocation(first[4:5], "ann", -6, -3, allocation_id="31")
    fleet.allocation(first[4:5], "bob", -3, allocation_id="32")
    fleet.run(first[5], "ann", fleet.between(-6, -1))
    fleet.run(first[6], "ann", fleet.between(-6))
    fleet.run(first[7], "ann", fleet.between(-9, -6))
    fleet.allocation(first[7:8], "bob", -6, allocation_id="33")
    # what a session of ann left behind, on a GPU that dan works on since; and the same where ann's work still lies
    orphan = {"parent_pid": np.where(fleet.between(-4.5), 1.0, 77.0), "command": "train.py"}
    fleet.run(second[0], "ann", fleet.between(-5, -1.5), **orphan)
    fleet.run(second[0], "dan", fleet.between(-1.5), mem_gb=30)
    train(fleet, second[1], "cy", job="41")
    fleet.run(second[2], "cy", fleet.between(-9, -2), slurm_job_id="41", mem_gb=2)
    fleet.run(second[2], "dan", fleet.between(-2), mem_gb=2)
    fleet.run(second[3], "eve", fleet.between(-5, -3), command="vllm", mem_gb=60)
    fleet.run(second[3], "dan", fleet.between(-3), command="vllm", mem_gb=60)
    train(fleet, second[4:6], "dan", job="42")
    fleet.run(second[6], None, fleet.between(-3))
    train(fleet, second[7], "ann", fleet.between(0, -3), job="43")
    fleet.run(second[7], "bob", fleet.between(-3))
    return fleet


def wasteful() -> Fleet:
    """Waste of every state in two pools; ann and bob, of two teams, share a GPU."""
    fleet = Fleet(15, interval_s=HALF_HOUR)
    first, second, third = (fleet.host(name, H100, 8) for name in ("h1", "h2", "h3"))
    dev = fleet.host("d1", L40S, 4, pool="dev")
    train(fleet, first[:4], "cy")
    train(fleet, first[4], "cy", util=6.0, job="1002")
    fleet.run(first[5], "ann", fleet.between(-6))
    fleet.run(first[6], "ann", fleet.between(-3))
    fleet.run(first[6], "bob", fleet.between(-3))
    fleet.allocation(first[7:8], "bob", -5, allocation_id="51")
    train(fleet, second[:2], "dan", fleet.between(0, 1), job="1003")
    train(fleet, second[2:], "dan", fleet.between(0, 0.5), job="1004")
    train(fleet, second[7], "ann", fleet.between(-2), util=100.0, sm=2.0, power_w=120.0, job="1006")
    spin(second[7:], fleet.between(-2))
    third[0].health[fleet.between(-2)] = "lost"
    train(fleet, dev[0], "eve", job="1005")
    fleet.run(dev[1], "eve", fleet.between(-4))
    fleet.run(dev[2], "fay", fleet.between(-1.5))
    dev[3].places[0][0].outage(fleet.between(-9, -8.5))
    return fleet


@dataclass(frozen=True)
class Site:
    """A window of a lake with all that follows from it."""

    lake: Lake
    config: Path
    since: str = "7d"

    @classmethod
    def of(cls, fleet: Fleet, folder: Path) -> Site:
        """The site of a fleet, with teams, and prices of its own."""
        (folder / "owners.csv").write_text(OWNERS)
        (folder / "prices.csv").write_text(PRICES)
        config = folder / "fallow.toml"
        config.write_text(f'[money]\nowners = "{folder}/owners.csv"\nprices = "{folder}/prices.csv"\n')
        return cls(fleet.write(made_lake(folder / "lake")), config)

    @cached_property
    def whole(self) -> Whole:
        inputs = open_inputs(
            argparse.Namespace(lake=self.lake.root, since=self.since, until=None, config=str(self.config))
        )
        whole = Whole(inputs, load_window_ledger(inputs))
        whole.generated_ms = T_END  # no test asks the machine what time it is
        return whole

    def recommendations(self, scope: Scope = Scope()) -> Recommendations:  # noqa: B008  # frozen
        return self.whole.recommendations(scope, self.whole.part(scope))

    @cached_property
    def users_now(self) -> Mapping[str, str | None]:
        """By GPU who has it at the end of the window, by the ledger's last row."""
        return dict(newest_rows(self.whole.review.context).select("gpu", "user").iter_rows())

    @cached_property
    def nudge_items(self) -> NudgeItems:
        context = self.whole.review.context
        hosts = dict(newest_rows(context).select("gpu", "host").iter_rows())
        users = {gpu: user for gpu, user in self.users_now.items() if user is not None}
        return nudge_items(self.recommendations().listed, NudgeBasis({}, context.until_ms, hosts, users))
