"""Small lakes from rows: what a test writes down is what lies in the lake as real Parquet, or in a recording."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from analytics.ledger.build import load_ledger
from analytics.ledger.settings import LedgerSettings
from fallow import parquet, schema
from fallow.clock import SECOND_MS, utc_day
from fallow.lake import Lake, LakeFile
from tests.ledger.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from analytics.ledger.build import Ledger

Row = dict[str, Any]
Site = TypeVar("Site", Lake, Recording)
T0 = 1_795_132_800_000  # 2026-11-20 00:00 UTC
GB = 1_000_000_000


def ms(seconds: float) -> int:
    """The moment so many seconds after T0."""
    return T0 + round(seconds * SECOND_MS)


def samples(gpu: str, first_s: float, last_s: float, *, every_s: float = 10, **values: object) -> list[Row]:
    """Rows of one GPU on the grid, from first_s up to last_s, exclusive: measured and idle unless `values` differ."""
    step, count = round(every_s * 1000), round((last_s - first_s) / every_s)
    base: Row = {
        "gpu": gpu,
        "interval_ms": step,
        "offset_ms": 0,
        "health": "ok",
        "gpu_util_pct": 0.0,
        "process_count": 0,
    }
    return [base | {"time": ms(first_s) + number * step} | values for number in range(count)]


def processes(gpu: str, *times_s: float, user: str | None = "ann", every_s: float = 30, **values: object) -> list[Row]:
    """One process in the lists of these moments."""
    base: Row = {"gpu": gpu, "interval_ms": round(every_s * 1000), "pid": 4711, "kind": "compute", "command": "python3"}
    return [base | {"time": ms(at), "user": user} | values for at in times_s]


def allocation(
    gpu: str | None, first_s: float, last_s: float | None, user: str | None = "bob", allocation_id: str = "j1"
) -> Row:
    """One allocation; None runs on."""
    end = None if last_s is None else ms(last_s)
    return {"gpu": gpu, "time": ms(first_s), "end": end, "user": user, "allocation_id": allocation_id}


def device(gpu: str, model: str = "NVIDIA H100 80GB HBM3", pool: str = "train", **values: object) -> Row:
    """An inventory entry."""
    return {"gpu": gpu, "time": T0, "model": model, "pool": pool, "source": "nvml"} | values


def by_day(row: Row) -> object:
    return utc_day(row["time"])


def write(
    site: Lake | Recording,
    table: schema.LakeTable,
    rows: Iterable[Row],
    host: str = "h1",
    split: Callable[[Row], object] = by_day,
) -> list[LakeFile]:
    """Puts the rows into one file per day, or per day and value of `split`, named by their own sequence numbers.

    Of a recording there are no files.
    """
    if isinstance(site, Recording):
        site.add(table, host, list(rows))
        return []
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((utc_day(row["time"]), str(split(row))), []).append(row)
    first = 1 + max((file.last_seq for file in site.all_files(table.name, hosts=[host])), default=0)
    files = []
    for number, ((day, _), group) in enumerate(groups.items()):
        file = LakeFile(table.name, day, host, first + number, first + number)
        files.append(site.put(file, parquet.encode(table, parquet.table_from_rows(table, group))))
    return files


def fill(
    site: Site,
    gpu: Sequence[Row],
    process: Sequence[Row] = (),
    allocations: Sequence[Row] = (),
    *,
    devices: Sequence[Row] = (),
    host: str = "h1",
) -> Site:
    """Adds the rows of each table to a lake or a recording, and returns it."""
    for table, rows in (
        (schema.GPU, gpu),
        (schema.PROCESS, process),
        (schema.ALLOCATION, allocations),
        (schema.DEVICE, devices),
    ):
        write(site, table, rows, host)
    return site


def silent(text: str) -> None:
    raise AssertionError(text)


def load(site: Lake | Recording, **settings: Any) -> Ledger:
    """The ledger, built or kept; a warning fails the test."""
    chosen = LedgerSettings(**settings)
    return site.ledger(chosen) if isinstance(site, Recording) else load_ledger(site, chosen, warn=silent)


def states(lake: Lake, gpu: str | None = None, **settings: Any) -> list[tuple[str, float, float]]:
    """(state, start, end) in seconds after T0, by GPU and time."""
    return [(state, start, end) for state, start, end, _, _ in held_by(lake, gpu, **settings)]


def held_by(
    lake: Lake, gpu: str | None = None, **settings: Any
) -> list[tuple[str, float, float, str | None, str | None]]:
    """Like `states`, with user and where it is known from."""
    frame = load(lake, **settings).segments.sort("gpu", "time")
    return [
        (row["state"], (row["time"] - T0) / 1000, (row["end"] - T0) / 1000, row["user"], row["user_source"])
        for row in frame.iter_rows(named=True)
        if gpu is None or row["gpu"] == gpu
    ]


def snapshot(lake: Lake, *tables: str) -> dict[str, bytes]:
    """Every file of the lake, or of some of its tables, with what is in it."""
    root = Path(lake.root)
    files = [path for path in root.rglob("*") if path.is_file()]
    named = {str(path.relative_to(root)): path.read_bytes() for path in files}
    return {name: data for name, data in named.items() if not tables or name.split("/")[0] in tables}
