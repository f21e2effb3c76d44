"""`fallow demo`: a simulated fleet, its report and its pages."""

from __future__ import annotations

import argparse
import importlib
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType

from analytics.commands.report_edition import format_named
from analytics.commands.written_file import write_whole
from analytics.language.sentences import ENGLISH, PAGE_COLUMNS, Amount, GpuHours, Language, from_cents, wrap
from analytics.progress import bar
from analytics.render.report.text import for_text
from analytics.report.report import Report, build_report
from analytics.simulation import (
    SCHEDULER,
    SimulatedFleet,
    intensity_csv,
    labels_csv,
    offers_csv,
    owners_csv,
    plan_fleet,
    prices_csv,
    requests_csv,
    write_fleet,
)
from analytics.tables.value import value_headline
from analytics.window import Inputs, load_window_ledger
from fallow import __version__, config
from fallow.clock import DAY_MS, SystemClock, Window, floor_ms, format_ms
from fallow.errors import FallowError, MissingExtraError, UsageError
from fallow.lake import Lake
from fallow.lake_init import init_lake
from fallow.output import show
from fallow.schema import TABLES

_MADE_BY = "fallow demo"


@dataclass(frozen=True)
class Record:
    """The content of demo.json, which describes the lake beside it and is written before the lake's first file."""

    fallow_version: str
    fleet: dict[str, int]
    hosts: tuple[str, ...]
    complete: bool

    def text(self) -> str:
        content = {"made_by": _MADE_BY, "until": format_ms(self.fleet["until_ms"])} | asdict(self)
        return json.dumps(content, indent=2) + "\n"


@dataclass(frozen=True)
class DemoFolder:
    """A folder that `fallow demo` fills. `fallow demo` removes only its own files."""

    path: Path

    @cached_property
    def lake(self) -> Lake:
        return Lake.at(str(self.path / "lake"))

    @property
    def config(self) -> Path:
        """The settings file, which names the lake and the site's tables."""
        return self.path / "fallow.toml"

    @property
    def labels(self) -> Path:
        """The file with what the fleet really did, for `fallow evaluate`."""
        return self.path / "labels.csv"

    def prepare(self, fleet: SimulatedFleet) -> None:
        """Make the lake hold exactly this fleet; a complete lake of the same version and fleet is kept.

        Beside the lake are the tables of a site: owners, prices, offers, requests and the grid's carbon intensity. The
        settings name these tables, and the labels hold what the fleet really did. A kept lake keeps its tables, since a
        user may have changed the prices; only missing files are written.

        Raises FallowError where the folder holds files of others or cannot be written.
        """
        found = self._record()
        hosts = (*(host.host.name for host in plan_fleet(fleet).hosts), SCHEDULER)
        wanted = Record(__version__, asdict(fleet), hosts, complete=True)
        if found == wanted and self.lake.store.exists():
            self._write_tables(fleet, only_missing=True)
            return
        if found is not None:
            self._clear(found)
        self._record_as(Record(wanted.fallow_version, wanted.fleet, wanted.hosts, complete=False))
        init_lake(self.lake)
        with bar(f"simulating {fleet.gpus:,} GPUs over {fleet.days:,} days") as progress:
            write_fleet(self.lake, fleet, progress)
        self._write_tables(fleet, only_missing=False)
        self._record_as(wanted)

    def _write_tables(self, fleet: SimulatedFleet, *, only_missing: bool) -> None:
        tables = {
            "money": {"owners": owners_csv, "prices": prices_csv, "offers": offers_csv},
            "plan": {"requests": requests_csv, "carbon": intensity_csv},
        }
        texts: dict[Path, Callable[[SimulatedFleet], str]] = {self.labels: labels_csv}
        lines = ["[lake]", f"path = {json.dumps(str(self.lake.root))}", ""]  # a JSON string is one of TOML
        for section, own in tables.items():
            lines.append(f"[{section}]")
            for setting, table in own.items():
                file = self.path.absolute() / f"{'intensity' if setting == 'carbon' else setting}.csv"
                lines.append(f"{setting} = {json.dumps(str(file))}")
                texts[file] = table
            lines.append("")
        texts[self.config] = lambda _: "\n".join(lines)
        for file, text in texts.items():
            if not only_missing or not file.exists():
                write_whole(file, text(fleet).encode())

    @property
    def _record_file(self) -> Path:
        return self.path / "demo.json"

    def _record(self) -> Record | None:
        """Return the folder's record; None for a new or empty folder. Raises FallowError for a folder of others."""
        try:
            if not self.path.exists() or not any(self.path.iterdir()):
                return None
            content = json.loads(self._record_file.read_text(encoding="utf-8"))
            if content["made_by"] != _MADE_BY:
                raise self._foreign_error()
            return Record(
                content["fallow_version"], content["fleet"], tuple(content["hosts"]), complete=content["complete"]
            )
        except (FileNotFoundError, KeyError, TypeError, ValueError) as error:
            raise self._foreign_error() from error
        except OSError as error:
            raise FallowError(f"cannot read {self.path}: {error.strerror}", "give --out another folder") from error

    def _foreign_error(self) -> FallowError:
        return FallowError(
            f"{self.path} is not empty and `fallow demo` did not create it, so it stays unchanged",
            "give --out a new or empty folder",
        )

    def _record_as(self, record: Record) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FallowError(f"cannot create {self.path}: {error.strerror}", "give --out another folder") from error
        write_whole(self._record_file, record.text().encode())

    def _clear(self, record: Record) -> None:
        """Remove the simulated lake; raises FallowError where the lake has rows of hosts that are not simulated."""
        if not self.lake.store.exists():
            return
        other_hosts = {
            file.host
            for table in TABLES
            if not table.derived  # made from the others
            for file in self.lake.all_files(table.name)
            if file.host not in record.hosts
        }
        if other_hosts:
            raise FallowError(
                f"{self.lake.root} also holds rows of {min(other_hosts)}, which `fallow demo` did not write, so it"
                " stays",
                "give --out a new folder",
            )
        try:
            shutil.rmtree(self.lake.root)
        except OSError as error:
            raise FallowError(
                f"cannot remove the old simulated lake {self.lake.root}: {error.strerror or error}",
                "give --out a new folder",
            ) from error


