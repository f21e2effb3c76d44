"""The rows of an export, by table and day, with a fingerprint of what each day is made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from analytics.decode import read_days
from analytics.export.tables import GPU_TERMS, HOURLY, LEDGER, ExportTable
from analytics.frames import digest, empty, typed
from analytics.ledger.build import Ledger, caught_up, load_ledger
from analytics.ledger.cache import files_of
from analytics.ledger.catch_up import KeptLedger
from analytics.ledger.rollups import Rollups
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.unused_files import discarding
from analytics.ledger.workers import Workers
from analytics.money.costs import ALWAYS_MS, NEVER_MS, Costs, terms_of
from analytics.money.owners import Owners
from analytics.money.prices import PriceBook
from analytics.scope import Scope, narrowed
from fallow import schema
from fallow.clock import parse_day_ms
from fallow.errors import LakeError
from fallow.lake import Lake, LakeFile


def current_ledger(
    lake: Lake, settings: LedgerSettings, workers: Workers, progress: Callable[[float], None] = lambda _: None
) -> KeptLedger:
    """Return the ledger that the lake keeps, after every day whose sources have changed is built again.

    Raises LakeError and its kinds, also where the lake cannot be written and its ledger is not current.
    """
    before = KeptLedger.of(lake.require(), settings)
    kept = None
    if before is not None:
        dates = before.dates(parse_day_ms(min([*before.manifest.days, *lake.dates(schema.GPU.name)])), None)
        kept = caught_up(before, before.days(dates), dates, workers, progress)
    if kept is None:
        load_ledger(lake, settings, progress=progress, workers=workers)
        kept = KeptLedger.of(lake, settings)
        if kept is None or (before is not None and kept.manifest == before.manifest):
            raise LakeError(
                f"the lake at {lake.root} does not keep its current ledger",
                "run the command as a user who may write to the lake",
            )
    return kept


@dataclass(frozen=True)
class LedgerSource:
    """The kept ledger, narrowed to a scope, each day by itself: its rows do not depend on what else is exported."""

    kept: KeptLedger
    scope: Scope
    owners: Owners

    @property
    def tables(self) -> tuple[ExportTable, ...]:
        """Return the tables of the scope; hours and GPUs cannot be divided among users."""
        return (LEDGER,) if self.scope.is_personal else (LEDGER, HOURLY, GPU_TERMS)

    def digests(self, table: ExportTable) -> dict[str, str]:
        """Return, by date, the fingerprint of a table's sources; the date is empty for a table without days."""
        if table is LEDGER:
            days: Mapping[str, str] = self.kept.manifest.contents[schema.LEDGER.name]
        elif table is HOURLY:
            prints = self.kept.manifest.prints
            sizes = {date: [file.size_bytes for file in files] for date, files in self._hourly_files.items()}
            days = {date: f"{prints.get(date)} {own}" for date, own in sizes.items()}
        else:
            return {"": digest(self._terms.to_dicts())}
        return {date: digest(each, *self._narrowing) for date, each in days.items()}

    def rows(self, table: ExportTable, date: str) -> pl.DataFrame:
        """Return the rows of a table on a date, times in milliseconds. Raises LakeError if a command replaced them."""
        if table is GPU_TERMS:
            return self._terms
        if table is LEDGER:
            return self._segments(date)
        files = self._hourly_files[date]
        hours = read_days(files, schema.HOURLY, schema.HOURLY.names, discarding(self.kept.lake.delete))
        return (
            hours
            if self.scope.is_all
            else hours.join(self._segments(date).select("gpu").unique(), on="gpu", how="semi")
        )

    def _segments(self, date: str) -> pl.DataFrame:
        lake = self.kept.lake
        rows = self.kept.manifest.rows(lake, schema.LEDGER, [date])
        if rows is None:
            raise LakeError(f"the ledger of {date} was replaced while it was read", "run the command again")
        if self.scope.is_all:
            return rows
        processes = lake.all_files(schema.PROCESS_DAY.name, dates=[date])
        rollups = Rollups({schema.PROCESS_DAY.name: processes}, allocations=self.kept.allocations.rows)
        day = Ledger(rows, empty(schema.IDLE_INTERVAL), rollups, self.kept.inventory)
        return narrowed(day, self.scope, self._unpriced, self.kept.inventory, self.owners).segments

    @cached_property
    def _hourly_files(self) -> dict[str, list[LakeFile]]:
        days = files_of(self.kept.lake, None).items()
        return {date: tables[schema.HOURLY.name] for date, tables in days if schema.HOURLY.name in tables}

    @cached_property
    def _unpriced(self) -> Costs:
        """Return costs without prices: rows are cut where a pool or a model changes, and not where a price does."""
        return Costs(PriceBook("USD"), self.kept.inventory)

    @cached_property
    def _terms(self) -> pl.DataFrame:
        """Return the rows of `gpu_term` in the scope, in order."""
        devices = self.kept.inventory.devices
        rows = [
            {
                **{name: getattr(devices[gpu], name, None) for name in GPU_TERMS.rows.names},
                "since": None if term.since_ms == ALWAYS_MS else term.since_ms,
                "until": None if term.until_ms == NEVER_MS else term.until_ms,
                "model": term.model,
                "pool": term.pool,
            }
            for gpu, terms in sorted(terms_of(self.kept.inventory, PriceBook("USD")).items())
            for term in terms
            if self.scope.has_place(term.pool, term.model)
        ]
        return typed(pl.DataFrame(rows, schema=empty(GPU_TERMS.rows).schema), GPU_TERMS.rows)

    @cached_property
    def _narrowing(self) -> tuple[object, ...]:
        """Return what the rows of a scope depend on beyond the ledger: places of GPUs, and the owners file."""
        if self.scope.is_all:
            return ()
        owners = sorted((*key, repr(owner)) for key, owner in self.owners.by_name.items())
        terms = terms_of(self.kept.inventory, PriceBook("USD"))
        places = [(gpu, each.since_ms, each.model, each.pool) for gpu, own in sorted(terms.items()) for each in own]
        return (self.scope.parts(), places, owners if self.scope.is_personal else ())
