"""Bad files for a lake: each kind as somebody, or a failing disk, leaves one, and seeded mutations of good ones."""

from __future__ import annotations

import io
import os
import random
import shutil
import socket
import tempfile
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from analytics.ledger.build import load_ledger
from analytics.ledger.settings import LedgerSettings
from fallow import schema
from fallow.errors import FallowError
from tests.lakes import made_lake
from tests.ledger.rows import device, processes, samples, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import polars as pl

    from fallow.lake import Lake

DAY_S = 86_400
_HOUR_S = 3_600


def small_lake(folder: Path, bad: Iterable[str] = ("bad",)) -> Lake:
    """Hosts of two GPUs, two hours on each of two days, in four files a day; tests damage files of `bad` hosts."""
    lake = made_lake(folder)
    for host in ("good", *bad):
        gpus = [f"GPU-{host}-{number}" for number in range(2)]
        rows = []
        for day, gpu in product(range(2), gpus):
            since_s, busy = day * DAY_S, {"gpu_util_pct": float(day), "power_w": 90.0}
            rows += samples(gpu, since_s, since_s + 2 * _HOUR_S, every_s=60, **busy)
        write(lake, schema.GPU, rows, host, split=lambda row: row["time"] // (_HOUR_S * 500))
        write(lake, schema.PROCESS, processes(gpus[0], *range(0, _HOUR_S, 60), every_s=60), host)
        write(lake, schema.DEVICE, [device(gpu) for gpu in gpus], host)
    return lake


def victim(lake: Lake, table: str = "gpu", host: str = "bad") -> Path:
    """A file of the host: the second of its first day."""
    files = lake.files(table, hosts=[host])
    return Path(files[min(1, len(files) - 1)].url)


def _flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 0x10
    path.write_bytes(content)


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's path has no more than 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
    finally:
        os.chdir(here)


def _link_out(path: Path) -> None:
    elsewhere = Path(tempfile.mkdtemp(dir=path.parents[4])) / "other.parquet"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def _instead(path: Path, make: Callable[[Path], object]) -> None:
    """Something else in the place of the file."""
    path.unlink()
    make(path)


def _nulls(tens_of_millions: int, path: Path) -> None:
    """200 million of them are 1 MB."""
    nulls = {"time": pa.timestamp("ms", tz="UTC"), "gpu": pa.string()}
    _write(path, pa.table({name: pa.nulls(10_000_000, kind) for name, kind in nulls.items()}), tens_of_millions)


def _texts(path: Path, kind: pa.DataType | None = None, column: str = "gpu", *, plain: bool = False) -> None:
    """300,000 rows of one text of 2,000 letters: 600 MB in some kilobytes; the footer states them unless `plain`."""
    text = "x" * 2_000 if kind is None or pa.types.is_large_string(kind) else b"x" * 2_000
    columns = {
        "time": pa.scalar(0, pa.timestamp("ms", tz="UTC")),
        "gpu": pa.scalar("GPU-bad-0"),
        column: pa.scalar(text, kind),
    }
    _write(path, pa.table({name: pa.repeat(value, 30_000) for name, value in columns.items()}), 10, plain=plain)


def _lists(path: Path) -> None:
    """120 million zeros in the lists of four rows: some kilobytes."""
    values = pa.repeat(pa.scalar(0, pa.int32()), 30_000_000)
    lists = pa.ListArray.from_arrays([0, 30_000_000], values)
    time = pa.array([0], pa.timestamp("ms", tz="UTC"))
    _write(path, pa.table({"time": time, "gpu": ["GPU-bad-0"], "interval_ms": lists}), 4)


def _data(path: Path) -> pa.Table:
    return pq.read_table(path, partitioning=None)


def _no_utf8(path: Path) -> None:
    data = _data(path)
    gpus = pa.array([b"GPU-\xff\xfe"] * data.num_rows).view(pa.string())
    _write(path, data.set_column(data.schema.get_field_index("gpu"), "gpu", gpus))


def _deep(path: Path) -> None:
    """A footer of 5,000 groups, each in the one before: readers that descend into them run out of stack."""
    name, child = b"\x18\x01a", b"\x15\x02"  # Thrift's compact protocol: the field before this one, and its type
    leaf = b"\x15\x02\x25\x02" + name + b"\x00"
    groups = b"\x48\x01a" + child + b"\x00" + (b"\x35\x02" + name + child + b"\x00") * 5_000
    footer = b"\x15\x02\x19\xfc" + _varint(5_002) + groups + leaf + b"\x16\x00\x19\x0c\x00"
    path.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def _denied_rows(path: Path) -> None:
    """10 million nulls, of which the footer says that the file has two rows."""
    _nulls(1, path)
    content, rows = path.read_bytes(), _varint(2 * 10_000_000)
    before = b"\x16"  # a number of 64 bits
    at = content.index(before + rows, len(content) - 8 - int.from_bytes(content[-8:-4], "little")) + len(before)
    path.write_bytes(content[:at] + b"\x84" + b"\x80" * (len(rows) - 2) + b"\x00" + content[at + len(rows) :])


def _varint(number: int) -> bytes:
    """The number as Thrift writes it: seven bits a byte, the lowest first."""
    return bytes([number & 0x7F | 0x80]) + _varint(number >> 7) if number > 0x7F else bytes([number])


def _write(path: Path, data: pa.Table, times: int = 1, *, plain: bool = False) -> None:
    """The table as a file, in so many row groups that are the same."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, data.schema, compression="zstd", use_dictionary=not plain) as writer:
        for _ in range(times):
            writer.write_table(data, row_group_size=data.num_rows)
    path.write_bytes(sink.getvalue())


_OTHER_TYPES: dict[str, list[Any]] = {"time": ["no time"], "gpu": [[1, 2]], "interval_ms": [{"a": 1}]}

_NOISE = random.Random(1).randbytes(5_000)  # noqa: S311  # the same every time
FILE_FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "garbage": (lambda path: path.write_bytes(_NOISE), "broken"),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-100]), "broken"),
    "empty": (lambda path: path.write_bytes(b""), "broken"),
    "flipped bit": (_flipped, "broken"),
    "folder": (partial(_instead, make=Path.mkdir), "not_regular"),
    "pipe": (partial(_instead, make=os.mkfifo), "not_regular"),
    "socket": (partial(_instead, make=_socket), "not_regular"),
    "link to a device": (partial(_instead, make=lambda path: path.symlink_to("/dev/zero")), "not_regular"),
    "link out of the lake": (_link_out, "not_regular"),
    "dangling link": (partial(_instead, make=lambda path: path.symlink_to("gone")), "not_regular"),
    "10 million nulls": (partial(_nulls, 1), "too_large"),
    "200 million nulls": (partial(_nulls, 20), "too_large"),
    "300,000 long texts": (_texts, "too_large"),
    "the same of another type": (partial(_texts, kind=pa.large_string()), "too_large"),
    "the same as bytes": (partial(_texts, kind=pa.binary()), "too_large"),
    "the same as bytes of one width": (partial(_texts, kind=pa.binary(2_000)), "too_large"),
    "the same instead of numbers": (partial(_texts, column="interval_ms"), "too_large"),
    "the same as often as it is there": (partial(_texts, plain=True), "too_large"),
    "120 million values in lists": (_lists, "broken"),
    "5,000 columns": (lambda path: _write(path, pa.table({f"c{number}": [1] for number in range(5_000)})), "too_large"),
    "other types": (lambda path: _write(path, pa.table(_OTHER_TYPES)), "broken"),
    "without a key": (lambda path: _write(path, _data(path).drop_columns(["gpu"])), "broken"),
    "two columns of one name": (
        lambda path: _write(path, _data(path).append_column("gpu", _data(path)["gpu"])),
        "broken",
    ),
    "text that is not UTF-8": (_no_utf8, "broken"),
    "5,000 groups in one another": (_deep, "broken"),
    "rows that the footer denies": (_denied_rows, "broken"),
}
"""What befalls one file, and the kind of fault that is told of it."""


@dataclass
class Mutated:
    """How mutations ended; `wrong`: those after which the untouched host read differently, or not at all."""

    left_out: int = 0
    read: int = 0
    refused: int = 0
    wrong: tuple[str, ...] = ()


def mutated_files(count: int, seed: int = 15) -> Mutated:
    """Build the ledger after each of `count` mutations of a small lake's files; only FallowError is caught."""
    found = Mutated()
    with tempfile.TemporaryDirectory() as folder:
        lake = small_lake(Path(folder) / "lake")
        good = good_rows(lake)
        files = [Path(file.url) for table in ("gpu", "process", "device") for file in lake.files(table, hosts=["bad"])]
        whole = {file: file.read_bytes() for file in files}
        for number in range(count):
            chance = random.Random(f"{seed}-{number}")  # noqa: S311  # so that a mutation can be repeated
            path = chance.choice(files)
            path.write_bytes(mutation(chance, whole[path], list(whole.values())))
            _judge(found, lake, good, f"{seed}-{number} {path.relative_to(folder)}")
            path.write_bytes(whole[path])
            _forget(lake)
    return found


def _judge(found: Mutated, lake: Lake, good: pl.DataFrame, name: str) -> None:
    again = made_lake(lake.root)
    try:
        rows, quality = _ledger(again)
    except FallowError:
        found.refused += 1
        return
    if quality or again.left_out.found:
        found.left_out += 1
    else:
        found.read += 1
    if not rows.equals(good):
        found.wrong += (name,)


def good_rows(lake: Lake) -> pl.DataFrame:
    """The ledger of the untouched host, whatever else is in the lake."""
    return _ledger(made_lake(lake.root))[0]


def _ledger(lake: Lake) -> tuple[pl.DataFrame, list[str]]:
    ledger = load_ledger(lake, LedgerSettings(), warn=lambda _: None)
    segments = ledger.segments.filter(ledger.segments["host"] == "good").sort("gpu", "time")
    return segments, ledger.rollups.quality()["kind"].to_list()


def _forget(lake: Lake) -> None:
    """Removes what was derived: each mutation is met by a reader that has nothing kept."""
    for table in schema.TABLES:
        if table.derived:
            shutil.rmtree(Path(lake.root, table.name), ignore_errors=True)


def mutation(chance: random.Random, content: bytes, others: list[bytes]) -> bytes:
    """The content with bits flipped, cut, with a piece of noise or of zeros, or with the footer of another file."""
    changed = bytearray(content)
    footer_bytes = 8 + int.from_bytes(content[-8:-4], "little")
    ways: tuple[Callable[[], Any], ...] = (
        lambda: _flip(chance, changed, 0, len(changed)),
        lambda: _flip(chance, changed, len(changed) - footer_bytes, len(changed)),
        lambda: changed.__delitem__(slice(chance.randrange(len(changed)), None)),
        lambda: changed.__delitem__(slice(0, chance.randrange(1, len(changed)))),
        lambda: _overwrite(chance, changed, chance.randbytes),
        lambda: _overwrite(chance, changed, bytes),
        lambda: changed.__setitem__(slice(-footer_bytes, None), _footer(chance.choice(others))),
    )
    chance.choice(ways)()
    return bytes(changed)


def _flip(chance: random.Random, content: bytearray, first: int, end: int) -> None:
    for _ in range(chance.choice((1, 1, 2, 8))):
        content[chance.randrange(first, end)] ^= 1 << chance.randrange(8)


def _overwrite(chance: random.Random, content: bytearray, filler: Callable[[int], bytes]) -> None:
    first = chance.randrange(len(content))
    piece = filler(min(chance.choice((4, 40, 400)), len(content) - first))
    content[first : first + len(piece)] = piece


def _footer(content: bytes) -> bytes:
    return content[-8 - int.from_bytes(content[-8:-4], "little") :]
