"""kill -9, a full disk, an I/O error, a short write at file changes of each writer; FALLOW_MOMENTS=50 for fifty."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.attacks.dying_writers import try_writers
from tests.attacks.writers import WRITERS
from tests.fakes.nvml import NoCompilerError

if TYPE_CHECKING:
    from pathlib import Path


def tried(folder: Path, writer: str) -> dict[str, Any]:
    try:
        return try_writers(folder, int(os.environ.get("FALLOW_MOMENTS", "12")), writer)
    except NoCompilerError as error:
        pytest.skip(str(error))


def test_one_file(tmp_path: Path) -> None:
    seen = tried(tmp_path, "store")
    assert seen["wrong"] == []
    assert seen["tried"]["store"]["kill"] == 6  # open, write, sync, close, rename, sync of the folder


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("writer", [writer.name for writer in WRITERS if writer.name != "store"])
def test_every_writer(tmp_path: Path, writer: str) -> None:
    seen = tried(tmp_path, writer)
    assert seen["wrong"] == []
    assert seen["tried"][writer]["kill"] >= 10
