"""The input of every check (`Case`) and its output (`DoctorFinding`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Protocol

from agent.doctor.host import Version, shown, version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.doctor.host import HostFiles, Kernel
    from agent.doctor.look import DriverLook

Fact = str | int | float | bool | list[str] | None
"""A measured value; None is unknown."""
Facts = dict[str, Fact]


class TextEnum(str, Enum):
    """An enum whose members format as their text, like StrEnum, which Python 3.10 lacks."""

    __str__ = str.__str__


class Status(TextEnum):
    """The grade of a finding; only `error` makes the command fail."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class DoctorFinding:
    status: Status
    found: str
    """What the check found, as a sentence for people."""
    remedy: str = ""
    """The action that mends the problem; empty where there is nothing to do."""
    next: str = ""
    """The command to type next; empty where there is nothing to do."""
    facts: Facts = field(default_factory=dict)
    """What the check found, for machines."""
    subject: str = ""
    """A GPU or a folder, where one check returns several results; else empty."""
    check: str = ""
    """The id of the check; empty until the check has run."""

    @property
    def group(self) -> str:
        return self.check.partition(".")[0]

    @property
    def name(self) -> str:
        return self.check.partition(".")[2]

    def as_json(self) -> dict[str, object]:
        """Return the finding with all its keys, in the order of docs/doctor.md."""
        order = ("check", "status", "subject", "found", "remedy", "next", "facts")
        return {name: getattr(self, name) for name in order}


def _plain_finding(status: Status, found: str, facts: Facts | None = None, *, subject: str = "") -> DoctorFinding:
    return DoctorFinding(status, found, facts=facts or {}, subject=subject)


ok, skipped = partial(_plain_finding, Status.OK), partial(_plain_finding, Status.SKIPPED)
"""`skipped`: the check does not apply here, or cannot judge; its sentence gives the reason."""
warning, error = partial(DoctorFinding, Status.WARNING), partial(DoctorFinding, Status.ERROR)


_NOT_LOADED, _LIBRARY_NOT_FOUND = 9, 12
"""NVML's return codes. They are repeated here because the doctor never loads the binding."""


@dataclass(frozen=True)
class Options:
    """Values of the command line and the config; an empty text means not set."""

    lake: str = ""
    lake_id: str = ""
    """The id that the lake must have; empty: any."""
    host: str = ""
    """This host's name in the lake."""
    machine_id: str = "/etc/machine-id"
    spool: str = ""
    user: str = ""
    """The user that the agent runs as; empty: the user who runs the doctor."""
    pythons: tuple[str, ...] = ()
    sees_all_processes: str = "auto"
    scontrol: str = "scontrol"
    """The agent's command for Slurm's controller; empty: the agent does not ask Slurm."""
    timeout_s: float = 10.0
    expected_gpus: int = 0
    """The number of GPUs that the host should have; 0: as many as the PCI bus shows."""


@dataclass(frozen=True)
class Case:
    host: HostFiles
    kernel: Kernel
    driver: DriverLook
    options: Options

    @property
    def driver_version(self) -> Version | None:
        """Return the version of the loaded module, else that of the driver's library; None without a driver."""
        return self.kernel.version or version(self.driver.driver_version or "")

    @property
    def driver_text(self) -> str:
        return "" if self.driver_version is None else shown(self.driver_version)

    @property
    def driver_absent(self) -> bool:
        """Return whether this host has no driver at all. Only driver.module reports a missing driver."""
        nothing = self.driver.state == "refused" and self.driver.code in (_NOT_LOADED, _LIBRARY_NOT_FOUND)
        return self.kernel.version is None and nothing and not self.host.wsl


class CheckFunction(Protocol):
    """Yields the findings of one subject. A subject that it cannot judge is `skipped`, with the reason."""

    def __call__(self, case: Case) -> Iterable[DoctorFinding]: ...


@dataclass(frozen=True)
class DoctorCheck:
    id: str
    """`group.name`."""
    meaning: str
    """The condition that the check tests, as a short sentence."""
    look: CheckFunction


NO_DRIVER = "no driver to ask (see driver.module)"
"""The reason why most checks are skipped on a host without a driver."""
