"""Prometheus' remote-write requests, written by hand: what the product reads with descriptors of its own is not written with them.

The message is prompb.WriteRequest: time series (1) of labels (1: name 1, value 2) and samples (2: value 1, milliseconds 2).
"""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import TYPE_CHECKING

import cramjam

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.scraped.exposed import Exposed

_STALE = struct.pack("<Q", 0x7FF0000000000002)
"""The NaN that Prometheus ends a series with."""
_VARINT, _DOUBLE, _BYTES = 0, 1, 2


def written_request(samples: Iterable[Exposed]) -> bytes:
    """The body of a request with these samples, packed as it travels."""
    series: dict[tuple[str, tuple[tuple[str, str], ...]], list[bytes]] = defaultdict(list)
    times: dict[int, bytes] = {}
    for sample in samples:
        if (at := times.get(sample.time_ms)) is None:
            at = times[sample.time_ms] = _key(2, _VARINT) + _varint(sample.time_ms)
        value = _STALE if sample.value is None else _PACK(sample.value)
        series[sample.name, sample.labels].append(_field(2, _VALUE + value + at))
    messages = [
        b"".join([_labels((("__name__", name), *labels)), *written]) for (name, labels), written in series.items()
    ]
    return bytes(cramjam.snappy.compress_raw(b"".join(_field(1, message) for message in messages)))


def _labels(pairs: Iterable[tuple[str, str]]) -> bytes:
    return b"".join(_field(1, _field(1, name.encode()) + _field(2, value.encode())) for name, value in sorted(pairs))


def _field(number: int, content: bytes) -> bytes:
    return _key(number, _BYTES) + _varint(len(content)) + content


def _key(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    if number <= 0x7F:
        return bytes((number,))
    pieces = bytearray()
    while number > 0x7F:
        pieces.append(number & 0x7F | 0x80)
        number >>= 7
    pieces.append(number)
    return bytes(pieces)


_PACK = struct.Struct("<d").pack
_VALUE = _key(1, _DOUBLE)
