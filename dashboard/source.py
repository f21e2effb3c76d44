"""The source of the pages' views; it reloads a changed lake in the background."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
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
from analytics.report.weeks import SPANS
from analytics.window import Inputs
from dashboard.access.people import AHEAD, Reader, person
from dashboard.makers import Cache, Makers, TooManyError
from dashboard.memory import Budget
from dashboard.query import Query
from dashboard.snapshot import LakeSnapshot, seen_by, shared_reader
from dashboard.view import UNREADABLE, Problem, View, problem_of
from fallow import __version__
from fallow.clock import HOUR_MS, Clock, SystemClock
from fallow.config import Config
from fallow.errors import ConfigError, FallowError, VanishedFileError
from fallow.given_file import TABLE_BYTES, given_bytes
from fallow.lake import Lake


def view_of(source: LakeSource, search: str | None, *, findings: bool = False) -> View | Problem:
    """Return the view that an address's `?...` asks for, limited to what the current reader may see, or the problem.

    Only with `findings` have the rules run in its window, for what shows the window's own findings.
    """
    try:
        return source.look(Query.parse(search), person(), findings=findings)
    except FallowError as error:
        return Problem(error.message, error.hint)


V = TypeVar("V")

_LOG = logging.getLogger(__name__)

_DATA = ("gpu", "process", "allocation", "request", "device")
_ACTIONS = ("action", "annotation", "scenario")
"""The tables behind the pages: a new file in any of them makes a new version."""

_TABLES = ("money.owners", "money.prices", "money.offers", "money.goals", "plan.requests", "plan.carbon")
"""Settings that name a site's own tables, which the pages also use."""

_ACTIONS_EVERY_MS = 2_000
"""Actions of other readers show after this time; a list of a few files costs little."""

_ACTIONS_WITHIN_S = 2.0
"""How long a reader waits for the list of actions."""

_PAUSE_S, _LONGEST_PAUSE_S = 30.0, 600.0
_PAUSE_FACTOR = 10
"""The pause between two readings of the lake is at least this multiple of the last one's time: readers come first."""

_TOO_LONG_S = 1200.0
"""More than five thousand GPUs take, with all warmed views. A network file system may wait for its server for ever."""

_QUIET_PART, _QUIET_TIMES = 6, 12
"""Views are precomputed after a time without requests: the least pause divided by _QUIET_PART, at the latest after
_QUIET_TIMES of it."""

_STILL_ASKED_MS = 3_600_000
_WARMED = 12
"""The number of recently requested views (of the last hour) that a new version has ready before readers see it."""

_WAITING = 4
"""The threads that may wait for views at once: half of those that answer. The others serve views that are ready."""

_ATTEMPTS = 3
"""How often the lake is listed and read again when files are replaced during the reading."""

_MERGING = Problem(
    tr("The files of the lake are being merged."),
    tr("This page refreshes by itself."),
    is_passing=True,
)
_NO_END = Problem(
    tr("The lake has been read for more than twenty minutes, and the reading has not ended."),
    tr("Check whether the disk or mount of the lake responds."),
)
LATE = Problem(
    tr("This page takes longer than usual."),
    tr("This page refreshes by itself. A shorter window is faster."),
    is_passing=True,
)


