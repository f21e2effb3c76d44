"""One configured inference server over time: asks it, remembers its counters, and knows its process and GPUs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.serving import readings, relatives
from agent.serving.engines import ENGINES
from agent.serving.exposition import Exposition
from agent.serving.http_get import UnreachableError, UnusableError, get
from agent.serving.listener import find_listener

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from agent.serving.endpoint import Endpoint
    from agent.serving.engines import Engine
    from agent.serving.readings import Reading
    from agent.serving.relatives import Process

Value = int | float | str | None
Row = dict[str, Value]

_TIMEOUT_S = 2.0
_SEARCH_EVERY = 20
"""Rounds between two searches for the process, whether or not one was found: ports change hands, and a search of all of /proc
takes up to a second.
"""

_MOST_MODELS = 500
_HIDDEN = (
    "the process that listens there cannot be seen (it runs in a container behind a port mapping, or the agent lacks "
    "CAP_SYS_PTRACE), so its rows name no GPU"
)

_NAMES = readings.wanted_names()
_PREFIXES = tuple(engine.prefix for engine in ENGINES)
_LEVELS = ("kv_cache_used_ratio", "running_requests", "waiting_requests")
_RATES = ("requests_per_s", "prompt_tokens_per_s", "generated_tokens_per_s")


@dataclass(frozen=True)
class Holders:
    """Who is on the GPUs: for each GPU the processes, and for each process its lineage."""

    gpu_pids: Mapping[str, Collection[int]]
    lines: Mapping[int, tuple[int, ...]]

    def likely(self) -> frozenset[int]:
        """Processes that may well be inference servers: those on GPUs and those that started them."""
        return frozenset(pid for line in self.lines.values() for pid in line)


@dataclass(frozen=True)
class _Answer:
    """One answer that was understood."""

    address: str
    at_s: float
    engine: Engine
    readings: list[Reading]


@dataclass
class Server:
    """One endpoint."""

    endpoint: Endpoint
    proc: str
    _before: dict[str | None, Reading] = field(default_factory=dict)
    _before_s: float = 0.0
    _process: Process | None = None
    _rounds_to_search: int = 0
    _said: set[str] = field(default_factory=set)
    _said_hidden: bool = False
    _causes: list[str] = field(default_factory=list)

    def rows(self, holders: Holders) -> list[Row]:
        """Asks the server once: rows of the `serving` table without time and interval, one per model and GPU."""
        try:
            answer = self._ask()
        except UnreachableError as error:
            self._process, self._rounds_to_search = None, 0
            return [self._without_values("unreachable", str(error))]
        except UnusableError as error:
            return [self._without_values("unrecognised", str(error))]
        self._said.clear()
        self._find_process(answer.address, holders)
        pid = None if self._process is None else self._process.pid
        known: Row = {"endpoint": self.endpoint.url, "engine": answer.engine.name, "health": "ok", "pid": pid}
        gpus = self._gpus(holders) or (None,)
        return [known | model | {"gpu": gpu} for model in self._difference(answer) for gpu in gpus]

    def _ask(self) -> _Answer:
        """What the server says now; raises UnreachableError and UnusableError."""
        exposition = Exposition(_NAMES, _PREFIXES)
        address = get(self.endpoint, _TIMEOUT_S, exposition.feed)
        at_s = time.monotonic()
        exposition.finish()
        engine = readings.recognise(exposition.seen)
        if engine is None:
            raise UnusableError("it has no metrics of a server that fallow knows")
        found = readings.read(engine, exposition.samples)
        if len(found) > _MOST_MODELS:
            raise UnusableError(f"it names more than {_MOST_MODELS} models")
        return _Answer(address, at_s, engine, found)

    def take_causes(self) -> list[str]:
        """Sentences on what went wrong since the last call; each cause is named once until the server has answered again."""
        causes, self._causes = self._causes, []
        return causes

    def _difference(self, answer: _Answer) -> list[Row]:
        """Columns of each model's row from this answer and the one before."""
        elapsed_s, self._before_s = answer.at_s - self._before_s, answer.at_s
        before, self._before = self._before, {reading.model: reading for reading in answer.readings}
        return [
            {
                **dict.fromkeys((*_LEVELS, *_RATES)),
                "model": reading.model,
                **reading.levels,
                **readings.rates(before.get(reading.model), reading, elapsed_s),
            }
            for reading in answer.readings
        ]

    def _without_values(self, health: str, cause: str) -> Row:
        """The row of a server that did not say anything; the next answer may be another server's, counting anew."""
        self._before = {}
        if cause not in self._said:
            self._said.add(cause)
            self._causes.append(f"{self.endpoint.url}: {cause}")
        names = ("model", "engine", "gpu", "pid", *_LEVELS, *_RATES)
        return {"endpoint": self.endpoint.url, "health": health, **dict.fromkeys(names)}

    def _find_process(self, address: str, holders: Holders) -> None:
        """Makes sure that the process is known and the same as before, searching for it no more often than is due."""
        known = self._process
        if known is not None and relatives.identify(self.proc, known.pid) != known:
            self._process = None
            self._rounds_to_search = 0
        if self._rounds_to_search > 0:
            self._rounds_to_search -= 1
            return
        self._rounds_to_search = _SEARCH_EVERY
        pid = find_listener(self.proc, address, self.endpoint.port, holders.likely())
        self._process = None if pid is None else relatives.identify(self.proc, pid)
        if known is not None and self._process != known:
            self._before = {}  # another server than the one that these counters were of
        if self._process is None and not self._said_hidden:
            self._said_hidden = True
            self._causes.append(f"{self.endpoint.url}: {_HIDDEN}")

    def _gpus(self, holders: Holders) -> tuple[str, ...]:
        if self._process is None:
            return ()
        return relatives.gpus_of(self.proc, self._process.pid, holders.gpu_pids, holders.lines)
