"""Wheels to install: this checkout's with all that it needs, and other versions of it."""

from __future__ import annotations

import atexit
import base64
import fcntl
import hashlib
import importlib.util
import platform
import shutil
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Mapping

SCRIPT = REPOSITORY / "deploy" / "packages" / "wheelhouse.py"
DIES = {
    "agent/supervise/supervisor.py": """

def _end(_: Supervisor) -> None:
    raise RuntimeError("on purpose")


Supervisor.run = _end
"""
}
"""A version that can be imported and cannot run: only a start finds out."""

UNIMPORTABLE = {"agent/nvml/worker.py": "\nimport no_such_module\n"}


@cache
def wheelhouse() -> Path:
    """The folder that deploy/packages/wheelhouse.py fills. What is locked is fetched once for all tests of a run."""
    script = _script()
    key = hashlib.sha256((REPOSITORY / "requirements" / "base.txt").read_bytes() + SCRIPT.read_bytes()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"fallow-wheelhouse-{key}"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "locked").exists():
            shutil.rmtree(folder / "filling", ignore_errors=True)
            script.gather(folder / "filling", platform.machine(), script.PYTHONS)
            (folder / "filling").rename(folder / "locked")
    mine = Path(tempfile.mkdtemp(prefix="wheels-", dir=folder))
    atexit.register(shutil.rmtree, mine)
    for wheel in (folder / "locked").iterdir():
        (mine / wheel.name).hardlink_to(wheel)
    script.build(mine)
    return mine


def _script() -> Any:
    """wheelhouse.py as a module: it lies outside every package."""
    spec = importlib.util.spec_from_file_location("wheelhouse", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def other_version(version: str, folder: Path, appended: Mapping[str, str] | None = None) -> Path:
    """A folder like `wheelhouse` whose fallow says that it is `version`, with text appended to some of its files."""
    folder.mkdir()
    for wheel in wheelhouse().glob("*.whl"):
        if not wheel.name.startswith("fallow-"):
            (folder / wheel.name).hardlink_to(wheel)
    [original] = wheelhouse().glob("fallow-*.whl")
    before = original.name.split("-")[1]
    texts = {"fallow/__init__.py": f'__version__ = "{version}"\n'} | dict(appended or {})
    record = []
    with zipfile.ZipFile(original) as old, zipfile.ZipFile(folder / f"fallow-{version}-py3-none-any.whl", "w") as new:
        for entry in old.infolist():
            name = entry.filename.replace(f"fallow-{before}.dist-info", f"fallow-{version}.dist-info")
            data = old.read(entry)
            if name.endswith(".dist-info/METADATA"):
                data = data.replace(f"\nVersion: {before}\n".encode(), f"\nVersion: {version}\n".encode())
            data += texts.get(name, "").encode()
            if not name.endswith("/RECORD"):
                new.writestr(name, data)
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                record.append(f"{name},sha256={digest},{len(data)}")
        name = f"fallow-{version}.dist-info/RECORD"
        new.writestr(name, "\n".join([*record, f"{name},,"]) + "\n")
    return folder
