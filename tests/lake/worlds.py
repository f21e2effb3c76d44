"""A lake of an agent's small files, and what readers see of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fallow import parquet, schema
from fallow.clock import DAY_MS, utc_day
from fallow.host_identity import INSTALL_KEY
from fallow.lake import AGENT_FIRST_SEQ, Lake, LakeFile

if TYPE_CHECKING:
    from collections.abc import Iterable

DAY_0_MS = 20_000 * DAY_MS
STEP_MS = 10 * 60_000
LATER_MS = 10**15
"""A moment at which every file of a test is old."""


def rows(first: int, count: int, gpu: str = "GPU-a") -> list[dict[str, Any]]:
    """Rows of `gpu` ten minutes apart, numbered through their times."""
    same = {"gpu": gpu, "interval_ms": 10_000, "gpu_util_pct": 1.5, "process_count": 0}
    return [same | {"time": DAY_0_MS + number * STEP_MS} for number in range(first, first + count)]


def put(
    lake: Lake, first: int, last: int, own: Iterable[dict[str, Any]], host: str = "h", *, install: str = ""
) -> LakeFile:
    """A file of an agent's sequence numbers with some rows, of an installation where one is given."""
    found = list(own)
    said = {"host": host} | ({INSTALL_KEY: install} if install else {})
    data = parquet.encode(schema.GPU, parquet.table_from_rows(schema.GPU, found), said)
    date = utc_day(found[0]["time"])
    return lake.put(LakeFile("gpu", date, host, AGENT_FIRST_SEQ + first, AGENT_FIRST_SEQ + last), data)


def put_small(lake: Lake, files: int, first: int = 0, each: int = 6, host: str = "h") -> None:
    """So many files of one hour each."""
    for number in range(first, first + files):
        put(lake, each * number, each * number + each - 1, rows(each * number, each), host)


def numbers(lake: Lake) -> list[int]:
    """The numbers of the rows that readers see: one that is there twice is named twice."""
    times = parquet.read(lake.files("gpu"), schema.GPU, ["time"])["time"].cast("int64").to_pylist()
    return sorted((time_ms - DAY_0_MS) // STEP_MS for time_ms in times)