class LakeSource:
    """Provides views of the newest version of the lake that has been read. Thread-safe.

    `refresh` reads the lake once, `follow` reads it from now on. Readers do not wait for a reading: until a new version
    is ready, views are of the last version. They stay if the lake becomes unreadable; `stale_because` has the reason.
    """

    def __init__(
        self,
        open_inputs: Callable[[], Inputs],
        clock: Clock | None = None,
        *,
        patience_s: float | None = None,
        budget: Budget | None = None,
    ) -> None:
        """A reader waits at most `patience_s` for a view (None: for ever). Kept windows stay within the budget."""
        self._open = open_inputs
        self._clock = clock or SystemClock()
        self._patience_s = patience_s
        self._snapshot: LakeSnapshot | None = None
        self._actions_seen_ms: int | None = None
        self._swap = threading.Lock()
        self._asked: OrderedDict[tuple[Query, Reader], tuple[int, bool]] = OrderedDict()
        self._first: Future[None] | None = None
        self._listing: Future[None] | None = None
        self._reader = ThreadPoolExecutor(1, "lake")
        self._lister = ThreadPoolExecutor(1, "actions")
        self._budget = budget
        self._makers = Makers(budget=budget, evict=self._evict)
        self._waiting = threading.BoundedSemaphore(_WAITING)
        self._lake_problem: Problem | None = None
        self._actions_problem: Problem | None = None
        self._reading_since_s: float | None = None
        self._looked_s = -math.inf

    def look(self, query: Query, reader: Reader, *, findings: bool = True) -> View | Problem:
        """Return the view that the query asks for, limited to what the reader may see, or the problem.

        Without `findings`, the rules need not have run in its window.
        """
        self._looked_s = time.monotonic()
        return self._look(query, reader, findings=findings)

    def _look(self, query: Query, reader: Reader, *, findings: bool) -> View | Problem:
        try:
            snapshot = self._current()
            self._remember(query, reader, findings=findings)
            by = reader.actor.log_words
            view = self._wait_for(snapshot.begin(query, reader, self._makers, findings=findings, by=by))
            return replace(view, query=seen_by(query, reader), reader=reader)
        except TimeoutError:
            return LATE
        except FallowError as error:
            return self.problem(error, reader)

    def cached(self, view: View, key: Hashable, make: Callable[[], V]) -> V:
        """Return what a page shows of a view, kept with the view; this thread makes a missing one as memory allows.

        Raises TooManyError.
        """

        def admitted() -> V:
            with nullcontext() if self._budget is None else self._budget.making(self._evict, self._patience_s):
                return make()

        try:
            return view.cache.of(key, admitted)  # type: ignore[no-any-return]  # pages of one view are of many kinds
        except TimeoutError:
            raise TooManyError(LATE.message, LATE.hint) from None

    def _wait_for(self, view: Future[View]) -> View:
        """Return the view of a future; raises TimeoutError where it takes too long or too many threads wait already."""
        if self._patience_s is None or view.done():
            return view.result()
        if not self._waiting.acquire(blocking=False):
            raise TimeoutError
        try:
            return view.result(self._patience_s)
        finally:
            self._waiting.release()

    def begin(self, cache: Cache[V], key: Hashable, make: Callable[[], V], reader: str | None) -> Future[V]:
        """Return the future of a page's own value, made by the threads that make views.

        Raises TooManyError, except for fallow itself (reader None).
        """
        return self._makers.begin(cache, key, make, reader)

    def _keep_within_budget(self) -> None:
        if self._budget is not None and self._snapshot is not None:
            self._budget.keep(self._evict)

    def _evict(self) -> bool:
        snapshot = self._snapshot
        return snapshot is not None and snapshot.evict()

    def problem(self, error: FallowError, reader: Reader) -> Problem:
        """Return the problem that a reader sees for an error. After a vanished file, the lake is read again at once."""
        if isinstance(error, TooManyError):
            return Problem(error.message, error.hint, is_passing=True)
        if not isinstance(error, VanishedFileError):
            return problem_of(error, reader)
        self._reader.submit(self._refresh)
        if self._lake_problem is None:
            return _MERGING
        return self._lake_problem if reader.sees_places else UNREADABLE

    @property
    def stale_because(self) -> Problem | None:
        """Why newer data cannot be read; None where the shown version is the newest."""
        since_s = self._reading_since_s
        is_endless = since_s is not None and self._clock.monotonic_s() - since_s > _TOO_LONG_S
        return self._lake_problem or self._actions_problem or (_NO_END if is_endless else None)

    @property
    def settings(self) -> Config | None:
        """The settings in force; None before the lake has been read."""
        return self._snapshot.inputs.settings if self._snapshot else None

    def inputs(self) -> Inputs:
        """Return the lake and the settings as they are now, not as they were read; raises FallowError."""
        return self._open()

    def version(self) -> str:
        """Return a text that changes with the lake; raises the first reading's LakeError, or TimeoutError during it."""
        return self._current().version

    def forget(self) -> None:
        """List the actions again at the next request, since a reader has just written one."""
        self._actions_seen_ms = None

    def refresh(self) -> None:
        """Read the lake if its data have changed; raises LakeError and its kinds if there is no older version."""
        self._reader.submit(self._refresh).result()

    def follow(self, *, pause_s: float = _PAUSE_S) -> threading.Event:
        """Read a changed lake again, until the process ends or the returned event is set.

        Between two readings is a pause of `pause_s`, longer where a reading takes long.
        """
        end = threading.Event()
        threading.Thread(target=self._follow, args=(pause_s, end), name="follow the lake", daemon=True).start()
        return end

    def _current(self) -> LakeSnapshot:
        if self._snapshot is None:
            with self._swap:
                if self._first is None or self._first.done():
                    self._first = self._reader.submit(self._read_first)
            self._first.result(self._patience_s)
        else:
            self._notice_actions()
        if self._snapshot is None:
            raise AssertionError
        return self._snapshot

    def _read_first(self) -> None:
        if self._snapshot is None:
            self._refresh()

    def _follow(self, least_s: float, end: threading.Event) -> None:
        first, later = (
            [partial(self._look, Query(span=span), AHEAD, findings=findings) for span in SPANS]
            for findings in (False, True)
        )
        ahead: list[Callable[[], object]] = [*first, self._make_plans, *later]
        for work in ahead:
            self._wait_for_quiet(least_s / _QUIET_PART, end)
            if not _is_running_after(work):
                return
        pause_s = least_s
        while not end.wait(pause_s):
            before = time.monotonic()
            if not (_is_running_after(self.refresh) and _is_running_after(self._make_plans)):
                return
            pause_s = min(max(least_s, _PAUSE_FACTOR * (time.monotonic() - before)), _LONGEST_PAUSE_S)

    def _wait_for_quiet(self, quiet_s: float, end: threading.Event) -> None:
        """Wait until readers request nothing for a while, since work ahead slows their pages; not for ever."""
        until_s = time.monotonic() + _QUIET_TIMES * quiet_s
        while self._looked_s + quiet_s > time.monotonic() < until_s and not end.wait(quiet_s / 10):
            pass

    def _make_plans(self) -> None:
        """Make what takes longest on the pages of the default window, so that no reader waits for it."""
        view = self._look(Query(), AHEAD, findings=False)
        if isinstance(view, View):
            self.cached(view, "plans", partial(_plans_of, view))

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
            self._lake_problem = None
        except FallowError as error:
            self._lake_problem = Problem(error.message, error.hint)
            if self._snapshot is None:
                raise
        except Exception:
            _LOG.exception("the lake could not be read again")
            self._lake_problem = Problem(tr("An unexpected error occurred."), tr("The log has the details."))
            if self._snapshot is None:
                raise
        finally:
            self._reading_since_s = None

    def _read(self) -> None:
        """Read the lake as it is now, if its data have changed."""
        inputs, began_ms = self._open(), self._clock.now_ms()
        inputs.lake.require()
        # silent hosts and snoozed findings also change with the clock
        data = f"{_digest(inputs.lake, _DATA)}-{_digest_of_tables(inputs.settings)}-{began_ms // HOUR_MS}"
        actions = _digest(inputs.lake, _ACTIONS)
        if self._snapshot is not None and self._snapshot.version.split(".")[0] == data:
            return
        snapshot = LakeSnapshot.read(inputs, f"{data}.{actions}", self._keep_within_budget)
        self._warm(snapshot)
        with self._swap:
            self._snapshot, self._actions_seen_ms, self._actions_problem = snapshot, began_ms, None

    def _warm(self, snapshot: LakeSnapshot) -> None:
        """Make a new version's recently requested views before readers see it. A failure shows at the next request."""
        now_ms = self._clock.now_ms()
        with self._swap:
            wanted = [(*asked, own) for asked, (at_ms, own) in self._asked.items() if now_ms - at_ms < _STILL_ASKED_MS]
        for query, reader, findings in wanted[-_WARMED:]:
            _is_running_after(snapshot.begin(query, reader, self._makers, findings=findings).result)

    def _remember(self, query: Query, reader: Reader, *, findings: bool) -> None:
        asked = (query.on_every_page, shared_reader(reader))
        with self._swap:
            _, before = self._asked.get(asked, (0, False))
            self._asked[asked] = self._clock.now_ms(), findings or before
            self._asked.move_to_end(asked)
            while len(self._asked) > _WARMED:
                self._asked.popitem(last=False)

    def _notice_actions(self) -> None:
        """Take the version with new actions. If the lake does not answer soon, readers see them later."""
        with self._swap:
            now_ms, seen_ms = self._clock.now_ms(), self._actions_seen_ms
            is_time = seen_ms is None or not 0 <= now_ms - seen_ms < _ACTIONS_EVERY_MS
            if not is_time or (self._listing is not None and not self._listing.done()):
                return
            self._actions_seen_ms = now_ms
            self._listing = listing = self._lister.submit(self._list_actions)
        with contextlib.suppress(TimeoutError, FallowError):
            listing.result(_ACTIONS_WITHIN_S)

    def _list_actions(self) -> None:
        snapshot = self._snapshot
        if snapshot is None:
            return
        data, _ = snapshot.version.split(".")
        version = f"{data}.{_digest(snapshot.inputs.lake, _ACTIONS)}"
        try:
            after = snapshot if version == snapshot.version else snapshot.after_actions(version)
        except FallowError as error:
            self._actions_problem = Problem(error.message, error.hint)
            return
        with self._swap:
            if self._snapshot is snapshot:
                self._snapshot, self._actions_problem = after, None


