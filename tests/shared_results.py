"""Ledgers, findings and reports of a lake, computed once for many looks at it.

A test of words, formats or scopes asks for the report of a lake that others have asked about. Here the second load of a
ledger and the second run of the rules return the first result, unless a file of the lake, a setting or a table of the
site has changed, or the clock shows another time.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from analytics.decide import review
from analytics.ledger import build
from analytics.report import report
from analytics.report.model import Asked
from fallow.clock import MINUTE_MS, SystemClock
from fallow.errors import LakeError
from fallow.lake import Lake

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from fallow.stores import Store

_MOST = 24
"""Results that are held at a time."""

_WHAT_PEOPLE_DID = ("action", "annotation", "delivery")
"""Tables that neither the ledger nor the rules read."""

_OF_MESSAGES = ("dashboard.", "mail.", "report.contacts", "report.language", "report.opt_out", "webhook.")
"""Settings that say to whom findings go and how, and change none."""

_results: OrderedDict[Hashable, Any] = OrderedDict()


def share_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the ledgers and findings that every command computes for itself by the shared ones.

    No ledger is kept in the lakes: for a lake that one test fills and reads, writing ten files a day is half of the
    work. A ledger that a lake already keeps is read.
    """
    monkeypatch.setattr("analytics.window.load_ledger", _shared_ledger)
    for module in ("analytics.report.model", "analytics.decide.review"):
        monkeypatch.setattr(f"{module}.find_in_window", _shared_findings)


@contextmanager
def sharing() -> Iterator[None]:
    """The same for a module of tests, which has every format, language and look of an edition from one report."""
    with pytest.MonkeyPatch.context() as patched:
        share_results(patched)
        for module in ("analytics.commands.report_edition", "analytics.report.report"):
            patched.setattr(f"{module}.build_report", _shared_report)
        yield


@pytest.fixture(autouse=True, scope="module")
def one_ledger_for_many_looks() -> Iterator[None]:
    """For a conftest, whose folder's tests ask one lake many things."""
    with sharing():
        yield


class _ReadOnlyStore:
    """A store that takes nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, key: str, data: bytes, before: Any = None) -> None:  # noqa: ARG002  # as Store has it
        raise LakeError(f"{key} is not written")


def _shared_ledger(lake: Any, settings: Any, **rest: Any) -> Any:
    lake, rest = Lake(_ReadOnlyStore(lake.store)), rest | {"warn": lambda _: None}

    def key() -> Hashable:
        return ("ledger", lake.root, _files(lake.root), repr(settings))

    return _once(key, lambda: _load(lake, settings, **rest))


def _shared_findings(inputs: Any, ledger: Any, inventory: Any = None, now_ms: int | None = None) -> Any:
    now_ms = SystemClock().now_ms() if now_ms is None else now_ms

    def key() -> Hashable:
        parts = (_site(inputs, without=_OF_MESSAGES), ledger.summary.since_ms, ledger.end_ms)
        return ("findings", inputs.lake.root, _files(inputs.lake.root), parts, now_ms // (5 * MINUTE_MS))

    found = _once(key, lambda: _find(inputs, ledger, inventory, now_ms))
    end_ms = inputs.window.until_ms
    return replace(found, as_of_ms=now_ms if end_ms is None else min(end_ms, now_ms))


def _shared_report(inputs: Any, ledger: Any, asked: Any = None) -> Any:
    asked, now_ms = asked or Asked(), SystemClock().now_ms()

    def key() -> Hashable:
        history = (ledger.summary.since_ms, ledger.end_ms, ledger.whole.first_ms, ledger.counted_back_from_ms)
        files = _files(inputs.lake.root, without=("delivery",))
        return ("report", inputs.lake.root, files, _site(inputs), history, repr(asked), now_ms // (5 * MINUTE_MS))

    return _once(key, lambda: _build(inputs, ledger, asked))


_load, _find, _build = build.load_ledger, review.find_in_window, report.build_report


def _site(inputs: Any, without: tuple[str, ...] = ("report.language",)) -> Hashable:
    """The settings that figures rest on, what is in the tables that they name, and the window."""
    values = {name: str(value) for name, value in inputs.settings.values.items() if not name.startswith(without)}
    settings = tuple((name, _content(value)) for name, value in sorted(values.items()))
    return (settings, repr(inputs.window))


def _content(value: str) -> str | bytes:
    """What is in a file that a setting names, wherever it lies; else the setting's value."""
    path = Path(value)
    return path.read_bytes() if path.is_absolute() and path.is_file() else value


def _once(key: Callable[[], Hashable], compute: Callable[[], Any]) -> Any:
    before = key()
    if before in _results:
        _results.move_to_end(before)
        return _results[before]
    result = compute()
    _results[key()] = result
    while len(_results) > _MOST:
        _results.popitem(last=False)
    return result


def _files(root: str, without: tuple[str, ...] = _WHAT_PEOPLE_DID) -> Hashable:
    """Every file of these tables with its size and time; a lake of weeks has thousands, which pathlib lists slowly."""
    if not Path(root).is_dir():
        return ()
    with os.scandir(root) as tables:
        return frozenset(each for table in tables if table.name not in without for each in _stamps(table))


def _stamps(entry: os.DirEntry[str]) -> Iterator[Hashable]:
    if entry.is_dir(follow_symlinks=False):
        yield entry.path
        with os.scandir(entry.path) as entries:
            for each in entries:
                yield from _stamps(each)
    elif entry.is_file():
        status = entry.stat()
        yield (entry.path, status.st_size, status.st_mtime_ns)
    else:
        yield entry.path
