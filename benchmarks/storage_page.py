"""The tables of docs/storage-costs.md from stored figures: `python -m benchmarks.storage_page` writes them again."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.measure import between_marks
from benchmarks.rollout_sizing import GB_MONTH_USD, GET_USD, PRICES, PUT_LIST_USD, sizing

PAGE = Path(__file__).parent.parent / "docs" / "storage-costs.md"
SITES = (64, 1_000, 8_000, 100_000)
"""GPUs of a site, eight on each host."""
GPUS_A_HOST = 8
MONTH_DAYS = 30
YEARS_DAYS = 3 * 365
REFRESHES = 24 * MONTH_DAYS
NAMES_A_LISTING = 1_000

RESOLUTIONS = {
    "samples, 10 s": ("gpu", "process", "host", "agent", "serving"),
    "hours": ("hourly", "host_hourly", "serving_hourly"),
    "ledger and what it is made from": ("ledger", "idle_interval", "ledger_part", "idle_interval_part", "gpu_lifetime"),
}
"""Tables by resolution. The others are inventory, allocations, events and quality: 1 % of a day."""

POLICIES = (
    ("everything for three years", YEARS_DAYS, YEARS_DAYS),
    ("samples 90 days, hours and ledger three years", 90, YEARS_DAYS),
    ("samples 14 days, hours 182 days, ledger three years", 14, 182),
)
"""Words, days of samples, days of hours."""


def page(text: str) -> str:
    """Return the page with the tables of the stored figures."""
    figures = sizing(1, GPUS_A_HOST).figures
    for mark, table in (("resolution", _resolution), ("retention", _retention), ("requests", _requests)):
        text = between_marks(text, mark, table(figures))
    return text


def _day_bytes(figures: dict[str, float], resolution: str) -> float:
    """Return the bytes of a GPU's day."""
    return sum(figures[f"storage_{name}_gpu_day"] for name in RESOLUTIONS[resolution])


def _resolution(figures: dict[str, float]) -> str:
    lines = ["| rows | tables | bytes a GPU and day | bytes a value |", "|---|---|---|---|"]
    for resolution, tables in RESOLUTIONS.items():
        largest = max(tables, key=lambda name: figures[f"storage_{name}_gpu_day"])
        names = ", ".join(f"`{name}`" for name in tables)
        per_value = f"{figures[f'storage_{largest}_per_value']:.2f} (`{largest}`)"
        lines.append(f"| {resolution} | {names} | {_day_bytes(figures, resolution):,.0f} | {per_value} |")
    return "\n".join(lines) + "\n"


def _retention(figures: dict[str, float]) -> str:
    lines = [f"| kept | {' | '.join(f'{gpus:,} GPUs' for gpus in SITES)} |", f"|---|{'---|' * len(SITES)}"]
    samples, hours, ledger = (_day_bytes(figures, resolution) for resolution in RESOLUTIONS)
    for words, sample_days, hour_days in POLICIES:
        kept = samples * sample_days + hours * hour_days + ledger * YEARS_DAYS
        sizes = (f"{_size(gpus * kept)}, ${gpus * kept / 1e9 * GB_MONTH_USD:,.2f} a month" for gpus in SITES)
        lines.append(f"| {words} | {' | '.join(sizes)} |")
    return "\n".join(lines) + "\n"


def _size(size_bytes: float) -> str:
    return f"{size_bytes / 1e12:.1f} TB" if size_bytes >= 1e12 else f"{size_bytes / 1e9:.1f} GB"


def _requests(figures: dict[str, float]) -> str:
    columns = [_site(figures, gpus) for gpus in SITES]
    lines = [f"| a month | {' | '.join(f'{gpus:,} GPUs' for gpus in SITES)} |", f"|---|{'---|' * len(SITES)}"]
    lines += [f"| {name} | {' | '.join(column[name] for column in columns)} |" for name in columns[0]]
    note = (
        f"{PRICES}: ${PUT_LIST_USD * 1000:.3f} for 1,000 PUT or LIST, ${GET_USD * 1000:.4f} for 1,000 GET or HEAD,"
        f" ${GB_MONTH_USD} a GB and month, DELETE free."
    )
    return "\n".join([*lines, "", note]) + "\n"


def _site(figures: dict[str, float], gpus: int) -> dict[str, str]:
    hosts = gpus / GPUS_A_HOST
    agents = {
        name: figures[f"rollout_{name}_requests"] * hosts * MONTH_DAYS for name in ("put", "list", "get", "delete")
    }
    once = {
        name: figures[f"reader_{name}_base"] + hosts * figures[f"reader_{name}_per_host"]
        for name in ("put", "list", "get", "listed")
    }
    once["list"] += once["listed"] / NAMES_A_LISTING
    refreshes = {name: count * REFRESHES for name, count in once.items()}
    return {
        "objects of days that are over": f"{figures['rollout_objects_left'] * hosts * MONTH_DAYS:,.0f}",
        "objects of today at most": f"{figures['rollout_objects_most'] * hosts:,.0f}",
        "agents: PUT": _millions(agents["put"]),
        "agents: LIST": _millions(agents["list"]),
        "agents: GET and HEAD": _millions(agents["get"]),
        "agents: DELETE": _millions(agents["delete"]),
        "agents: money": _money(agents),
        "hourly refresh: PUT": _millions(refreshes["put"]),
        "hourly refresh: LIST": _millions(refreshes["list"]),
        "hourly refresh: GET and HEAD": _millions(refreshes["get"]),
        "hourly refresh: money": _money(refreshes),
    }


def _millions(count: float) -> str:
    return f"{count / 1e6:,.2f} million"


def _money(requests: dict[str, float]) -> str:
    return f"${(requests['put'] + requests['list']) * PUT_LIST_USD + requests['get'] * GET_USD:,.2f}"


def main() -> int:
    """Write the tables again."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
