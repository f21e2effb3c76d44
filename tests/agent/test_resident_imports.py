"""What the agent's resident processes load: every GPU host pays the memory of these modules all the time."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

HEAVY = {"pyarrow", "numpy", "pandas", "polars", "duckdb", "obstore", "rich", "asyncio"}
SPARED = {"difflib", "inspect"}
"""The standard library's: wanted with an error alone."""


def loaded(code: str) -> set[str]:
    """The modules that a process has loaded after some code."""
    show = f"{code}\nimport json, sys; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", show], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


OWNERS = """
import os
from agent.attribution import AttributionSettings, ProcessOwners
ProcessOwners(AttributionSettings(pod_resources="/nonexistent"))\
.describe([{"pid": os.getpid(), "gpu": "g"}], 1_795_000_000_000)
"""
HEALTH = """
import socket
from agent.metrics import MetricsSettings, metrics_server
from agent.snapshot import SnapshotBoard
server = metrics_server(MetricsSettings("127.0.0.1", 0, health_only=True), SnapshotBoard(10_000))
server.start()
with socket.create_connection(("127.0.0.1", server.port)) as asking:
    asking.sendall(b"GET /healthz HTTP/1.1\\r\\n\\r\\n")
    assert asking.recv(4096).startswith(b"HTTP/1.1 200")
server.close()
"""
HTTP = {"ssl", "http.client", "http.server", "urllib.request", "email"}
LOADS: dict[str, tuple[str, str, set[str]]] = {
    "supervisor": ("import fallow.cli, agent.command, agent.supervise.supervisor", "sqlite3", {"arro3.io", "pynvml"}),
    "supervisor that publishes": (
        "import fallow.cli, agent.supervise.supervisor, agent.spool.publisher", "arro3.io", {"pynvml"},
    ),
    "worker": ("import agent.nvml.worker", "pynvml", {"arro3.io", "psutil", "sqlite3", "subprocess"}),
    "attribution of which nothing is on": (
        OWNERS, "agent.attribution.owners",
        {"h2", *HTTP, "agent.attribution.masking", "agent.attribution.pod_resources"},
    ),
    "metrics": (
        "import agent.metrics, agent.supervise.surfaces", "agent.metrics.server", {*HTTP, "prometheus_client", "hmac"},
    ),
    "health checks alone": (HEALTH, "agent.metrics.server",
                            {*HTTP, "agent.metrics.collector", "agent.metrics.catalogue"}),
    "inference servers": ("import agent.serving.scraper", "agent.http_client", HTTP),
}  # fmt: skip


@pytest.mark.parametrize("part", LOADS)
def test_no_process_loads_what_it_can_do_without(part: str) -> None:
    code, needed, unwanted = LOADS[part]
    modules = loaded(code)
    assert needed in modules
    assert not modules & (HEAVY | SPARED | unwanted)
