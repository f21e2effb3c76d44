"""A disk that is really full, and a store that really fails, under load: each row in the lake exactly once."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from fallow.lake import Lake
from tests.conftest import REPOSITORY, clean_environment
from tests.lakes import made_lake
from tests.publishing.rows import numbers

if TYPE_CHECKING:
    from pathlib import Path

    from tests.publishing.conftest import S3


pytestmark = pytest.mark.long


_NAMESPACES = (["unshare", "--map-root-user", "--mount"], ["unshare", "--mount"])
_MOUNT = 'mount -t tmpfs -o size="$1" fallow-test "$2" && shift 2 && exec "$@"'


@pytest.fixture
def small(tmp_path: Path) -> list[str]:
    """The beginning of a command that runs with a disk of 4 MB of its own, and the disk's folder as its last word."""
    folder = tmp_path / "disk"
    folder.mkdir()
    for command in _NAMESPACES:
        mounted = [*command, "sh", "-c", _MOUNT, "sh", "4m", str(folder)]
        with suppress(FileNotFoundError):
            if subprocess.run([*mounted, "true"], capture_output=True, check=False, timeout=30).returncode == 0:
                return mounted
    pytest.skip("no full disk here: neither root nor a user may mount a tmpfs in a namespace of its own (unshare)")


def test_twenty_episodes_over_an_object_store(small: list[str], local_s3: S3) -> None:
    play(small, local_s3.location, str(local_s3.port), 1, local_s3)


def test_twenty_episodes_over_a_folder(small: list[str], lake: Lake) -> None:
    play(small, lake.root, "0", 2, None)


def play(small: list[str], location: str, port: str, seed: int, store: S3 | None) -> None:
    made_lake(location)
    episodes = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "tests.publishing.episodes",
        small[-1],
        location,
        port,
        str(seed),
        "20",
    ]
    environment = clean_environment(store.environment if store is not None else {})
    done = subprocess.run(
        [*small, *episodes], capture_output=True, text=True, check=False, timeout=280, cwd=REPOSITORY, env=environment
    )
    assert done.returncode == 0, done.stderr[-4000:]
    seen = json.loads(done.stdout)
    assert numbers(Lake.at(location)) == list(range(seen["rows"]))
    assert (seen["waiting"], seen["last"]) == (0, str(seen["rows"]))
    assert seen["in_memory"] > 0
    assert seen["pressure"] > 0
    assert {"disk_full", "store_down", "store_up"} <= set(seen["told"])
    assert not {"rows_dropped", "spool_failed"} & set(seen["told"])
