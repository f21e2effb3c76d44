"""What workloads need of their cards, and which card would do."""

from __future__ import annotations

import polars as pl

from analytics.language.sentences import tr
from analytics.tables.card_fit import card_fit, workload_sizes
from analytics.tables.moves import moves
from analytics.tables.packings import packed_cards, packing_list
from analytics.tables.plan_old_cards import old_cards_on_page, tokens_on_page
from dashboard.exports import EXPORTS
from dashboard.pages.page import ALL_FINDINGS, Page, PlacedSection, of_report
from dashboard.view import View
from fallow.clock import HOUR_MS


class RightSize(Page):
    path = "/right-size"
    name: str = tr("Right-size")
    export = "works"
    sections = (
        of_report(packing_list),
        of_report(packed_cards, first=20),
        PlacedSection(card_fit),
        of_report(moves, onward=ALL_FINDINGS),
        PlacedSection(old_cards_on_page),
        PlacedSection(tokens_on_page),
    )


def workloads_table(view: View) -> pl.DataFrame:
    """Every workload of the view: holder, account, job, model, host, GPUs, hours, peak, card, activity, coverage, kind, and what would do instead."""
    return workload_sizes(view).select(
        "holder", "account", "job", "model", "host", pl.col("gpus").list.join(" "), (pl.col("gpu_ms") / HOUR_MS).alias("gpu_hours"),
        "peak_bytes", "card_bytes", util_p95_pct="util_pct", sm_p95_pct="sm_pct", coverage="coverage", kind="kind", instead=pl.when(pl.col("instead") != "").then("instead"),
    )  # fmt: skip


EXPORTS["works"] = workloads_table
