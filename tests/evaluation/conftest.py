"""A lake in which everything was worked out by hand, and the command over it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Protocol

import pytest

from tests.findings.conftest import BUSY, FREE, HELD, HOUR
from tests.in_process import run_in_process
from tests.lakes import made_lake
from tests.ledger.rows import device, fill, load, processes, samples

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from fallow.lake import Lake

HEAD = "gpu,since,until,state,takeable,rules,not_rules,note"


class Evaluate(Protocol):
    """Runs `fallow evaluate` over the lake with these label lines; the header is written before them."""

    def __call__(self, *lines: str, flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]: ...


def at(hours: float) -> str:
    """The moment so many hours into 2026-11-20."""
    minutes = round(60 * hours)
    return f"2026-11-{20 + minutes // 1440}T{minutes // 60 % 24:02}:{minutes % 60:02}Z"


@pytest.fixture(scope="session")
def kept_by_hand(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Four GPUs of one host over four hours: ann holds 0 and 1 from the second hour on, works on 2, and 3 is free."""
    rows, lists = [], []
    for gpu, index in (("GPU-0", 0), ("GPU-1", 1)):
        rows += samples(gpu, 0, HOUR, every_s=60, **BUSY) + samples(gpu, HOUR, 4 * HOUR, every_s=60, **HELD)
        lists += processes(gpu, *range(0, 4 * HOUR, 60), every_s=60, user=("ann", "bob")[index], pid=100 + index)
    rows += samples("GPU-2", 0, 4 * HOUR, every_s=60, **BUSY)
    lists += processes("GPU-2", *range(0, 4 * HOUR, 60), every_s=60, user="eve", pid=102)
    rows += samples("GPU-3", 0, 4 * HOUR, every_s=60, **FREE)
    devices = [device(f"GPU-{index}", gpu_index=index) for index in range(4)]
    lake = fill(made_lake(tmp_path_factory.mktemp("by-hand")), rows, lists, devices=devices)
    load(lake)
    return lake


@pytest.fixture
def by_hand(kept_by_hand: Lake, tmp_path: Path) -> Lake:
    """A copy of that lake with its ledger."""
    return made_lake(shutil.copytree(kept_by_hand.root, tmp_path / "by-hand"))


@pytest.fixture
def evaluate(by_hand: Lake, tmp_path: Path) -> Evaluate:
    def run(*lines: str, flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        labels = tmp_path / "labels.csv"
        labels.write_text("\n".join([HEAD, *lines]) + "\n")
        return run_in_process("evaluate", "--lake", by_hand.root, "--labels", str(labels), *flags)

    return run
