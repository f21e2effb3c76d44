"""What can be taken away as a file: each table with all its rows and columns, as far as its reader may see them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import polars as pl

from analytics.render import findings_table
from analytics.render.money_json import account_row
from analytics.report import gpu_table as by_gpu
from fallow.clock import from_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from analytics.workloads.model import Finding
    from dashboard.view import View

MOMENT = pl.Datetime("ms", "UTC")
_KINDS: Mapping[type, pl.DataType] = {
    str: pl.String(),
    float: pl.Float64(),
    int: pl.Int64(),
    bool: pl.Boolean(),
    datetime: MOMENT,
}

_FINDINGS: Mapping[str, type] = {
    **dict.fromkeys(findings_table.COLUMNS, str),
    "since": datetime,
    "gpu_hours": float,
    "energy_kwh": float,
    "cost": float,
    "reclaimable": bool,
    "simulated": bool,
}
_COUNTS = ("gpus", "rank_gpu_hours", "rank_efficiency")
_WORDS = ("name", "label", "currency")


def findings(view: View) -> pl.DataFrame:
    """Every finding of the view, suppressed ones with their status: the columns of `fallow findings --all --csv`."""
    return _frame(map(_finding, view.report.review.findings), _FINDINGS)


def _finding(finding: Finding) -> dict[str, Any]:
    return findings_table.row_of(finding) | {"since": from_ms(finding.since_ms)}


def holders(view: View) -> pl.DataFrame:
    """What each holder was given, what became of it and what it cost: the columns of `fallow ledger --by holder --csv`."""
    money = view.report.money
    rows = [account_row(row, money) for row in money.accounts.by("holder")]
    names = account_row(money.accounts.total, money)
    return _frame(rows, {name: int if name in _COUNTS else str if name in _WORDS else float for name in names})


def gpus(view: View) -> pl.DataFrame:
    """The ledger by GPU: hours by state and the observed share of them."""
    return _frame(by_gpu.rows_by_gpu(view.part.inside.stretches, view.whole.inventory), by_gpu.COLUMNS)


def _frame(rows: Iterable[Mapping[str, Any]], kinds: Mapping[str, type]) -> pl.DataFrame:
    """The rows with a type for each column, whether or not there is a row; None is null."""
    found = list(rows)
    return pl.DataFrame(
        {
            name: pl.Series(name, [_value(row[name], kind) for row in found], dtype=_KINDS[kind])
            for name, kind in kinds.items()
        }
    )


def _value(value: Any, kind: type) -> Any:
    """Texts without what they know of languages, numbers as the column has them."""
    return value if value is None or kind is datetime else kind(value)
