"""The import contracts: they hold, and a violation is really found."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, clean_environment

CONTRACTS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    environment = clean_environment({"PYTHONPATH": str(folder)})
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)


@pytest.fixture
def skeleton(tmp_path: Path) -> Path:
    """Every module of the four packages, empty, under this project's contracts."""
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    for package in CONTRACTS["root_packages"]:
        for module in (REPOSITORY / package).rglob("*.py"):
            empty = tmp_path / module.relative_to(REPOSITORY)
            empty.parent.mkdir(parents=True, exist_ok=True)
            empty.touch()
    return tmp_path


def test_the_packages_are_those_that_are_shipped() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == CONTRACTS["root_packages"]


def test_what_the_design_allows_passes(skeleton: Path) -> None:
    (skeleton / "agent/__init__.py").write_text("import fallow\n")
    (skeleton / "analytics/__init__.py").write_text("import fallow\n")
    (skeleton / "dashboard/__init__.py").write_text("import analytics\nimport fallow\n")
    done = lint_imports(skeleton)
    assert done.returncode == 0, done.stdout + done.stderr


FORBIDDEN = {
    "fallow": ("agent", "analytics", "dashboard"),
    "agent": ("analytics", "dashboard"),
    "analytics": ("agent", "dashboard"),
    "dashboard": ("agent",),
}


def test_every_import_against_the_design_is_found(skeleton: Path) -> None:
    for importer, imported in FORBIDDEN.items():
        # inside a function, as it would be hidden in practice
        lines = [f"    import {each}\n" for each in imported]
        (skeleton / importer / "__init__.py").write_text("def f() -> None:\n" + "".join(lines))
    done = lint_imports(skeleton)
    assert done.returncode == 1, done.stdout + done.stderr
    for importer, imported in FORBIDDEN.items():
        for line, each in enumerate(imported, 2):
            assert f"{importer} -> {each} (l.{line})" in done.stdout
