"""Hands out what the pages show, and reloads the lake in the background when it has changed."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TypeVar

from analytics.language.sentences import tr
from analytics.window import Inputs
from dashboard.access.people import VIEWER, Reader, person
from dashboard.makers import Cache, Makers, TooManyError
from dashboard.memory import Budget
from dashboard.query import SPANS, Query
from dashboard.snapshot import LakeSnapshot, nobody, seen_by
from dashboard.view import UNREADABLE, Problem, View, problem_of
from fallow import __version__
from fallow.clock import HOUR_MS, Clock, SystemClock
from fallow.config import Config
from fallow.errors import ConfigError, FallowError, VanishedFileError
from fallow.given_file import TABLE_BYTES, given_bytes
from fallow.lake import Lake


def view_of(source: LakeSource, search: str | None) -> View | Problem:
    """What the address's `?...` asks for, as far as whoever asks may see it, or what stands in its way."""
    try:
        return source.look(Query.parse(search), person())
    except FallowError as error:
        return Problem(error.message, error.hint)


V = TypeVar("V")

_LOG = logging.getLogger(__name__)

_DATA = ("gpu", "process", "claim", "request", "device")
_ACTIONS = ("action", "annotation", "scenario")
"""What a page rests on: a new file in any of these tables makes a new version."""

_TABLES = ("money.owners", "money.prices", "money.offers", "money.goals", "plan.requests", "plan.carbon")
"""Settings that name a site's own tables, which the pages rest on as well."""

_ACTIONS_EVERY_MS = 2_000
"""Somebody else's actions show after this long; listing a few files costs next to nothing."""

_ACTIONS_WITHIN_S = 2.0
"""So long a reader waits for that list."""

_REST_S, _LONGEST_REST_S = 30.0, 600.0
_REST_SHARE = 10
"""Between two readings of the lake at least this many times what the last one took: they are for the readers, who come first."""

_TOO_LONG_S = 1200.0
"""Longer than five thousand GPUs take with all that is warmed. A network file system may wait for its server for ever."""

_STILL_ASKED_MS = 3_600_000
_WARMED = 12
"""Of what was asked for in the last hour, so much is made of a new version before anybody sees it."""

_WAITING = 4
"""So many threads wait for views at once, half of those that answer: the others are for what is there already."""

_ATTEMPTS = 3
"""How often the lake is listed and read when its files are replaced meanwhile."""

_MOVED = Problem(
    tr("The files of the lake are being put together at this moment."),
    tr("The page comes by itself as soon as they are read again."),
    is_passing=True,
)
_NO_END = Problem(
    tr("The lake has been read for more than twenty minutes, and this has not ended."),
    tr("Look whether the disk or the mount that it is on answers."),
)
LATE = Problem(
    tr("This takes longer than usual, and goes on being made."),
    tr("It comes by itself when it is there. A shorter window is faster."),
    is_passing=True,
)


