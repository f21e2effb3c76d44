"""The truth that a fleet is compared with: which intervals an agent observes, by what was done to it."""

from __future__ import annotations

from collections import Counter

from tests.fleet.expected import LAG_MS, ExpectedRows

MINUTE = 60_000
TICK = LAG_MS + 50


def host(*, started_ms: int = TICK) -> ExpectedRows:
    made = ExpectedRows(MINUTE)
    made.started(started_ms)
    return made


def wrong(expected: ExpectedRows, *seen_min: int) -> dict[str, list[int]]:
    found = expected.wrong(Counter(each * MINUTE for each in seen_min), 0, None)
    return {fault: [each // MINUTE for each in starts] for fault, starts in found.items()}


def test_each_whole_interval_is_observed_once() -> None:
    expected = host()
    for minute in (1, 2, 3, 4):
        expected.woke(minute * MINUTE + TICK)
    assert wrong(expected, 1, 2, 3) == {}
    assert wrong(expected, 0, 1, 2, 3) == {}, "the one in which it began may be there"
    assert wrong(expected, 1, 3, 3, 9) == {"missing": [2], "doubled": [3], "foreign": [9]}


def test_an_interval_in_which_the_agent_was_killed_may_be_missing() -> None:
    expected = host()
    expected.woke(2 * MINUTE + TICK)
    expected.woke(3 * MINUTE + TICK, killed=True)
    expected.ended()
    expected.woke(4 * MINUTE + TICK)
    assert wrong(expected, 1) == wrong(expected, 1, 2) == {}
    assert wrong(expected, 1, 3) == {"foreign": [3]}


def test_a_clock_put_forward_skips_intervals_and_one_put_back_repeats_them() -> None:
    expected = host()
    expected.woke(2 * MINUTE + TICK)
    expected.stepped(10 * MINUTE)
    expected.woke(13 * MINUTE + TICK)
    assert wrong(expected, 1, 12) == {}
    expected.stepped(-10 * MINUTE)
    expected.woke(4 * MINUTE + TICK)
    expected.woke(6 * MINUTE + TICK)
    assert wrong(expected, 1, 5, 12) == {}
    for minute in range(7, 14):
        expected.woke(minute * MINUTE + TICK)
    assert wrong(expected, 1, 5, 6, 7, 8, 9, 10, 11, 12, 12) == {}
    assert wrong(expected, 1, 5, 6, 7, 8, 9, 10, 11, 12) == {"missing": [12]}
