"""Builds an environment beside the ones that are there, and has it say whether it can run."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.deployment.layout import VersionEnvironment
from fallow.errors import FallowError

if TYPE_CHECKING:
    from pathlib import Path

    from agent.deployment.host import Host
    from agent.deployment.layout import Layout
    from agent.deployment.source import Source

_LOOK = (
    "import sys, json; print(json.dumps([sys.version_info[:2], sys.prefix == sys.base_prefix, sys._base_executable]))"
)
_CHECK = "agent.deployment.check"


@dataclass(frozen=True)
class CheckedEnvironment:
    """What a new environment says of itself and of the settings that it would run with."""

    version: str
    lake: str
    """Empty where no setting names one."""
    spool: str
    interval_ms: int

    def matches(self, environment: VersionEnvironment) -> bool:
        return self.version == environment.version


def base_python(given: str | None, host: Host) -> tuple[str, str]:
    """Path and version (X.Y) of the Python that environments are made with; raises FallowError for one that will not do."""
    program = given or sys.executable
    found = json.loads(host.run([program, "-I", "-c", _LOOK], f"asking {program} for its version"))
    version = ".".join(map(str, found[0]))
    if not [3, 10] <= found[0] < [3, 14]:
        raise FallowError(f"{program} is Python {version}, and the agent needs 3.10 to 3.13", "name one with --python")
    return found[2], version


def pip_of(python: str, source: Source | None = None) -> list[str]:
    """The command that runs a Python's own pip, or the pip that a folder of wheels brings along."""
    wheel = None if source is None else source.pip_wheel()
    options = ["--disable-pip-version-check", "--no-input"]
    return [python, "-I", "-m", "pip", *options] if wheel is None else [python, f"{wheel}/pip", *options]


def build(layout: Layout, source: Source, python: tuple[str, str], name: str) -> VersionEnvironment:
    """Makes the environment whole, or raises FallowError and leaves none."""
    host, folder = layout.host, layout.host.at(layout.path(name))
    environment = VersionEnvironment(name, source.version, source.sha256, f"{python[0]} {python[1]}")
    host.note(f"installed fallow {source.version} into {layout.path(name)}")
    if host.dry_run:
        return environment
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _make_venv(host, folder, python[0], source)
        _install(host, source, f"{folder}/bin/python")
        if host.is_image:
            _use_paths_of_the_image(host, folder)
        layout.finish(environment)
    except BaseException:
        host.remove(layout.path(name))
        raise
    return environment


def _make_venv(host: Host, folder: Path, python: str, source: Source) -> None:
    if source.pip_wheel() is not None:
        host.run([python, "-I", "-m", "venv", "--without-pip", str(folder)], "making the environment")
        return
    try:
        host.run([python, "-I", "-m", "venv", str(folder)], "making the environment")
    except FallowError as error:
        error.hint = "on Debian and Ubuntu: apt-get install python3-venv"
        raise


def _install(host: Host, source: Source, python: str) -> None:
    pip = [*pip_of(python, source), "install", "--quiet"]
    if source.lock is None:
        host.run([*pip, *source.pip_arguments(), str(source.wheel)], "installing the wheel")
        return
    with tempfile.NamedTemporaryFile("w", prefix="fallow-lock-", suffix=".txt", encoding="utf-8") as lock:
        lock.write(source.lock)
        lock.flush()
        exact = ["--require-hashes", "--only-binary", ":all:", "-r", lock.name]
        host.run([*pip, *source.pip_arguments(), *exact], "installing what fallow needs")
    host.run([*pip, "--no-index", "--no-deps", str(source.wheel)], "installing the wheel")


def _use_paths_of_the_image(host: Host, folder: Path) -> None:
    """Scripts name the Python by its path in the image, not by where the image lies now."""
    outside = host.root.rstrip("/").encode()
    for file in (*(folder / "bin").iterdir(), folder / "pyvenv.cfg"):
        if not file.is_symlink() and outside + b"/" in (text := file.read_bytes()):
            file.write_bytes(text.replace(outside + b"/", b"/"))


def check(layout: Layout, environment: VersionEnvironment, config: str) -> CheckedEnvironment:
    """Has the environment import all of the agent and read the settings; raises FallowError where it cannot."""
    host = layout.host
    python = host.at(layout.path(environment.name)) / "bin/python"
    # in an image the scripts' paths are not this machine's, while the interpreter finds its packages by where it lies
    said = host.run(
        [str(python), "-I", "-m", _CHECK, str(host.at(config)), str(host.at(_VARIABLES))],
        f"the check of fallow {environment.version}",
    )
    try:
        values: dict[str, Any] = json.loads(said)
        checked = CheckedEnvironment(**values)
    except (ValueError, TypeError):
        raise FallowError(
            f"the check of fallow {environment.version} says nothing of use", "build the wheel again"
        ) from None
    if not checked.matches(environment):
        raise FallowError(
            f"the wheel of fallow {environment.version} holds version {checked.version}", "build the wheel again"
        )
    return checked


def check_user(layout: Layout, environment: VersionEnvironment, user: str, owner: tuple[int, int]) -> None:
    """Raises FallowError where the user of the service cannot run the environment's Python, such as one in root's home."""
    python = layout.host.at(layout.path(environment.name)) / "bin/python"
    try:
        layout.host.run([str(python), "-I", "-c", f"import {_CHECK}"], "the check", owner)
    except FallowError as error:
        base = environment.python.partition(" ")[0]
        raise FallowError(
            f"the user {user} cannot run the agent with {base} ({error.message})",
            "name a Python that every user may run (--python /usr/bin/python3), under umask 022",
        ) from error


_VARIABLES = "/etc/fallow/agent.env"
