"""Two imports at the same moment leave the union of their rows in the lake, and each row once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from obstore.store import MemoryStore

from fallow.stores import objects
from tests.attacks.races import RaceOutcome, races, races_of_threads
from tests.publishing.conftest import object_store, s3  # noqa: F401  # fixtures

if TYPE_CHECKING:
    from pathlib import Path

    from tests.publishing.conftest import S3


def assert_union(seen: RaceOutcome) -> None:
    assert (seen.lost, seen.doubled, seen.failed) == (0, 0, ())
    assert seen.rows >= 300 * seen.races


def test_of_threads(tmp_path: Path) -> None:
    assert_union(races_of_threads(6, str(tmp_path)))


def test_of_threads_in_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects instead of files, through the library that speaks to every object store."""
    store = MemoryStore()
    monkeypatch.setattr(objects, "_client", lambda _scheme, _bucket: store)
    assert_union(races_of_threads(6, "s3://bucket/lakes"))


@pytest.mark.long
def test_of_processes(tmp_path: Path) -> None:
    assert_union(races(100, str(tmp_path)))


@pytest.mark.long
def test_in_an_object_store(s3: S3) -> None:  # noqa: F811
    assert_union(races(12, s3.location))
