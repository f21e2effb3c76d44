"""The rules' findings in a window, kept in the lake: one process finds them, and commands and all pages read them.

`.findings/WINDOW.json.gz` in the lake holds what the rules found in one window, and `.findings/WINDOW.before.json.gz`
what they found one week earlier, each written whole. The first line states a digest of the content, and a fingerprint
of all sources of the findings: the rows of the ledger and of the jobs, the inventory, the sources of the hourly tables,
the site's tables, the thresholds, and the code of the rules. A file that is damaged or has other sources is not used,
and the rules run again.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import polars as pl

import analytics
from analytics.decide.reversals import Reversals, load_records
from analytics.decide.written_values import read, written
from analytics.frames import digest, rows_digest
from analytics.ledger.cache import facts_of
from analytics.window import Inputs, history_start_ms
from analytics.workloads.model import Context, Finding
from analytics.workloads.pool_demand import FleetDemand
from fallow import __version__, schema
from fallow.clock import DAY_MS, WEEK_MS, utc_day
from fallow.errors import LakeError
from fallow.given_file import TABLE_BYTES, given_bytes

FOLDER = ".findings"
"""Folder of the kept findings in the lake; no table has this name."""

_MOST_BYTES = 64 << 20
_MOST_FILES = 128
"""Files that are kept, one or two for a window; the least recently made ones are removed."""

_TABLES = ("money.owners", "money.prices")
"""Settings that name the site's tables from which findings follow."""


@dataclass(frozen=True)
class WindowFindings:
    """What the rules find in a window, regardless of people's actions.

    Attributes:
        findings: the ranked findings.
        fleet: the demand of every pool.
        sensitivity: held GPU-hours without a kernel, by the shortest segment that counts, in minutes.
        small_work: workloads that may leave room on their GPU, as `small_workloads`.
        short_beside: GPUs with such work only, and the number of short runs beside it, as `short_runs_beside`.
    """

    findings: tuple[Finding, ...]
    fleet: FleetDemand
    sensitivity: Mapping[int, float]
    small_work: pl.DataFrame
    short_beside: Mapping[str, int]


@dataclass(frozen=True)
class LastWeek:
    """The findings of the window one week earlier, and how often those were wrong; None without such a window."""

    findings: tuple[Finding, ...]
    reversals: Reversals | None


_ENDINGS: Mapping[type[Any], str] = {WindowFindings: "", LastWeek: ".before"}

Kept = TypeVar("Kept", bound=WindowFindings | LastWeek)


class KeptFindings:
    """The place of a window's findings in the lake. The fingerprint is of data in memory, as the lake may change."""

    def __init__(self, inputs: Inputs, context: Context) -> None:
        self._inputs, self._context = inputs, context
        # windows that begin at or before the first observation have the same rows, and so the same findings
        since_ms = max(context.window.since_ms or 0, context.whole.first_ms)
        self._name = f"{FOLDER}/{digest(since_ms, context.window.until_ms)}"
        self._known: dict[type[Any], Any] = {}

    def get(self, kind: type[Kept], make: Callable[[Context], Kept]) -> Kept:
        """Return the kept findings, else make them from the window's context and keep them. Raises errors of `make`."""
        if kind not in self._known:
            found = self.read(kind)
            if found is None:
                found = make(replace(self._context))  # a copy: what the rules remember of a context is large
                with suppress(LakeError, TypeError):  # a convenience: the next process makes them again
                    self._keep(found)
            self._known[kind] = found
        return cast(Kept, self._known[kind])

    def read(self, kind: type[Kept]) -> Kept | None:
        """Return the kept findings; None where there are none, or they are damaged or follow from anything else."""
        try:
            data = self._context.lake.store.read_small(self._key(kind), _MOST_BYTES)
            head, content = (data or b"").split(b"\n", 1)
            facts = json.loads(head)
            if facts["content"] != _digest(content) or facts["sources"] != self._sources:
                return None
            return kind(*read(json.loads(gzip.decompress(content))))
        except (LakeError, OSError, EOFError, zlib.error, LookupError, TypeError, ValueError):
            return None

    def _keep(self, found: WindowFindings | LastWeek) -> None:
        """Keep the findings, unless the hourly tables are not kept. Raises LakeError if it cannot write to the lake."""
        sources, store = self._sources, self._context.lake.store
        if sources is None:
            return
        values = written(tuple(vars(found).values()))
        content = gzip.compress(json.dumps(values, separators=(",", ":")).encode(), 3, mtime=0)
        head = json.dumps({"content": _digest(content), "sources": sources})
        store.put(self._key(type(found)), b"%s\n%s" % (head.encode(), content))
        oldest_first = sorted(store.list(FOLDER), key=lambda each: (each.modified_ms, each.key))
        for each in oldest_first[:-_MOST_FILES]:
            store.delete(each.key)

    def _key(self, kind: type[Any]) -> str:
        return f"{self._name}{_ENDINGS[kind]}.json.gz"

    @cached_property
    def _sources(self) -> str | None:
        """Return a fingerprint of all that the findings follow from; None where the lake does not keep all of it."""
        context, settings = self._context, self._inputs.settings
        since_ms = context.window.since_ms or 0
        first_ms = history_start_ms(context.window) or 0
        hourly = _hourly_sources(context, first_ms)
        if hourly is None:
            return None
        whole, inventory = context.whole, context.inventory
        tables = [settings.text(name) and given_bytes(name, settings.text(name), TABLE_BYTES) for name in _TABLES]
        return digest(
            *(_code(), settings.text("money.currency"), [hashlib.sha256(each or b"").hexdigest() for each in tables]),
            *(repr(context.settings), context.since_ms, context.until_ms, context.latest, context.fell_silent),
            *(sorted(context.ahead), repr(sorted(load_records(context.lake, context.until_ms).items()))),
            *(repr(inventory.devices), repr(inventory.hosts_of), rows_digest(inventory.terms)),
            *(hourly, rows_digest(context.rollups.allocations), rows_digest(context.jobs())),
            *(rows_digest(whole.segments), rows_digest(whole.lifetimes)),
            rows_digest(whole.idle_intervals.filter(pl.col("end") > since_ms - WEEK_MS)),
        )


def _hourly_sources(context: Context, first_ms: int) -> dict[str, str] | None:
    """Return by file the sources that the kept hourly tables state; None where one is not kept or cannot be read."""
    if any(context.rollups.loose.values()):
        return None
    last_ms = context.until_ms + DAY_MS
    files = context.rollups.files.get(schema.HOURLY.name, ())
    stated = {
        file.key: facts_of(file).get("hosts", "") for file in files if utc_day(first_ms) <= file.date < utc_day(last_ms)
    }
    return stated if all(stated.values()) else None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@cache
def _code() -> str:
    """Return a digest of the code behind findings: other code may find something else."""
    found = hashlib.sha256(__version__.encode())
    for file in sorted(Path(analytics.__file__).parent.rglob("*.py")):
        found.update(file.read_bytes())
    return found.hexdigest()
