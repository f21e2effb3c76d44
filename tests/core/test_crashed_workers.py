"""A worker that dies costs its test another try, never a silent pass."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.conftest import REPOSITORY, clean_environment

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("xdist")

_TEST = """
import os, pathlib, signal

def test_before(): pass

def test_dies():
    deaths = pathlib.Path(__file__).with_name("deaths")
    before = len(deaths.read_text()) if deaths.exists() else 0
    if before < {deaths}:
        deaths.write_text("x" * (before + 1))
        os.kill(os.getpid(), signal.SIGKILL)
    assert {holds}

def test_after(): pass
"""


def _run(folder: Path, *, deaths: int = 1, holds: bool = True) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(_TEST.format(deaths=deaths, holds=holds))
    (folder / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:dash",
            "-W",
            "ignore",
            "-p",
            "tests.crashed_workers",
            "-n",
            "1",
            "--dist",
            "loadfile",
            str(folder),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=REPOSITORY,
        env=clean_environment(),
    )


def test_a_test_whose_worker_died_runs_again_and_is_named(tmp_path: Path) -> None:
    done = _run(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "3 passed, 1 crashed" in done.stdout
    assert "test_it.py::test_dies: ran to its end in a new worker" in done.stdout


def test_a_second_death_is_forgiven_too(tmp_path: Path) -> None:
    done = _run(tmp_path, deaths=2)
    assert done.returncode == 0, done.stdout
    assert "test_it.py::test_dies: 2 times, ran to its end in a new worker" in done.stdout


def test_a_test_that_kills_every_worker_fails(tmp_path: Path) -> None:
    done = _run(tmp_path, deaths=1_000)
    assert done.returncode == 1, done.stdout
    assert "test_it.py::test_dies: 5 times, did not come back" in done.stdout


def test_a_test_that_fails_when_it_runs_again_fails(tmp_path: Path) -> None:
    done = _run(tmp_path, holds=False)
    assert done.returncode == 1, done.stdout
    assert "1 failed, 2 passed, 1 crashed" in done.stdout
