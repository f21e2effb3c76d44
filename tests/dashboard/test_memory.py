"""What is kept stays within the budget, and the budget is what the container allows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from dashboard.access.people import VIEWER, Reader
from dashboard.app import build_app
from dashboard.makers import Cache
from dashboard.memory import Budget, Making, budget_bytes, limit_bytes
from dashboard.query import Query
from dashboard.source import LakeSource
from dashboard.view import View
from fallow.clock import DAY_MS, format_ms
from fallow.lake import Lake
from tests.dashboard.conftest import UNTIL_MS, filled, inputs_of
from tests.dashboard.test_source import wait_for

GIB = 2**30


MACHINE = psutil.virtual_memory().total


@pytest.mark.parametrize(("own", "limits", "most"), [
    ("0::/a/b", {}, MACHINE),
    ("0::/a/b", {"a/b/memory.max": "max"}, MACHINE),
    ("0::/a/b", {"a/b/memory.max": MACHINE * 9}, MACHINE),
    ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": GIB}, GIB),
    ("0::/a/b", {"a/b/memory.max": GIB // 2, "a/memory.max": GIB}, GIB // 2),  # the least of all groups above
    ("0::/kubepods/pod1", {"memory.max": GIB}, GIB),  # inside a container its own group is the root
    # older kernels: a tree for memory alone
    ("7:cpu,cpuacct:/a\n4:memory:/a", {"memory/a/memory.limit_in_bytes": GIB}, GIB),
])  # fmt: skip
def test_the_least_limit_of_the_control_groups_counts(
    tmp_path: Path, own: str, limits: dict[str, object], most: int
) -> None:
    (tmp_path / "own").write_text(f"{own}\n")
    for name, limit in limits.items():
        (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cgroup" / name).write_text(f"{limit}\n")
    assert limit_bytes(tmp_path / "cgroup", tmp_path / "own") == most


def test_without_a_setting_it_is_half_of_the_limit_and_workers_share_it(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text(f"{GIB}\n")
    assert budget_bytes(0, 2, tmp_path) == GIB // 4
    assert budget_bytes(GIB, 2, tmp_path) == GIB // 2


def test_it_evicts_until_the_kept_views_fit_and_warns_where_they_cannot(caplog: pytest.LogCaptureFixture) -> None:
    kept: Cache[str] = Cache(10)
    for name in "abcd":
        kept.of(name, str)
    kept.of("a", str)
    Budget(100, used=lambda: 35 * len(kept.items())).keep(kept.evict)
    assert list(kept.items()) == ["d", "a"]
    budget = Budget(10, used=lambda: 30 * len(kept.items()))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            budget.keep(kept.evict)
    assert list(kept.items()) == ["a"]
    (warning,) = caplog.messages
    assert "dashboard.memory" in warning


def admitted(budget: Budget, evict: Callable[[], bool] = lambda: False) -> Making | None:
    """What may begin at once, None where it has to wait."""
    try:
        return budget.admit(evict, patience_s=0)
    except TimeoutError:
        return None


def measured(budget: Budget, growth: list[int], bytes_: int) -> None:
    """Has the budget know what one takes."""
    with budget.making(lambda: False):
        growth[0] = bytes_
    growth[0] = 0


@pytest.mark.parametrize(("bytes_", "at_once"), [(64, 1), (114, 1), (115, 2), (164, 2), (165, 3)])
def test_another_one_is_begun_only_where_the_largest_need_so_far_fits_for_all(bytes_: int, at_once: int) -> None:
    """What has grown already counts twice: with 64 bytes not even one fits, and none waits for ever."""
    growth, begun = [0], [0]
    budget = Budget(bytes_, used=lambda: 40 + growth[0] + 25 * begun[0])
    measured(budget, growth, 25)
    while admitted(budget):
        begun[0] += 1
    assert begun == [at_once]


def test_one_at_a_time_is_made_until_the_need_is_known() -> None:
    budget = Budget(1000, used=lambda: 40)
    first = admitted(budget)
    assert first
    assert not admitted(budget)
    budget.release(first)
    assert [bool(admitted(budget)) for _ in range(3)] == [True] * 3


def test_room_is_made_for_the_first_and_never_for_a_second_beside_it() -> None:
    kept: Cache[str] = Cache(10)
    for name in "abcd":
        kept.of(name, str)
    growth = [0]
    budget = Budget(100, used=lambda: 60 + 10 * len(kept.items()) + growth[0])
    measured(budget, growth, 20)
    assert admitted(budget, kept.evict)
    assert list(kept.items()) == ["c", "d"]
    assert not admitted(budget, kept.evict)
    assert list(kept.items()) == ["c", "d"]


def test_the_need_is_the_growth_up_to_the_peak_shared_by_those_at_once() -> None:
    used, most = [50], [60]
    budget = Budget(169, used=lambda: used[0], most=lambda: most[0])
    measured(budget, [0], 0)
    with budget.making(lambda: False), budget.making(lambda: False):
        most[0] = 90
        used[0] = 50  # of a peak that is over when it ends
    used[0] = 130
    assert admitted(budget)
    assert not admitted(budget)  # beside 130 there is no room for twice (90 - 50) / 2
    used[0] = 129
    assert admitted(budget)


@pytest.mark.parametrize(("before", "first"), [(0, "page"), (7, "page"), (8, "view")])
def test_a_page_is_begun_before_a_view_and_a_view_after_eight_pages(before: int, first: str) -> None:
    growth, begun = [0], list[str]()
    budget = Budget(100, used=lambda: growth[0])
    measured(budget, growth, 60)

    @contextmanager
    def making_a_view() -> Iterator[None]:
        own = budget.admit(lambda: False)
        yield
        budget.release(own)

    def wait_as(name: str) -> None:
        with budget.making(lambda: False) if name == "page" else making_a_view():
            begun.append(name)

    view = admitted(budget)
    assert view
    budget._in_a_row = before  # noqa: SLF001  # what was made before it
    with ThreadPoolExecutor(2) as waiting:
        both = [waiting.submit(wait_as, name) for name in ("view", "page")]
        wait_for(lambda: bool(budget._views and budget._pages))  # noqa: SLF001  # nothing else tells
        budget.release(view)
        for each in both:
            each.result(60)
    assert begun[0] == first


def test_a_page_waits_for_room_as_a_view_does_and_comes_then(fleet_lake: Lake) -> None:
    budget = Budget(100, used=lambda: 60)
    source = LakeSource(lambda: inputs_of(fleet_lake), budget=budget, patience_s=0.01)
    wait_for(lambda: isinstance(source.look(Query(), Reader("", VIEWER)), View))
    client = build_app(source).server.test_client()
    other = admitted(budget)
    assert other
    budget._need_bytes = 30  # noqa: SLF001  # what the largest took
    assert "In progress" in str(filled(client, "/"))
    budget.release(other)
    assert "In progress" not in str(filled(client, "/"))


def test_the_warning_has_the_views_in_progress_and_the_need_of_one(caplog: pytest.LogCaptureFixture) -> None:
    used = [2**20]
    no, budget = (lambda: False), Budget(10 * 2**20, used=lambda: used[0])
    measured(budget, [0], 0)
    with budget.making(no), budget.making(no), budget.making(no):
        used[0] = 13 * 2**20
        budget.keep(lambda: False)
    [warning] = caplog.messages
    assert "13.0 MiB are resident" in warning
    assert "while 3 views and pages were being made" in warning


def test_little_more_than_what_always_stays_is_kept_and_never_more_than_the_budget() -> None:
    kept: Cache[str] = Cache(100)
    budget = Budget(100, used=lambda: 80 + len(kept.items()))
    found = []
    for number in range(20):
        kept.of(number, lambda: "a page")
        budget.keep(kept.evict)
        found.append(len(kept.items()))
    assert found == [*range(1, 8), *range(1, 8), *range(1, 7)]


def test_a_window_that_went_is_made_again_and_one_that_stayed_is_not(fleet_lake: Lake) -> None:
    windows = [Query(since=format_ms(UNTIL_MS - (3 + each) * DAY_MS)) for each in range(2)]
    used = [0]
    source = LakeSource(lambda: inputs_of(fleet_lake), budget=Budget(100, used=lambda: used[0]))
    first = _views(source, windows)
    assert [each.report for each in _views(source, windows)] == [each.report for each in first]
    used[0] = 99
    _view(source, Query(span="all"))
    wait_for(lambda: len(_windows(source)) == 1)  # the others go
    used[0] = 0
    again = _views(source, windows)
    assert not {id(each.report) for each in first} & {id(each.report) for each in again}
    assert [each.report.ledger.summary for each in again] == [each.report.ledger.summary for each in first]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of what is kept does not wait for the allocators."""
    monkeypatch.setattr("dashboard.memory.release_unused_memory", lambda: None)


