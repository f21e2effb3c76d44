"""Finds CUDA toolkits on the host: where they usually lie, and where the environment points."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.doctor.host import Host, exists, listed, read
from agent.doctor.versions import Cuda, cuda

if TYPE_CHECKING:
    from collections.abc import Iterator

_PLACES = ("/usr/local/cuda*", "/opt/cuda*", "/opt/nvidia/hpc_sdk/*/*/cuda/[0-9]*", "/usr/lib/cuda",
           "/usr/lib/nvidia-cuda-toolkit", "/opt/nvidia/cuda*")  # fmt: skip
_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDATOOLKIT_HOME", "EBROOTCUDA", "CONDA_PREFIX")
_HEADER = re.compile(r"#define\s+CUDA(?:RT)?_VERSION\s+(\d+)")
_HEADERS = (
    "include/cuda.h",
    "include/cuda_runtime_api.h",
    "targets/*/include/cuda.h",
    "targets/*/include/cuda_runtime_api.h",
)
MOST = 32
"""More toolkits than that are not looked at."""


@dataclass(frozen=True)
class Toolkit:
    """One toolkit; `active` where the environment points to it."""

    folder: Path
    version: Cuda
    active: bool


def find_toolkits(host: Host) -> list[Toolkit]:
    """Every toolkit once, active ones first, then by folder."""
    found: dict[Path, Toolkit] = {}
    for folder, active in _places(host):
        try:
            real = folder.resolve(strict=True)
        except (OSError, RuntimeError):
            continue
        if real in found or len(found) == MOST:
            continue
        numbers = toolkit_version(real)
        if numbers is not None:
            found[real] = Toolkit(real, numbers, active)
    return sorted(found.values(), key=lambda each: (not each.active, each.folder))


def _places(host: Host) -> Iterator[tuple[Path, bool]]:
    for variable in _VARIABLES:
        if value := host.environment.get(variable):
            yield Path(value), True
    for folder in host.paths("PATH"):
        if exists(Path(folder) / "nvcc"):
            yield (Path(folder) / "nvcc").resolve().parent.parent, True
    for place in _PLACES:
        yield from ((folder, False) for folder in host.glob(place))


def toolkit_version(folder: Path) -> Cuda | None:
    """CUDA's version by version.json, version.txt or the header's CUDA_VERSION; None where it is no toolkit."""
    try:
        return cuda(json.loads(read(folder / "version.json") or "{}")["cuda"]["version"])
    except (ValueError, KeyError, TypeError):
        pass
    if (text := read(folder / "version.txt")) is not None and "CUDA" in text:
        return cuda(text)
    for header in _HEADERS:
        for path in listed(folder, header):
            if match := _HEADER.search(read(path) or ""):
                return int(match[1]) // 1000, int(match[1]) % 1000 // 10
    return None
