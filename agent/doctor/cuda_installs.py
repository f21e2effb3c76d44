"""CUDA toolkits on the host, and CUDA packages in its Python environments, by folder names and without imports."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.doctor.host import Cuda, HostFiles, cuda, exists, listed, read, resolved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.doctor.compatibility import CudaOrMajor

_TOOLKIT_PLACES = (
    "/usr/local/cuda*",
    "/opt/cuda*",
    "/opt/nvidia/hpc_sdk/*/*/cuda/[0-9]*",
    "/usr/lib/cuda",
    "/usr/lib/nvidia-cuda-toolkit",
    "/opt/nvidia/cuda*",
)
_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDATOOLKIT_HOME", "EBROOTCUDA", "CONDA_PREFIX")
_HEADER = re.compile(r"#define\s+CUDA(?:RT)?_VERSION\s+(\d+)")
_HEADERS = (
    "include/cuda.h",
    "include/cuda_runtime_api.h",
    "targets/*/include/cuda.h",
    "targets/*/include/cuda_runtime_api.h",
)
_MOST_TOOLKITS = 32
"""Maximum number of toolkits to examine."""


@dataclass(frozen=True)
class Toolkit:
    """One toolkit; `active` where the environment points to it."""

    folder: Path
    version: Cuda
    active: bool


def find_toolkits(host: HostFiles) -> list[Toolkit]:
    """Return every toolkit once, active ones first, then by folder."""
    found: dict[Path, Toolkit] = {}
    for folder, active in _toolkit_places(host):
        real = resolved(folder)
        if real is None or real in found or len(found) == _MOST_TOOLKITS:
            continue
        numbers = toolkit_version(real)
        if numbers is not None:
            found[real] = Toolkit(real, numbers, active)
    return sorted(found.values(), key=lambda each: (not each.active, each.folder))


def _toolkit_places(host: HostFiles) -> Iterator[tuple[Path, bool]]:
    for variable in _VARIABLES:
        if value := host.environment.get(variable):
            yield Path(value), True
    for folder in host.paths("PATH"):
        if exists(Path(folder) / "nvcc"):
            yield (Path(folder) / "nvcc").resolve().parent.parent, True
    for place in _TOOLKIT_PLACES:
        yield from ((folder, False) for folder in host.glob(place))


def toolkit_version(folder: Path) -> Cuda | None:
    """Return CUDA's version by version.json, version.txt or the header's CUDA_VERSION; None where it is no toolkit."""
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


MOST_ENVIRONMENTS = 64
"""Maximum number of environments to examine."""
LONGEST_S = 5.0
"""Maximum duration of the search."""

_SITE = (
    "lib/python3*/site-packages",
    "lib/python3*/dist-packages",
    "lib64/python3*/site-packages",
    "local/lib/python3*/dist-packages",
)
_ENVIRONMENT_PLACES = (
    "/usr",
    "/usr/local",
    "/opt/*",
    "/opt/*/envs/*",
    "/srv/*/venv",
    "/home/*/.venv",
    "/opt/conda/envs/*",
)
_HOME = (".local", ".venv", "venv", "miniconda3", "anaconda3", "miniforge3", "mambaforge", "miniconda3/envs/*",
         "anaconda3/envs/*", "miniforge3/envs/*", "mambaforge/envs/*", ".conda/envs/*", ".virtualenvs/*",
         "*/.venv")  # fmt: skip
_SUFFIX = re.compile(r"(?:-cu|-cuda)(\d\d)(?:\d*x?)(?:-|$)")
_LOCAL = re.compile(r"\+(?:\w*\.)?cu(\d\d)(\d)")
_TORCH = re.compile(r"^cuda\b[^=\n]*=\s*['\"](\d+)\.(\d+)", re.MULTILINE)
_NO_CUDA = re.compile(r"\+(cpu|rocm|xpu)")
_OTHER = re.compile(r"^(hip|xpu)\b[^=\n]*=\s*['\"]", re.MULTILINE)
_WITHOUT = re.compile(r"^cuda\b[^=\n]*=\s*None", re.MULTILINE)
_WANTED = re.compile(
    r"torch|jax-cuda\d+-(?:plugin|pjrt)|cupy-cuda\d+x?|nvidia-cuda-runtime(?:-cu\d+)?|"
    r"(?:vllm|sglang|tensorrt|onnxruntime-gpu|bitsandbytes|cudf|cuml)(?:-cu\d+)?"
)
_RUNTIME = re.compile(r"nvidia-cuda-runtime(?:-cu\d+)?")
_CONDA = re.compile(r"(cuda-version|cudatoolkit|cuda-cudart)-(\d+)\.(\d+)")


@dataclass(frozen=True)
class Package:
    """One distribution and the CUDA that it was built for; None where its name does not show it, or it has no CUDA.

    `built_for` is `cpu`, `rocm` or `xpu` for a torch without CUDA, which finds no NVIDIA GPU, else empty.
    """

    name: str
    version: str
    cuda: CudaOrMajor | None
    built_for: str = ""


@dataclass(frozen=True)
class Environment:
    """One environment; `active` where the caller's own programs would run in it."""

    folder: Path
    packages: tuple[Package, ...]
    active: bool