def _plans_of(view: View) -> bool:
    """Make the queue's waits, the room for jobs and the sizes of workloads; `view.whole` keeps them."""
    whole = view.whole
    _ = whole.plan.waits, whole.plan.rooms, whole.footprints(view.report.scope, view.part)
    return True


def _is_running_after(work: Callable[[], object]) -> bool:
    """Do the work and log its errors; return False where the process ends and accepts no more work."""
    try:
        work()
    except FallowError:  # the pages show it
        pass
    except RuntimeError as error:
        if "shutdown" in str(error):
            return False
        _LOG.exception("a view could not be computed in advance")
    except Exception:  # noqa: BLE001  # whatever the error is: the next reading may succeed
        _LOG.exception("a view could not be computed in advance")
    return True


def _digest_of_tables(settings: Config) -> str:
    """Return a digest of the site's tables, the settings and the version. An unreadable table fails when opened."""
    found = hashlib.blake2b(f"{__version__} {sorted(settings.values.items())}".encode(), digest_size=4)
    for name in _TABLES:
        with contextlib.suppress(ConfigError):
            found.update(given_bytes(name, settings.text(name), TABLE_BYTES) if settings.text(name) else b"")
    return found.hexdigest()


def _digest(lake: Lake, tables: tuple[str, ...]) -> str:
    """Return a digest of the files of some tables, the same in every process; raises LakeError."""
    found = hashlib.blake2b(digest_size=8)
    for table in tables:
        for file in lake.files(table):
            found.update(f"{file.key} {file.size_bytes} {file.version}\n".encode())
    return found.hexdigest()
