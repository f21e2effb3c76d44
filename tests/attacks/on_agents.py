"""Attacks on the agent: what takes its lake, its GPUs, its name or its worker away, over real agents and the test driver."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import signal
import socket
import statistics
import threading
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil

from fallow.lake import Lake
from tests.attacks.agents import AttackedHost, files_below, intervals, until, worker_of
from tests.attacks.model import Outcome
from tests.attacks.slow_clients import seconds_to_answer
from tests.fakes.nvml import Fault, Gpu, Scenario, Steps, constant, ms_ago, standard_fleet

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

_INTERVAL_MS = 1000
_AWAY_S = 12.0
_KILLS = int(os.environ.get("FALLOW_ATTACK_KILLS", "15"))
_KILL_EVERY_S = 3.0
_SCRAPES = 19
_CLIENTS = 8
_NVIDIA = "0x10de"
_SPOOL_FILES = (
    "ballast", "agent.lock", "spool.sqlite", "spool.sqlite-wal", "spool.sqlite-shm", "agent.sock", "install-id",
)  # fmt: skip


def two_gpus(name: str = "a", **fields: object) -> Scenario:
    return Scenario(tuple(Gpu(f"GPU-{name}{index}", util=constant(60)) for index in (0, 1)), ms_ago(20), **fields)  # type: ignore[arg-type]


def lake_away(folder: Path) -> Outcome:
    """The lake's mount goes, and leaves an empty folder in its place, for longer than published rows are kept; then it is back."""
    host = AttackedHost.make(folder, two_gpus(), agent_keep_published="3s")
    place = folder / "lake"
    with host.running():
        until(host.published, "a first publishing")
        place.rename(folder / "mounted")
        place.mkdir()
        time.sleep(_AWAY_S)
        strays, told = files_below(place), host.status()["publishing"]
        place.rename(folder / "root-disk")
        (folder / "mounted").rename(place)
        before = host.published()
        until(lambda: host.published() > before, "publishing after the mount was back")
        time.sleep(1)
    lost = doubled = 0
    for gpu in ("GPU-a0", "GPU-a1"):
        due, found, extra = intervals([row for row in host.rows("gpu") if row["gpu"] == gpu], _INTERVAL_MS)
        lost, doubled = lost + due - found, doubled + extra
    failing = told["failing_since_ms"] is not None
    return Outcome(
        f"{strays} files on the root disk, {lost} rows lost, {doubled} doubled, "
        f"status {'says that publishing fails' if failing else 'healthy'}",
        holds=failing and not (strays or lost or doubled),
    )


def dead_gpu(folder: Path) -> Outcome:
    """The kernel lists eight GPUs, and one of them does not answer when the agent starts for the first time."""
    fleet = replace(standard_fleet(ms_ago(60), [os.getpid()]), faults=(Fault("lost", gpu=3),))
    host = AttackedHost.make(folder, fleet, agent_sys=str(_sys(folder / "sys", fleet)))
    with host.running():
        until(host.published, "a first publishing")
        time.sleep(2)
        gpus = host.status()["gpus"]
    newest = max(row["time"] for row in host.rows("gpu"))
    seen = {row["gpu"]: row["health"] for row in host.rows("gpu") if row["time"] == newest}
    sick = [health for health in seen.values() if health != "ok"]
    return Outcome(
        f"status: {', '.join(f'{count} {health}' for health, count in sorted(gpus.items()))}; the lake has rows of {len(seen)} GPUs, "
        f"of {len(sick)} that do not answer {sick or ''}",
        holds=len(seen) == 8 and len(sick) == 1 and sum(gpus.values()) == 8 and gpus.get("ok") == 7,
    )


def _sys(folder: Path, fleet: Scenario) -> Path:
    """What the kernel says of the cards, which it lists whether they answer or not."""
    driver = folder / "bus" / "pci" / "drivers" / "nvidia"
    driver.mkdir(parents=True)
    for gpu in fleet.gpus:
        device = folder / "bus" / "pci" / "devices" / f"{gpu.pci_bus_id}.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{_NVIDIA}\n")
        (device / "device").write_text("0x2330\n")
        (device / "class").write_text("0x030200\n")
        (driver / device.name).symlink_to(device)
    return folder


