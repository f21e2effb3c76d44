"""The versions of an installation: where each comes from, its environment, and the link that says which is in force."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import sys
import tempfile
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.deployment.host_files import IN_WHEEL, LOCK
from fallow.errors import FallowError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.deployment.host_files import Host

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


INDEX = "index"
_WHEEL = re.compile(r"fallow-(\d[^-]*)-.*\.whl")
_HINT = "build one with `python -m build --wheel`, or give --from a wheel, a folder of wheels or `index`"


@dataclass(frozen=True)
class Source:
    wheel: Path
    version: str
    sha256: str
    lock: str | None
    """The requirements with hashes that the version was tested with; None for a wheel that carries none."""
    folder: Path | None
    """Where its requirements lie; None: they come from the index."""

    def pip_arguments(self) -> list[str]:
        """Where pip looks for the requirements."""
        return [] if self.folder is None else ["--no-index", "--find-links", str(self.folder)]

    def pip_wheel(self) -> Path | None:
        """A pip that the folder brings along, for a Python that has none (Debian without python3-venv)."""
        found = sorted(self.folder.glob("pip-*.whl"), key=_by_version) if self.folder is not None else []
        return found[-1] if found else None


def find_source(given: str, version: str | None, host: Host, temporary: Path, pip: list[str]) -> Source:
    """The wheel that `--from` names.

    `version` is wanted where several can be had; None: the newest. A wheel beside which the wheels of its requirements
    lie is taken together with them. Raises FallowError where there is none.
    """
    if given == INDEX:
        return _from_index(version, host, temporary, pip)
    path = Path(given)
    if path.is_dir():
        found = [each for each in path.glob("fallow-*.whl") if version in (None, _version(each))]
        if not found:
            wanted = "" if version is None else f" of version {version}"
            raise FallowError(f"there is no wheel of fallow{wanted} in {given}", _HINT)
        return _read(max(found, key=_by_version), path)
    if not path.is_file():
        raise UsageError(f"--from {given}: there is no such file or folder", _HINT)
    source = _read(path, None)
    if version not in (None, source.version):
        raise UsageError(
            f"{given} is version {source.version}, not {version}", "leave --version out, or give another wheel"
        )
    return source


def _from_index(version: str | None, host: Host, temporary: Path, pip: list[str]) -> Source:
    wanted = "fallow" if version is None else f"fallow=={version}"
    host.run(
        [*pip, "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(temporary), wanted],
        f"downloading {wanted}",
    )
    return _read(next(temporary.glob("fallow-*.whl")), None)


def _read(wheel: Path, folder: Path | None) -> Source:
    if not _WHEEL.fullmatch(wheel.name):
        raise UsageError(f"{wheel} is not a wheel of fallow", _HINT)
    try:
        with zipfile.ZipFile(wheel) as archive:
            name = f"{IN_WHEEL}/{LOCK}"
            lock = archive.read(name).decode() if name in archive.namelist() else None
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    except (OSError, zipfile.BadZipFile) as error:
        raise FallowError(f"{wheel} cannot be read: {error}", "build or copy it again") from error
    return Source(wheel.resolve(), _version(wheel), digest, lock, None if folder is None else folder.resolve())


def _version(wheel: Path) -> str:
    found = _WHEEL.fullmatch(wheel.name)
    return "" if found is None else found[1]


def _by_version(wheel: Path) -> list[tuple[int, int | str]]:
    """A key that puts 0.10 after 0.9 and 1.0rc1 before 1.0."""
    text = wheel.name.split("-")[1]
    parts = re.findall(r"\d+|[a-z]+", text)
    return [(1, int(each)) if each.isdecimal() else (-1, each) for each in parts] + [(0, 0)]


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
