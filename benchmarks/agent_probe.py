"""The cost of a health check: the kubelet's request of /healthz, and the status command as an alternative.

Each check comes seconds after the last, at a moment at which the agent is idle, so its caches are cold, as between two
probes.
"""

from __future__ import annotations

import http.client
import os
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.agent_cost import INTERVAL_S, wait_until_settled
from benchmarks.gpu_host import FLEET, cpu_ms, gpu_host, memory_mib, resident
from benchmarks.health_probes import free_port
from benchmarks.measure import Figure, cpu_s
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.gpu_host import GpuHost

CHECKS = int(os.environ.get("BENCH_TICKS", "12"))
_ENDED_S = 0.2  # the answering thread has ended by then


def measure() -> Iterator[Figure]:
    """Yield the cost of both checks, in turn, for an agent with ticks of 10 s, and the memory for listening."""
    with gpu_host() as host:
        port = free_port()
        listening = replace(host, environment=host.environment | {"FALLOW_METRICS_HEALTH_LISTEN": f"127.0.0.1:{port}"})
        with listening.agent(INTERVAL_S) as agent:
            wait_until_settled()
            ways = {"request": lambda: _request(port), "command": lambda: _command(host)}
            costs: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(CHECKS):
                for name, check in ways.items():
                    costs[name].append(_cost_ms(agent.pid, check))
                    time.sleep(INTERVAL_S / 4)
                wait_until_next()
            with_health_mib = memory_mib(resident(agent))[1]
    how = f"median of {CHECKS}, agent and client side, {FLEET}"
    yield Figure(
        "agent_cpu_per_health_request", statistics.median(costs["request"]), "ms", f"the agent's side alone, {how}"
    )
    yield Figure("agent_cpu_per_status_command", statistics.median(costs["command"]), "ms", how)
    yield Figure(
        "agent_pss_with_health_listen", with_health_mib, "MiB", "supervisor and worker, shared pages counted once"
    )


def wait_until_next() -> None:
    """Wait for the quiet moment of the next interval."""
    time.sleep((1.3 * INTERVAL_S - time.time() % INTERVAL_S) % INTERVAL_S)


def _cost_ms(pid: int, check: Callable[[], None]) -> float:
    """Return the CPU of the agent, and of the programs that the check started."""
    before_ms, before_s = cpu_ms([pid]), cpu_s()
    own_s = time.process_time()
    check()
    time.sleep(_ENDED_S)
    started_s = cpu_s() - before_s - (time.process_time() - own_s)
    return cpu_ms([pid]) - before_ms + max(0.0, started_s) * 1000


def _request(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/healthz")
    answered = connection.getresponse().status
    connection.close()
    if answered != 200:
        raise RuntimeError(f"/healthz answered {answered}")


def _command(host: GpuHost) -> None:
    command = [sys.executable, "-m", "fallow", "agent", "status", "--spool", str(host.folder / "spool")]
    subprocess.run(command, env=host.environment, cwd=REPOSITORY, stdout=subprocess.DEVNULL, check=True)
