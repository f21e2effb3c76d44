"""A window in pieces of bounded size, asked for ahead of whoever takes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future

from analytics.scraped.samples import Samples
from analytics.scraped.server.refusals import OversizedAnswerError
from fallow.clock import DAY_MS, MINUTE_MS, SECOND_MS

_FIRST_MS = 5 * MINUTE_MS
_LONGEST_MS = 7 * DAY_MS
_SHORTEST_MS = SECOND_MS
_STRIDE = 8
"""By how much at most a piece is longer than the one before: samples may become dense again."""


class PieceLength:
    """How long a piece may be, learnt from those before: counting first would make the server decode everything twice."""

    def __init__(self, most_samples: int) -> None:
        self.ms = _FIRST_MS
        self.is_settled = False
        """Whether the last piece was of some size: what follows empty ones may be far too much, which is met one at a time."""
        self._most_samples = most_samples

    def learn(self, length_ms: int, samples: int) -> None:
        wanted_ms = length_ms * self._most_samples // max(samples, 1)
        self.ms = max(_SHORTEST_MS, min(max(wanted_ms, self.ms // _STRIDE), self.ms * _STRIDE, _LONGEST_MS))
        self.is_settled = samples * _STRIDE >= self._most_samples

    def shorten(self, length_ms: int) -> None:
        """After a refusal of that length."""
        self.ms = max(min(self.ms, length_ms // 2), _SHORTEST_MS)
        self.is_settled = False


def in_pieces(
    read: Callable[[int, int], Samples],
    since_ms: int,
    until_ms: int,
    *,
    length: PieceLength,
    pool: Executor,
    ahead: int,
) -> Iterator[Samples]:
    """`read` over adjacent spans, in order of time, without empty ones; asks for half of a span that is refused for its size.

    Raises OversizedAnswerError where a second is refused.
    """
    asked: deque[tuple[int, int, Future[Samples]]] = deque()
    next_ms = since_ms
    try:
        while asked or next_ms < until_ms:
            while next_ms < until_ms and len(asked) < (ahead if length.is_settled else 1):
                end_ms = min(until_ms, next_ms + length.ms)
                asked.append((next_ms, end_ms, pool.submit(read, next_ms, end_ms)))
                next_ms = end_ms
            start_ms, end_ms, future = asked.popleft()
            try:
                samples = future.result()
            except OversizedAnswerError:
                if end_ms - start_ms <= _SHORTEST_MS:
                    raise
                length.shorten(end_ms - start_ms)
                _give_up(asked)  # those behind it are as long
                next_ms = start_ms
                continue
            length.learn(end_ms - start_ms, samples.frame.height)
            if samples.frame.height:
                yield samples
    finally:
        _give_up(asked)


def _give_up(asked: deque[tuple[int, int, Future[Samples]]]) -> None:
    for _, _, future in asked:
        future.cancel()
    asked.clear()
