"""Whether this environment can run the agent: `python -I -m agent.deployment.check CONFIG VARIABLES`.

Imports every module of the agent and reads the settings as the service would. Prints one JSON object for the installer
(`environment.CheckedEnvironment`), or one sentence on standard error with exit code 1.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from pathlib import Path

import agent
from fallow import __version__, config
from fallow.errors import ConfigError, FallowError
from fallow.given_file import SETTINGS_BYTES, given_text


def main(config_file: str, variables_file: str) -> int:
    """The exit code; both files may be missing."""
    for module in pkgutil.walk_packages(agent.__path__, "agent."):
        importlib.import_module(module.name)
    try:
        file = config_file if Path(config_file).exists() else None
        loaded = config.load({}, file, service_variables(variables_file))
    except FallowError as error:
        print(error, file=sys.stderr)
        return 1
    found = {
        "version": __version__,
        "lake": loaded.text("lake.path"),
        "spool": loaded.text("agent.spool"),
        "interval_ms": loaded.integer("agent.interval"),
    }
    print(json.dumps(found))
    return 0


def service_variables(file: str) -> dict[str, str]:
    """What a file of systemd's `EnvironmentFile=` sets; empty where there is none."""
    try:
        lines = given_text("the file of variables", file, SETTINGS_BYTES).splitlines()
    except ConfigError:
        return {}
    pairs = (line.strip().partition("=") for line in lines if "=" in line and not line.lstrip().startswith(("#", ";")))
    return {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
