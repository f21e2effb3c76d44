"""Every kind of writer: what it finds, what it does, and what of it a reader sees."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any

from fallow.lake import Lake
from fallow.schema import TABLES
from fallow.stores import LocalStore
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MIDNIGHT_MS = 1_795_132_800_000  # 2026-11-20T00:00:00Z


@dataclass(frozen=True)
class Writer:
    """`run` gives an exit code; `rows` what readers see, as JSON: a list of lists whose last value may change."""

    name: str
    modules: tuple[str, ...]
    prepare: Callable[[Path], object]
    run: Callable[[Path], int]
    rows: Callable[[Path], list[list[Any]]]
    is_derived: bool = False
    """Whether what it writes can be made again: then it may be missing, and the command does its work all the same."""
    adds: bool = False
    """Whether each run adds something."""
    is_same_bytes: bool = False
    """Whether the next run leaves every file as an undisturbed run does, byte for byte."""

    def wrong(self, before: list[list[Any]], after: list[list[Any]], seen: list[list[Any]]) -> str:
        """What a reader must not see between two runs."""
        known = {str(each) for each in (*before, *after)}
        if strange := [each for each in seen if str(each) not in known]:
            return f"readers see {strange[:3]}"
        if self.is_derived:
            return ""  # days of before and after may stand beside each other; fallow itself tells them apart
        keys = [str(each[:-1]) for each in seen]
        if len(set(keys)) < len(keys):
            return "readers see rows twice"
        lost = {str(each[:-1]) for each in before} - set(keys)
        return f"readers miss {sorted(lost)[:3]}" if lost else ""

    def wrong_in_the_end(self, after: list[list[Any]], seen: list[list[Any]], *, done: bool) -> str:
        """What a reader must not see after the next run, which nothing disturbed."""
        if self.adds:
            wanted = {2} if done else {1, 2}  # an error after the name was given: it may be there
            return "" if len(seen) in wanted else f"there are {len(seen)} rows in the end"
        return "" if seen == after else f"{len(seen)} rows in the end are not the {len(after)} of an undisturbed run"


def _command(*arguments: str) -> int:
    from fallow.cli import main

    return main(list(arguments))


def _read(place: Path, tables: tuple[str, ...], columns: tuple[str, ...]) -> list[list[Any]]:
    """Rows by table; every file is read, so that a half-written one fails."""
    from fallow import parquet

    found = []
    for table in (each for each in TABLES if each.name in tables):
        names = [name for name in columns if name in table.names]
        data = parquet.read(Lake.at(str(place / "lake")).files(table.name), table, names)
        found += [[table.name, *(str(row[name]) for name in names)] for row in data.to_pylist()]
    return sorted(found)


def _put(place: Path, content: bytes) -> int:
    LocalStore(str(place / "lake")).put("gpu/date=2026-11-20/host=h/1-2.parquet", content)
    return 0


def _put_first(place: Path) -> int:
    (place / "lake").mkdir()
    return _put(place, b"old " * 40_000)


def _put_content(place: Path) -> list[list[str]]:
    """Each whole file with what is in it."""
    store = LocalStore(str(place / "lake"))
    return [[each.key, (place / "lake" / each.key).read_text()] for each in store.list("")]


def _samples(place: Path, first: int, count: int, util_pct: int) -> str:
    """A file of nvidia-smi; over midnight, so that two days are written."""
    from fallow.clock import from_ms

    lines = [
        f"{from_ms(MIDNIGHT_MS + 60_000 * at).strftime('%Y/%m/%d %H:%M:%S.000')}, {gpu}, {util_pct} %, 512 MiB"
        for at in range(first, first + count)
        for gpu in ("GPU-a", "GPU-b")
    ]
    file = place / f"{first}.csv"
    file.write_text("timestamp, uuid, utilization.gpu [%], memory.used [MiB]\n" + "\n".join(lines) + "\n")
    return str(file)


def _import(place: Path, first: int, util_pct: int) -> int:
    file = _samples(place.parent, first, 20, util_pct)
    return _command("import", "nvidia-smi", file, "--host", "h", "--lake", str(place / "lake"), "--tz", "UTC", "--yes")


def _imported(place: Path) -> list[list[str]]:
    devices = _read(place, ("device",), ("gpu", "time"))
    return [
        *_read(place, ("gpu",), ("gpu", "time", "gpu_util_pct")),
        *([*names, time[:10], time] for *names, time in devices),  # one a day; its time may become an earlier one
    ]


def _allocation_file(place: Path, first: int, end: str) -> str:
    hours = [(at, f"2026-11-{19 + at // 24}T{at % 24:02}:00Z") for at in range(first, first + 20)]
    file = place / f"{first}.csv"
    file.write_text(
        "start,end,gpu,host,allocation_id\n" + "".join(f"{start},{end},GPU-a,h1,r{at}\n" for at, start in hours)
    )
    return str(file)


def _import_allocations(place: Path, first: int, end: str) -> int:
    file = _allocation_file(place.parent, first, end)
    return _command("allocations", "import", "csv", file, "--lake", str(place / "lake"))


def _fill(place: Path) -> None:
    """A lake whose ledger is kept, and then gets another hour."""
    from fallow import schema
    from tests.ledger.rows import samples, write

    lake = made_lake(place / "lake")
    write(lake, schema.GPU, samples("a", -7200, 7200, every_s=60, gpu_util_pct=0.0, process_count=1))
    with contextlib.suppress(SystemExit):
        _ledger(place)
    write(lake, schema.GPU, samples("a", 7200, 10_800, every_s=60, gpu_util_pct=50.0, process_count=1))


def _ledger(place: Path) -> int:
    return _command("ledger", "--json", "--lake", str(place / "lake"))


def _kept(place: Path) -> list[list[str]]:
    tables = tuple(table.name for table in TABLES if table.derived)
    return _read(place, tables, ("host", "gpu", "time", "state", "end"))


def _spool(place: Path) -> None:
    from agent.spool.installation import settle_installation
    from agent.spool.spool import Spool
    from tests.publishing.rows import adopted, ticks

    spool = adopted(Spool(str(place / "spool"), for_agent=True), made_lake(place / "lake"))
    settle_installation(spool, "h", "")
    spool.append({"gpu": ticks(0, 30)})
    spool.append({"gpu": ticks(8630, 30)})
    spool.close()


def _publish(place: Path) -> int:
    from agent.spool.publisher import Publisher
    from agent.spool.spool import Spool

    with contextlib.closing(Spool(str(place / "spool"))) as spool:
        Publisher(spool, Lake.at(str(place / "lake")), "h").publish()
    return 0


def _fill_hosts(place: Path) -> None:
    """A lake of past days of eight hosts in small files: enough for the small tables to be kept as well."""
    from fallow import schema
    from tests.ledger.rows import allocation, device, fill, ms, processes, samples, write

    lake, midnight_s = made_lake(place / "lake"), -30 * 86_400
    for number in range(8):
        host, gpu, began_s = f"h{number}", f"GPU-{number}", midnight_s - 7200
        for first_s in (began_s, midnight_s + 600):
            last_s = first_s + 7200
            busy_pct = 50.0 if number % 2 else 0.0
            rows = samples(gpu, first_s, last_s, every_s=300, gpu_util_pct=busy_pct, process_count=1)
            fill(lake, rows, processes(gpu, *range(first_s, last_s, 1800), every_s=1800), host=host)
        allocations = [allocation(gpu, began_s, midnight_s + 7200, allocation_id=f"j{number}")]
        fill(lake, [], [], allocations, devices=[device(gpu, time=ms(began_s))], host=host)
        write(lake, schema.EVENT, [{"time": ms(began_s), "gpu": gpu, "kind": "xid", "code": 79}], host)


def _fill_and_keep(place: Path) -> None:
    _fill_hosts(place)
    with contextlib.suppress(SystemExit):
        _ledger(place)


def _report(place: Path) -> int:
    page = str(place / "report.html")
    return _command("report", "--lake", str(place / "lake"), "--format", "html", "--out", page)


def _reported(place: Path) -> list[list[str]]:
    """The page that readers find, whole or not at all, and the kept tables."""
    page = place / "report.html"
    return [["page", page.read_text() if page.exists() else ""], *_kept(place)]


def _fill_and_compact(place: Path) -> None:
    """A lake of an agent's small files: those of two days were merged some hours ago, and those of two more can be."""
    from tests.lake.worlds import put_small

    lake = made_lake(place / "lake")
    put_small(lake, 48)
    _age(place)
    _compact(place)
    put_small(lake, 48, first=48)
    _age(place)


