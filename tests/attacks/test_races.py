"""Two imports at once leave the union of their rows in the lake, each row once, also where one of them was stopped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from obstore.store import MemoryStore

from analytics.importers.publish import publish
from fallow.errors import LakeError
from fallow.lake import Lake
from fallow.leases import LeaseClock
from fallow.stores import objects
from tests.attacks.races import RaceOutcome, found, races, races_of_threads, samples
from tests.core.test_leases import StillClock
from tests.publishing.conftest import object_store, s3  # noqa: F401  # fixtures

if TYPE_CHECKING:
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


@pytest.mark.parametrize(
    ("stopped_at", "rows_before", "message"),
    [("fsync", {0, 2, 9}, "lost its lease"), ("replace", {0, 1, 9}, "after it lost its lease")],
)
def test_an_import_that_was_stopped_in_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped_at: str, rows_before: set[int], message: str
) -> None:
    """Before its file gets the name, it gives up; between its look at the clock and the name, it overwrites, warns."""
    clock = StillClock()
    monkeypatch.setattr(LeaseClock, "now_s", lambda _: clock.now_s())
    monkeypatch.setattr(LeaseClock, "sleep", lambda _, seconds: clock.sleep(seconds))
    lake, first, second = Lake.at(str(tmp_path)), samples({0, 1, 9}), samples({0, 2, 9})
    owner: Any = os if stopped_at == "fsync" else Path
    real, stopped = getattr(owner, stopped_at), list[str]()

    def stop(file: Any, *rest: Any) -> Any:
        path = str(file if isinstance(file, Path) else Path(f"/proc/self/fd/{file}").readlink())
        if not stopped and "/gpu/" in path and path.endswith(".part"):
            stopped.append(path)
            publish(lake, second)
        return real(file, *rest)

    monkeypatch.setattr(owner, stopped_at, stop)
    with pytest.raises(LakeError, match=message) as late:
        publish(lake, first)
    assert stopped
    assert "run it again" in late.value.hint
    assert set(found(lake)) == rows_before
    for again in (first, second):
        publish(lake, again)
        if stopped_at == "fsync":
            break  # its own is enough
    assert sorted(found(lake)) == [0, 1, 2, 9]
    assert not list(tmp_path.rglob(".*.part"))


@pytest.mark.long
def test_of_processes(tmp_path: Path) -> None:
    assert_union(races(100, str(tmp_path)))


@pytest.mark.long
def test_in_an_object_store(s3: S3) -> None:  # noqa: F811
    assert_union(races(12, s3.location))
