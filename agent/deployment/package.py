"""A host whose agent a package brought: unit and environment belong to it, and its tool upgrades and removes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fallow.errors import UsageError

if TYPE_CHECKING:
    from agent.deployment.host import Host

MARKER = "/usr/lib/fallow-agent/package.json"
"""A file of the package (deploy/packages/build.sh): for each verb, the command of the package's own tool."""


def refuse_packaged(host: Host, verb: str) -> None:
    """Raises UsageError where a package brought the agent: a unit beside the package's hides it, and outlives a purge."""
    try:
        text = host.at(MARKER).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return
    raise UsageError(
        f"a package installed the agent on this host, so `fallow agent {verb}` leaves it alone",
        f"use the package's own tool: {json.loads(text)[verb]}",
    )
