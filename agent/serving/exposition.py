"""Reads the text in which servers expose metrics, Prometheus' own and OpenMetrics, keeping only the samples asked for.

It takes the text in pieces as they arrive, since a server's answer is up to 4 MiB and a few dozen of its lines matter.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.http_exchange import UnusableError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_LABELS = r'(?:[^"}]|"(?:[^"\\]|\\.)*")*'
_SAMPLE = re.compile(rf"([^\s{{]+)\s*(?:\{{({_LABELS})\}})?\s*(\S+)(?:\s+[-+.\deE]+)?\s*(?:#.*)?")
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)', re.ASCII)
_ESCAPED = re.compile(r"\\(.)")
_VALUE = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|[-+]?inf(inity)?|nan", re.IGNORECASE | re.ASCII)

_MOST_SAMPLES = 20_000
_LONGEST_LINE_BYTES = 2**16
_TOTAL = "_total"


@dataclass(frozen=True)
class Sample:
    name: str
    """Without `_total`, which some clients append to the name of a counter and others do not."""
    labels: tuple[tuple[str, str], ...]
    """Sorted by name."""
    value: float | None
    """None where the server says NaN or infinity."""

    def label(self, name: str) -> str:
        """The label's value; empty where there is none, which the format holds to be the same."""
        return dict(self.labels).get(name, "")


class Exposition:
    """One answer of a server.

    Any method may raise UnusableError where the text is none that a metrics endpoint writes: of a sample that cannot be read
    nobody knows what it would have added to a sum.
    """

    def __init__(self, names: Collection[str], prefixes: Iterable[str]) -> None:
        """`names` are the metrics to keep, without `_total`; `prefixes` those to look out for in any metric's name."""
        self._names = frozenset(names)
        self._wanted = tuple(name.encode() for name in sorted(self._names))
        self._prefixes = tuple(prefix.encode() for prefix in prefixes)
        self._rest = b""
        self.samples: list[Sample] = []
        self.seen: set[str] = set()
        """Prefixes of which some metric had a name."""

    def feed(self, piece: bytes) -> None:
        text = self._rest + piece
        end = text.rfind(b"\n") + 1
        self._rest = text[end:]
        if len(self._rest) > _LONGEST_LINE_BYTES:
            raise UnusableError("it does not write its metrics in lines")
        self._read(text[:end])

    def finish(self) -> None:
        rest, self._rest = self._rest, b""
        self._read(rest)

    def _read(self, text: bytes) -> None:
        for line in text.split(b"\n"):
            if line.startswith(self._prefixes):
                self.seen.update(prefix.decode() for prefix in self._prefixes if line.startswith(prefix))
            if line.startswith(self._wanted):
                self._keep(line)

    def _keep(self, line: bytes) -> None:
        name = re.split(rb"[\s{]", line, maxsplit=1)[0].decode("utf-8", "replace").removesuffix(_TOTAL)
        if name not in self._names:  # one that only begins like a wanted one
            return
        if len(self.samples) >= _MOST_SAMPLES:
            raise UnusableError(f"it has more than {_MOST_SAMPLES} series")
        match = _SAMPLE.fullmatch(line.decode("utf-8", "replace"))
        if match is None or not _VALUE.fullmatch(match[3]):
            raise UnusableError(f"its metric {name} cannot be read")
        value = float(match[3])
        self.samples.append(Sample(name, _labels(match[2] or "", name), value if math.isfinite(value) else None))


def _labels(text: str, name: str) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    position = 0
    while position < len(text) and not text[position:].isspace():
        match = _LABEL.match(text, position)
        if match is None:
            raise UnusableError(f"its metric {name} cannot be read")
        found[match[1]] = _ESCAPED.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], match[2])
        position = match.end()
    return tuple(sorted(found.items()))
