"""A site in which every name that comes from outside is made to hurt whoever looks at it."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analytics.decide.annotations import POOL, add_annotation
from analytics.window import Inputs, open_inputs
from fallow.actors import Actor
from tests.findings.scenarios.builder import H100, L4, T_END, Fleet
from tests.lakes import made_lake

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake import Lake

HIDDEN = "\x00\x1b]0;o\x07\x9b31m\u202e\u2066\u200b\ufeff\u3164\r\n"
"""Controls that a terminal obeys, marks that turn the direction of text, and some that nobody sees."""

NOW_MS = T_END + 60_000


def hostile(tag: str) -> str:
    """A name that begins a formula, holds markup, a link, a mention and a value of plotly, and hides things."""
    return f"=H({tag})<a href='//e.vil'>x</a><img src=x onerror=a()>%{{x}}[l](https://e.vil) <!here> @all |`{HIDDEN}z"


def hostile_actor() -> str:
    """The same as far as a person may be called so: without what is hidden."""
    return hostile("actor").replace(HIDDEN, "")


@dataclass(frozen=True)
class HostileSite:
    """The lake, its config file and labels."""

    lake: Lake
    config: Path
    labels: Path
    jobs: Path

    def inputs(self) -> Inputs:
        return open_inputs(argparse.Namespace(lake=None, since=None, until=None, config=str(self.config)))


TABLES = {
    "owners": "kind,name,team,organisation\nuser,{user},{team},{organisation}\nuser,{other},{team},{organisation}\n",
    "prices": "model,pool,hourly,currency,date,source\n{model},{pool},2.5,USD,2026-01-02,{source}\n",
    "offers": "kind,provider,model,hourly,date,source\non_demand,{provider},{model},1.5,2026-01-02,{offer}\n",
    "contacts": "kind,name,email\nuser,{user},ann@example.org\nuser,{other},bob@example.org\n",
    "labels": "gpu,since,until,takeable\n{gpu},2026-01-01,2027-01-01,yes\n",
    "jobs": "start,host,gpu_count,user,name,submitted,allocation_id,state,partition\n"
    "2026-11-20T10:00:00Z,{job_host},2,{job_user},{job_name},,,,\n"
    ",,4,{job_user},,2026-11-20T10:00:00Z,{request},{state},{queue}\n",
}


def make_site(folder: Path) -> HostileSite:
    """Nine days of three hosts: held, reserved, busy and broken GPUs; owners, prices, goals, contacts, notes, text."""
    lake = made_lake(folder / "lake")
    fleet = _fleet()
    fleet.write(lake)
    before_ms, pool = T_END - 86_400_000, hostile("pool")
    actor = Actor(hostile_actor())
    add_annotation(lake, hostile("note"), actor, at_ms=before_ms, now_ms=NOW_MS - 1000, scope=POOL, name=pool)
    quoted = _Quoted(gpu=fleet.gpus[0].uuid)
    for name, text in TABLES.items():
        (folder / f"{name}.csv").write_text(text.format_map(quoted), encoding="utf-8", newline="")
    config = folder / "fallow.toml"
    money = "".join(f"{name} = {json.dumps(str(folder / f'{name}.csv'))}\n" for name in ("owners", "prices", "offers"))
    contacts = json.dumps(str(folder / "contacts.csv"))
    config.write_text(
        f"[lake]\npath = {json.dumps(lake.root)}\n[money]\n{money}[report]\ncontacts = {contacts}\n"
        "quiet_hours = ''\nquiet_days = ''\n[ledger]\nworkers = 1\n",
        encoding="utf-8",
    )
    return HostileSite(lake, config, folder / "labels.csv", folder / "jobs.csv")


class _Quoted(dict[str, str]):
    """Each name as a cell of CSV; one that is not given is hostile."""

    def __missing__(self, name: str) -> str:
        return '"' + hostile(name.replace("_", " ")).replace('"', '""') + '"'


def _fleet() -> Fleet:
    fleet = Fleet(days=9, interval_s=1800, process_interval_s=3600)
    user, other = hostile("user"), hostile("other")
    where = {"pool": hostile("pool"), "model": hostile("model")}
    held, busy, unused, lost = fleet.host(f"=h<a href='//e.vil'>x</a>{HIDDEN}z", H100, 4, **where)
    names = {each: hostile(each) for each in ("command", "pod", "container")} | {"namespace": hostile("space")}
    fleet.run(held, user, util=0, mem_gb=40, **names)
    fleet.run(busy, other, util=90, mem_gb=30, slurm_job_id=hostile("job"), slurm_account=hostile("account"))
    allocated = {each: hostile(each) for each in ("account", "partition", "qos", "state")}
    fleet.allocation([unused], user, 1, allocation_id=hostile("allocation"), name=hostile("job name"), **allocated)
    lost.is_in(fleet.between(-1), "lost")
    fleet.event(held.host, -3, "xid", hostile("event"), gpu=held.uuid, code=79)
    first, second = fleet.host("plain", L4, 2, pool=hostile("pool"))
    fleet.run(first, other, util=20, mem_gb=2, pod=hostile("pod"), namespace=hostile("space"))
    fleet.run(second, user, fleet.between(-6), util=0, mem_gb=2)
    for gpu in fleet.gpus:
        gpu.device["driver_version"] = hostile("driver")
    return fleet
