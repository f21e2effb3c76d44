"""What every kept day of the ledger was made from and what is in it, so that a command compares the days that it reads alone."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from analytics.frames import arrow
from analytics.ledger.cache import digest_of, facts_of
from analytics.ledger.day import PARTS
from fallow import parquet, schema
from fallow.clock import utc_day
from fallow.errors import LakeError
from fallow.lake import ALL_HOSTS, Lake, LakeFile


@dataclass(frozen=True)
class Manifest:
    """What every day of the ledger was made from: it stands in the newest file of `gpu_lifetime`, which is written last.

    `method` says by what, `days` of each date a digest of its hosts' fingerprints and the sizes of the files made of it, and
    `contents` by table (`ledger`, `spell`) and date a digest of the rows. A command that reads some days compares those alone.
    """

    method: str
    days: Mapping[str, tuple[str, Mapping[str, int]]]
    contents: Mapping[str, Mapping[str, str]]

    @classmethod
    def read(cls, lifetimes: Sequence[LakeFile]) -> Manifest | None:
        """The manifest of the lake; None where there is none that can be read."""
        try:
            facts = parquet.metadata(lifetimes[-1])
            days = json.loads(facts["days"])
            contents = json.loads(facts["contents"])
            return cls(
                facts["method"],
                {date: (of, sizes) for date, (of, sizes) in days.items()},
                {table.name: dict(contents[table.name]) for table in (schema.LEDGER, schema.SPELL)},
            )
        except (LakeError, LookupError, ValueError, AttributeError, TypeError):
            return None

    @property
    def prints(self) -> dict[str, str]:
        """By date the digest of its hosts' fingerprints."""
        return {date: of for date, (of, _) in self.days.items()}

    def facts(self) -> dict[str, str]:
        """As the metadata of a file."""
        parts = {"days": self.days, "contents": self.contents}
        return {"method": self.method} | {name: json.dumps(part, sort_keys=True) for name, part in parts.items()}


DERIVED = (*PARTS, schema.LEDGER, schema.SPELL)
"""The tables of which a day has one file."""


def files_of(lake: Lake, dates: Collection[str] | None) -> dict[str, dict[str, LakeFile]]:
    """The files over all hosts of DERIVED, by date and table."""
    found: dict[str, dict[str, LakeFile]] = {}
    for table in DERIVED:
        for file in lake.all_files(table.name, dates=dates):
            if file.host == ALL_HOSTS:
                found.setdefault(file.date, {})[table.name] = file
    return found


def sizes_of(files: Mapping[str, LakeFile]) -> dict[str, int]:
    """The sizes of one day's files."""
    return {name: file.size_bytes for name, file in sorted(files.items())}


def keep_lifetimes(lake: Lake, rows: pl.DataFrame, manifest: Manifest, first: str = "") -> None:
    """Writes the days of `gpu_lifetime` that have changed, the newest with the manifest; LakeError where it cannot be written.

    `rows` are those of all days from the date `first` on; what was kept before it stays.
    """
    table = schema.GPU_LIFETIME
    before = {file.date: file for file in lake.all_files(table.name) if file.date >= first}
    days = {utc_day(int(day)): own for (day,), own in rows.partition_by("time", as_dict=True).items()}
    for date, file in before.items():
        if date not in days:
            lake.delete(file)
    for date, own in sorted(days.items()):
        facts = {"content": digest_of(own)} | (manifest.facts() if date == max(days) else {})
        if date not in before or not facts.items() <= facts_of(before[date]).items():
            lake.put(LakeFile(table.name, date, ALL_HOSTS, 0, 0), parquet.encode(table, arrow(own, table), facts))
