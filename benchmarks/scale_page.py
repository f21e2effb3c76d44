"""The tables of docs/scale.md, from stored figures: ledger, fleet, history, pages, growth, scale and rollups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.growth import PARTS, curve, exponent
from benchmarks.measure import between_marks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "docs" / "scale.md"
ROWS_A_DAY = 8_640
"""Rows of a GPU a day at 10 s."""
LARGE_GPUS, LARGE_DAYS = 100_000, 1095
CORES = (16, 64, 256)
AXES = {"gpus": "GPUs over 7 days at 60 s", "days": "days of 64 GPUs at 15 min"}
"""What the two axes of growth.json count."""
LABELS = {
    "ledger_64_scan_cpu": "64 GPUs x 7 days at 10 s: DuckDB's scan",
    "ledger_64_build_cpu": "- the ledger",
    "ledger_64_over_scan": "- over the scan",
    "ledger_64_build_peak": "- memory",
    "ledger_64_counters_over_scan": "- over the scan, with every counter that agents write",
    "ledger_64_kept_cpu": "- `fallow ledger` from the kept ledger",
    "ledger_64_kept_peak": "- its memory",
    "ledger_1000_scan_cpu": "1,000 GPUs x 7 days at 60 s: DuckDB's scan",
    "ledger_1000_build_cpu": "- the ledger",
    "ledger_1000_over_scan": "- over the scan",
    "ledger_1000_build_peak": "- memory",
    "ledger_1000_more_day_share": "- one more day, over a day's share",
    "fleet_findings_cpu": "- `fallow findings` from the kept ledger",
    "fleet_findings_again_cpu": "- the same again, with kept findings",
    "fleet_findings_peak": "- its memory",
    "fleet_recommendations_cpu": "- `fallow recommendations`",
    "fleet_recommendations_again_cpu": "- the same again, with kept findings",
    "fleet_recommendations_peak": "- its memory",
    "fleet_report_cpu": "- `fallow report`",
    "fleet_report_again_cpu": "- the same again, with kept findings",
    "fleet_report_peak": "- its memory",
    "fleet_dashboard_start_cpu": "- dashboard: its start",
    "fleet_page_overview_cpu": "- first Overview",
    "fleet_page_capacity_cpu": "- first Capacity after it",
    "fleet_page_queue_cpu": "- first Queue after it",
    "fleet_page_new_window_cpu": "- a new window",
    "fleet_dashboard_peak": "- its memory",
    "fleet_90d_findings_peak": "1,000 GPUs x 90 days at 15 min: memory of last week's findings",
    "fleet_90d_report_peak": "- of last week's report",
    "fleet_90d_dashboard_peak": "- of the dashboard",
    "history_ledger_ratio": "64 GPUs, last week, 3 years over 28 days of history: `fallow ledger`",
    "history_findings_ratio": "- `fallow findings`",
    "history_live_findings_ratio": "- the same after a new file",
    "history_recommendations_ratio": "- `fallow recommendations`",
    "history_report_ratio": "- `fallow report`",
    "history_dashboard_ratio": "- start of the dashboard, Overview and Capacity",
}


def write() -> None:
    """Write the tables of docs/scale.md again."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def page(text: str) -> str:
    """Return the page with the tables of the stored figures."""
    now, before = _stored("results.json")["figures"], _stored("before.json")
    tables = {
        "figures": _figures(now, before),
        "growth": _growth(_stored("growth.json").get("now", {})),
        "pages": _pages(_stored("pages.json")),
        "largest": _largest(_stored("largest.json")),
        "arithmetic": _arithmetic(now),
        "rollups": _rollups(now),
    }
    for mark, lines in tables.items():
        head, rule, *rows = lines
        table = "\n".join((head, rule, *rows)) if rows else "Not measured yet."
        text = between_marks(text, mark, f"{table}\n")
    return text


