"""The ledger of a lake: built host by host from the samples, kept in the lake, and rebuilt where its sources changed."""

from __future__ import annotations

import hashlib
import json
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl

from analytics.ledger.claims import CLAIM_COLUMNS, flatten
from analytics.ledger.runs import GPU_COLUMNS, PROCESS_COLUMNS, Runs, find_runs
from analytics.ledger.stretches import HostLedger, join_runs
from fallow import parquet, schema
from fallow.clock import DAY_MS, utc_day
from fallow.errors import LakeError
from fallow.lake import Lake, LakeFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa

    from analytics.ledger.settings import LedgerSettings

METHOD = 4
"""Raised when the same samples would give another ledger, so that kept ledgers are built again."""

_CHUNK_BYTES = 48 * 2**20  # of Parquet, a few million rows: bounds memory, keeps the number of chunks small
_KEPT = (schema.LEDGER, schema.SPELL)


@dataclass(frozen=True)
class Ledger:
    """The ledger of a lake: `stretches` has the columns of the ledger table, `spells` those of spell, both with `host`.

    Times are integer milliseconds. `files` are the gpu files that it rests on.
    """

    stretches: pl.DataFrame
    spells: pl.DataFrame
    files: tuple[LakeFile, ...]


def load_ledger(
    lake: Lake,
    settings: LedgerSettings,
    *,
    progress: Callable[[float], None] = lambda _: None,
    warn: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> Ledger:
    """The whole lake's ledger; hosts whose samples or settings changed are built again and kept in the lake.

    Where the lake cannot be written, the ledger is built all the same and a warning says so. Raises LakeError and its
    kinds for a lake that is missing, empty or broken.
    """
    sources = _sources(lake)
    kept = _kept_files(lake)
    parts: list[HostLedger] = []
    warned = False
    for done, (host, files) in enumerate(sorted(sources.items())):
        fingerprint = _fingerprint(files, settings)
        part = _read_kept(kept.get(host, []), fingerprint)
        if part is None:
            part = build_host(files, settings)
            try:
                _keep(lake, host, files["gpu"], part, fingerprint)
            except LakeError as error:
                if not warned:
                    warn(f"fallow: the ledger is not kept: {error}")
                warned = True
        parts.append(_with_host(part, host))
        progress((done + 1) / len(sources))
    return Ledger(
        pl.concat([part.ledger for part in parts]),
        pl.concat([part.spells for part in parts]),
        tuple(file for files in sources.values() for file in files["gpu"]),
    )


def build_host(files: Mapping[str, Sequence[LakeFile]], settings: LedgerSettings) -> HostLedger:
    """One host's ledger from its `gpu`, `process` and `claim` files, in chunks of days."""
    claims = flatten(_frame(files.get("claim", ()), schema.CLAIM, CLAIM_COLUMNS))
    by_day: dict[str, list[LakeFile]] = defaultdict(list)
    for file in files.get("process", ()):
        by_day[file.date].append(file)
    chunks: list[Runs] = []
    for chunk in _chunks(files["gpu"]):
        processes = [file for day in _with_neighbours({file.date for file in chunk}) for file in by_day.get(day, ())]
        chunks.append(
            find_runs(
                _frame(chunk, schema.GPU, GPU_COLUMNS),
                _frame(processes, schema.PROCESS, PROCESS_COLUMNS),
                claims,
                settings,
            )
        )
    return join_runs(chunks, settings)


def _with_neighbours(days: Iterable[str]) -> list[str]:
    """The days and those beside them: a row just after midnight goes by the list from just before it."""
    near = {date.fromisoformat(day) + timedelta(days=step) for day in days for step in (-1, 0, 1)}
    return [day.isoformat() for day in sorted(near)]


def _sources(lake: Lake) -> dict[str, dict[str, list[LakeFile]]]:
    """Per host, its visible files of the tables that the ledger is made of."""
    gpu_files = lake.require_files("gpu")
    sources: dict[str, dict[str, list[LakeFile]]] = defaultdict(lambda: defaultdict(list))
    for file in gpu_files:
        sources[file.host]["gpu"].append(file)
    for table in ("process", "claim"):
        for file in lake.files(table):
            if file.host in sources:
                sources[file.host][table].append(file)
    return sources


def _chunks(files: Sequence[LakeFile]) -> Iterable[list[LakeFile]]:
    """Files grouped into whole days that follow each other, each group of bounded size."""
    group: list[LakeFile] = []
    size = 0
    for file in sorted(files):
        if group and size + file.size_bytes > _CHUNK_BYTES and file.date != group[-1].date:
            yield group
            group, size = [], 0
        group.append(file)
        size += file.size_bytes
    yield group


def _frame(files: Iterable[LakeFile], table: schema.Table, columns: Sequence[str]) -> pl.DataFrame:
    """The named columns as a frame, every timestamp as integer milliseconds."""
    return milliseconds(parquet.read(files, table, columns).select(list(columns)))


def milliseconds(data: pa.Table) -> pl.DataFrame:
    """An Arrow table as a frame whose timestamps are integer milliseconds since the epoch."""
    frame = pl.from_arrow(data)
    if not isinstance(frame, pl.DataFrame):
        raise TypeError(type(frame).__name__)
    stamps = [name for name, kind in frame.schema.items() if isinstance(kind, pl.Datetime)]
    return frame.with_columns(pl.col(name).dt.epoch("ms") for name in stamps)


def _fingerprint(files: Mapping[str, Sequence[LakeFile]], settings: LedgerSettings) -> str:
    """Changes whenever the ledger would: with the source files, the settings or the method."""
    sources = sorted((file.key, file.size_bytes, file.version) for table in files.values() for file in table)
    content = json.dumps([METHOD, schema.SCHEMA_VERSION, asdict(settings), sources])
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def _kept_files(lake: Lake) -> dict[str, list[LakeFile]]:
    kept: dict[str, list[LakeFile]] = defaultdict(list)
    for table in _KEPT:
        for file in lake.files(table.name):
            kept[file.host].append(file)
    return kept


def _read_kept(files: Sequence[LakeFile], fingerprint: str) -> HostLedger | None:
    """The kept ledger of a host if it is whole and current, else None."""
    own = {table: [file for file in files if file.table == table.name] for table in _KEPT}
    parts = _parts(len(own[table]) for table in _KEPT)
    try:
        facts = [parquet.metadata(file) for file in files]
        if {(fact.get("fingerprint"), fact.get("parts")) for fact in facts} != {(fingerprint, parts)}:
            return None
        frames = [_frame(own[table], table, table.names) for table in _KEPT]
    except LakeError:
        return None  # half-written or from a newer version: derived data is simply built again
    return HostLedger(*frames)


def _parts(counts: Iterable[int]) -> str:
    """How many files of each kept table make up one whole ledger; every one of them says so."""
    return "+".join(map(str, counts))


def _keep(lake: Lake, host: str, gpu_files: Sequence[LakeFile], part: HostLedger, fingerprint: str) -> None:
    """Writes the host's ledger and spells, one file a UTC day, then removes what they replace."""
    first = min(file.first_seq for file in gpu_files)
    last = max(file.last_seq for file in gpu_files)
    by_day = {
        table: frame.with_columns(day=pl.col("time") // DAY_MS).partition_by("day", as_dict=True, include_key=False)
        for table, frame in zip(_KEPT, (part.ledger, part.spells), strict=True)
    }
    facts = {"fingerprint": fingerprint, "parts": _parts(len(by_day[table]) for table in _KEPT)}
    for table, days in by_day.items():
        written = set()
        for (day,), rows in sorted(days.items()):
            file = LakeFile(table.name, utc_day(int(day) * DAY_MS), host, first, last)
            lake.put(file, parquet.encode(table, arrow(rows, table), facts))
            written.add(file.key)
        for stale in lake.all_files(table.name, hosts=[host]):
            if stale.key not in written:
                lake.delete(stale)


def arrow(frame: pl.DataFrame, table: schema.Table) -> pa.Table:
    """The frame with integer-millisecond times as an Arrow table of the schema."""
    columns: dict[str, Any] = {name: frame[name].to_arrow() for name in table.names}
    return parquet.table_from_columns(table, columns)


def _with_host(part: HostLedger, host: str) -> HostLedger:
    named = pl.lit(host).alias("host")
    return HostLedger(part.ledger.with_columns(named), part.spells.with_columns(named))
