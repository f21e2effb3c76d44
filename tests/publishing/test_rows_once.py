"""A reader sees each row exactly once at every moment of any order of publish, compaction, repair, expiry, kill."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from agent.settings import Compaction
from agent.spool.compaction import OwnFilesCompactor
from agent.spool.publisher import Publisher
from agent.spool.spool import Spool
from analytics.lake_care.expire import Retention, carry_out, plan
from analytics.lake_care.repair import Repairer
from analytics.ledger.build import load_ledger
from analytics.ledger.settings import LedgerSettings
from fallow import parquet, schema
from fallow.clock import DAY_MS, HOUR_MS, SystemClock, floor_ms, utc_day
from fallow.compaction import LakeCompactor
from tests.lakes import made_lake
from tests.ledger.rows import silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fallow.lake import Lake
    from tests.publishing.conftest import S3

START_MS = floor_ms(SystemClock().now_ms(), DAY_MS) + DAY_MS + 20 * HOUR_MS
"""After every moment at which a test stores a file: a service takes what was stored long ago."""

KEPT_MS = 2 * DAY_MS


class KilledError(BaseException):
    """The process ends here."""


@dataclass
class World:
    """One host's agent and a service; any change of the lake may be their last; a reader looks before and after it."""

    lake: Lake
    spool: Spool
    moment_ms: int = START_MS
    times: list[int] = field(default_factory=list)
    """Of the rows by their numbers."""
    expected: set[int] = field(default_factory=set)
    maybe: set[int] = field(default_factory=set)
    """Rows that may be there or not: those that are just published, and those that have expired."""
    changes: int = 0
    at_change: dict[int, Callable[[], None]] = field(default_factory=dict)
    """What happens at a change of the lake instead of nothing."""

    def now_ms(self) -> int:
        return self.moment_ms

    def monotonic_s(self) -> float:
        return self.moment_ms / 1000

    def publish(self) -> None:
        """Two files of one hour and one of the next."""
        for _ in range(3):
            self._publish_once()
            self.moment_ms += 20 * 60_000

    def _publish_once(self) -> None:
        new = range(len(self.times), len(self.times) + 5)
        self.times += [self.moment_ms - self.moment_ms % 1000 + 10 * number for number in new]
        rows: list[Any] = [
            {"gpu": f"GPU-{number % 2}", "time": self.times[number], "interval_ms": 10_000, "energy_mj": number}
            for number in new
        ]
        self.spool.append({"gpu": rows})
        waiting = {*range(len(self.times))} - self.expected - self.maybe
        self.maybe |= waiting
        publisher = Publisher(self.spool, self.lake, "h", clock=self)
        publisher.publish()
        publisher.repair()
        publisher.forget()
        self._surely({number for number in self.maybe if not self._is_expired(number)})

    def _surely(self, numbers: set[int]) -> None:
        self.expected |= numbers
        self.maybe -= numbers

    def _is_expired(self, number: int) -> bool:
        return utc_day(self.times[number]) <= utc_day(self.moment_ms - KEPT_MS - DAY_MS)

    def own(self) -> None:
        OwnFilesCompactor(self.spool, self.lake, "h", Compaction(), self).run()

    def service(self) -> None:
        LakeCompactor(self.lake, self.moment_ms, HOUR_MS, HOUR_MS).run()

    def repair(self) -> None:
        Repairer(self.lake, self.moment_ms, HOUR_MS, dry_run=False).run()

    def expire(self) -> None:
        if not self.lake.files("gpu"):
            return
        load_ledger(self.lake, LedgerSettings(), warn=silent)
        expired = {number for number in self.expected if self._is_expired(number)}
        self.expected -= expired
        self.maybe |= expired
        carry_out(
            self.lake, plan(self.lake, Retention({"gpu": KEPT_MS}), LedgerSettings(), self.moment_ms), self.moment_ms
        )

    def look(self) -> None:
        data = parquet.read(self.lake.files("gpu"), schema.GPU, ["energy_mj"])["energy_mj"].to_pylist()
        found = {int(each) for each in data}
        assert len(data) == len(found), "a row is there twice"
        assert self.expected <= found, "a row is lost"
        assert found <= self.expected | self.maybe

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Each change of the agents' files is looked at from both sides, and what is to happen then happens."""
        kind = type(self.lake.store)
        put, delete = kind.put, kind.delete

        def put_watched(store: Any, key: str, data: bytes, *rest: Any) -> None:
            self._change(key)
            put(store, key, data, *rest)
            with suppress(OSError):
                os.utime(f"{store.root}/{key}", (self.moment_ms / 1000, self.moment_ms / 1000))
            self._change(key)

        def delete_watched(store: Any, key: str) -> None:
            self._change(key)
            delete(store, key)
            self._change(key)

        with mock.patch.object(kind, "put", put_watched), mock.patch.object(kind, "delete", delete_watched):
            yield

    def _change(self, key: str) -> None:
        if not key.startswith("gpu/"):
            return
        self.look()
        self.changes += 1
        if (happens := self.at_change.pop(self.changes, None)) is not None:
            happens()


def kill() -> None:
    raise KilledError


ACTS = ("publish", "own", "service", "repair", "expire")

_AGENTS, _SERVICES = ("nothing", "publish", "own"), ("nothing", "service")
NEVER_MEET = dict.fromkeys(("publish", "own"), _AGENTS) | dict.fromkeys(("service", "repair", "expire"), _SERVICES)

Step = tuple[str, int, str, int]


def steps() -> st.SearchStrategy[list[Step]]:
    """What is done, after how many minutes, and what happens at which of its changes of the lake."""
    return st.lists(
        st.tuples(
            st.sampled_from(("publish", "publish", "publish", *ACTS)),
            st.sampled_from((5, 30, 60, 120, 720, 1440)),
            st.sampled_from(("nothing", "kill", "own", "service", "publish")),
            st.integers(1, 8),
        ),
        min_size=6,
        max_size=12,
    )


def play(world: World, todo: list[Step]) -> None:
    with world.watched():
        for act, minutes, happens, at in todo:
            world.moment_ms += minutes * 60_000
            # a service waits for another one, and a host has one publisher: these never meet
            if happens not in NEVER_MEET.get(act, ()):
                world.at_change = {world.changes + at: kill if happens == "kill" else getattr(world, happens)}
            with suppress(KilledError):
                getattr(world, act)()
            event(f"{act} meets {happens}" if not world.at_change else f"{act} alone")
            world.at_change = {}
            world.look()
        for _ in range(4):
            world.moment_ms += DAY_MS
            world.publish()
            world.own()
            world.service()
        world.look()
    over = {file.date for file in world.lake.files("gpu")} - {utc_day(world.moment_ms - each) for each in (0, DAY_MS)}
    for date in over:
        left = world.lake.all_files("gpu", dates=[date])
        assert len(left) == 1, "what was begun before a kill is finished, and small files go"


@settings(max_examples=max(3, settings().max_examples // 3))  # each looks a hundred times
@given(steps())
def test_a_reader_sees_each_row_once_at_every_moment(todo: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"):
        spool = Spool(f"{folder}/spool")
        try:
            play(World(made_lake(Path(folder, "lake")), spool), todo)
        finally:
            spool.close()


@pytest.mark.long
@settings(max_examples=3)
@given(todo=steps())
def test_a_reader_of_an_object_store_sees_each_row_once(object_store: S3, todo: list[Step]) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        object_store.apply(patch)
        spool = Spool(f"{folder}/spool")
        try:
            play(World(made_lake(f"{object_store.location}/{Path(folder).name}"), spool), todo)
        finally:
            spool.close()