def same_name(folder: Path) -> Outcome:
    """Two hosts with different GPUs and one name publish into one lake."""
    lake = Lake.at(str(folder / "lake"))
    hosts = [
        AttackedHost.make(folder / name, two_gpus(name), lake, name="gpu-node", kubernetes_pod_resources="")
        for name in ("one", "two")
    ]
    hosts[0].init_lake()
    with ExitStack() as agents:
        for host in hosts:
            agents.enter_context(host.running())
        until(hosts[0].published, "a first publishing")
        time.sleep(8)
    rows = hosts[0].rows("host")
    _, _, doubled = intervals(rows, _INTERVAL_MS)
    warned = sum("gpu-node" in line and "another agent" in line for host in hosts for line in host.log().splitlines())
    return Outcome(
        f"{doubled} of {len(rows)} rows of the host table doubled; {warned} warnings", holds=not doubled and warned > 0
    )


def planted_links(folder: Path) -> Outcome:
    """Somebody else's folder, with links in it that lead to root's files, given as the spool to an agent that root runs by hand.

    The same in a folder of root's own, into which somebody could write before.
    """
    victim, content = folder / "victim", b"root's own\n"
    wrong, refused = [], 0
    for name in _SPOOL_FILES:
        for whose in ("foreign", "own"):
            victim.write_bytes(content)
            host = AttackedHost.make(folder / f"{whose}-{name}", two_gpus())
            host.spool.mkdir()
            (host.spool / name).symlink_to(victim)
            if whose == "foreign":
                _give_away(host.spool)
            answer = host.fallow("agent", "run", "--lake", host.lake.root, "--host", "h1", "--for", "1s")
            refused += answer.returncode in (1, 2) and "Traceback" not in answer.stderr
            if victim.read_bytes() != content:
                wrong.append(f"{name} in {whose} folder")
    return Outcome(
        f"{2 * len(_SPOOL_FILES)} links planted, {len(wrong)} followed {wrong or ''}; {refused} agents refused to start",
        holds=not wrong,
    )


def _give_away(spool: Path) -> None:
    """Only root can: for anybody else the folder stays their own, and the links lead to their own file."""
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(spool, nobody.pw_uid, nobody.pw_gid)


_VERSIONS = {"570.86.15": None, "575.57.08": 0.5, "580.65.06": 0.5, "580.82.07": 0.5, "595.45.04": 0.5}
"""Share of the time that the hardware holds clocks down because of heat, None where the driver does not count it."""


def throttle_ids(folder: Path) -> Outcome:
    """Drivers that count throttled time under different field ids, and one that does not count it."""
    wrong = []
    for version, share in _VERSIONS.items():
        gpu = Gpu("GPU-a", util=constant(60), architecture=10, throttled={"hw_thermal": constant(0.5)})
        host = AttackedHost.make(folder / version, Scenario((gpu,), ms_ago(20), driver_version=version))
        host.fallow("agent", "run", "--lake", host.lake.root, "--host", "h1", "--for", "4s")
        rows = host.rows("gpu")
        values = [row["throttled_hw_thermal_ms"] for row in rows]
        if share is None:
            good = values and set(values) == {None}
        else:
            span_ms = rows[-1]["time"] - rows[0]["time"]
            good = None not in values and abs((values[-1] - values[0]) - share * span_ms) < 0.2 * span_ms
        if not good:
            wrong.append(f"{version}: {values}")
    return Outcome(f"{len(_VERSIONS)} driver versions, {len(wrong)} wrong {wrong or ''}", holds=not wrong)


def dying_worker(folder: Path) -> Outcome:
    """The NVML worker is killed again and again, as soon as there is one and a little later."""
    host = AttackedHost.make(folder, two_gpus())
    chance, killed, began = random.Random(1), 0, time.monotonic()  # noqa: S311  # the same every time
    with host.running() as agent:
        until(host.published, "a first publishing")
        while killed < _KILLS and time.monotonic() - began < 20 * _KILL_EVERY_S * _KILLS:
            time.sleep(_KILL_EVERY_S * chance.uniform(0.5, 1.5))
            if (pid := worker_of(agent)) is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        time.sleep(3)
    ticks, _, _ = intervals(host.rows("agent"), _INTERVAL_MS)
    answered = [row for row in host.rows("gpu") if row["gpu"] == "GPU-a0" and row["gpu_util_pct"] is not None]
    _, found, _ = intervals(answered, _INTERVAL_MS)
    missed = sum(row["missed_intervals"] for row in host.rows("agent"))
    blind = ticks - found
    return Outcome(
        f"{killed} kills: measured in {found} of {ticks} ticks; missed_intervals {missed}",
        holds=killed == _KILLS and found >= 0.9 * ticks and missed == blind,
    )


