"""Two sites that are the same to one team, and in which everything of the others is different.

The team's reader must get the same answers in both: then no name and no number of the others is in them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.dashboard.sites import Site, configured
from tests.findings.scenarios.builder import H100, L4, Fleet
from tests.lakes import made_lake

TEAM, OTHERS = "ours", "theirs"
OWN_GPU, SHARED_HOST, PASSED_ON = "GPU-own-0", "both", "GPU-both-2"
"""A GPU that the team alone has; a host of which others have a part; a GPU on it that others had after the team."""
SHARED_GPUS = tuple(f"GPU-shared-{number}" for number in range(8))
"""GPUs that the team and others have at the same time."""


@dataclass(frozen=True)
class Others:
    """What there is of others in a world; `mark` stands in each of their names and in none of the team's."""

    mark: str
    util: float
    mem_gb: float
    cpu_pct: float
    quota: int
    price: str
    more_users: int

    @property
    def users(self) -> tuple[str, str]:
        return f"{self.mark}-user-a", f"{self.mark}-user-b"

    @property
    def where(self) -> dict[str, Any]:
        """A pool of their own, and a card that no other team has and that is in no list of cards."""
        return {"pool": f"{self.mark}-pool", "model": f"NVIDIA {self.mark}"}

    @property
    def work(self) -> dict[str, Any]:
        return {"util": self.util, "mem_gb": self.mem_gb}

    @property
    def command(self) -> dict[str, str]:
        return {"command": f"{self.mark}-command"}

    def job(self, number: int) -> dict[str, str]:
        return {"slurm_job_id": f"{number}{self.quota}"}

    def pod(self, number: int) -> dict[str, str]:
        return {"pod": f"{self.mark}-pod-{number}", "namespace": f"{self.mark}-space"}


ONE = Others("quokka", 88.0, 60.0, 31.0, 4, "1.75", 1)
OTHER = Others("wombat", 64.0, 20.0, 77.0, 9, "0.55", 6)

OWN_ACCOUNT = {"slurm_account": f"{TEAM}-account"}

OF_THE_FLEET = re.compile(r'(?:"ranked": |[.]ranked,)\d+')
"""Facts about all users that pages show on purpose: how many are ranked.
docs/security.md names these facts, and what both worlds share."""


def make_world(folder: Path, others: Others) -> Site:
    """Twelve days of six hosts, with owners, quotas and prices."""
    folder.mkdir()
    lake = made_lake(folder / "lake")
    fleet = Fleet(days=12, interval_s=900, process_interval_s=1800)
    _of_the_team(fleet)
    _of_others(fleet, others)
    _of_both(fleet, others)
    _crowd(fleet, others)
    fleet.write(lake)
    one, two = others.users
    theirs = f"{OTHERS},{others.mark}-organisation"
    (folder / "owners.csv").write_text(
        "kind,name,team,organisation,quota_gpus\n"
        f"user,ann,{TEAM},research,6\nuser,bea,{TEAM},research,\nuser,cleo,{TEAM},research,\n"
        f"account,{TEAM}-account,{TEAM},research,\n"
        f"account,{others.mark}-account,{theirs},\nuser,{one},{theirs},{others.quota}\nuser,{two},{theirs},\n"
    )
    (folder / "prices.csv").write_text(
        "model,pool,hourly,currency,date,source\n"
        "NVIDIA H100 80GB HBM3,train,2.5,USD,2026-01-02,order 7\nNVIDIA L4,desk,0.5,USD,2026-01-02,order 8\n"
        f"NVIDIA {others.mark},{others.mark}-pool,{others.price},USD,2026-01-03,{others.mark}-order\n"
    )
    return Site(lake, configured(folder, lake, "owners", "prices", more="[ledger]\nworkers = 1\n"))


def _of_the_team(fleet: Fleet) -> None:
    """Work that is well used, GPUs that are held and reserved without use, and a card that is too large."""
    first, second, third, fourth = fleet.host("own", H100, 4)
    fleet.run(first, "ann", util=fleet.wave(92, period_h=4, on_h=3), mem_gb=70, slurm_job_id="11", **OWN_ACCOUNT)
    fleet.run(second, "bea", util=0, mem_gb=40)
    fleet.run(third, "ann", util=18, mem_gb=6, slurm_job_id="12")
    fleet.allocation([fourth], "bea", 2, allocation_id="13")
    (desk,) = fleet.host("desk", L4, 1, pool="desk")
    fleet.run(desk, "bea", fleet.between(0, 8), util=60, mem_gb=10)
    fleet.event(first.host, -2, "xid", "Xid 31 of the team", gpu=first.uuid, code=31)