_TIMEOUT_S = 30.0

HEADING = "This machine's own GPUs (measured, not simulated)"
NO_DRIVER = "No NVIDIA driver was found on this machine: everything below is simulated."
_UNREADABLE = (
    "This machine's own GPUs could not be read (`fallow agent once` shows why): everything below is simulated."
)


@contextmanager
def look_at_own_gpus() -> Iterator[subprocess.Popen[str]]:
    """Yield a running `fallow agent once`, which ends with the block."""
    # -P: other users may be able to write to the current folder
    command = [sys.executable, "-P", "-m", "fallow", "agent", "once"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as look:
        try:
            yield look
        finally:
            look.kill()


def own_gpus_text(look: subprocess.Popen[str]) -> str:
    """Return the output of `fallow agent once` under a heading, or one line where no GPU could be read."""
    try:
        out, err = look.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"{_UNREADABLE}\n"
    if look.returncode == 0:
        return f"{HEADING}\n{out.rstrip()}\n\nEverything below is simulated.\n"
    return f"{NO_DRIVER if 'no NVIDIA driver' in err else _UNREADABLE}\n"


_FORMATS = ("text", "md", "html", "json")

_MOST_ROWS = 100_000_000  # about 1.5 GB and ten minutes: more is a typing error, not a demo


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", metavar="DIR", required=True, help="folder for the simulated lake and the report")
    parser.add_argument("--gpus", type=int, default=64, metavar="N", help="GPUs in the fleet (default: 64)")
    parser.add_argument(
        "--days", type=int, default=28, metavar="N", help="days before the last midnight, UTC (default: 28)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the simulation (default: 1)")
    parser.add_argument("--no-serve", action="store_true", help="exit after the report instead of serving the pages")
    parser.add_argument(
        "--port",
        type=int,
        default=8050,
        metavar="N",
        help="port of the pages (default: 8050 or the next free port; 0: any)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the lake and the report, print what was found, and serve the pages until Ctrl-C; return the exit code."""
    until_ms = floor_ms(SystemClock().now_ms(), DAY_MS)
    fleet = SimulatedFleet(until_ms=until_ms, gpus=args.gpus, days=args.days, seed=args.seed, showcase=True)
    rows = fleet.gpus * fleet.days * DAY_MS // fleet.interval_ms
    if rows > _MOST_ROWS:
        raise UsageError(
            f"--gpus {args.gpus} for --days {args.days} would write {rows:,} rows", f"stay below {_MOST_ROWS:,}"
        )
    folder = DemoFolder(Path(args.out))
    with look_at_own_gpus() as look:  # takes a second where there is a driver: the fleet is simulated in the meantime
        folder.prepare(fleet)
        show(own_gpus_text(look))
    settings = config.load({"lake.path": str(folder.lake.root)}, str(folder.config))
    inputs = Inputs(folder.lake, Window(), settings)
    show(_epilogue(folder, *_written_report(inputs, folder)))
    if args.no_serve:
        return 0
    sys.stdout.flush()
    serving = _serving_module()
    return int(serving.serve(serving.app_of(lambda: inputs), port=args.port, next_free=True))


def _written_report(inputs: Inputs, folder: DemoFolder) -> tuple[Report, list[Path]]:
    """Write the report in every format; return the report and its files."""
    report = build_report(inputs, load_window_ledger(inputs))
    written = []
    for each in (format_named(name) for name in _FORMATS):
        target = folder.path / f"report{each.suffix}"
        write_whole(target, each.render(report, Language()))
        written.append(target)
    return report, written


def _result_sentences(report: Report) -> str:
    """Return what was found: the GPUs, their hours, the unused hours, and their value."""
    spent, paid, english = (
        report.ledger.summary.totals,
        from_cents(report.money.accounts.total.paid_cents),
        for_text(ENGLISH),
    )
    cost = "have no known price" if paid is None else f"cost {english.shown(Amount(paid, report.money.currency))}"
    return (
        f"{english.shown(GpuHours(spent.total_ms))} GPU-hours of {spent.gpus} simulated GPUs {cost}; "
        f"{english.shown(GpuHours(spent.unused_ms))} of them went unused. "
        f"{english.translate(value_headline(report.recommendations))}"
    )


def _epilogue(folder: DemoFolder, report: Report, written: list[Path]) -> str:
    settings, fallow = shlex.quote(str(folder.config)), _command_name()
    commands = {
        f"{fallow} recommendations --config {settings}": "the actions, their value and their owners",
        f"{fallow} ledger --config {settings} --by team": "paid and used GPU time of each team",
        f"{fallow} findings --config {settings}": "every finding with its evidence",
    }
    width = max(map(len, commands))
    return "\n".join(
        [
            *wrap(_result_sentences(report), PAGE_COLUMNS),
            f"The report is in {folder.path}: {', '.join(each.name for each in written)}.",
            "Try next:",
            *(f"  {command:<{width}}  {meaning}" for command, meaning in commands.items()),
        ]
    )


def _command_name() -> str:
    """Return how to type this command again: its name where it is on the PATH, else the path by which it was called."""
    called = Path(sys.argv[0])
    if called.name != "fallow" or shutil.which("fallow") is not None:
        return "fallow"
    return shlex.quote(str(called.relative_to(Path.cwd()) if called.is_relative_to(Path.cwd()) else called))


def _serving_module() -> ModuleType:
    """Return the serving module, which is imported only here: all other steps run without dash."""
    try:
        return importlib.import_module("dashboard.serving")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("fallow", "analytics", "dashboard", ""):
            raise
        raise MissingExtraError(
            f"serving the pages needs the package {missing}, which is not installed; the report is complete",
            "install it with: pip install 'fallow[dashboard]', or give --no-serve",
        ) from error
