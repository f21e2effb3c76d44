"""The number of views in progress is limited, per reader and in all, and only requested views are made."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from analytics.decide.review import found_by_rules
from analytics.time_limit import TookTooLongError, check_time
from dashboard.makers import Cache, Makers, TooManyError
from dashboard.memory import Budget


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here waits for the allocators."""
    monkeypatch.setattr("dashboard.memory.release_unused_memory", lambda: None)


class Slow:
    """Makers whose work waits until the test opens the gate; the clock is the test's."""

    def __init__(self) -> None:
        self.gate, self.now_s, self.made = threading.Event(), 0.0, list[str]()
        self.cache: Cache[str] = Cache(100)
        self.makers = Makers(now_s=lambda: self.now_s)

    def ask(self, key: str, reader: str | None = "ada") -> Future[str]:
        return self.makers.begin(self.cache, key, lambda: self._make(key), reader)

    def _make(self, key: str) -> str:
        self.gate.wait(60)
        self.made.append(key)
        return key


@pytest.fixture
def slow() -> Iterator[Slow]:
    found = Slow()
    yield found
    found.gate.set()


@pytest.fixture
def one_at_a_time(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> Slow:
    monkeypatch.setattr("dashboard.makers._AT_ONCE", 1)
    slow.makers = Makers(now_s=lambda: slow.now_s)
    return slow


def test_one_reader_has_a_limit_and_the_others_have_theirs(slow: Slow) -> None:
    taken = [slow.ask(f"ada {place}") for place in range(8)]
    with pytest.raises(TooManyError) as refused:
        slow.ask("ada 8").result(0)
    assert refused.value.hint
    others = [slow.ask("bob", "bob"), slow.ask("fallow", None)]
    assert slow.ask("ada 0") is taken[0]  # what is being made costs nothing to ask for again
    slow.gate.set()
    assert [each.result(60) for each in (*taken, *others)] == [f"ada {place}" for place in range(8)] + ["bob", "fallow"]
    assert slow.ask("ada 8").result(60) == "ada 8"  # what was refused is not kept


def test_all_together_have_no_more_than_the_bound(slow: Slow) -> None:
    taken = [slow.ask(str(place), f"reader {place // 8}") for place in range(32)]
    with pytest.raises(TooManyError):
        slow.ask("one more", "somebody else").result(0)
    slow.ask("for fallow itself", None)
    slow.gate.set()
    assert [each.result(60) for each in taken] == [str(place) for place in range(32)]


def test_a_view_that_is_no_longer_requested_is_not_begun(slow: Slow) -> None:
    running = [slow.ask(f"running {place}", "bob") for place in range(4)]
    abandoned, wanted = slow.ask("abandoned"), slow.ask("wanted")
    slow.now_s = 31.0
    assert slow.ask("wanted") is wanted
    slow.gate.set()
    assert [each.result(60) for each in (*running, wanted)] == [*(f"running {place}" for place in range(4)), "wanted"]
    with pytest.raises(TooManyError):
        abandoned.result(60)
    assert "abandoned" not in slow.made
    assert slow.ask("abandoned").result(60) == "abandoned"


def test_what_takes_too_long_is_given_up_at_its_next_step(slow: Slow) -> None:
    slow.gate.set()

    def make() -> str:
        check_time()
        slow.now_s += 301
        found_by_rules(None)  # type: ignore[arg-type]  # the first rule is not begun
        return "made"

    with pytest.raises(TookTooLongError) as told:
        slow.makers.begin(slow.cache, "late", make, "ada").result(60)
    assert told.value.hint
    check_time()  # out there is no limit


def test_readers_take_turns_and_another_is_next_after_what_is_being_made(one_at_a_time: Slow) -> None:
    slow = one_at_a_time
    futures = [slow.ask(f"ada {place}") for place in range(4)]
    futures += [slow.ask(f"bob {place}", "bob") for place in range(2)]
    futures += [slow.ask(f"fallow {place}", None) for place in range(2)]
    slow.gate.set()
    for each in futures:
        each.result(60)
    assert slow.made == ["ada 0", "bob 0", "fallow 0", "ada 1", "bob 1", "fallow 1", "ada 2", "ada 3"]


def test_a_reader_who_comes_back_waits_for_those_who_had_no_turn_since(one_at_a_time: Slow) -> None:
    """One light reader after another does not make a reader wait for ever."""
    slow = one_at_a_time
    futures = [slow.ask("ada 0"), slow.ask("ada 1")]

    def make() -> str:
        futures.append(slow.ask("cid 0", "cid"))
        return slow._make("bob 0")

    futures.append(slow.makers.begin(slow.cache, "bob 0", make, "bob"))
    slow.gate.set()
    for each in futures[:3]:
        each.result(60)
    futures[3].result(60)
    assert slow.made == ["ada 0", "bob 0", "ada 1", "cid 0"]


def test_those_that_were_asked_for_last_are_kept() -> None:
    cache: Cache[str] = Cache(2)
    for name in "abac":
        cache.of(name, str)
    assert list(cache.items()) == ["a", "c"]


@pytest.mark.parametrize(("bytes_", "at_once"), [(64, 1), (89, 1), (90, 2), (1000, 4)])
def test_no_more_views_are_made_at_once_than_there_is_room_for(bytes_: int, at_once: int) -> None:
    """Of 25 bytes each beside 40 that stay: with 64 bytes not even one fits, and none waits for ever."""
    making: list[int] = []
    most: list[int] = []
    budget = Budget(bytes_, used=lambda: 40 + 25 * len(making), most=lambda: 40 + 25 * max(most, default=0))
    makers, cache, lock = Makers(budget=budget), Cache[int](100), threading.Lock()

    def make(place: int) -> int:
        with lock:
            making.append(place)
            most.append(len(making))
        threading.Event().wait(0.05)  # long enough for whatever is begun beside it
        return place

    def made(place: int) -> Future[int]:
        future = makers.begin(cache, place, lambda: make(place), "ada")
        future.add_done_callback(lambda _: making.remove(place))
        return future

    made(0).result(60)  # the need is known from here on
    assert [each.result(60) for each in [made(place) for place in range(1, 8)]] == list(range(1, 8))
    assert max(most) <= at_once
