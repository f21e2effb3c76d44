"""The report's content: every number that a format may show, made once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from analytics.devices import Inventory, load_inventory
from analytics.findings.find import Review, review
from analytics.ledger.summary import Summary, Totals, totals_by
from analytics.ledger.text import simulated_text
from analytics.money.window import Money, open_money
from analytics.quality.look import data_quality
from fallow import __version__
from fallow.clock import DAY_MS

if TYPE_CHECKING:
    from analytics.findings.model import Finding
    from analytics.inputs import Inputs, WindowLedger
    from analytics.ledger.settings import LedgerSettings
    from analytics.quality.model import Remark


@dataclass(frozen=True)
class Section:
    """Totals of groups of GPUs or of days: what they are grouped by, and the groups."""

    name: str
    groups: dict[str, Totals]


@dataclass(frozen=True)
class Report:
    """One window of one lake."""

    lake: str
    version: str
    simulated_gpus: int
    hosts: int
    settings: LedgerSettings
    held_min_ms: int
    summary: Summary
    money: Money
    sections: tuple[Section, ...]
    review: Review
    quality: tuple[Remark, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings that nobody has suppressed."""
        return self.review.shown

    @property
    def simulated(self) -> str:
        """What to say of simulated GPUs; empty where there are none."""
        return simulated_text(self.simulated_gpus, self.summary.totals.gpus)


def build_report(inputs: Inputs, ledger: WindowLedger) -> Report:
    """The report of the window; raises LakeError and its kinds."""
    inventory = load_inventory(inputs.lake)
    spans = ledger.inside.stretches
    gpus = spans.select("gpu", "host").unique().sort("gpu")
    return Report(
        lake=inputs.lake.root,
        version=__version__,
        simulated_gpus=inventory.count_simulated(gpus["gpu"].unique()),
        hosts=gpus["host"].n_unique(),
        settings=inputs.ledger_settings,
        held_min_ms=inputs.settings.integer("findings.held_min"),
        summary=ledger.summary,
        money=open_money(inputs, ledger.inside, inventory),
        sections=_sections(spans, inventory),
        review=review(inputs, ledger, inventory),
        quality=data_quality(inputs, ledger, inventory),
    )


def _sections(spans: pl.DataFrame, inventory: Inventory) -> tuple[Section, ...]:
    names = (
        spans.select("gpu")
        .unique()
        .with_columns(
            pool=pl.col("gpu").map_elements(inventory.pool, pl.String),
            model=pl.col("gpu").map_elements(inventory.model, pl.String),
        )
    )
    named = spans.join(names, on="gpu")
    return (
        Section("pool", totals_by(named, "pool")),
        Section("model", totals_by(named, "model")),
        Section("day", totals_by(named, f'epoch_ms("time" // {DAY_MS} * {DAY_MS})::DATE')),
        Section("holder", totals_by(named.filter(pl.col("holder").is_not_null()), "holder")),
    )
