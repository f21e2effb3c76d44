"""The tables of an export, as data: their columns with the meanings and units of the lake's schema."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from fallow import parquet, schema
from fallow.parquet_writer import LIST_ITEM
from fallow.schema import LakeColumn, LakeTable, Type

DATE = "date"
"""The column by which tables are partitioned: the UTC day of `time`."""

SOURCE_DIGEST = "source_digest"
"""The fingerprint of what the rows of a day were made from."""


@dataclass(frozen=True)
class ExportTable:
    """One table: its rows, and with `by_day` a partition for each UTC day."""

    rows: LakeTable
    by_day: bool = True

    @property
    def name(self) -> str:
        """Return the name, which is that of its folder."""
        return self.rows.name

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return the schema with comments. Times have microseconds, which is all that Delta Lake has."""
        fields = [
            pa.field(DATE, pa.date32(), metadata={"comment": "UTC day of `time`"}),
            pa.field(
                SOURCE_DIGEST, pa.string(), metadata={"comment": "fingerprint of what the day's rows are made from"}
            ),
        ]
        kinds = parquet.arrow_schema(self.rows)
        for column in self.rows.columns:
            kind = kinds.field(column.name).type
            if pa.types.is_timestamp(kind):
                kind = pa.timestamp("us", "UTC")
            elif pa.types.is_list(kind):
                kind = pa.list_(pa.field(LIST_ITEM, kind.value_type))
            fields.append(pa.field(column.name, kind, metadata={"comment": _comment(column)}))
        return pa.schema(fields[(0 if self.by_day else 1) :])


def _comment(column: LakeColumn) -> str:
    """Return the meaning of a column, with the unit if its name does not state one."""
    stated = column.name.endswith(f"_{column.unit.lower()}") or column.unit in ("", "1", "UTC")
    return column.meaning if stated else f"{column.meaning} ({column.unit})"


_INVENTORY = "device table"

GPU_TERM = LakeTable(
    "gpu_term",
    "one GPU or MIG instance for the time in which its model and pool stayed the same",
    derived=True,
    columns=(
        LakeColumn("gpu", Type.STRING, "UUID of the GPU or MIG instance", _INVENTORY, key=True),
        LakeColumn("host", Type.STRING, "host of its newest entry", _INVENTORY),
        LakeColumn(
            "since", Type.TIMESTAMP, "start of the term; null for the first one, which has no start", _INVENTORY
        ),
        LakeColumn(
            "until", Type.TIMESTAMP, "end of the term, exclusive; null for the last one, which goes on", _INVENTORY
        ),
        LakeColumn("model", Type.STRING, "model of the card", _INVENTORY),
        LakeColumn("pool", Type.STRING, "pool; null where the inventory states none", _INVENTORY),
        LakeColumn("parent_gpu", Type.STRING, "UUID of the GPU that a MIG instance is a part of", _INVENTORY),
        LakeColumn("mig_gpu_slices", Type.INT16, "compute slices of a MIG instance", _INVENTORY, unit="1"),
        LakeColumn("mem_total_bytes", Type.INT64, "memory of the GPU or instance", _INVENTORY),
        LakeColumn("power_limit_w", Type.DOUBLE, "power limit", _INVENTORY),
        LakeColumn("driver_version", Type.STRING, "driver of its newest entry", _INVENTORY),
        LakeColumn(
            "source", Type.STRING, "where the entry is from; `simulated` for a GPU that does not exist", _INVENTORY
        ),
    ),
)  # fmt: skip

LEDGER = ExportTable(schema.LEDGER)
HOURLY = ExportTable(schema.HOURLY)
GPU_TERMS = ExportTable(GPU_TERM, by_day=False)
