"""Lakes for tests, as `fallow lake init` creates them, but all with one id, so that two are the same to the byte."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fallow.lake import Lake
from fallow.lake_marker import MARKER_KEY, Marker

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534
LAKE_ID = "0d4f7c52-6a0e-4a52-9d36-1e8a1c5f0b77"


def made_lake(location: Path | str, lake_id: str = LAKE_ID) -> Lake:
    """The lake at a folder or an address, with a marker unless it has one."""
    lake = Lake.at(str(location))
    lake.store.make()
    if lake.store.look(MARKER_KEY) is None:
        lake.store.put(MARKER_KEY, Marker(lake_id, "2026-01-01T00:00:00Z", "the tests").content())
    return lake


def holds_nothing(lake: Lake) -> bool:
    """Whether nothing was written into the lake since it was made."""
    return [stored.key for stored in lake.store.list("")] == [MARKER_KEY]


@contextmanager
def folder_of_nobodys() -> Iterator[Path]:
    """A folder in which this process has no more rights than its owner, also where the tests run as root."""
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as name:
        if user == 0:
            os.chown(name, NOBODY, -1)
            os.seteuid(NOBODY)
        try:
            yield Path(name)
        finally:
            os.seteuid(user)
            for found in Path(name).rglob("*"):
                if found.is_dir():
                    found.chmod(0o700)