def _of_others(fleet: Fleet, others: Others) -> None:
    """Hosts of theirs alone: busy, held, reserved, broken and silent.

    Facts on the whole fleet that all readers see are the same in both worlds: how long idle intervals last, how often a
    finding was wrong, which known cards there are, how users are ranked. Hence the same idle time and number of GPUs;
    the number of users ranked behind the team's differs.
    """
    one, two = others.users
    busy, held, allocated, lost = fleet.host(f"{others.mark}-host", H100, 4, **others.where)
    fleet.run(busy, one, **others.work, **others.job(9), **others.command)
    pod = {"pod": f"{others.mark}-pod", "namespace": f"{others.mark}-space"}
    fleet.run(held, two, fleet.between(-6), mem_gb=others.mem_gb / 2, **pod)
    fleet.allocation([allocated], two, 1, allocation_id=f"{others.mark}-allocation")
    lost.is_in(fleet.between(-1), "lost")
    fleet.event(held.host, -3, "xid", f"Xid 79 of {others.mark}", gpu=held.uuid, code=79)
    (quiet,) = fleet.host(f"{others.mark}-quiet", H100, 1, **others.where)
    fleet.run(quiet, one, util=others.util, mem_gb=5)
    quiet.host.outage(fleet.between(-2))


def _crowd(fleet: Fleet, others: Others) -> None:
    """More users of others on one card, with less GPU time than every user of the team."""
    (card,) = fleet.host(f"{others.mark}-crowd", H100, 1, **others.where)
    for number in range(others.more_users):
        fleet.run(card, f"{others.mark}-user-{number}", util=60 / others.more_users, mem_gb=others.mem_gb / 10)


def _of_both(fleet: Fleet, others: Others) -> None:
    """A host with a GPU of the team, one of others, one that passes from team to others, and one shared for a while."""
    one, two = others.users
    mine, theirs, passed, divided = fleet.host(SHARED_HOST, H100, 4)
    host = mine.host
    fleet.run(mine, "ann", util=75, mem_gb=50, slurm_job_id="14")
    fleet.run(theirs, one, **others.work, **others.job(8), **others.command)
    over = 8 + 5.5 / 24  # half past five
    fleet.run(passed, "bea", fleet.between(0, over), util=30, mem_gb=12, slurm_job_id="15")
    fleet.run(passed, two, fleet.between(over), **others.work, **others.job(7))
    fleet.run(divided, "ann", util=20, mem_gb=12, slurm_job_id="16", **OWN_ACCOUNT)
    fleet.run(divided, one, fleet.between(4, 8), util=20, mem_gb=others.mem_gb / 4, **others.pod(1))
    _of_shared_cards(fleet, others)
    disk, memory = 1e6 * others.cpu_pct, 1e9 * others.cpu_pct
    host.load(fleet.between(3), cpu_util_pct=others.cpu_pct, disk_read_bytes_per_s=disk, mem_used_bytes=memory)
    fleet.event(host, -4, "xid", f"Xid 48 of {others.mark}", gpu=theirs.uuid, code=48)
    fleet.event(host, -2.5, "xid", f"Xid 13 of {others.mark}", gpu=passed.uuid, code=13)
    fleet.event(host, -2.2, "agent_start", f"restarted by {others.mark}")


def _of_shared_cards(fleet: Fleet, others: Others) -> None:
    """Cards that both use at once, to the end.

    In pods, in jobs, without use, by turns, without a name of the team's own, and one of the team's people with work
    for both.
    """
    one, two = others.users
    pods, jobs, idle, nameless, turns, bare, own_two, for_both = fleet.host("shared", H100, 8)
    own, theirs = {"pod": f"{TEAM}-pod", "namespace": TEAM}, {"mem_gb": others.mem_gb / 8}
    their_account = {"slurm_account": f"{others.mark}-account"}
    fleet.run(pods, "ann", util=20, mem_gb=9, **own)
    over = fleet.between(0, others.quota / 2)  # when they take turns among themselves is theirs to know
    fleet.run(pods, one, over, util=15, **theirs, **others.pod(2))
    fleet.run(pods, two, ~over, util=15, **theirs, **others.pod(5))
    fleet.run(jobs, "bea", util=12, mem_gb=9, slurm_job_id="17", **OWN_ACCOUNT)
    fleet.run(jobs, two, util=12, mem_gb=9, **others.job(6), **their_account)
    fleet.run(idle, "ann", fleet.between(-6), mem_gb=9, **own)
    fleet.run(idle, two, fleet.between(-6), **theirs, **others.pod(3))
    fleet.run(nameless, "bea", fleet.between(-5), mem_gb=9)
    fleet.run(nameless, None, fleet.between(-5), **theirs, **others.pod(4))
    fleet.run(turns, "ann", fleet.daily(8, 18), util=70, mem_gb=9, **own)
    fleet.run(turns, one, fleet.daily(14, 23), util=25, **theirs, **others.job(5))
    fleet.run(bare, "ann", util=20, mem_gb=9, slurm_job_id="18", **OWN_ACCOUNT)
    fleet.run(bare, two, util=15, **theirs, **others.command)
    fleet.run(own_two, "ann", util=20, mem_gb=9, slurm_job_id="19", **OWN_ACCOUNT)
    fleet.run(own_two, "bea", util=20, mem_gb=9, slurm_job_id="20")
    fleet.run(own_two, None, fleet.between(-5), util=5, **theirs, **others.pod(6))
    fleet.run(for_both, "cleo", util=20, mem_gb=9, slurm_job_id="21", **OWN_ACCOUNT)
    paid = {"slurm_job_id": f"{others.mark}22"} | their_account
    fleet.run(for_both, "cleo", util=15, **theirs, **others.command, **paid)