def _age(place: Path) -> None:
    """Let every file be four hours old: it can be merged, and what it replaced can go."""
    for file in place.rglob("*.parquet"):
        os.utime(file, (time() - 4 * 3600,) * 2)


def _compact(place: Path) -> int:
    return _command("lake", "compact", "--lake", str(place / "lake"))


def _annotate(place: Path) -> int:
    return _command("annotations", "add", "driver 580", "--lake", str(place / "lake"), "--as", "ana")


def _of_command(name: str) -> tuple[str, ...]:
    return f"analytics.commands.{name}", "fallow.parquet"


WRITERS = (
    Writer("store", (), _put_first, lambda place: _put(place, b"new " * 50_000), _put_content),
    Writer(
        "importer", _of_command("imports"), lambda at: _import(at, -12, 5), lambda at: _import(at, -8, 7), _imported
    ),
    Writer(
        "allocations",
        _of_command("allocations"),
        lambda place: _import_allocations(place, 10, ""),
        lambda place: _import_allocations(place, 15, "2026-11-22T00:00Z"),
        partial(_read, tables=("allocation",), columns=("host", "gpu", "time", "allocation_id", "end")),
    ),
    Writer("first ledger", _of_command("ledger"), _fill_hosts, _ledger, _kept, is_derived=True, is_same_bytes=True),
    Writer("keeper", _of_command("ledger"), _fill, _ledger, _kept, is_derived=True, is_same_bytes=True),
    Writer("report", _of_command("report"), _fill_and_keep, _report, _reported, is_derived=True, is_same_bytes=True),
    Writer(
        "compaction",
        _of_command("lake_compact"),
        _fill_and_compact,
        _compact,
        partial(_read, tables=("gpu",), columns=("gpu", "time", "gpu_util_pct")),
        is_same_bytes=True,
    ),
    Writer(
        "publisher",
        ("agent.spool.publisher",),
        _spool,
        _publish,
        partial(_read, tables=("gpu",), columns=("gpu", "time", "gpu_util_pct")),
    ),
    Writer(
        "annotations",
        _of_command("annotations"),
        lambda place: (place / "lake").mkdir(),
        _annotate,
        partial(_read, tables=("annotation",), columns=("text",)),
        adds=True,
    ),
)
