"""What every check is given, and what it returns."""

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
"""A value that was found; None is unknown."""
Facts = dict[str, Fact]


class TextEnum(str, Enum):
    """Each member is its text, also where it is formatted: StrEnum, which Python 3.10 lacks."""

    __str__ = str.__str__


class Status(TextEnum):
    """How it stands; only `error` makes the command fail."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class DoctorFinding:
    """One result: `found` is a sentence for people, `facts` the same for machines.

    `subject` tells results of one check apart (a GPU, a folder; empty where there is only one), `remedy` says what to
    do and `next` is the command to type, each empty where there is nothing to do.
    """

    status: Status
    found: str
    remedy: str = ""
    next: str = ""
    facts: Facts = field(default_factory=dict)
    subject: str = ""
    check: str = ""
    """The id of the check, once it has looked."""

    @property
    def group(self) -> str:
        return self.check.partition(".")[0]

    @property
    def name(self) -> str:
        return self.check.partition(".")[2]

    def as_json(self) -> dict[str, object]:
        """The finding with all its keys, in the order of docs/doctor.md."""
        order = ("check", "status", "subject", "found", "remedy", "next", "facts")
        return {name: getattr(self, name) for name in order}


def _told(status: Status, found: str, facts: Facts | None = None, *, subject: str = "") -> DoctorFinding:
    return DoctorFinding(status, found, facts=facts or {}, subject=subject)


ok, skipped = partial(_told, Status.OK), partial(_told, Status.SKIPPED)
"""`skipped` does not apply here, or cannot be judged; its sentence says the reason."""
warning, error = partial(DoctorFinding, Status.WARNING), partial(DoctorFinding, Status.ERROR)


_NOT_LOADED, _LIBRARY_NOT_FOUND = 9, 12
"""NVML's return codes; the binding is never loaded here."""


@dataclass(frozen=True)
class Options:
    """What the command line and the config say; empty texts are not set."""

    lake: str = ""
    lake_id: str = ""
    """The id that the lake must have; empty: any."""
    host: str = ""
    """This host's name in the lake."""
    machine_id: str = "/etc/machine-id"
    spool: str = ""
    user: str = ""
    """The user that the agent runs as; empty: whoever asks."""
    pythons: tuple[str, ...] = ()
    sees_all_processes: str = "auto"
    scontrol: str = "scontrol"
    """Slurm's command as the agent asks it; empty: not at all."""
    timeout_s: float = 10.0
    expected_gpus: int = 0
    """How many the host should have; 0: as the PCI bus shows."""


@dataclass(frozen=True)
class Case:
    host: HostFiles
    kernel: Kernel
    driver: DriverLook
    options: Options

    @property
    def driver_version(self) -> Version | None:
        """The driver's version: the loaded module's, else what the library says; None without a driver."""
        return self.kernel.version or version(self.driver.driver_version or "")

    @property
    def driver_text(self) -> str:
        return "" if self.driver_version is None else shown(self.driver_version)

    @property
    def driver_absent(self) -> bool:
        """Whether there is no driver at all, which one check says once for all the others."""
        nothing = self.driver.state == "refused" and self.driver.code in (_NOT_LOADED, _LIBRARY_NOT_FOUND)
        return self.kernel.version is None and nothing and not self.host.wsl


class CheckFunction(Protocol):
    """Looks at one subject; what it cannot judge is a finding too, `skipped` with the reason."""

    def __call__(self, case: Case) -> Iterable[DoctorFinding]: ...


@dataclass(frozen=True)
class DoctorCheck:
    """One subject: its id (`group.name`), what it looks at, and the function."""

    id: str
    meaning: str
    look: CheckFunction


NO_DRIVER = "no driver to ask (see driver.module)"
"""Why most checks have nothing to say on a host without a driver."""
