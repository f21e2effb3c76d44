"""`python -m benchmarks.fleet_steps STEP LAKE`: one step over a lake in a process of its own, with what it cost as JSON.

A fresh process for each step, so that memory is that step's and nothing is warm but the files.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.measure import cpu_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from analytics.window import Inputs
    from fallow.schema import LakeTable

    Step = Callable[[str], dict[str, int]]

READING_THREADS = 2


@dataclass(frozen=True)
class Cost:
    """What a step cost: seconds of the step itself, and `process_*_s` with the start of Python and all imports.

    `peak_bytes` is what it may have had in memory at most: its own peak and its largest child's times their number.
    """

    cpu_s: float
    wall_s: float
    process_wall_s: float
    process_cpu_s: float
    peak_bytes: int
    said: dict[str, int]


def cost_of(step: str, lake: str) -> Cost:
    """Runs a step in a process of its own."""
    before = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.fleet_steps", step, lake], check=True, stdout=subprocess.PIPE, text=True
    )
    process_wall_s = time.perf_counter() - before
    return Cost(**json.loads(done.stdout), process_wall_s=process_wall_s)


def build() -> Step:
    """Ledger, hourly tables and all findings, from whatever the lake has."""
    from analytics.decide.review import review  # the other step must not pay for it
    from analytics.window import load_window_ledger, open_inputs

    def run(lake: str) -> dict[str, int]:
        inputs = open_inputs(argparse.Namespace(lake=lake, since=None, until=None, config=None))
        ledger = load_window_ledger(inputs)
        return {"findings": len(review(inputs, ledger).shown), "stretches": len(ledger.whole.stretches)}

    return run


def report() -> Step:
    """The weekly report of the whole window as HTML."""
    from analytics.language.language import Language
    from analytics.render.html.page import page
    from analytics.report.model import Asked
    from analytics.report.report import build_report
    from analytics.report.weeks import week_of
    from analytics.window import load_window_ledger, open_inputs  # the other steps must not pay for it

    def run(lake: str) -> dict[str, int]:
        inputs = open_inputs(argparse.Namespace(lake=lake, since=None, until=None, config=None))
        ledger = load_window_ledger(inputs)
        middle_ms = (ledger.summary.since_ms + ledger.summary.until_ms) // 2
        language = Language()
        found = build_report(inputs, ledger, Asked(week_of(middle_ms, language.zone)))
        return {"bytes": len(page(found, language).encode())}

    return run


def week_findings() -> Step:
    """All findings of the lake's last week, as `fallow findings --since` finds them."""
    from analytics.decide.review import review  # the other steps must not pay for it
    from analytics.window import load_window_ledger

    def run(lake: str) -> dict[str, int]:
        inputs = _last_week(lake)
        return {"findings": len(review(inputs, load_window_ledger(inputs)).findings)}

    return run


def week_report() -> Step:
    """The HTML report of the lake's last week."""
    from analytics.language.language import Language
    from analytics.render.html.page import page
    from analytics.report.report import build_report
    from analytics.window import REPORT_HISTORY_MS, load_window_ledger  # the other steps must not pay for it

    def run(lake: str) -> dict[str, int]:
        inputs = _last_week(lake)
        report = build_report(inputs, load_window_ledger(inputs, history_ms=REPORT_HISTORY_MS))
        return {"bytes": len(page(report, Language()).encode())}

    return run


def _last_week(lake: str) -> Inputs:
    from analytics.window import open_inputs
    from fallow.clock import DAY_MS, parse_day_ms, utc_day
    from fallow.lake import Lake

    newest = max(file.date for file in Lake.at(lake).files("gpu"))
    since = utc_day(parse_day_ms(newest) - 6 * DAY_MS)
    return open_inputs(argparse.Namespace(lake=lake, since=since, until=None, config=None))


def read() -> Step:
    """DuckDB scans the columns that the ledger needs, once, on two threads."""
    import duckdb  # the other step must not pay for it

    from analytics.ledger import day_processes as day_lists
    from analytics.ledger import day_rows
    from fallow import schema
    from fallow.lake import Lake

    def sum_of(table: LakeTable, name: str) -> str:
        """An aggregate that has to look at every value."""
        kind = table.column(name).type
        if kind is schema.Type.TIMESTAMP:
            return f"sum(epoch_ms({name}))"
        return f'count("{name}")' if kind is schema.Type.STRING else f'sum("{name}")'

    def run(lake: str) -> dict[str, int]:
        rows = {}
        with duckdb.connect(config={"threads": READING_THREADS}) as connection:
            for table, names in ((schema.GPU, day_rows.COLUMNS), (schema.PROCESS, day_lists.COLUMNS)):
                files = [file.url for file in Lake.at(lake).files(table.name)]
                sums = ", ".join(sum_of(table, name) for name in names)
                query = f"SELECT count(*), {sums} FROM read_parquet(?)"  # noqa: S608  # the schema's own names
                rows[table.name] = connection.sql(query, params=[files]).fetchall()[0][0]
        return rows

    return run


STEPS: dict[str, Callable[[], Step]] = {
    "build": build, "report": report, "read": read, "week_findings": week_findings, "week_report": week_report,
}  # fmt: skip
"""Each imports what it needs, which is not measured, and returns what is."""


def main(arguments: list[str]) -> int:
    """Prints what the step cost."""
    step, lake = arguments
    run = STEPS[step]()
    before_cpu, before_wall = cpu_s(), time.perf_counter()
    said = run(lake)
    spent = {"cpu_s": cpu_s() - before_cpu, "wall_s": time.perf_counter() - before_wall, "process_cpu_s": cpu_s()}
    print(json.dumps(spent | {"peak_bytes": _peak_bytes(), "said": said}))
    return 0


def _peak_bytes() -> int:
    """An upper bound: children share pages with one another, and need not peak at the same time."""
    own, largest_child = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return 1024 * (own + largest_child * len(os.sched_getaffinity(0)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