@pytest.mark.parametrize(
    ("path", "search"),
    [
        ("/timeline", "?span=24h&start=2025-11-19T0{}:00Z"),
        ("/quality", "?span=24h&zone=Etc/GMT%2B{}"),
        pytest.param("/report/download/json", "?span=24h&zone=Etc/GMT%2B{}", marks=pytest.mark.long),
    ],
)
def test_what_is_made_of_one_window_stays_within_the_budget_too(fleet_lake: Lake, path: str, search: str) -> None:
    """Each view and each page counts as one."""

    def kept() -> int:
        return sum(len(each.views.items()) + len(each.pages.items()) for each in _windows(source))

    source = LakeSource(lambda: inputs_of(fleet_lake), budget=Budget(4, used=kept))
    client = build_app(source).server.test_client()
    for number in range(1, 4):
        asked = search.format(number)
        answer = client.get(path + asked) if path.startswith("/report") else filled(client, path, asked)
        assert answer
        assert kept() <= 3


def _windows(source: LakeSource) -> list[Any]:
    """What is kept of each window."""
    return list(source._snapshot._windows.items().values()) if source._snapshot else []  # noqa: SLF001  # the only way


def _views(source: LakeSource, windows: list[Query]) -> list[View]:
    return [_view(source, each) for each in windows]


def _view(source: LakeSource, query: Query) -> View:
    found = source.look(query, Reader("", VIEWER))
    assert isinstance(found, View), found
    return found
