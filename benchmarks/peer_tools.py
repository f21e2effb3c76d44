"""Other monitoring tools for the same GPUs: gpustat, nvitop-exporter and gpu-usage-audit, in separate environments."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import REPOSITORY

PINS = ("gpustat==1.1.1", "nvitop==1.7.2", "nvitop-exporter==1.7.2")
AUDIT_PINS = ("gpu-usage-audit==1.8.0",)
_AUDIT_PYTHONS = ("python3.13", "python3.12")
"""The versions of Python that gpu-usage-audit supports."""
_FOLDER = REPOSITORY / "build"
_SAMPLE = re.compile(r"(?P<name>\w+)\{(?P<labels>[^}]*)\} (?P<value>\S+)")


class NoPeersError(Exception):
    """The tools could not be installed: the index is unreachable, or lacks these versions."""


def installed() -> Path:
    """Return the folder with the commands of gpustat and nvitop-exporter.

    Raises NoPeersError where pip cannot install them.
    """
    return _environment(_FOLDER / "bench-peers", sys.executable, PINS)


def audit_installed() -> Path:
    """Return the folder of gpu-usage-audit's command; raises NoPeersError as `installed`, or if no Python fits."""
    found = [path for name in _AUDIT_PYTHONS if (path := shutil.which(name))]
    python = next((path for path in found if subprocess.run([path, "-c", ""], check=False).returncode == 0), None)
    if python is None:
        raise NoPeersError(f"none of {', '.join(_AUDIT_PYTHONS)} is there")
    return _environment(_FOLDER / "bench-audit", python, AUDIT_PINS)


def _environment(folder: Path, python: str, pins: tuple[str, ...]) -> Path:
    """Return the folder of commands of an environment with these packages, after creating it where it is missing."""
    stamp = folder / "installed"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != "\n".join(pins):
        subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        tried = subprocess.run([*pip, "--no-input", *pins], capture_output=True, text=True, check=False)
        if tried.returncode != 0:
            raise NoPeersError(tried.stderr.strip().splitlines()[-1])
        stamp.write_text("\n".join(pins), encoding="utf-8")
    return folder / "bin"


@dataclass(frozen=True)
class Look:
    """The answer of one look at the host, and the cost of its process."""

    first_gpu_util_pct: float
    values: int
    cpu_ms: float = 0.0
    rss_mib: float = 0.0


def gpustat_once(commands: Path, environment: dict[str, str]) -> Look:
    """Return the look of `gpustat --json` in a separate process, as a scheduled job runs it."""
    program = subprocess.Popen([commands / "gpustat", "--json"], env=environment, stdout=subprocess.PIPE)
    assert program.stdout is not None  # noqa: S101  # a pipe was asked for
    with program.stdout as output:
        begun = output.read(1)
        # it prints at its end; wait4 would count the memory of its parent process
        rss_mib = _most_resident_mib(program.pid)
        gpus = json.loads(begun + output.read())["gpus"]
    _, status, usage = os.wait4(program.pid, 0)
    program.returncode = os.waitstatus_to_exitcode(status)
    return Look(
        first_gpu_util_pct=float(gpus[0]["utilization.gpu"]),
        values=_leaves(gpus),
        cpu_ms=(usage.ru_utime + usage.ru_stime) * 1000,
        rss_mib=rss_mib,
    )


class NvitopExporter:
    """nvitop-exporter on a free port of the loopback."""

    def __init__(self, commands: Path, interval_s: int) -> None:
        self._port = _free_port()
        self.command = (
            str(commands / "nvitop-exporter"), "--bind-address", "127.0.0.1", "--port", str(self._port),
            "--interval", str(interval_s),
        )  # fmt: skip

    def scrape(self) -> Look:
        """Return the answer to one scrape of Prometheus."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=30) as answer:
            samples = [found for line in answer.read().decode().splitlines() if (found := _SAMPLE.match(line))]
        known = [sample for sample in samples if not math.isnan(float(sample["value"]))]
        of_gpus = [sample for sample in known if sample["name"].startswith(("gpu_", "process_")) and sample["labels"]]
        busy = next(s for s in known if s["name"] == "gpu_utilization_Percentage" and 'index="0"' in s["labels"])
        return Look(first_gpu_util_pct=float(busy["value"]), values=len(of_gpus))


def _most_resident_mib(pid: int) -> float:
    """Return the kernel's maximum; 0 where the process has just ended."""
    try:
        status = Path("/proc", str(pid), "status").read_text(encoding="ascii")
    except OSError:
        return 0.0
    marks = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
    return marks[0] / 1024 if marks else 0.0


def _leaves(value: Any) -> int:
    """Return the number of values that are not null."""
    if isinstance(value, dict):
        return sum(map(_leaves, value.values()))
    if isinstance(value, list):
        return sum(map(_leaves, value))
    return 0 if value is None else 1


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
