"""A second engine reads the exports: Sail, with Spark's SQL and its own Delta reader; and writers are killed."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from fallow import schema
from fallow.clock import HOUR_MS
from tests.conftest import REPOSITORY, clean_environment
from tests.export.test_export import UNTIL_MS, export, live_files, rows, site
from tests.in_process import run_in_process

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long

__all__ = ["site"]

LOCK = REPOSITORY / "requirements" / "engines.txt"
FOLDER = REPOSITORY / "build" / "engines"
KILLS = 50


@pytest.fixture(scope="module")
def engine() -> Path:
    """The Python of the locked engine, which is installed where it is not yet."""
    python, stamp = FOLDER / "bin" / "python", FOLDER / "lock.sha256"
    wanted = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", FOLDER], check=True)
        options = ["--quiet", "--disable-pip-version-check", "--no-input", "--require-hashes"]
        done = subprocess.run([python, "-m", "pip", "install", *options, "-r", LOCK], check=False, capture_output=True)
        if done.returncode:
            pytest.skip("the packages of requirements/engines.txt cannot be installed here")
        stamp.write_text(wanted, encoding="utf-8")
    return python


def ask(engine: Path, table: Path, statement: str) -> dict[str, Any]:
    reader = REPOSITORY / "tests" / "export" / "sail_reader.py"
    done = subprocess.run([engine, reader, table, statement], check=True, capture_output=True, text=True, timeout=200)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.timeout(600)
def test_spark_sql_reads_the_ledger_to_the_millisecond(engine: Path, site: Path, tmp_path: Path) -> None:
    root = site / "lake"
    export(root, tmp_path)
    hours = json.loads(run_in_process("ledger", "--lake", str(root), "--json").stdout)["gpu_hours"]
    spent = "sum((unix_millis(`end`) - unix_millis(time)) * gpu_share)"
    found = ask(engine, tmp_path / "ledger", f"select state, {spent} from exported group by state")  # noqa: S608
    measured = {state: round(ms) for state, ms in found["rows"]}
    assert {state: measured.get(state, 0) for state in schema.STATES} == {
        state: round(hours[state] * HOUR_MS) for state in schema.STATES
    }
    assert (found["types"]["date"], found["types"]["time"]) == ("date", "timestamp")
    told = ask(engine, tmp_path / "hourly", "select count(*), sum(observed_ms), sum(zero_ms) from exported")
    assert [tuple(row) for row in told["rows"]] == rows(tmp_path / "hourly", "count(*), sum(observed_ms), sum(zero_ms)")
    histograms = "select sum(spent) from (select explode(gpu_util_ms) as spent from exported)"
    assert ask(engine, tmp_path / "hourly", histograms)["rows"] == [
        [int(each) for each in row] for row in rows(tmp_path / "hourly", "sum(list_sum(gpu_util_ms))")
    ]


@pytest.mark.timeout(900)
def test_a_killed_writer_leaves_a_readable_table_and_the_next_run_gives_the_same_rows(
    site: Path,
    tmp_path: Path,
) -> None:
    """At moments of a run that writes everything; seeded, so that a failure can be repeated."""
    root, whole = site / "lake", tmp_path / "whole"
    began = time.monotonic()
    command = [sys.executable, "-m", "fallow", "lake", "export", "--lake", str(root), "--to"]
    subprocess.run([*command, whole], check=True, env=clean_environment(), capture_output=True)
    took_s = time.monotonic() - began
    chance = random.Random(UNTIL_MS)  # noqa: S311  # moments, no secrets
    everything = "* exclude (source_digest)", "order by gpu, time"
    expected = {table: rows(whole / table, *everything) for table in ("ledger", "hourly")}
    cut_short = 0
    for number in range(KILLS):
        to = tmp_path / f"killed-{number}"
        process = subprocess.Popen([*command, to], env=clean_environment(), stderr=subprocess.DEVNULL)
        time.sleep(took_s * chance.uniform(0.3, 1))
        process.send_signal(signal.SIGKILL)
        cut_short += process.wait() != 0
        for table in expected:
            for file in live_files(to / table):
                assert rows_of_file(file), "every file that the log names is whole"
        export(root, to)
        assert {table: rows(to / table, *everything) for table in expected} == expected
    assert cut_short > KILLS // 5


def rows_of_file(file: Path) -> int:
    import duckdb

    [(count,)] = duckdb.sql(f"select count(*) from read_parquet('{file}')").fetchall()  # noqa: S608
    return int(count)
