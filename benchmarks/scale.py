"""Figures that must hold as fleets and history grow: ledger beside scan, verbs and pages of the kept ledger, history.

`python -m benchmarks ledger fleet history` measures them beside those of `before.json`, which `--before PYTHON` stores:
the same measurements with the fallow of another checkout. CPU seconds hardly depend on other work on the machine; wall
seconds do. Every command runs in one process.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.fleet_lake import (
    MIB,
    as_agents_write,
    cold_cost,
    fleet_of,
    forget_derived,
    forget_findings,
    simulated,
    without_last_day,
)
from benchmarks.fleet_steps import Cost, command_cost, step_cost
from benchmarks.measure import Figure
from benchmarks.served_pages import served
from fallow import schema
from fallow.clock import DAY_MS, format_ms
from fallow.lake import Lake
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analytics.simulation import SimulatedFleet
    from benchmarks.served_pages import Server

ROUNDS = 3
VERBS = {"ledger": None, "findings": 2.0, "recommendations": None, "report": 3.0}
"""Commands that read the kept ledger, with the wall seconds that each may take at 1,000 GPUs."""
HISTORY_DAYS = (28, 1095)


def ledger(python: str = sys.executable) -> Iterator[Figure]:
    """Yield what the ledger of 64 GPUs costs beside a scan of its columns, and what it costs to read the kept one."""
    fleet = fleet_of(64, 7)
    with simulated(fleet) as lake:
        yield from _ledger(python, lake, fleet, rounds=ROUNDS)
        kept = [command_cost(python, lake.root, "ledger") for _ in range(ROUNDS)]
        how = "`fallow ledger` from the kept ledger, with the start of Python, 64 GPUs x 7 days at 10 s"
        yield Figure("ledger_64_kept_cpu", median(each.cpu_s for each in kept), "s", how)
        yield Figure("ledger_64_kept_peak", _peak_mib(kept), "MiB", how)
    with as_agents_write(fleet) as lake:
        yield from _ledger(python, lake, fleet, rounds=1, counters=True)


def fleet(python: str = sys.executable) -> Iterator[Figure]:
    """Yield what 1,000 GPUs cost: ledger, one more day, every verb from the kept ledger, and pages."""
    of = fleet_of(1000, 7, 60)
    with simulated(of) as lake:
        yield from _ledger(python, lake, of, rounds=1)
        yield from _one_more_day(python, lake, of)
        for verb, goal_s in VERBS.items():
            yield from _verb(python, lake, of, verb, goal_s)
        yield from _pages(python, lake, of)


def quarter(python: str = sys.executable) -> Iterator[Figure]:
    """Yield the memory that 1,000 GPUs need with 90 days in the lake."""
    of = fleet_of(1000, 90, 900)
    with simulated(of) as lake:
        step_cost(python, "ledger", lake.root)
        for verb in ("findings", "report"):
            yield from _verb(python, lake, of, verb, None, "--since", "7d", name="_90d")
        forget_findings(lake.root)
        with served(lake.root, python=python) as server:
            for path in ("/", "/capacity", "/queue"):
                server.ask(path, "?span=7d")
            peak_mib = server.largest_ever_bytes() / MIB
        yield Figure(
            "fleet_90d_dashboard_peak", peak_mib, "MiB", f"three pages of the last week, {_text(of)}", goal=1024
        )


def history(python: str = sys.executable) -> Iterator[Figure]:
    """Yield what the last week costs with four weeks and with three years in the lake."""
    of = fleet_of(64, max(HISTORY_DAYS), 900)
    spent: dict[tuple[str, int], float] = {}
    for days in HISTORY_DAYS:
        with simulated(of, last_days=days) as lake:
            how = f"{days} days in the lake, {_text(of)}"
            yield Figure(f"history_{days}d_build_cpu", step_cost(python, "ledger", lake.root).cpu_s, "s", how)
            for verb in VERBS:
                costs = [cold_cost(python, lake.root, verb, "--since", "7d") for _ in range(ROUNDS)]
                spent[verb, days] = median(each.cpu_s for each in costs)
            costs = [_after_a_new_file(python, lake) for _ in range(ROUNDS)]
            spent["live_findings", days] = median(each.cpu_s for each in costs)
            forget_findings(lake.root)
            with served(lake.root, python=python) as server:
                for path in ("/", "/capacity"):
                    server.ask(path, "?span=7d")
                spent["dashboard", days] = server.cpu_s()  # its start included, which makes pages ahead
    for name in dict.fromkeys(name for name, _ in spent):
        for days in HISTORY_DAYS:
            how = f"CPU, last week, {days} days in the lake, {_text(of)}"
            yield Figure(f"history_{days}d_{name}_cpu", spent[name, days], "s", how)
        ratio = spent[name, HISTORY_DAYS[1]] / spent[name, HISTORY_DAYS[0]]
        yield Figure(f"history_{name}_ratio", ratio, "ratio", "three years over four weeks, CPU", goal=1.2)


def _ledger(python: str, lake: Lake, of: SimulatedFleet, *, rounds: int, counters: bool = False) -> Iterator[Figure]:
    """Yield the cost of the ledger from samples, of DuckDB's scan in turn with it, and their ratio."""
    scans, builds = [], []
    for _ in range(rounds):
        forget_derived(Path(lake.root))
        scans.append(step_cost(python, "scan", lake.root))
        builds.append(step_cost(python, "ledger", lake.root))
    rows, stored = scans[0].said, Lake.at(lake.root).store.list("")
    derived = {table.name for table in schema.TABLES if table.derived}
    sizes = {True: 0, False: 0}
    for each in stored:
        sizes[each.key.split("/")[0] in derived] += each.size_bytes
    what = "with all counters that agents write, " if counters else ""
    how = f"{what}{rows['gpu']:,} gpu and {rows['process']:,} process rows, {_text(of)}, median of {rounds}"
    scan_s, build_s = (median(each.cpu_s for each in costs) for costs in (scans, builds))
    name = f"ledger_{of.gpus}" + ("_counters" if counters else "")
    yield Figure(f"{name}_scan_cpu", scan_s, "s", f"DuckDB reads the same columns once, one thread, {how}")
    yield Figure(f"{name}_build_cpu", build_s, "s", f"ledger and hourly tables from the samples, one process, {how}")
    yield Figure(f"{name}_over_scan", build_s / scan_s, "ratio", f"CPU over CPU, {how}", goal=3)
    yield Figure(
        f"{name}_bytes_per_row", sizes[False] / rows["gpu"], "bytes", f"all observed tables over gpu rows, {how}"
    )
    yield Figure(f"{name}_kept_per_gpu_day", sizes[True] / of.gpus / of.days, "bytes", f"all derived tables, {how}")
    yield Figure(f"{name}_build_peak", _peak_mib(builds), "MiB", f"resident, {how}", goal=1024)


