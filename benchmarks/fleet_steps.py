"""Steps over a lake, each in a separate process: a command of fallow, the ledger's build, DuckDB's scan of its columns.

`python benchmarks/fleet_steps.py {ledger,scan} LAKE [COMMAND...]` is how the steps run. It imports nothing of
benchmarks/, so that the Python of another checkout runs it with its own fallow.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Cost:
    """The cost of a process with its children: CPU and wall seconds, and the resident memory of the largest of them."""

    cpu_s: float
    wall_s: float
    peak_bytes: int
    said: dict[str, Any] = field(default_factory=dict)


def command_cost(python: str, lake: str, *command: str, workers: int = 1) -> Cost:
    """Return the cost of `fallow COMMAND --lake LAKE`, the start of Python included; 0 workers are one per CPU.

    Raises RuntimeError with its message where it fails.
    """
    return _process([python, "-P", "-m", "fallow", *command, "--lake", lake], workers)


def step_cost(python: str, step: str, lake: str, *command: str) -> Cost:
    """Return the cost of a step without the start of Python; the peak is that of the whole process."""
    whole = _process([python, str(Path(__file__).resolve()), step, lake, *command])
    return Cost(whole.said["cpu_s"], whole.said["wall_s"], whole.peak_bytes, whole.said)


def _process(arguments: list[str], workers: int = 1) -> Cost:
    before = time.perf_counter()
    environment = {**os.environ, "FALLOW_LEDGER_WORKERS": str(workers or "auto")}
    with tempfile.TemporaryFile() as out:
        with subprocess.Popen(arguments, stdout=out, stderr=subprocess.STDOUT, env=environment) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        wall_s = time.perf_counter() - before
        out.seek(0)
        text = out.read().decode()
    if process.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {text[-2000:]}")
    last = text.rstrip().rsplit("\n", 1)[-1]
    said = json.loads(last) if arguments[1:2] == [str(Path(__file__).resolve())] else {}
    return Cost(usage.ru_utime + usage.ru_stime, wall_s, 1024 * usage.ru_maxrss, said)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _ledger(lake: str) -> dict[str, int]:
    """Make the ledger and its hourly tables from the samples in this process, or read the kept ones."""
    from analytics.ledger.build import load_ledger  # imported here, so that other steps do not include it
    from analytics.ledger.settings import LedgerSettings
    from fallow.lake import Lake

    ledger = load_ledger(Lake.at(lake), LedgerSettings())
    return {"segments": len(ledger.segments)}


def _scan(lake: str) -> dict[str, int]:
    """Let DuckDB read every value that the ledger needs once, on one thread."""
    import duckdb

    from analytics.ledger import day_processes, day_rows
    from fallow import schema
    from fallow.lake import Lake

    def sum_of(table: schema.LakeTable, name: str) -> str:
        kind = table.column(name).type
        if kind is schema.Type.TIMESTAMP:
            return f"sum(epoch_ms({name}))"
        return f'count("{name}")' if kind is schema.Type.STRING else f'sum("{name}")'

    rows = {}
    with duckdb.connect(config={"threads": 1}) as connection:
        for table, names in ((schema.GPU, day_rows.COLUMNS), (schema.PROCESS, day_processes.COLUMNS)):
            files = [file.url for file in Lake.at(lake).files(table.name)]
            sums = ", ".join(sum_of(table, name) for name in names)
            query = f"SELECT count(*), {sums} FROM read_parquet(?)"  # noqa: S608  # the schema's own names
            rows[table.name] = connection.sql(query, params=[files]).fetchall()[0][0] if files else 0
    return rows


def main(step: str, lake: str, *command: str) -> None:
    """Print what the step said and its cost; imports are not part of it where they come first."""
    run = {"ledger": _ledger, "scan": _scan}[step]
    import duckdb  # noqa: F401

    import analytics.ledger.build  # noqa: F401

    before_cpu, before_wall = _cpu_s(), time.perf_counter()
    said = run(lake, *command)
    print(json.dumps(said | {"cpu_s": _cpu_s() - before_cpu, "wall_s": time.perf_counter() - before_wall}))


if __name__ == "__main__":
    main(*sys.argv[1:])
