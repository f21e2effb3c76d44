"""The schema as data, and the command that prints it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from fallow import schema
from fallow.errors import UsageError
from fallow.schema import STATES, TABLES, UNAVAILABLE_HEALTH, LakeColumn
from tests.in_process import run_in_process

if TYPE_CHECKING:
    from collections.abc import Callable


UNITS = {"bytes", "w", "mj", "kwh", "c", "mhz", "ms", "s", "hours", "pct"}
OBSERVED = (
    "gpu process host device serving event agent allocation request withheld action annotation scenario delivery"
    " judgement"
)
COLUMNS = [(f"{table.name}.{column.name}", column) for table in TABLES for column in table.columns]


def violations(rule: Callable[[LakeColumn], bool]) -> list[str]:
    """The columns that break a rule."""
    return [name for name, column in COLUMNS if not rule(column)]


def test_every_column_says_what_it_means_and_where_it_is_from() -> None:
    assert violations(lambda column: bool(column.meaning and column.source)) == []
    assert violations(lambda column: bool(re.fullmatch(r"[a-z][a-z0-9_]*", column.name))) == []


def test_names_carry_their_unit() -> None:
    units = {column.name: column.unit for _, column in COLUMNS}
    read = (
        "power_w",
        "energy_mj",
        "temperature_c",
        "sm_clock_mhz",
        "mem_used_bytes",
        "gpu_util_zero_ratio",
        "time",
        "pid",
    )
    assert [units[name] for name in read] == ["W", "mJ", "degC", "MHz", "bytes", "1", "UTC", ""]
    numbers = violations(lambda column: column.unit not in ("", "1") or column.name.split("_")[-1] not in UNITS)
    assert numbers == [], "a unit in the name that is not its own"


def test_tables_and_columns_have_names_of_their_own() -> None:
    assert len({table.name for table in TABLES}) == len(TABLES)
    for table in TABLES:
        assert len(set(table.names)) == len(table.names)
        assert "date" not in table.names, "a Hive partition's name"
        assert table.keys[0] == "time"
        assert table.row


def test_derived_tables_are_computed_and_the_others_observed() -> None:
    assert [table.name for table in TABLES if not table.derived] == OBSERVED.split()


def test_states_and_health_are_named_where_they_are_stored() -> None:
    meaning = schema.LEDGER.column("state").meaning
    assert all(state in meaning for state in STATES)
    assert all(health in schema.GPU.column("health").meaning for health in UNAVAILABLE_HEALTH)


def test_tables_and_columns_are_found_by_name() -> None:
    assert schema.table("gpu") is schema.GPU
    assert schema.GPU.column("power_w").unit == "W"
    with pytest.raises(KeyError):
        schema.GPU.column("watts")
    assert run_in_process("schema", "gpus").stderr == "fallow: there is no table 'gpus'; did you mean 'gpu'?\n"
    with pytest.raises(UsageError, match="there is no table 'zzz'; the tables are gpu, process,"):
        schema.table("zzz")


def test_the_command_prints_every_column_within_a_terminal() -> None:
    done = run_in_process("schema")
    assert (done.returncode, done.stderr) == (0, "")
    for table in TABLES:
        for column in table.columns:
            assert f" {column.name}  [{column.type.value}" in done.stdout
    indented = [line for line in done.stdout.splitlines() if line.startswith("      ")]
    assert max(map(len, indented)) <= 100


def test_the_command_prints_one_table_for_machines() -> None:
    done = run_in_process("schema", "gpu", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    printed = json.loads(done.stdout)
    assert printed["schema_version"] == schema.SCHEMA_VERSION
    [table] = printed["tables"]
    assert (table["name"], table["derived"]) == ("gpu", False)
    assert [column["name"] for column in table["columns"]] == list(schema.GPU.names)
    power = next(column for column in table["columns"] if column["name"] == "power_w")
    said = {"type": "float", "unit": "W", "resolution": "0.1 W", "key": False, "counter": False}
    of = schema.GPU.column("power_w")
    assert power == {"name": "power_w", **said, "meaning": of.meaning, "source": "nvmlDeviceGetPowerUsage"}
