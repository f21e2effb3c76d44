"""Where a version comes from: a wheel, a folder of wheels, or the package index that pip is set to."""

from __future__ import annotations

import hashlib
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.deployment.shipped import IN_WHEEL, LOCK
from fallow.errors import FallowError, UsageError

if TYPE_CHECKING:
    from agent.deployment.host import Host

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
