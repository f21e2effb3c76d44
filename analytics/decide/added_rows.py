"""Rows that people add to the lake and nobody changes: each time one immutable file, which nobody else writes.

Its sequence number is the moment followed by twelve random digits, the same at both ends of its range, so that no file hides
another, whoever writes at the same moment. What may be said only once has digits of its own name instead, so that saying it twice
at the same moment is the same file.
"""

from __future__ import annotations

import hashlib
import secrets
import socket
from collections.abc import Sequence

from fallow import parquet
from fallow.clock import DAY_MS, utc_day
from fallow.lake import Lake, LakeFile
from fallow.schema import LakeTable

_RANDOM = 10**12


def file_number(now_ms: int, once: str = "") -> int:
    """The sequence number of a file that is written now, from which ids of its rows are made; of `once` the same all day."""
    if not once:
        return now_ms * _RANDOM + secrets.randbelow(_RANDOM)
    digits = int(hashlib.sha256(once.encode()).hexdigest(), 16) % (DAY_MS * _RANDOM)
    return now_ms // DAY_MS * DAY_MS * _RANDOM + digits


def add_rows(lake: Lake, table: LakeTable, rows: Sequence[dict[str, object]], now_ms: int, number: int) -> None:
    """All of the rows or none; raises LakeError."""
    file = LakeFile(table.name, utc_day(now_ms), socket.gethostname() or "unnamed", number, number)
    data = parquet.encode(table, parquet.table_from_rows(table, rows))
    lake.confirm(lake.put(file, data), data)
