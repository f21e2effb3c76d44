"""A real Slurm of one node with accounting and four pretended GPUs, from Debian's packages, in a folder of its own.

Needs slurmctld, slurmd, slurmdbd, slurm-client and mariadb-server, and root in a network namespace of its own, which it
creates: nothing outside can reach it, and it ends with the test.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAMS = (
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "sacctmgr",
    "sbatch",
    "mariadbd",
    "mariadb-install-db",
    "unshare",
    "nsenter",
    "ip",
)
NODE = "gn1"

_DBD = """AuthType=auth/none
DbdHost=localhost
DbdAddr=127.0.0.1
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=3306
StorageUser=slurm
StoragePass=x
StorageLoc=slurm_acct_db
LogFile={folder}/dbd.log
PidFile={folder}/dbd.pid
"""
_CONF = """ClusterName=t
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,limits,qos
JobAcctGatherType=jobacct_gather/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={spool}
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/d.log
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/d.pid
ReturnToService=2
SlurmdParameters=config_overrides
CommunicationParameters=NoInAddrAny
NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 CPUs=4 RealMemory=2000 Gres=gpu:h100:4 State=UNKNOWN
PartitionName=p Nodes={node} Default=YES State=UP MaxTime=60 OverSubscribe=FORCE:4
"""


def missing() -> str:
    """Why there can be no cluster here; empty where there can be one."""
    if os.geteuid() != 0:
        return "a network namespace needs root"
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


@dataclass(frozen=True)
class Cluster:
    """One that runs; `inside` is the process whose network namespace it has."""

    folder: Path
    inside: int

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(self, *command: str, check: bool = True) -> str:
        """What a command prints that runs inside."""
        done = subprocess.run(
            ["nsenter", f"--net=/proc/{self.inside}/ns/net", *command],
            capture_output=True,
            text=True,
            check=False,
            env=self.environment,
            timeout=60,
            cwd=self.folder,
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def wait_until(self, text: str, *command: str) -> None:
        """Runs the command until it prints the text."""
        deadline_s = time.monotonic() + 60
        while text not in (said := self.run(*command, check=False)):
            assert time.monotonic() < deadline_s, f"{command}: {said}"
            time.sleep(0.2)

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Starts a daemon inside."""
        with (self.folder / "daemons.log").open("ab") as log:
            return subprocess.Popen(
                ["nsenter", f"--net=/proc/{self.inside}/ns/net", *command],
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
            )

    def wrapper(self, name: str) -> Path:
        """A program that runs a command of Slurm's inside."""
        path = self.folder / name
        path.write_text(
            f"#!/bin/sh\nexport SLURM_CONF={self.folder}/slurm.conf\nexec nsenter --net=/proc/{self.inside}/ns/net"
            f' {name} "$@"\n',
            encoding="utf-8",
        )
        path.chmod(0o755)
        return path


@contextmanager
def slurm_cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster with an account `ml` that root may charge jobs to."""
    # the name service finds no address to listen on while there is nothing but the loopback's own
    network = "ip link set lo up && ip addr add 10.9.9.1/32 dev lo && exec sleep 600"
    namespace = subprocess.Popen(["unshare", "--net", "sh", "-c", network])
    daemons: list[subprocess.Popen[bytes]] = []
    cluster = Cluster(folder, namespace.pid)
    spool = tempfile.mkdtemp(prefix="slurmd-")  # a job's socket lies in it, whose path has 108 characters at most
    try:
        _configure(folder, spool)
        daemons.append(_database(cluster))
        daemons.append(cluster.start("slurmdbd", "-D"))
        cluster.wait_until("Cluster", "sacctmgr", "list", "cluster")
        for thing in (["cluster", "t"], ["account", "ml"], ["user", "root", "account=ml"]):
            cluster.run("sacctmgr", "-i", "add", *thing)
        daemons.append(cluster.start("slurmctld", "-D", "-c"))
        daemons.append(cluster.start("slurmd", "-D", "-c", "-N", NODE))
        cluster.wait_until("idle", "sinfo", "-N", "-o", "%N %t")
        yield cluster
        # the daemons end the jobs' own processes
        cluster.run("scancel", "--user=root")
        cluster.wait_until("none", "sh", "-c", "squeue --noheader | grep -q . || echo none")
    finally:
        for daemon in reversed(daemons):
            os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()
        namespace.kill()
        namespace.wait()
        shutil.rmtree(spool, ignore_errors=True)


def _configure(folder: Path, spool: str) -> None:
    for name in ("state", "db"):
        (folder / name).mkdir()
    for number in range(4):
        os.mknod(folder / f"gpu{number}", 0o020666, os.makedev(1, 3))
    (folder / "slurm.conf").write_text(_CONF.format(folder=folder, spool=spool, node=NODE), encoding="ascii")
    (folder / "gres.conf").write_text(f"Name=gpu Type=h100 File={folder}/gpu[0-3]\n", encoding="ascii")
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n", encoding="ascii")
    dbd = folder / "slurmdbd.conf"
    dbd.write_text(_DBD.format(folder=folder), encoding="ascii")
    dbd.chmod(0o600)


def _database(cluster: Cluster) -> subprocess.Popen[bytes]:
    data, socket = cluster.folder / "db", cluster.folder / "db.sock"
    cluster.run("mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}", "--skip-test-db")
    server = cluster.start(
        "mariadbd",
        "--no-defaults",
        "--user=root",
        f"--datadir={data}",
        f"--socket={socket}",
        "--bind-address=127.0.0.1",
        f"--pid-file={cluster.folder}/db.pid",
    )
    client = ("mariadb", "--no-defaults", f"--socket={socket}", "-e")
    cluster.wait_until("1", *client, "select 1")
    cluster.run(
        *client,
        "create database slurm_acct_db; create user slurm@localhost identified by 'x'; "
        "create user slurm@'127.0.0.1' identified by 'x'; grant all on slurm_acct_db.* to slurm@localhost; "
        "grant all on slurm_acct_db.* to slurm@'127.0.0.1'",
    )
    return server
