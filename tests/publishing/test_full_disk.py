"""A disk that is really full, and a store that really fails, under load: each row in the lake exactly once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from fallow.lake import Lake
from tests.lakes import made_lake
from tests.publishing.rows import numbers
from tests.publishing.small_disk import namespace, run_on_small_disk

if TYPE_CHECKING:
    from pathlib import Path

    from tests.publishing.conftest import S3


pytestmark = pytest.mark.long


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    folder = tmp_path / "disk"
    folder.mkdir()
    if not namespace(folder):
        pytest.skip("no full disk here: neither root nor a user may mount a tmpfs in a namespace of its own (unshare)")
    return folder


def test_twenty_episodes_over_an_object_store(disk: Path, local_s3: S3) -> None:
    play(disk, local_s3.location, str(local_s3.port), 1, local_s3)


def test_twenty_episodes_over_a_folder(disk: Path, lake: Lake) -> None:
    play(disk, lake.root, "0", 2, None)


def play(disk: Path, location: str, port: str, seed: int, store: S3 | None) -> None:
    environment = dict(store.environment) if store is not None else {}
    made_lake(location)
    seen = json.loads(
        run_on_small_disk("tests.publishing.episodes", disk, "4m", location, port, str(seed), "20", **environment)
    )
    assert numbers(Lake.at(location)) == list(range(seen["rows"]))
    assert (seen["waiting"], seen["last"]) == (0, str(seen["rows"]))
    assert seen["in_memory"] > 0
    assert seen["pressure"] > 0
    assert {"disk_full", "store_down", "store_up"} <= set(seen["told"])
    assert "rows_dropped" not in seen["told"]
    assert "spool_failed" not in seen["told"]