def _stored(name: str) -> Any:
    path = FOLDER / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _figures(now: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[str]:
    yield from _head("measured", f"before ({before['commit']})", "now", "goal")
    for name, label in LABELS.items():
        if found := now.get(name):
            goal = _value({"value": found["goal"], "unit": found["unit"]}) if "goal" in found else ""
            yield _row(label, _value(before["figures"].get(name)), _value(found), goal)


def _growth(stored: Mapping[str, Any]) -> Iterator[str]:
    yield from _head("measured", *PARTS.values(), "memory of the ledger")
    for axis, points in stored.items():
        for value, costs in sorted(points.items(), key=lambda each: int(each[0])):
            figures = [f"{costs[part]:,.1f} s" for part in PARTS]
            yield _row(f"{int(value):,} {AXES[axis]}", *figures, f"{costs['build_peak_mib']:,.0f} MiB")

    yield ""
    yield from _head("from the last but one to the last", *PARTS.values())
    for axis, points in stored.items():
        lines = [curve(points, part) for part in PARTS]
        (low, _), (high, _) = lines[0][-2:]
        grown = (f"{line[-1][1] / line[-2][1]:,.2f} times, exponent {exponent(line):.2f}" for line in lines)
        yield _row(f"{low:,} to {high:,} {AXES[axis]}, {high / low:,.1f} times as many", *grown)


def _pages(stored: Mapping[str, Any]) -> Iterator[str]:
    kinds = {"first": "first answer", "again": "again", "browser": "usable in a browser"}
    yield from _head("page, p50 / p95 in ms", *kinds.values())
    for path, times in stored.get("pages", {}).items():
        yield _row(f"`{path}`", *(" / ".join(f"{each:,.0f}" for each in times.get(kind, ())) for kind in kinds))


def _largest(stored: Mapping[str, Any]) -> Iterator[str]:
    yield from _head("step", "cost")
    if not stored:
        return
    gpus, days, interval_s = (stored[name] for name in ("gpus", "days", "interval_s"))
    yield _row(
        f"{gpus:,} GPUs x {days} days at {interval_s} s",
        f"{stored['rows']:,} rows, {stored['lake_bytes'] / 1e9:,.2f} GB",
    )
    if "simulation_cpu_s" in stored:
        yield _row("simulation", f"{stored['simulation_cpu_s']:,.0f} s CPU")
    yield _row(
        "ledger, on every CPU",
        f"{stored['build_cpu_s']:,.0f} s CPU, {stored['build_wall_s']:,.0f} s, {stored['build_peak_mib']:,.0f} MiB",
    )
    for verb in ("findings", "report"):
        cpu_s, wall_s, peak = (stored[f"{verb}_{each}"] for each in ("cpu_s", "wall_s", "peak_mib"))
        yield _row(f"last week's {verb}", f"{cpu_s:,.1f} s CPU, {wall_s:,.1f} s, {peak:,.0f} MiB")
    pages = ", ".join(f"{stored[f'page_{name}_s']:,.1f} s" for name in ("overview", "capacity", "queue"))
    yield _row(
        "dashboard: start; Overview, Capacity, Queue",
        f"{stored['dashboard_start_s']:,.1f} s; {pages}; {stored['dashboard_peak_mib']:,.0f} MiB",
    )


def _arithmetic(now: Mapping[str, Any]) -> Iterator[str]:
    """Yield what 100,000 GPUs cost at 10 s, by what 64 GPUs cost."""
    per_day = LARGE_GPUS * ROWS_A_DAY
    rows_at_64 = 64 * 7 * ROWS_A_DAY
    cpu_h = now["ledger_64_build_cpu"]["value"] * per_day / rows_at_64 / 3600
    size_gb = now["ledger_64_bytes_per_row"]["value"] * per_day / 1e9
    kept_gb = now["ledger_64_kept_per_gpu_day"]["value"] * LARGE_GPUS / 1e9
    yield from _head("", "rows", "ledger", *(f"on {cores} cores" for cores in CORES), "samples", "derived tables")
    for name, days in (("one day", 1), ("three years", LARGE_DAYS)):
        times = (cpu_h * days / cores for cores in CORES)
        spans = (f"{60 * hours:,.1f} min" if hours < 2 else f"{hours:,.0f} h" for hours in times)
        sizes = (f"{each * days:,.0f} GB" for each in (size_gb, kept_gb))
        yield _row(name, f"{per_day * days / 1e9:,.2f} billion", f"{cpu_h * days:,.2f} CPU h", *spans, *sizes)


def _rollups(now: Mapping[str, Any]) -> Iterator[str]:
    yield from _head(f"{LARGE_GPUS:,} GPUs, {LARGE_DAYS:,} days", "size", "sum by day, CPU", "by the clock")
    for name, label in (("gpu", "a row per GPU and day"), ("pool", "a row per pool, day and state")):
        figures = (now.get(f"rollup_{name}_day_{kind}") for kind in ("size", "cpu", "wall"))
        yield _row(label, *map(_value, figures))


def _value(figure: Mapping[str, Any] | None) -> str:
    if figure is None:
        return ""
    value, unit = figure["value"], figure["unit"]
    digits = 0 if unit in {"MiB", "1"} else 2
    return f"{value:,.{digits}f}" + ("" if unit in {"1", "ratio"} else f" {unit}")


def _head(*titles: str) -> Iterable[str]:
    return (_row(*titles), _row(*("---" for _ in titles)))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
