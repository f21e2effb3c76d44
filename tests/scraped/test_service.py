"""The end of a service that follows a source."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from analytics.scraped.service import Stop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_first_signal_asks_for_the_end_and_the_second_one_ends_at_once() -> None:
    stop = Stop()
    assert not stop.wait(0)
    signal.raise_signal(signal.SIGTERM)
    assert stop.wait(20)
    assert stop.is_asked()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("line", range(1, 9))
def test_a_signal_at_any_line_of_anothers_handler_does_not_make_it_wait_for_itself(line: int) -> None:
    """As a shell sends two that kills its jobs and then ends."""
    stop, seen = Stop(), 0

    def second(_frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        seen += event == "line"
        if event == "line" and seen == line:
            signal.raise_signal(signal.SIGINT)
        return second

    sys.settrace(second)
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        sys.settrace(None)
    assert seen >= line
    assert stop.wait(0)
