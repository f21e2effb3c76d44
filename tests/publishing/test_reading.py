"""A lake in an object store is read as one in a folder is: same commands, same numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from analytics.simulation import SimulatedFleet, write_fleet
from fallow import parquet, schema
from fallow.clock import DAY_MS
from fallow.errors import BrokenFileError, LakeError
from fallow.lake import Lake, LakeFile
from fallow.stores import objects
from tests.conftest import REPOSITORY, clean_environment
from tests.lakes import made_lake

if TYPE_CHECKING:
    from pathlib import Path

    from tests.publishing.conftest import S3


pytestmark = pytest.mark.long


def fallow(*arguments: str, **environment: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "fallow", *arguments],
        capture_output=True, text=True, check=False, timeout=120, cwd=REPOSITORY, env=clean_environment(environment),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_command_says_the_same_of_a_lake_in_a_folder_and_in_an_object_store(s3: S3, tmp_path: Path) -> None:
    folder, store = made_lake(tmp_path / "lake"), made_lake(s3.location)
    for lake in (folder, store):
        write_fleet(lake, SimulatedFleet(gpus=16, days=2, interval_ms=60_000, until_ms=20_777 * DAY_MS))
    for command in (["ledger", "--json"], ["findings", "--json"], ["report", "--format", "json"]):
        here, there = (fallow(*command, "--lake", lake.root, **s3.environment) for lake in (folder, store))
        assert json.dumps(there).replace(store.root, folder.root) == json.dumps(here)
    kept = store.files("ledger")
    assert kept, "the ledger is kept in the store too"
    assert fallow("ledger", "--json", "--lake", store.root, **s3.environment)
    assert store.files("ledger") == kept, "and read from there the next time"


def test_a_large_file_is_read_without_fetching_all_of_it(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake.at(s3.location)
    rows = [{"gpu": f"GPU-{number % 7}", "time": number * 1000, "gpu_util_pct": number % 100} for number in range(5000)]
    data = parquet.encode(schema.GPU, parquet.table_from_rows(schema.GPU, rows))
    file = lake.put(LakeFile("gpu", "1970-01-01", "h", 0, 4999), data)
    whole = parquet.read([file], schema.GPU, ["time", "gpu_util_pct"])
    monkeypatch.setattr(objects, "WHOLE_BYTES", 0)
    fetched: list[int] = []
    read = objects.read

    def counted(url: str, start: int = 0, end: int | None = None) -> bytes:
        found = read(url, start, end)
        fetched.append(len(found))
        return found

    monkeypatch.setattr(objects, "read", counted)
    assert parquet.read([file], schema.GPU, ["time", "gpu_util_pct"]).equals(whole)
    assert 0 < len(fetched) < 10
    assert lake.files("gpu") == [file]


def test_an_object_that_vanishes_or_is_damaged_is_named(s3: S3) -> None:
    lake = Lake.at(s3.location)
    file = lake.put(LakeFile("gpu", "1970-01-01", "h", 0, 9), b"no parquet at all")
    with pytest.raises(BrokenFileError, match=f"{file.url} is not a whole Parquet file"):
        parquet.read([file], schema.GPU)
    lake.delete(file)
    with pytest.raises(LakeError, match=f"{file.url} vanished while it was read"):
        parquet.read([file], schema.GPU)


def test_a_lake_that_is_not_there_is_said_as_of_a_folder(s3: S3) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fallow", "ledger", "--lake", s3.location],
        capture_output=True, text=True, check=False, timeout=60, cwd=REPOSITORY, env=clean_environment(s3.environment),
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith(f"fallow: there is no lake at {s3.location}; check the address")
