"""Compiles the fake driver, the clock and the faulty files, once per version of their sources."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

LIBRARY = "libnvidia-ml.so.1"
CLOCK = "libfakeclock.so"
FAULTY_FILES = "libfaultyfiles.so"

_FAKES = Path(__file__).parent.parent
_SOURCES = {LIBRARY: Path(__file__).parent, CLOCK: _FAKES / "clock", FAULTY_FILES: _FAKES / "files"}
_FLAGS = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread")


class NoCompilerError(RuntimeError):
    """Neither a C compiler nor the ziglang wheel is there."""


def library_folder(cache: Path | None = None) -> Path:
    """The folder with libnvidia-ml.so.1 (for LD_LIBRARY_PATH), the clock and the faulty files, compiled if needed.

    Raises:
        NoCompilerError: no $CC, no cc, no ziglang wheel.
        RuntimeError: the compiler refused the source; its own words are in the message.
    """
    root = Path(tempfile.gettempdir()) / f"fallow-fake-nvml-{os.getuid()}" if cache is None else cache
    folder = root / _fingerprint()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for library in _SOURCES:
        if not (folder / library).is_file():
            _compile(folder / library)
    return folder


def _compile(library: Path) -> None:
    # Two processes may compile at once: each writes a file of its own, and the last rename wins with the same content.
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        made = Path(scratch) / library.name
        sources = [str(path) for path in sorted(_SOURCES[library.name].glob("*.c"))]
        command = [*_compiler(), *_FLAGS, f"-Wl,-soname,{library.name}", "-o", str(made), *sources, "-lm"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise RuntimeError(f"{shlex.join(command)} failed:\n{result.stderr}")
        made.replace(library)


def _compiler() -> list[str]:
    if chosen := os.environ.get("CC"):
        return shlex.split(chosen)
    if shutil.which("cc") is not None:
        return ["cc"]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise NoCompilerError("no C compiler: install one as `cc`, name one in $CC, or `pip install ziglang`")


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for path in sorted(path for folder in _SOURCES.values() for path in folder.glob("*.[ch]")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update(" ".join((*_FLAGS, platform.machine())).encode())
    return digest.hexdigest()[:16]
