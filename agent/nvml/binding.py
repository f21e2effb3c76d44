"""Loads NVIDIA's binding without what it imports and never uses on Linux.

`pynvml` imports `ctypes.util` for Windows' sake, which brings in subprocess, tempfile, shutil and random: 1.6 MiB of a worker
that has to be small.
"""

from __future__ import annotations

import sys
import types


def load() -> None:
    """Imports pynvml with a stand-in for `ctypes.util`, which is taken away again."""
    if "pynvml" in sys.modules or "ctypes.util" in sys.modules:
        return
    stand_in = types.ModuleType("ctypes.util")
    stand_in.find_library = lambda _: None  # type: ignore[attr-defined]
    sys.modules["ctypes.util"] = stand_in
    try:
        __import__("pynvml")
    finally:
        del sys.modules["ctypes.util"]


load()
import pynvml as pynvml  # noqa: E402, PLC0414  # for whoever needs it loaded this way
