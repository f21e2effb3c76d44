"""Will containers on this host get the GPUs? The toolkit's own list of files can be older than the driver."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.doctor.case import NO_DRIVER
from agent.doctor.finding import Facts, Finding, error, ok, skipped, warning
from agent.doctor.host import exists, read
from agent.doctor.versions import shown, version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.doctor.case import Case

_RUNTIMES = ("dockerd", "containerd", "crio", "podman")
_FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/sbin", "/usr/local/sbin")
_SPECS = ("/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml", "/run/cdi/nvidia.yaml", "/etc/cdi/nvidia.json")
_LIBRARY = re.compile(r"lib(?:cuda|nvidia-ml)\.so\.(\d+\.\d+(?:\.\d+)?)")


def look(case: Case) -> Iterator[Finding]:
    """NVIDIA's container toolkit, and the driver version in its CDI specification."""
    host = case.host
    if case.driver_absent:
        yield skipped(NO_DRIVER)
        return
    if host.container:
        yield skipped("this is a container; ask on the host")
        return
    runtimes = [name for name in _RUNTIMES if any(exists(host.at(f"{folder}/{name}")) for folder in _FOLDERS)]
    toolkit = any(exists(host.at(f"{folder}/nvidia-ctk")) for folder in _FOLDERS)
    spec, written = _written_for(case)
    facts: Facts = {"runtimes": runtimes, "toolkit": toolkit, "specification": spec, "written_for": written}
    if not runtimes:
        yield skipped("no container runtime here", facts)
    elif not toolkit:
        yield warning(
            f"{', '.join(runtimes)} here, but not NVIDIA's container toolkit: containers get no GPU",
            "install nvidia-container-toolkit and tell the runtime",
            "nvidia-ctk --version",
            facts,
        )
    elif written and case.driver_version is not None and version(written) != case.driver_version:
        yield error(
            f"{spec} is written for driver {written}, here is {shown(case.driver_version)}: containers fail to start "
            "(`failed to fulfil mount request`)",
            "write it again after every change of the driver",
            f"sudo nvidia-ctk cdi generate --output={spec}",
            facts,
        )
    else:
        yield ok(f"NVIDIA's container toolkit beside {', '.join(runtimes)}", facts)


def _written_for(case: Case) -> tuple[str, str]:
    """(path, driver version) of the CDI specification; empty texts where there is none."""
    for path in _SPECS:
        text = read(case.host.at(path), 1 << 22)
        if text is not None:
            match = _LIBRARY.search(text)
            return path, match[1] if match else ""
    return "", ""
