"""The folder of an installation: one environment per version, and one link that says which is in force."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from fallow.errors import FallowError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.deployment.host import Host

_RECORD = "fallow-environment.json"


@dataclass(frozen=True)
class VersionEnvironment:
    """One installed version: written last, so that a folder without it was never finished."""

    name: str
    version: str
    wheel_sha256: str
    python: str
    """Path and version of the Python that it was made with."""

    @property
    def number(self) -> int:
        return int(self.name.rpartition("-")[2])


class Layout:
    def __init__(self, host: Host, prefix: str) -> None:
        self.host = host
        self.prefix = prefix.rstrip("/")
        self.versions = f"{self.prefix}/versions"
        self.current_link = f"{self.prefix}/current"
        self.bin = f"{self.prefix}/bin"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One installer at a time; FallowError where another one is at work."""
        if self.host.dry_run:
            yield
            return
        folder = self.host.at(self.prefix)
        folder.mkdir(parents=True, exist_ok=True)
        if (programs := self.host.at(self.bin)).is_dir() and not programs.is_symlink():
            raise FallowError(f"{self.bin} is a folder of something else", "remove it, or give another --prefix")
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FallowError(
                    f"another installation is at work in {self.prefix}", "wait until it is done, then try again"
                ) from None
            yield
        finally:
            os.close(descriptor)

    def environments(self) -> list[VersionEnvironment]:
        """Every finished environment, oldest first."""
        found = []
        for record in self.host.at(self.versions).glob(f"*/{_RECORD}"):
            with contextlib.suppress(OSError, ValueError, TypeError):
                found.append(VersionEnvironment(**json.loads(record.read_text(encoding="utf-8"))))
        return sorted(found, key=lambda each: each.number)

    def current(self) -> VersionEnvironment | None:
        """The environment in force."""
        try:
            name = self.host.at(self.current_link).readlink().name
        except OSError:
            return None
        return next((each for each in self.environments() if each.name == name), None)

    def next_name(self, version: str) -> str:
        """`<version>-<n>`, with a number that no folder has had that is still there."""
        numbers = [0]
        if (folder := self.host.at(self.versions)).is_dir():
            numbers += [int(found[1]) for each in folder.iterdir() if (found := re.search(r"-(\d+)$", each.name))]
        return f"{version}-{max(numbers) + 1}"

    def path(self, name: str) -> str:
        return f"{self.versions}/{name}"

    def finish(self, environment: VersionEnvironment) -> None:
        """Says that the environment is whole."""
        record = self.host.at(self.path(environment.name)) / _RECORD
        record.write_text(json.dumps(asdict(environment), indent=2) + "\n", encoding="utf-8")

    def clear_unfinished(self) -> None:
        """Removes what an interrupted installation left."""
        folder = self.host.at(self.versions)
        for each in folder.iterdir() if folder.is_dir() else ():
            if not (each / _RECORD).exists():
                self.host.remove(self.path(each.name))

    def switch(self, name: str) -> None:
        """Puts an environment in force, in one step."""
        self.host.note(f"switched {self.current_link} to {name}")
        if self.host.dry_run:
            return
        _link(self.host.at(self.current_link), f"versions/{name}")
        _link(self.host.at(self.bin), "current/bin")

    def unswitch(self) -> None:
        """Nothing is in force any more: the first installation has failed."""
        self.host.at(self.current_link).unlink(missing_ok=True)

    def prune(self, keep: int) -> None:
        """Removes all but the environment in force and the newest `keep` others."""
        current = self.current()
        others = [each for each in self.environments() if current is None or each.name != current.name]
        for each in others[: max(0, len(others) - keep)]:
            self.host.remove(self.path(each.name))

    def remove(self) -> None:
        """Removes every environment and the links, and the folder itself where nothing else is in it."""
        for path in (self.current_link, self.versions, self.bin):
            self.host.remove(path)
        self.host.remove_if_empty(self.prefix)


def _link(link: Path, target: str) -> None:
    temporary = link.with_name(f".{link.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(link)
