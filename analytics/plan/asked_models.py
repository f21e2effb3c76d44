"""Which GPU models satisfy the name that a job asked for."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from analytics.money.cards import is_called


@dataclass(frozen=True)
class AskedModels:
    """What names of GPU models mean; `got` are pairs of a name that jobs asked for and a model on which such jobs ran."""

    got: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, jobs: pl.DataFrame) -> AskedModels:
        """From jobs with `gpu_model` and the `model` that they ran on: names that only the site knows are learnt so."""
        return cls(frozenset(jobs.select("gpu_model", "model").drop_nulls().unique().iter_rows()))

    def fits(self, asked: str | None, model: str) -> bool:
        """Whether a model is what was asked for; null: any."""
        return asked is None or (asked, model) in self.got or is_called(asked, model)