def rates_beside_gpm(folder: Path) -> Outcome:
    """Cards whose sample ring cannot be read, and whose GPM covers all of the time: what a tick asks of the driver."""
    fleet = standard_fleet(ms_ago(60), [os.getpid()])
    without = replace(fleet, faults=(Fault("not_supported", function="nvmlDeviceGetSamples"),))
    hosts = [
        AttackedHost.make(folder / name, scenario, agent_interval="10s", agent_process_interval="10s")
        for name, scenario in (("ring", fleet), ("gpm", without))
    ]
    with ExitStack() as agents:
        for host in hosts:
            agents.enter_context(host.running())
        time.sleep(55)
    calls, cpu_ms, sources = [], [], set()
    for host in hosts:
        own = host.rows("agent")[1:]
        calls.append(statistics.median(row["nvml_calls"] for row in own))
        cpu_ms.append(statistics.mean(row["worker_cpu_ms"] for row in own))
        sources |= {row["util_source"] for row in host.rows("gpu")[8:]}
    return Outcome(
        f"{calls[1]:g} driver calls a tick and {cpu_ms[1]:.1f} ms, with the ring {calls[0]:g} and {cpu_ms[0]:.1f} ms; source {sorted(sources)}",
        holds=calls[1] <= calls[0],
    )


def mixed_sources(folder: Path) -> Outcome:
    """Cards with GPM and a sample ring, whose work lies between whole percents or comes in short bursts."""
    burst = Steps(tuple(point for n in range(200) for point in ((n * 1.7, 100.0), (n * 1.7 + 0.02, 0.0))))
    patterns = (*(constant(value) for value in (0.3, 0.45, 12.4, 33.4, 50.49, 99.4)), burst, constant(0))
    gpus = tuple(
        Gpu(f"GPU-{index}", util=pattern, gpm={2: pattern}, pci_bus_id=f"0000:{0x10 + index:02x}:00")
        for index, pattern in enumerate(patterns)
    )
    host = AttackedHost.make(folder, Scenario(gpus, ms_ago(60)))
    with host.running():
        until(host.published, "a first publishing")
        time.sleep(14)
    rows = [row for row in host.rows("gpu") if row["gpu_util_pct"] is not None]
    above = sum(row["gpu_util_max_pct"] is not None and row["gpu_util_pct"] > row["gpu_util_max_pct"] for row in rows)
    zero = sum(row["gpu_util_zero_ratio"] == 1.0 and row["gpu_util_pct"] > 0 for row in rows)
    return Outcome(
        f"{len(rows)} rows: mean above the maximum in {above}, never idle and always idle at once in {zero}",
        holds=len(rows) > 50 and not (above or zero),
    )


def idle_connections(folder: Path) -> Outcome:
    """Eight connections to /metrics that say nothing, opened again whenever they are closed, beside an honest scraper."""
    host = AttackedHost.make(folder, two_gpus(), metrics_listen="127.0.0.1:0")
    with host.running() as agent:
        until(host.published, "a first publishing")
        port = _listening(agent)
        request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics")  # loopback
        with _silent_clients(port):
            seconds = []
            for _ in range(_SCRAPES):
                seconds.append(seconds_to_answer(request, 10.0))
                time.sleep(0.2)
    failed = sum(each >= 10.0 or each < 0 for each in seconds)
    return Outcome(
        f"{failed} of {_SCRAPES} scrapes failed; the slowest answer took {max(seconds) * 1000:.0f} ms",
        holds=not failed and max(seconds) < 1.0,
    )


def _listening(agent: subprocess.Popen[bytes]) -> int:
    found = [each for each in psutil.Process(agent.pid).net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    return int(found[0].laddr.port)


@contextlib.contextmanager
def _silent_clients(port: int) -> Iterator[None]:
    over, there = threading.Event(), threading.Event()

    def hold() -> None:
        held: list[socket.socket] = []
        while not over.is_set():
            held = [each for each in held if _is_open(each)]
            with contextlib.suppress(OSError):
                while len(held) < _CLIENTS:
                    held.append(socket.create_connection(("127.0.0.1", port), timeout=1))
            there.set()
            over.wait(0.02)
        for each in held:
            each.close()

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    try:
        there.wait(10)
        yield
    finally:
        over.set()
        thread.join(10)


def _is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)  # noqa: FBT003
    try:
        closed = connection.recv(1) == b""
    except BlockingIOError:
        return True
    except OSError:
        closed = True
    if closed:
        connection.close()
    return not closed
