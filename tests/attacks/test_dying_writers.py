"""kill -9, a full disk, an I/O error and a short write at every change, or fifty by chance, that each writer makes to files."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.attacks.writers import WRITERS
from tests.conftest import REPOSITORY, clean_environment
from tests.fakes.files import FaultyFiles
from tests.fakes.nvml import NoCompilerError, library_folder

if TYPE_CHECKING:
    from pathlib import Path


def tried(folder: Path, moments: int, writer: str) -> dict[str, Any]:
    try:
        faults = FaultyFiles.environment_of(folder / "page", library_folder())
    except NoCompilerError as error:
        pytest.skip(str(error))
    (folder / "trials").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.attacks.dying_writers", str(folder / "trials"), str(moments), writer],
        capture_output=True, text=True, check=False, timeout=280, cwd=REPOSITORY,
        env=clean_environment({**faults, "POLARS_MAX_THREADS": "1"}),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def test_one_file(tmp_path: Path) -> None:
    seen = tried(tmp_path, 50, "store")
    assert seen["wrong"] == []
    assert seen["tried"]["store"]["kill"] == 6  # open, write, sync, close, rename, sync of the folder


@pytest.mark.long
@pytest.mark.parametrize("writer", [writer.name for writer in WRITERS if writer.name != "store"])
def test_every_writer(tmp_path: Path, writer: str) -> None:
    seen = tried(tmp_path, 50, writer)
    assert seen["wrong"] == []
    assert seen["tried"][writer]["kill"] >= 10
