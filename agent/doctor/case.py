"""What every check is given: the host, one look at the driver, and the settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from agent.doctor.versions import Version, shown, version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.doctor.finding import Finding
    from agent.doctor.host import Host
    from agent.doctor.kernel import Kernel
    from agent.doctor.look import DriverLook


_NOT_LOADED, _LIBRARY_NOT_FOUND = 9, 12
"""NVML's return codes; the binding is never loaded here."""


@dataclass(frozen=True)
class Options:
    """What the command line and the config say; empty texts are not set."""

    lake: str = ""
    spool: str = ""
    user: str = ""
    """The user that the agent runs as; empty: whoever asks."""
    pythons: tuple[str, ...] = ()
    sees_all_processes: str = "auto"
    timeout_s: float = 10.0


@dataclass(frozen=True)
class Case:
    """One host at one moment."""

    host: Host
    kernel: Kernel
    driver: DriverLook
    options: Options

    @property
    def driver_version(self) -> Version | None:
        """The driver's version: the loaded module's, else what the library says; None without a driver."""
        return self.kernel.version or version(self.driver.driver_version or "")

    @property
    def driver_text(self) -> str:
        """The driver's version for sentences."""
        return "" if self.driver_version is None else shown(self.driver_version)

    @property
    def driver_absent(self) -> bool:
        """Whether there is no driver at all, which one check says once for all the others."""
        nothing = self.driver.state == "refused" and self.driver.code in (_NOT_LOADED, _LIBRARY_NOT_FOUND)
        return self.kernel.version is None and nothing and not self.host.wsl


class CheckFunction(Protocol):
    """Looks at one subject; what it cannot judge is a finding too, `skipped` with the reason."""

    def __call__(self, case: Case) -> Iterable[Finding]:
        """The findings, one or more."""
        ...


@dataclass(frozen=True)
class Check:
    """One subject: its id (`group.name`), what it looks at, and the function."""

    id: str
    meaning: str
    look: CheckFunction


NO_DRIVER = "no driver to ask (see driver.module)"
"""Why most checks have nothing to say on a host without a driver."""
