"""Whole outputs of the commands over three kinds of lakes, which no change of the code's structure may change.

`python -m tests.golden.outputs` writes them again, beside this file; `python -m tests.golden.outputs DIR` writes them
and the content of each page to another folder, to compare two versions of the code with `diff -r`.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from analytics.simulation import SimulatedFleet, owners_csv, prices_csv, write_fleet
from fallow.cli import main
from fallow.clock import DAY_MS, SystemClock
from tests.findings.scenarios.builder import T_END
from tests.findings.scenarios.suite import scenarios
from tests.lakes import made_lake
from tests.ledger.rows import T0
from tests.report.conftest import everything

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent / "expected"
UNTIL_MS = 1_763_596_800_000
"""2025-11-20T00:00Z, a Thursday."""

COMMANDS = {
    "recommendations.json": ("recommendations", "--json"),
    "ledger.json": ("ledger", "--json"),
    "ledger-week.json": ("ledger", "--since", "7d", "--json"),
    "ledger-team.json": ("ledger", "--by", "team", "--json"),
    "ledger-model.csv": ("ledger", "--by", "model", "--csv"),
    "findings.json": ("findings", "--json"),
    "findings-week.json": ("findings", "--since", "7d", "--json"),
    "findings.csv": ("findings", "--csv"),
    "report.json": ("report", "--format", "json"),
    "report.csv": ("report", "--format", "csv"),
    "report-week.json": ("report", "--week", "last", "--format", "json"),
    "report-week.csv": ("report", "--week", "last", "--format", "csv"),
    "prices.csv": ("prices", "--csv"),
}
PROSE = {f"report.{name}": ("report", "--format", name) for name in ("text", "md", "html")} | {
    "report-fr.text": ("report", "--lang", "fr", "--format", "text"),
    "findings.text": ("findings", "--all"),
    "ledger.text": ("ledger",),
}
"""Words, which may change: only written beside the others, to be read."""
FIELD = ("field_demand", "field_fleet", "field_people", "field_serving", "field_training")


def run(folder: Path, now_ms: int, *arguments: str) -> str:
    """What `fallow` prints at that moment over the lake and settings of a folder, whose own name is left out."""
    printed = io.StringIO()
    clock = patch.object(SystemClock, "now_ms", lambda _: now_ms)
    with clock, contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = main([*arguments, "--config", str(folder / "fallow.toml")])
    text = printed.getvalue() + (f"exit code {code}\n" if code else "")
    return rounded(re.sub(r'"?made_at"?: "[^"]+"', "", text.replace(str(folder), "FOLDER")))


def rounded(text: str) -> str:
    """Round long numbers to 12 digits: the last digits depend on whether the processor fuses multiply and add."""
    return re.sub(r"\d+\.\d{9,}(e-?\d+)?", lambda found: f"{float(found[0]):.12g}", text)


def settle(folder: Path, **settings: str) -> None:
    """Writes the config file of a folder whose lake is `lake`."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in sorted(settings.items())]
    lake = f"lake.path = {json.dumps(str(folder / 'lake'))}"
    (folder / "fallow.toml").write_text("\n".join([lake, 'ledger.workers = "1"', *lines]) + "\n")


def demo(folder: Path) -> int:
    """24 simulated GPUs over three weeks, with owners and prices; returns the moment at which to look."""
    fleet = SimulatedFleet(until_ms=UNTIL_MS, gpus=24, days=21, seed=1)
    write_fleet(made_lake(folder / "lake"), fleet)
    (folder / "owners.csv").write_text(owners_csv(fleet))
    (folder / "prices.csv").write_text(prices_csv(fleet))
    settle(folder, **{"money.owners": str(folder / "owners.csv"), "money.prices": str(folder / "prices.csv")})
    return UNTIL_MS + 60_000


def small(folder: Path) -> int:
    """A training host, a serving host and an imported GPU, one of everything."""
    everything(made_lake(folder / "lake"))
    settle(folder)
    return T0 - 46 * DAY_MS


def outputs(folder: Path, now_ms: int, *, prose: bool = False) -> Iterator[tuple[str, str]]:
    """The name and text of every command's output."""
    for name, arguments in (COMMANDS | PROSE if prose else COMMANDS).items():
        yield name, run(folder, now_ms, *arguments)


def fields(folder: Path, *, prose: bool = False) -> Iterator[tuple[str, str]]:
    """The findings of every situation from the field, one text for each file of situations."""
    for family in FIELD:
        texts = []
        for scenario in scenarios()[family]:
            own = folder / f"{family}-{scenario.name}"
            own.mkdir()
            scenario.fleet().write(made_lake(own / "lake"))
            (own / "owners.csv").write_text(scenario.owners)
            settle(own, **({"money.owners": str(own / "owners.csv")} if scenario.owners else {}))
            texts.append(f"# {scenario.name}\n{run(own, T_END, 'findings', '--json', '--all')}")
            if prose:
                texts.append(run(own, T_END, "findings", "--all"))
        yield f"{family}.txt", "".join(texts)


def everywhere(*, prose: bool = False) -> Iterator[tuple[str, str]]:
    """All outputs, by the names of their files."""
    with tempfile.TemporaryDirectory() as temporary:
        for make in (demo, small):
            folder = Path(temporary).resolve() / make.__name__
            folder.mkdir()
            now_ms = make(folder)
            yield from ((f"{make.__name__}-{name}", text) for name, text in outputs(folder, now_ms, prose=prose))
        yield from fields(Path(temporary).resolve(), prose=prose)


def kept(name: str) -> str:
    """The output as it is to be."""
    return rounded(gzip.decompress((HERE / f"{name}.gz").read_bytes()).decode())


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    (target or HERE).mkdir(parents=True, exist_ok=True)
    for file, content in everywhere(prose=target is not None):
        if target:
            (target / file).write_text(content)
        else:
            (HERE / f"{file}.gz").write_bytes(gzip.compress(content.encode(), mtime=0))
