"""The processes that are on GPUs at the end of a window, with what is known of each over its days."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from analytics.ledger.summary import SILENT_AFTER_MS
from analytics.states import OCCUPIED
from analytics.workloads.finding_parts import on_host_ahead
from analytics.workloads.memo import once

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analytics.workloads.model import Context
    from analytics.workloads.process_holders import Process

_SERVICES = (
    "Xorg", "X", "Xwayland", "gnome-shell", "kwin.*", "plasmashell", "mutter.*", "cinnamon", "sddm.*", "gdm.*", "lightdm", "xfwm4",
    "sway", "weston", "xrdp.*", "nvidia-cuda-mps.*", "nvidia-persiste.*", "nv-hostengine", "dcgm-exporter", "nvidia-smi",
)  # fmt: skip
_KEY = ("host", "gpu", "pid")
_SERVICE = re.compile("|".join(_SERVICES))


def is_service() -> pl.Expr:
    """Whether a row of `process_day` is a display server, an MPS daemon or a monitor: on a GPU, but no work that holds it."""
    kind = pl.col("kind").is_in(("graphics", "mps"))
    named = pl.col("command").str.contains(f"^(?:{'|'.join(_SERVICES)})$")
    return kind.fill_null(value=False) | named.fill_null(value=False)


def serves_only(command: str | None) -> bool:
    """Whether a command name is that of a display server, an MPS daemon or a monitor."""
    return command is not None and _SERVICE.fullmatch(command) is not None


def held_by_work(context: Context, rows: pl.DataFrame) -> pl.DataFrame:
    """The ledger rows without those during which services alone were listed: a desktop or a monitor holds no GPU back."""
    processes = context.rollups.processes()
    serving = processes.filter(is_service()).select("host", "gpu").unique()
    asked = rows.with_row_index("_row")
    doubtful = asked.join(serving, on=("host", "gpu"), how="semi").filter(pl.col("holder_source") == "process")
    if doubtful.is_empty():
        return rows
    work = processes.filter(~is_service()).select("host", "gpu", work_start="time", work_end="end")
    met = doubtful.join(work, on=("host", "gpu")).filter(
        (pl.col("work_start") < pl.col("end")) & (pl.col("work_end") > pl.col("time"))
    )
    alone = doubtful.join(met.select("_row").unique(), on="_row", how="anti")
    return asked.join(alone.select("_row"), on="_row", how="anti").drop("_row")


@once
def last_rows(context: Context) -> pl.DataFrame:
    """The last ledger row of each GPU that was still seen at the end of the window."""
    rows = context.inside.stretches.filter(pl.col("end") > context.until_ms - SILENT_AFTER_MS)
    return rows.sort("gpu", "end").unique("gpu", keep="last", maintain_order=True).filter(~on_host_ahead(context))


def alive(context: Context) -> pl.DataFrame:
    """Newest row of `process_day` of every process in the newest list of a GPU that processes hold at the end of the window.

    Further columns: `first_seen` and `first_parent_pid`, its first day's first list and last known parent; `state`, `holder` and
    `stretch_start`, those of the GPU's last ledger row.
    """
    now = last_rows(context).filter(pl.col("state").is_in(OCCUPIED))
    lists = context.holders.lists
    named = [(each.host, gpu, each.pid) for gpu in now["gpu"] for each in lists.get(gpu, ())]
    listed = pl.DataFrame(named, schema={"host": pl.String, "gpu": pl.String, "pid": pl.Int32}, orient="row")
    days = context.rollups.processes().join(listed, on=_KEY, how="semi").sort("time")
    newest = days.unique(_KEY, keep="last", maintain_order=True)
    first = days.group_by(*_KEY, "started").agg(
        first_seen=pl.col("time").first(), first_parent_pid=pl.col("parent_pid").first()
    )
    return (
        newest.join(first, on=[*_KEY, "started"], nulls_equal=True)
        .join(now.select("gpu", "state", "holder", "holder_source", "stretch_start"), on="gpu")
        .sort(*_KEY)
    )


def processes_of(context: Context, rows: pl.DataFrame, *, bare: bool = False) -> tuple[Process, ...]:
    """The processes of some rows of `alive`; with `bare` only their pids are given, for jobs and pods that have ended."""
    wanted: set[tuple[str, int]] = set(rows.select("gpu", "pid").iter_rows())
    found: Iterable[Process] = (
        each for each in context.holders.of(rows["gpu"].unique().sort().to_list()) if (each.gpu, each.pid) in wanted
    )
    return tuple(replace(each, slurm_job_id=None, pod=None) if bare else each for each in found)
