"""The image, built of the container file by a builder without a daemon, and the agent in it over the test driver.

The base comes from Debian's packages, as not every machine reaches a registry; all else is the container file itself.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fallow import __version__, parquet, schema
from fallow.lake import Lake
from tests.conftest import REPOSITORY
from tests.fakes.nvml import Gpu, Process, Scenario, library_folder, ms_ago

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = REPOSITORY / "deploy" / "container" / "Containerfile"
BASE, IMAGE = "localhost/base:test", "localhost/fallow-agent:test"
USER = 65532
UUID = "GPU-aaaaaaaa-0000-4000-8000-000000000001"
MIB = 2**20

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not (shutil.which("buildah") and shutil.which("mmdebstrap")) or os.geteuid() != 0,
        reason="it takes buildah and mmdebstrap (Debian packages of these names), and root",
    ),
]


@dataclass(frozen=True)
class Builder:
    """buildah with a store of its own."""

    store: Path

    def __call__(self, *arguments: str | Path) -> str:
        places = ("--root", self.store / "root", "--runroot", self.store / "run")
        return program("buildah", *places, *arguments)


def program(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280, cwd=REPOSITORY)
    assert done.returncode == 0, f"{command[:4]}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout.strip()


def suite() -> str:
    """The release of Debian that the container file names."""
    match = re.search(r"^ARG PYTHON=python:3\.11-slim-(\w+)$", FILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert match is not None
    return match[1]


def base_image(build: Builder, folder: Path) -> None:
    archive = folder / "base.tar"
    unsafe = ("--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/man/*")  # it need not outlive a power cut
    include = ("--variant=apt", "--include=python3,python3-venv,python3-pip")
    program("mmdebstrap", "--quiet", *include, *unsafe, suite(), archive)
    container = build("from", "scratch")
    build("add", "--quiet", container, archive, "/")
    build("commit", "--quiet", "--rm", container, BASE)
    archive.unlink()


def build_context(folder: Path) -> Path:
    """What `podman build` sees of a checkout in which the wheel was built."""
    context = folder / "context"
    for name in ("dist", "requirements"):
        (context / name).mkdir(parents=True)
    program(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", context / "dist", REPOSITORY)
    for lock in ("base", "all"):
        shutil.copy(REPOSITORY / "requirements" / f"{lock}.txt", context / "requirements")
    return context


def offline_index(folder: Path) -> tuple[str, ...]:
    """Mounts for the build: the locked wheels, and a setting of pip to use nothing else."""
    wheels, setting = folder / "wheels", folder / "pip.conf"
    locked = ("--require-hashes", "--only-binary", ":all:", "-r", "requirements/base.txt")
    program(sys.executable, "-m", "pip", "download", "--quiet", *locked, "-d", wheels)
    setting.write_text("[global]\nno-index = true\nfind-links = /wheels\n", encoding="utf-8")
    return "--volume", f"{wheels}:/wheels:ro", "--volume", f"{setting}:/etc/pip.conf:ro"


@dataclass(frozen=True)
class Image:
    build: Builder
    container: str
    root: Path

    @property
    def config(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.build("inspect", "--type", "image", IMAGE))["OCIv1"]["config"]
        return found

    def run(self, *arguments: str, mounts: dict[Path, str], **variables: str) -> str:
        """The entry point with these arguments, as the image's own user."""
        options = [f"--volume={path}:{place}" for path, place in mounts.items()]
        options += [f"--env={name}={value}" for name, value in variables.items()]
        network = ("--isolation", "chroot", "--network", "host")
        return self.build("run", *network, *options, self.container, "--", *self.config["Entrypoint"], *arguments)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    folder = tmp_path_factory.mktemp("image")
    build = Builder(folder / "store")
    try:
        base_image(build, folder)
        ignored = ("--ignorefile", str(FILE.parent / "Containerfile.dockerignore"))
        options = ("--isolation", "chroot", "--network", "host", "--build-arg", f"PYTHON={BASE}", "--tag", IMAGE)
        build("bud", *options, *offline_index(folder), "--file", FILE, *ignored, build_context(folder))
        container = build("from", IMAGE)
        yield Image(build, container, Path(build("mount", container)))
    finally:
        build("rm", "--all")
        shutil.rmtree(folder, ignore_errors=True)


def test_it_says_what_it_is_and_runs_as_nobody_in_particular(image: Image) -> None:
    config = image.config
    assert config["User"] == f"{USER}:{USER}"
    assert config["Entrypoint"] + config["Cmd"] == ["/opt/fallow/bin/fallow", "agent", "run"]
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in config["Labels"].items()}
    assert (labels["title"], labels["version"], labels["licenses"]) == ("fallow", __version__, "MIT")
    assert labels["base.name"] == BASE


def test_it_holds_the_agent_and_its_bill_of_materials_and_no_more(image: Image) -> None:
    bill = (image.root / "opt/fallow/sbom.cdx.json").read_text(encoding="utf-8")
    assert bill == (REPOSITORY / "requirements/sbom/fallow-base.cdx.json").read_text(encoding="utf-8")
    [packages] = image.root.glob("opt/fallow/lib/python3.*/site-packages")
    there = {path.name for path in packages.iterdir()}
    assert {"agent", "fallow", "arro3"} <= there
    assert not {"pip", "setuptools", "pyarrow", "polars", "duckdb", "dash"} & there
    size = sum(path.lstat().st_size for path in (image.root / "opt/fallow").rglob("*") if path.is_file())
    assert size < 120 * MIB
    assert any((packages / "agent" / "__pycache__").iterdir()), "or every start compiles it anew"
    loose = [path for path in (image.root / "opt").rglob("*") if not path.is_symlink() and path.lstat().st_mode & 0o022]
    assert not loose, "others can write it"


def test_the_agent_runs_in_it_and_writes_nothing_but_spool_and_lake(image: Image, tmp_path: Path) -> None:
    lake, spool, driver = (tmp_path / name for name in ("lake", "spool", "driver"))
    shutil.copytree(library_folder(), driver)
    driver.chmod(0o755)  # the tests' own is for nobody else
    for folder in (lake, spool):
        folder.mkdir()
        os.chown(folder, USER, USER)
    scenario = Scenario((Gpu(UUID, processes=(Process(os.getpid()),)),), ms_ago(60))
    variables = scenario.environment(driver, scenario.write(driver / "scenario"))
    mounts = {lake: "/lake", spool: image.config["Env"][-1].partition("=")[2], driver: "/driver:ro"}
    inside = {name: value.replace(str(driver), "/driver") for name, value in variables.items()}
    before = contents(image.root)
    image.run("lake", "init", "--lake", "/lake", mounts=mounts)
    run = ("agent", "run", "--lake", "/lake", "--interval", "1s", "--for", "5s")
    image.run(*run, mounts=mounts, FALLOW_AGENT_HOST="gn001", **inside)
    files = Lake.at(str(lake)).files("gpu")
    assert {file.host for file in files} == {"gn001"}
    rows = parquet.read(files, schema.GPU).to_pylist()
    assert {row["gpu"] for row in rows} == {UUID}
    assert len(rows) >= 3
    assert {path.stat().st_uid for path in lake.rglob("*")} == {USER}
    assert contents(image.root) == before, "a read-only root would stop it"


def contents(root: Path) -> set[tuple[str, int, float]]:
    """Files of the image with their size and time; those that every run of a container makes are left out."""
    folders = ("opt", "var", "home", "root", "tmp", "usr")
    found = (path for name in folders for path in (root / name).rglob("*") if path.is_file() and not path.is_symlink())
    return {(str(path), path.stat().st_size, path.stat().st_mtime) for path in found}