class LakeSource:
    """Hands out views of the newest version of the lake that has been read. Safe to ask from many threads.

    `refresh` reads the lake, `follow` does so from now on. Nobody waits for it: until a new version is there, views are
    of the last one, and stay when the lake cannot be read any more, which `stale_because` tells. After `patience_s` whoever waits
    is told that it takes long; None waits for ever. What is kept of windows stays within the budget; None knows no bounds.
    """

    def __init__(
        self,
        open_inputs: Callable[[], Inputs],
        clock: Clock | None = None,
        *,
        patience_s: float | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._open = open_inputs
        self._clock = clock or SystemClock()
        self._patience_s = patience_s
        self._generation: LakeSnapshot | None = None
        self._actions_seen_ms: int | None = None
        self._swap = threading.Lock()
        self._asked: OrderedDict[tuple[Query, Reader], int] = OrderedDict()
        self._first: Future[None] | None = None
        self._noticing: Future[None] | None = None
        self._reader = ThreadPoolExecutor(1, "lake")
        self._lister = ThreadPoolExecutor(1, "actions")
        self._budget = budget
        self._makers = Makers(budget=budget, let_go=self._let_go)
        self._waiting = threading.BoundedSemaphore(_WAITING)
        self._of_lake: Problem | None = None
        self._of_actions: Problem | None = None
        self._reading_since_s: float | None = None

    def look(self, query: Query, reader: Reader) -> View | Problem:
        """What the query asks for, as far as the reader may see it, or what stands in its way."""
        try:
            generation = self._current()
            self._remember(query, reader)
            made = self._wait_for(generation.begin(query, reader, self._makers, by=reader.actor.log_words))
            return replace(made, query=seen_by(query, reader), reader=reader)
        except TimeoutError:
            return LATE
        except FallowError as error:
            return self.problem(error, reader)

    def made_of(self, view: View, key: Hashable, make: Callable[[], V]) -> V:
        """What a page shows of a view, kept with it, else made in this thread as memory allows; raises TooManyError."""

        def admitted() -> V:
            with nullcontext() if self._budget is None else self._budget.making(self._let_go, self._patience_s):
                return make()

        try:
            return view.made.of(key, admitted)  # type: ignore[no-any-return]  # pages of one view are of many kinds
        except TimeoutError:
            raise TooManyError(LATE.message, LATE.hint) from None

    def _wait_for(self, view: Future[View]) -> View:
        """What comes of it; raises TimeoutError where that takes too long, or too many wait already."""
        if self._patience_s is None or view.done():
            return view.result()
        if not self._waiting.acquire(blocking=False):
            raise TimeoutError
        try:
            return view.result(self._patience_s)
        finally:
            self._waiting.release()

    def begin(self, cache: Cache[V], key: Hashable, make: Callable[[], V], reader: str | None) -> Future[V]:
        """What a page makes beside its view, by the threads that make views; raises TooManyError, for fallow itself (None) never."""
        return self._makers.begin(cache, key, make, reader)

    def _keep_within_budget(self) -> None:
        if self._budget is not None and self._generation is not None:
            self._budget.keep(self._let_go)

    def _let_go(self) -> bool:
        generation = self._generation
        return generation is not None and generation.let_go()

    def problem(self, error: FallowError, reader: Reader) -> Problem:
        """What to tell of an error; after a file that is gone the lake is read again at once."""
        if isinstance(error, TooManyError):
            return Problem(error.message, error.hint, is_passing=True)
        if not isinstance(error, VanishedFileError):
            return problem_of(error, reader)
        self._reader.submit(self._refresh)
        if self._of_lake is None:
            return _MOVED
        return self._of_lake if reader.sees_places else UNREADABLE

    @property
    def stale_because(self) -> Problem | None:
        """Why there is no newer version than the one that is shown; None where it is the newest."""
        since_s = self._reading_since_s
        is_endless = since_s is not None and self._clock.monotonic_s() - since_s > _TOO_LONG_S
        return self._of_lake or self._of_actions or (_NO_END if is_endless else None)

    @property
    def settings(self) -> Config | None:
        """Those in force, None where the lake has never been read."""
        return self._generation.inputs.settings if self._generation else None

    def inputs(self) -> Inputs:
        """The lake and the settings as they are now, whatever has been read of them; raises FallowError."""
        return self._open()

    def version(self) -> str:
        """What changes with the lake; where it has never been read, LakeError, or TimeoutError while it is."""
        return self._current().version

    def forget(self) -> None:
        """Looks for actions again at the next question: somebody has just written one."""
        self._actions_seen_ms = None

    def refresh(self) -> None:
        """Reads the lake if its data have changed; raises LakeError and its kinds where there is nothing else to show."""
        self._reader.submit(self._refresh).result()

    def follow(self, *, rest_s: float = _REST_S) -> threading.Event:
        """Reads it again whenever it has changed, from now until the process ends or the event that comes back is set.

        Between two readings it rests for `rest_s`, and longer where reading takes long.
        """
        end = threading.Event()
        threading.Thread(target=self._follow, args=(rest_s, end), name="follow the lake", daemon=True).start()
        return end

    def _current(self) -> LakeSnapshot:
        if self._generation is None:
            with self._swap:
                if self._first is None or self._first.done():
                    self._first = self._reader.submit(self._read_first)
            self._first.result(self._patience_s)
        else:
            self._notice_actions()
        if self._generation is None:
            raise AssertionError
        return self._generation

    def _read_first(self) -> None:
        if self._generation is None:
            self._refresh()

    def _follow(self, least_s: float, end: threading.Event) -> None:
        for span in SPANS:
            if not _tried(partial(self.look, Query(span=span), Reader("", VIEWER))):
                return
        rest_s = least_s
        while not end.wait(rest_s):
            before = time.monotonic()
            if not _tried(self.refresh):
                return
            rest_s = min(max(least_s, _REST_SHARE * (time.monotonic() - before)), _LONGEST_REST_S)

    def _refresh(self) -> None:
        self._reading_since_s = self._clock.monotonic_s()
        try:
            for attempt in range(_ATTEMPTS):
                try:
                    self._read()
                    break
                except VanishedFileError:
                    if attempt == _ATTEMPTS - 1:
                        raise
            self._of_lake = None
        except FallowError as error:
            self._of_lake = Problem(error.message, error.hint)
            if self._generation is None:
                raise
        except Exception:
            _LOG.exception("the lake could not be read again")
            self._of_lake = Problem(tr("Something went wrong that fallow did not foresee."), tr("The log says more."))
            if self._generation is None:
                raise
        finally:
            self._reading_since_s = None

    def _read(self) -> None:
        """The lake as it is now, if its data have changed."""
        inputs, began_ms = self._open(), self._clock.now_ms()
        inputs.lake.require()
        # who is silent and what is suppressed is a matter of the clock as well
        data = f"{_digest(inputs.lake, _DATA)}-{_digest_of_tables(inputs.settings)}-{began_ms // HOUR_MS}"
        actions = _digest(inputs.lake, _ACTIONS)
        if self._generation is not None and self._generation.version.split(".")[0] == data:
            return
        generation = LakeSnapshot.read(inputs, f"{data}.{actions}", self._keep_within_budget)
        self._warm(generation)
        with self._swap:
            self._generation, self._actions_seen_ms, self._of_actions = generation, began_ms, None

    def _warm(self, generation: LakeSnapshot) -> None:
        """Makes what readers look at before they are shown the new version; what cannot be made is told to who asks again."""
        now_ms = self._clock.now_ms()
        with self._swap:
            wanted = [asked for asked, at_ms in self._asked.items() if now_ms - at_ms < _STILL_ASKED_MS]
        for query, reader in wanted[-_WARMED:]:
            _tried(generation.begin(query, reader, self._makers).result)

    def _remember(self, query: Query, reader: Reader) -> None:
        asked = (query.on_every_page, nobody(reader))
        with self._swap:
            self._asked[asked] = self._clock.now_ms()
            self._asked.move_to_end(asked)
            while len(self._asked) > _WARMED:
                self._asked.popitem(last=False)

    def _notice_actions(self) -> None:
        """Another version where somebody acted. Where the lake does not answer nobody waits long: it is seen later."""
        with self._swap:
            now_ms, seen_ms = self._clock.now_ms(), self._actions_seen_ms
            is_time = seen_ms is None or not 0 <= now_ms - seen_ms < _ACTIONS_EVERY_MS
            if not is_time or (self._noticing is not None and not self._noticing.done()):
                return
            self._actions_seen_ms = now_ms
            self._noticing = noticing = self._lister.submit(self._list_actions)
        with contextlib.suppress(TimeoutError, FallowError):
            noticing.result(_ACTIONS_WITHIN_S)

    def _list_actions(self) -> None:
        generation = self._generation
        if generation is None:
            return
        data, _ = generation.version.split(".")
        version = f"{data}.{_digest(generation.inputs.lake, _ACTIONS)}"
        try:
            after = generation if version == generation.version else generation.after_actions(version)
        except FallowError as error:
            self._of_actions = Problem(error.message, error.hint)
            return
        with self._swap:
            if self._generation is generation:
                self._generation, self._of_actions = after, None


def _tried(work: Callable[[], object]) -> bool:
    """Whether there is any use in going on after this work: not when the process ends, and nobody takes work any more."""
    try:
        work()
    except FallowError:  # readers are told
        pass
    except RuntimeError as error:
        if "shutdown" in str(error):
            return False
        _LOG.exception("something could not be made ahead")
    except Exception:  # noqa: BLE001  # whatever it is: the next reading may do
        _LOG.exception("something could not be made ahead")
    return True


def _digest_of_tables(settings: Config) -> str:
    """What changes with the site's own tables and settings and with fallow itself; who cannot read one is told when it is opened."""
    found = hashlib.blake2b(f"{__version__} {sorted(settings.values.items())}".encode(), digest_size=4)
    for name in _TABLES:
        with contextlib.suppress(ConfigError):
            found.update(given_bytes(name, settings.text(name), TABLE_BYTES) if settings.text(name) else b"")
    return found.hexdigest()


def _digest(lake: Lake, tables: tuple[str, ...]) -> str:
    """What changes with the files of some tables, and is the same in every process; raises LakeError."""
    found = hashlib.blake2b(digest_size=8)
    for table in tables:
        for file in lake.files(table):
            found.update(f"{file.key} {file.size_bytes} {file.version}\n".encode())
    return found.hexdigest()
