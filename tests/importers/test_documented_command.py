"""The command line for nvidia-smi that people copy: one everywhere, and its file gives a ledger with cost and energy."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING

import pytest

from analytics.importers.nvidia_smi_lines import RECORD
from fallow.cli import main
from tests.conftest import REPOSITORY
from tests.importers.conftest import at

if TYPE_CHECKING:
    from pathlib import Path

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
PRINTED = {
    "timestamp": ("timestamp", "{time}"),
    "index": ("index", "0"),
    "uuid": ("uuid", "GPU-7d0c64a1-0000-4000-8000-000000000001"),
    "name": ("name", "NVIDIA H100 80GB HBM3"),
    "memory.total": ("memory.total [MiB]", "81559 MiB"),
    "memory.used": ("memory.used [MiB]", "20480 MiB"),
    "utilization.gpu": ("utilization.gpu [%]", "{percent} %"),
    "power.draw": ("power.draw [W]", "400.00 W"),
}
"""What the driver prints for each field with --format=csv: the header and a value."""


def printed(fields: list[str], rows: int) -> str:
    """The file: a header, and a row every ten seconds."""
    lines = [[PRINTED[field][0] for field in fields]]
    lines += [
        [PRINTED[field][1].format(time=at(10 * row), percent=80 + row % 20) for field in fields] for row in range(rows)
    ]
    return "".join(", ".join(line) + "\n" for line in lines)


def test_the_readme_records_and_imports_what_a_ledger_with_cost_and_energy_needs(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    [(fields, file)] = re.findall(r"^nvidia-smi --query-gpu=(\S+) --format=csv -l 10 > (\S+)$", README, re.MULTILINE)
    (tmp_path / file).write_text(printed(fields.split(","), 360), encoding="utf-8")
    [command] = re.findall(r"^\.venv/bin/fallow (import nvidia-smi .*)$", README, re.MULTILINE)
    assert main(shlex.split(command.replace("/srv/lake", place))) == 0
    capsys.readouterr()
    assert main(["ledger", "--lake", place, "--json"]) == 0
    ledger = json.loads(capsys.readouterr().out)
    assert ledger["gpu_hours"]["total"] == pytest.approx(1)
    assert ledger["money"]["paid"] > 0
    assert ledger["money"]["unpriced_gpu_hours"] == 0
    assert ledger["energy"]["kwh"] == pytest.approx(0.4, rel=0.01)


def test_the_command_is_the_same_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "nvidia-smi", "--help"]) == 0
    importing = (REPOSITORY / "docs/importing.md").read_text(encoding="utf-8")
    for text in (README, importing, capsys.readouterr().out):
        assert [line.removeprefix("example: ") for line in text.splitlines() if "-l 10 >" in line] == [RECORD]
