"""NVIDIA's binding without an import that it never uses on Linux.

`pynvml` imports `ctypes.util` for Windows, which loads subprocess, tempfile, shutil and random: 1.6 MiB in a worker
that must be small.
"""

from __future__ import annotations

from fallow.lean_imports import import_without

import_without("pynvml", "ctypes.util", find_library=lambda _: None)
import pynvml as pynvml  # noqa: E402, PLC0414  # exported for modules that need it loaded this way