@dataclass(frozen=True)
class CudaInstall:
    """The environments that contain CUDA, the number of examined environments, and whether the search was complete."""

    environments: tuple[Environment, ...]
    looked_at: int
    complete: bool


def find_environments(host: HostFiles, given: tuple[str, ...] = ()) -> CudaInstall:
    """Return the environments with CUDA packages: first the named and active ones."""
    begun_s = time.monotonic()
    seen: set[Path] = set()
    found: list[Environment] = []
    for folder, active in _environment_places(host, given):
        real = resolved(folder)
        if real is None or real in seen or not (sites := _sites(real, given=active)):
            continue
        if len(seen) == MOST_ENVIRONMENTS or time.monotonic() - begun_s > LONGEST_S:
            return CudaInstall(tuple(found), len(seen), complete=False)
        seen.add(real)
        if packages := _packages(real, sites):
            found.append(Environment(real, packages, active))
    return CudaInstall(tuple(found), len(seen), complete=True)


def _environment_places(host: HostFiles, given: tuple[str, ...]) -> Iterator[tuple[Path, bool]]:
    for text in given:
        path = Path(text)
        # an interpreter names its environment; it is not resolved, because a venv's interpreter is a link out of it
        yield (path.parent.parent if exists(path) and path.is_file() else path), True
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if value := host.environment.get(variable):
            yield Path(value), True
    for folder in host.paths("PATH"):
        if exists(Path(folder) / "python3"):
            yield Path(folder).parent, False
    for line in (read(_home(host) / ".conda/environments.txt") or "").splitlines():
        yield Path(line.strip()), False
    for place in _ENVIRONMENT_PLACES:
        yield from ((path, False) for path in host.glob(place))
    for place in _HOME:
        yield from ((path, False) for path in listed(_home(host), place))


def _home(host: HostFiles) -> Path:
    return Path(host.environment.get("HOME") or "/nonexistent")


def _sites(prefix: Path, *, given: bool) -> list[Path]:
    """Return the folders of installed packages below a prefix; the prefix may itself be such a folder."""
    sites = [site.resolve() for pattern in _SITE for site in listed(prefix, pattern)]
    if not sites and (given or exists(prefix / "conda-meta")):
        return [prefix]
    return list(dict.fromkeys(sites))


def _packages(prefix: Path, sites: list[Path]) -> tuple[Package, ...]:
    found: dict[str, Package] = {}
    for site in sites:
        for entry in listed(site, "*.dist-info"):
            name, _, version = entry.name.removesuffix(".dist-info").partition("-")
            name = re.sub(r"[-_.]+", "-", name).lower()
            if _WANTED.fullmatch(name):
                cuda = _cuda_of(site, name, version)
                found[name] = Package(name, version, cuda, _built_for(site, name, version) if cuda is None else "")
    for entry in listed(prefix / "conda-meta", "cuda*.json"):
        if match := _CONDA.match(entry.name):
            found[match[1]] = Package(match[1], f"{match[2]}.{match[3]}", (int(match[2]), int(match[3])))
    known = [package for package in found.values() if package.cuda is not None or package.built_for]
    return tuple(sorted(known, key=lambda package: package.name))


def _cuda_of(site: Path, name: str, version: str) -> CudaOrMajor | None:
    if _RUNTIME.fullmatch(name):
        major, minor, *_ = [*version.split("."), "", ""]
        return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None
    if match := _LOCAL.search(version):
        return int(match[1]), int(match[2])
    if name == "torch" and (match := _TORCH.search(read(site / "torch/version.py") or "")):
        return int(match[1]), int(match[2])
    if match := _SUFFIX.search(name):
        return int(match[1]), None
    return None


def _built_for(site: Path, name: str, version: str) -> str:
    """Return what a torch without CUDA was built for, by its version or torch/version.py; empty if neither shows it."""
    if name != "torch":
        return ""
    if match := _NO_CUDA.search(version):
        return match[1]
    text = read(site / "torch/version.py") or ""
    if not _WITHOUT.search(text):
        return ""
    match = _OTHER.search(text)
    return {"hip": "rocm", "xpu": "xpu"}[match[1]] if match else "cpu"
