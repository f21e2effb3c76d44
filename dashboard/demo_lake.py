"""The demo's folder: its simulated lake, what it was made from, and when it may be made again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from analytics.commands.written_file import write_whole
from analytics.progress import bar
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
from fallow import __version__
from fallow.clock import format_ms
from fallow.errors import FallowError
from fallow.lake import Lake
from fallow.lake_init import init_lake
from fallow.schema import TABLES

_MADE_BY = "fallow demo"


@dataclass(frozen=True)
class Record:
    """What demo.json says of the lake beside it; it stands there before the lake's first file."""

    fallow_version: str
    fleet: dict[str, int]
    hosts: tuple[str, ...]
    complete: bool

    def text(self) -> str:
        """The file's content."""
        content = {"made_by": _MADE_BY, "until": format_ms(self.fleet["until_ms"])} | asdict(self)
        return json.dumps(content, indent=2) + "\n"


@dataclass(frozen=True)
class DemoFolder:
    """A folder that `fallow demo` fills. It removes nothing that it has not written itself."""

    path: Path

    @cached_property
    def lake(self) -> Lake:
        """The simulated lake."""
        return Lake.at(str(self.path / "lake"))

    @property
    def config(self) -> Path:
        """The settings that name the lake and the site's own tables."""
        return self.path / "fallow.toml"

    @property
    def labels(self) -> Path:
        """What the fleet really did, for `fallow evaluate`."""
        return self.path / "labels.csv"

    def prepare(self, fleet: SimulatedFleet) -> None:
        """Sees to it that the lake holds exactly this fleet, whole; a finished one of the same making is kept.

        Beside a lake that is made lie the tables of a site (owners, prices, offers, requests and the grid's intensity), the settings that name them, and labels of what
        the fleet really did; beside one that is kept they stay as they are, for somebody may have tried other prices.

        Raises FallowError where the folder holds something that is not ours, or cannot be written.
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
        owners, prices, offers, requests, intensity = (
            self.path.absolute() / f"{name}.csv" for name in ("owners", "prices", "offers", "requests", "intensity")
        )
        # a JSON string is one of TOML
        lines = ("[lake]", f"path = {json.dumps(str(self.lake.root))}", "", "[money]",
                 f"owners = {json.dumps(str(owners))}", f"prices = {json.dumps(str(prices))}", f"offers = {json.dumps(str(offers))}", "", "[plan]", f"requests = {json.dumps(str(requests))}", f"carbon = {json.dumps(str(intensity))}", "")  # fmt: skip
        texts: dict[Path, Callable[[], str]] = {
            owners: lambda: owners_csv(fleet),
            prices: lambda: prices_csv(fleet),
            offers: lambda: offers_csv(fleet),
            self.config: lambda: "\n".join(lines),
            requests: lambda: requests_csv(fleet),
            self.labels: lambda: labels_csv(fleet),
            intensity: lambda: intensity_csv(fleet),
        }
        for file, text in texts.items():
            if not only_missing or not file.exists():
                write_whole(file, text().encode())

    @property
    def _record_file(self) -> Path:
        return self.path / "demo.json"

    def _record(self) -> Record | None:
        """What is recorded; None in a folder that is new or empty."""
        try:
            if not self.path.exists() or not any(self.path.iterdir()):
                return None
            content = json.loads(self._record_file.read_text(encoding="utf-8"))
            if content["made_by"] != _MADE_BY:
                raise self._foreign()
            return Record(
                content["fallow_version"], content["fleet"], tuple(content["hosts"]), complete=content["complete"]
            )
        except (FileNotFoundError, KeyError, TypeError, ValueError) as error:
            raise self._foreign() from error
        except OSError as error:
            raise FallowError(f"cannot read {self.path}: {error.strerror}", "give --out another folder") from error

    def _foreign(self) -> FallowError:
        return FallowError(
            f"{self.path} is not empty and `fallow demo` did not make it, so it stays as it is",
            "give --out a new or empty folder",
        )

    def _record_as(self, record: Record) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FallowError(f"cannot make {self.path}: {error.strerror}", "give --out another folder") from error
        write_whole(self._record_file, record.text().encode())

    def _clear(self, made: Record) -> None:
        """Removes the simulated lake, unless somebody else has put rows into it since."""
        if not self.lake.store.exists():
            return
        strangers = {
            file.host
            for table in TABLES
            if not table.derived  # made from the others
            for file in self.lake.all_files(table.name)
            if file.host not in made.hosts
        }
        if strangers:
            raise FallowError(
                f"{self.lake.root} also holds rows of {min(strangers)}, which `fallow demo` did not write, so it stays",
                "give --out a new folder",
            )
        try:
            shutil.rmtree(self.lake.root)
        except OSError as error:
            raise FallowError(
                f"cannot remove the old simulated lake {self.lake.root}: {error.strerror or error}",
                "give --out a new folder",
            ) from error
