"""A host made of files in a folder, and what a driver would say on it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from agent.attribution.proc import INITIAL_PID_NAMESPACE
from agent.doctor.case import Case, Options
from agent.doctor.checks import CHECKS
from agent.doctor.host import HostFiles, KernelClock, read_kernel
from agent.doctor.look import DriverLook, GpuLook
from tests.fakes.nvml import library_folder

if TYPE_CHECKING:
    from pathlib import Path

    from agent.doctor.case import DoctorFinding

KERNEL = "6.1.0-40-amd64"
DRIVER = "580.95.05"
NOW = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)
LIBRARIES = "/usr/lib/x86_64-linux-gnu"

H100 = GpuLook(0, "GPU-a", "NVIDIA H100 80GB HBM3", (9, 0), persistence=True, mig=False)
V100 = GpuLook(1, "GPU-b", "Tesla V100-SXM2-16GB", (7, 0), persistence=True)
P40 = GpuLook(2, "GPU-c", "Tesla P40", (6, 1), persistence=True)
RTX5090 = GpuLook(3, "GPU-d", "NVIDIA GeForce RTX 5090", (12, 0), persistence=True)
UNKNOWN = GpuLook(4, "GPU-e", "NVIDIA X1000", (99, 0), persistence=True)


def answers(*gpus: GpuLook, version: str = DRIVER, **other: Any) -> DriverLook:
    """A driver that works."""
    values: dict[str, Any] = {"state": "ok", "driver_version": version, "gpu_count": len(gpus), "gpus": gpus}
    return DriverLook(**(values | {"control_errno": 0} | other))


NO_LIBRARY = DriverLook("refused", code=12, message="NVML Shared Library Not Found")


@dataclass
class Tree:
    """The root of a host; every method adds something to it."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    clock: KernelClock | None = field(default_factory=lambda: KernelClock(synchronised=True, max_error_s=0.01))
    now: datetime = NOW

    def file(self, path: str, text: str = "", mode: int = 0o644) -> Path:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)  # one made read-only before
        target.write_text(text)
        target.chmod(mode)
        return target

    def link(self, path: str, to: str) -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(to)

    def module(self, version: str = DRIVER, *, open_flavour: bool = True) -> Tree:
        name = "NVIDIA UNIX Open Kernel Module for x86_64" if open_flavour else "NVIDIA UNIX x86_64 Kernel Module"
        banner = (
            f"NVRM version: {name}  {version}  Release Build  (u@h)  Mon 1 2026\nGCC version:  gcc version 12.2.0\n"
        )
        self.file("proc/driver/nvidia/version", banner)
        return self

    def card(self, address: str = "0000:17:00.0", *, driver: str = "nvidia", device: int = 0x2330) -> Tree:
        folder = f"sys/bus/pci/devices/{address}"
        self.file(f"{folder}/vendor", "0x10de\n")
        self.file(f"{folder}/class", "0x030200\n")
        self.file(f"{folder}/device", f"{device:#06x}\n")
        if driver:
            self.link(f"{folder}/driver", f"../../../../bus/pci/drivers/{driver}")
        return self

    def library(self, name: str = "libnvidia-ml", version: str = DRIVER, folder: str = LIBRARIES) -> Tree:
        self.file(f"{folder}/{name}.so.{version}")
        self.link(f"{folder}/{name}.so.1", f"{name}.so.{version}")
        return self

    def nodes(self, *names: str, mode: int = 0o666) -> Tree:
        for name in names or ("nvidiactl", "nvidia0", "nvidia-uvm"):
            self.file(f"dev/{name}", mode=mode)
        return self

    def process(self, pid: int, name: str, command: str = "") -> Tree:
        self.file(f"proc/{pid}/comm", f"{name}\n")
        self.file(f"proc/{pid}/cmdline", command.replace(" ", "\0"))
        return self

    def namespace(self, name: str = INITIAL_PID_NAMESPACE) -> Tree:
        self.link("proc/self/ns/pid", name)
        return self

    def distribution(self, text: str = "ID=ubuntu\nID_LIKE=debian\n") -> Tree:
        self.file("etc/os-release", text)
        return self

    def toolkit(self, folder: str, version: str) -> Tree:
        self.file(f"{folder}/version.json", f'{{"cuda": {{"name": "CUDA SDK", "version": "{version}"}}}}')
        return self

    def wheel(self, environment: str, name: str, version: str) -> Tree:
        self.file(f"{environment}/lib/python3.12/site-packages/{name}-{version}.dist-info/METADATA")
        return self

    @property
    def host(self) -> HostFiles:
        self.file("proc/sys/kernel/osrelease", f"{KERNEL}\n")
        folders = (self.root / name for name in ("proc", "sys", "dev"))
        return HostFiles(self.root, *folders, self.environment, lambda: self.clock, self.now)

    def case(self, driver: DriverLook | None = None, **options: Any) -> Case:
        host = self.host
        return Case(host, read_kernel(host), driver or answers(H100), Options(**options))


def findings(check_id: str, case: Case) -> list[DoctorFinding]:
    """What one check says."""
    (check,) = [check for check in CHECKS if check.id == check_id]
    return list(check.look(case))


def says(check_id: str, case: Case, pattern: str) -> DoctorFinding:
    """The one finding of a check, held against a pattern of its status, sentence, remedy and command."""
    (only,) = findings(check_id, case)
    text = f"{only.status}: {only.found}\n-> {only.remedy}\n$ {only.next}\n"
    assert re.match(pattern, text, re.DOTALL), text
    return only


class Hosts:
    """Hosts to build on, each in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._made = folder, count()

    def bare(self) -> Tree:
        """A host with nothing on it."""
        return Tree(self._folder / f"root-{next(self._made)}")

    def healthy(self) -> Tree:
        """A host on which nothing is wrong."""
        tree = self.bare()
        tree.environment["HOME"] = "/nonexistent"
        return tree.module().card().library().library("libcuda").nodes().namespace().distribution()


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path)


@pytest.fixture
def healthy(hosts: Hosts) -> Tree:
    return hosts.healthy()


@pytest.fixture(scope="session")
def library() -> Path:
    return library_folder()
