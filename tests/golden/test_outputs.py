"""Every command's JSON and CSV, byte for byte as before."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from tests.golden.outputs import demo, kept, outputs, small
from tests.shared_results import sharing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("make", [pytest.param(demo, marks=pytest.mark.long), small])
def test_commands_print_what_they_printed(make: Callable[[Path], int], tmp_path: Path) -> None:
    with sharing() if make is small else nullcontext():
        changed = [name for name, text in outputs(tmp_path, make(tmp_path)) if text != kept(f"{make.__name__}-{name}")]
    assert not changed, f"{changed}: look with `python -m tests.golden.outputs DIR`"