def _one_more_day(python: str, lake: Lake, of: SimulatedFleet) -> Iterator[Figure]:
    """Yield what the newest day costs over the kept ledger of the others, as a share of the whole."""
    root = Path(lake.root)
    forget_derived(root)
    with without_last_day(root):
        step_cost(python, "ledger", lake.root)
    more = step_cost(python, "ledger", lake.root)
    kept = step_cost(python, "ledger", lake.root)
    forget_derived(root)
    whole = step_cost(python, "ledger", lake.root)
    share = (more.cpu_s - kept.cpu_s) / ((whole.cpu_s - kept.cpu_s) / of.days)
    how = f"a day later over the kept ledger, {_text(of)}"
    yield Figure(f"ledger_{of.gpus}_more_day_cpu", more.cpu_s, "s", how)
    yield Figure(f"ledger_{of.gpus}_more_day_share", share, "ratio", f"over a day's share, {how}", goal=1.1)


def _verb(
    python: str, lake: Lake, of: SimulatedFleet, verb: str, goal_s: float | None, *flags: str, name: str = ""
) -> Iterator[Figure]:
    """Yield CPU, wall and memory of a command over the kept ledger."""
    costs = [cold_cost(python, lake.root, verb, *flags) for _ in range(ROUNDS)]
    again = [command_cost(python, lake.root, verb, *flags) for _ in range(ROUNDS)]
    command = " ".join(("fallow", verb, *flags))
    how = f"`{command}` from the kept ledger, with the start of Python, {_text(of)}, median of {ROUNDS}"
    name = f"fleet{name}_{verb}"
    yield Figure(f"{name}_cpu", median(each.cpu_s for each in costs), "s", how, goal=goal_s)
    yield Figure(f"{name}_wall", median(each.wall_s for each in costs), "s", how, goal=goal_s)
    yield Figure(f"{name}_peak", _peak_mib(costs), "MiB", f"resident, {how}", goal=1024)
    again_s = median(each.cpu_s for each in again)
    yield Figure(f"{name}_again_cpu", again_s, "s", f"with findings that the first run kept, {how}", goal=goal_s)


def _pages(python: str, lake: Lake, of: SimulatedFleet) -> Iterator[Figure]:
    """Yield what the dashboard costs: its start, the first answers of three pages, and of a new window."""
    until_ms = of.until_ms - 2 * DAY_MS
    window = f"?since={format_ms(until_ms - 2 * DAY_MS)}&until={format_ms(until_ms)}"
    asked = {
        "overview": ("/", "?span=7d", 1.0),
        "capacity": ("/capacity", "?span=7d", 1.0),
        "queue": ("/queue", "?span=7d", 1.0),
        "new_window": ("/", window, 2.0),
    }
    forget_findings(lake.root)
    with served(lake.root, python=python) as server:
        how = f"from the kept ledger, {_text(of)}"
        yield Figure("fleet_dashboard_start_cpu", server.cpu_s(), "s", f"until the address is printed, {how}")
        yield Figure("fleet_dashboard_start_wall", server.start_s, "s", f"the same by the clock, {how}")
        for name, (path, search, goal_s) in asked.items():
            spent_cpu_s, spent_s = _answer(server, path, search)
            yield Figure(f"fleet_page_{name}_cpu", spent_cpu_s, "s", f"first answer of {path}, {how}", goal=goal_s)
            yield Figure(f"fleet_page_{name}_wall", spent_s, "s", f"the same by the clock, {how}", goal=goal_s)
        yield Figure(
            "fleet_dashboard_peak", server.largest_ever_bytes() / MIB, "MiB", f"its largest process, {how}", goal=1024
        )


def _answer(server: Server, path: str, search: str) -> tuple[float, float]:
    """Return the server's CPU seconds and the wall seconds of an answer."""
    before_s = server.cpu_s()
    spent_s = server.ask(path, search).spent_s
    return server.cpu_s() - before_s, spent_s


def _after_a_new_file(python: str, lake: Lake) -> Cost:
    """Return the cost of the last week's findings after a file of the newest day is rewritten, as on a live lake."""
    file = lake.files("gpu")[-1]
    made_lake(lake.root).put(file, Path(file.url).read_bytes())
    return command_cost(python, lake.root, "findings", "--since", "7d")


def _peak_mib(costs: list[Cost]) -> float:
    return max(each.peak_bytes for each in costs) / MIB


def _text(of: SimulatedFleet) -> str:
    return f"{of.gpus:,} GPUs x {of.days} days at {of.interval_ms // 1000} s"
