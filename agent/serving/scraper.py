"""Queries the configured inference servers, and those in pods of this host, in its own thread: rows of `serving`."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from agent.collectors import Collector, Interval
from agent.http_client import UnreachableError, UnusableError, get, parse_endpoints, pod_endpoint
from agent.serving import processes, readings
from agent.serving.processes import families, find_listener
from agent.serving.readings import Exposition
from fallow.serving_engines import ENGINES, FIRST_TOKEN, recognise, wanted_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from agent.collectors import PodServer
    from agent.http_client import Endpoint
    from agent.rows import EventRow, ServingRow
    from agent.serving.readings import Reading
    from fallow.serving_engines import Engine

    FindPods = Callable[[int], Sequence[PodServer]]

_TIMEOUT_S = 2.0
_SEARCH_EVERY = 20
"""Rounds between two searches for the process, found or not: another process may take the port, and a search of all of
/proc takes up to a second.
"""

_MOST_MODELS = 500
_HIDDEN = (
    "the process that listens there is not visible (it is in a container behind a port mapping, or the agent lacks "
    "CAP_SYS_PTRACE), so its rows name no GPU"
)

_NAMES = wanted_names()
_PREFIXES = tuple(engine.prefix for engine in ENGINES)
_LEVELS = ("kv_cache_used_ratio", "running_requests", "waiting_requests")
_RATES = ("requests_per_s", "prompt_tokens_per_s", "generated_tokens_per_s", FIRST_TOKEN)


@dataclass(frozen=True)
class GpuProcesses:
    gpu_pids: Mapping[str, Collection[int]]
    lines: Mapping[int, tuple[int, ...]]

    def likely(self) -> frozenset[int]:
        """Return processes that are likely inference servers: those on GPUs and their ancestors."""
        return frozenset(pid for line in self.lines.values() for pid in line)


@dataclass
class ScrapedServer:
    endpoint: Endpoint
    proc: str
    _before: dict[str | None, Reading] = field(default_factory=dict)
    _before_s: float = 0.0
    _process: tuple[int, int] | None = None
    """The process's number and start."""
    _rounds_to_search: int = 0
    _reported: set[str] = field(default_factory=set)
    _is_hidden_reported: bool = False
    _causes: list[str] = field(default_factory=list)
    _redirects: tuple[int, ...] = ()
    """The most redirects to follow, if not as many as `get` does."""

    def rows(self, gpu_processes: GpuProcesses) -> list[ServingRow]:
        """Query the server once. Return `serving` rows without time and interval, one per model and GPU."""
        try:
            address, at_s, engine, found = self._ask()
        except UnreachableError as error:
            self._process, self._rounds_to_search = None, 0
            return [self._without_values("unreachable", str(error))]
        except UnusableError as error:
            return [self._without_values("unrecognised", str(error))]
        self._reported.clear()
        self._find_process(address, gpu_processes)
        pid = None if self._process is None else self._process[0]
        known: ServingRow = {"endpoint": self.endpoint.url, "engine": engine.name, "health": "ok", "pid": pid}
        known |= {"namespace": None, "pod": None}  # allocations name the pod of its GPUs
        gpus = self._gpus(gpu_processes) or (None,)
        return [known | model | {"gpu": gpu} for model in self._difference(found, at_s) for gpu in gpus]

    def _ask(self) -> tuple[str, float, Engine, list[Reading]]:
        """Return the server's address, its readings and their time; raises UnreachableError and UnusableError."""
        exposition = Exposition(_NAMES, _PREFIXES)
        address = get(self.endpoint, _TIMEOUT_S, exposition.feed, *self._redirects)
        at_s = time.monotonic()
        exposition.finish()
        engine = recognise(exposition.seen)
        if engine is None:
            raise UnusableError("it has no metrics of a supported server")
        found = readings.read(engine, exposition.samples)
        if len(found) > _MOST_MODELS:
            raise UnusableError(f"it names more than {_MOST_MODELS} models")
        return address, at_s, engine, found

    def take_causes(self) -> list[str]:
        """Return a sentence per new error since the last call; each cause once until the server answers again."""
        causes, self._causes = self._causes, []
        return causes

    def _difference(self, found: list[Reading], at_s: float) -> list[ServingRow]:
        elapsed_s, self._before_s = at_s - self._before_s, at_s
        before, self._before = self._before, {reading.model: reading for reading in found}
        rows = [
            {
                **dict.fromkeys((*_LEVELS, *_RATES)),
                "model": reading.model,
                **reading.levels,
                **readings.rates(before.get(reading.model), reading, elapsed_s),
            }
            for reading in found
        ]
        return cast("list[ServingRow]", rows)  # the columns depend on the engine

    def _without_values(self, health: str, cause: str) -> ServingRow:
        """Return the row of a server without an answer. The next may be another server's, with new counters."""
        self._before = {}
        if cause not in self._reported:
            self._reported.add(cause)
            self._causes.append(f"{self.endpoint.url}: {cause}")
        names = ("model", "engine", "namespace", "pod", "gpu", "pid", *_LEVELS, *_RATES)
        return cast("ServingRow", {"endpoint": self.endpoint.url, "health": health, **dict.fromkeys(names)})

    def _find_process(self, address: str, gpu_processes: GpuProcesses) -> None:
        """Check that the process is known and the same as before; search for it at most as often as is due."""
        known = self._process
        if known is not None and processes.start_of(self.proc, known[0]) != known[1]:
            self._process = None
            self._rounds_to_search = 0
        if self._rounds_to_search > 0:
            self._rounds_to_search -= 1
            return
        self._rounds_to_search = _SEARCH_EVERY
        pid = find_listener(self.proc, address, self.endpoint.port, gpu_processes.likely())
        started = None if pid is None else processes.start_of(self.proc, pid)
        self._process = None if pid is None or started is None else (pid, started)
        if known is not None and self._process != known:
            self._before = {}  # these counters belong to another server
        if self._process is None and not self._is_hidden_reported:
            self._is_hidden_reported = True
            self._causes.append(f"{self.endpoint.url}: {_HIDDEN}")

    def _gpus(self, gpu_processes: GpuProcesses) -> tuple[str, ...]:
        if self._process is None:
            return ()
        return processes.gpus_of(self.proc, self._process[0], gpu_processes.gpu_pids, gpu_processes.lines)


@dataclass
class ScrapedPod(ScrapedServer):
    """A pod, which counts as a server from its first answer as one; until then it gives no rows, and is asked seldom.

    The address of a server that gave no answer may soon be another pod's, so it is asked again only after a newer list.
    """

    _redirects: tuple[int, ...] = (0,)
    _is_server: bool = False
    _rounds_to_ask: int = 0
    _lost_ms: int | None = None
    """Time of the newest list by which the server gave no answer; None if it answered."""
    outdated_ms: int = -1
    """Time of the first of these lists: a newer one is wanted."""

    def pod_rows(self, pod: PodServer) -> list[ServingRow]:
        """Return the rows as `rows` does; none while the pod is not asked."""
        self._rounds_to_ask -= 1
        if self._rounds_to_ask > 0 or self._lost_ms == pod.listed_ms:
            return []
        place: ServingRow = {"namespace": pod.namespace, "pod": pod.pod}
        try:
            _, at_s, engine, found = self._ask()
        except (UnreachableError, UnusableError) as error:
            if not self._is_server:
                self._rounds_to_ask = _SEARCH_EVERY
                return []
            if self._lost_ms is None:
                self.outdated_ms = pod.listed_ms
            self._lost_ms = pod.listed_ms
            health = "unreachable" if isinstance(error, UnreachableError) else "unrecognised"
            return [self._without_values(health, str(error)) | place]
        self._reported.clear()
        self._is_server, self._lost_ms = True, None
        known: ServingRow = {"endpoint": self.endpoint.url, "engine": engine.name, "health": "ok", "pid": None}
        known |= place
        return [known | row | {"gpu": gpu} for row in self._difference(found, at_s) for gpu in pod.gpus or (None,)]


log = logging.getLogger("fallow.agent")

_MOST_PODS = 64
_PODS_S = 20.0
"""Time for all pods of a round: pods that do not answer delay no configured server for longer."""

_LAST_WAIT_S = 2.5
"""Time for a running query at the end of the run; a thread that still waits ends with the process."""


class ServingScraper(Collector):
    """Rows of the `serving` table, from a thread that queries the servers.

    `collect` never waits for a server: it starts a round when an interval of `interval_ms` has ended, and returns the
    rows of earlier rounds. A row's interval is that interval (or the agent's if that is longer).
    """

    name = table = "serving"

    def __init__(
        self, endpoints: Iterable[str], interval_ms: int, proc: str = "/proc", find_pods: FindPods | None = None
    ) -> None:
        """Start the thread. Raises UsageError where an endpoint is not a loopback http(s) address.

        `find_pods` returns the pods to ask. It gets the time of the newest outdated list of pods, -1 without one.
        """
        self._interval_ms = interval_ms
        self._proc = proc
        self._servers = [ScrapedServer(endpoint, proc) for endpoint in parse_endpoints(endpoints)]
        self._pods: dict[tuple[str, str, str], ScrapedPod] = {}
        self._find_pods = find_pods
        self._listed: Sequence[PodServer] = ()
        self._lock = threading.Condition()
        self._order: Interval | None = None
        self._ordered: int | None = None
        self._idle = True
        self._closed = False
        self._rows: list[ServingRow] = []
        self._incidents: list[EventRow] = []
        self._thread = threading.Thread(target=self._work, name="fallow-serving", daemon=True)
        self._thread.start()

    def collect(self, interval: Interval) -> list[ServingRow]:
        span_ms = max(self._interval_ms, interval.length_ms)
        end_ms = interval.end_ms // span_ms * span_ms
        with self._lock:
            first = self._ordered is None and end_ms <= interval.start_ms  # wait for the end of a whole interval
            if self._idle and not first and end_ms != self._ordered:
                if self._find_pods is not None:
                    outdated_ms = max((each.outdated_ms for each in self._pods.values()), default=-1)
                    self._listed = self._find_pods(outdated_ms)
                self._ordered = end_ms
                self._idle = False
                self._order = Interval(end_ms - span_ms, end_ms, pids=dict(interval.pids))
                self._lock.notify()
            rows, self._rows = self._rows, []
        return rows

    def take_incidents(self) -> list[EventRow]:
        with self._lock:
            incidents, self._incidents = self._incidents, []
        return incidents

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._lock.notify()
        self._thread.join(_LAST_WAIT_S)

    def _work(self) -> None:
        while (order := self._next()) is not None:
            rows: list[ServingRow] = []
            incidents: list[EventRow] = []
            try:
                self._ask_all(order, rows, incidents)
            except Exception as error:
                # a dead thread would leave the remaining run without rows and without an error
                log.exception("the query of the inference servers failed")
                incidents.append(
                    {"kind": "serving_failed", "detail": f"the query of the inference servers failed: {error!r}"}
                )
            with self._lock:
                self._rows += rows
                self._incidents += incidents
                self._idle = True

    def _next(self) -> Interval | None:
        with self._lock:
            self._lock.wait_for(lambda: self._closed or self._order is not None)
            order, self._order = self._order, None
            return None if self._closed else order

    def _ask_all(self, order: Interval, rows: list[ServingRow], incidents: list[EventRow]) -> None:
        gpu_processes = GpuProcesses(
            order.pids, families(self._proc, {pid for pids in order.pids.values() for pid in pids})
        )
        moment: ServingRow = {"time": order.start_ms, "interval_ms": order.length_ms}
        for server in self._servers:
            if self._closed:
                return
            rows.extend(moment | row for row in server.rows(gpu_processes))
            incidents.extend({"kind": "serving_failed", "detail": cause} for cause in server.take_causes())
        self._ask_pods(moment, rows, incidents)

    def _ask_pods(self, moment: ServingRow, rows: list[ServingRow], incidents: list[EventRow]) -> None:
        listed = {(each.namespace, each.pod, each.url): each for each in self._listed[:_MOST_PODS]}
        self._pods = {key: server for key, server in self._pods.items() if key in listed}
        deadline_s = time.monotonic() + _PODS_S
        for key, pod in listed.items():
            endpoint = pod_endpoint(pod.url)
            if endpoint is None:
                continue
            if self._closed or time.monotonic() > deadline_s:
                return
            server = self._pods.setdefault(key, ScrapedPod(endpoint, self._proc))
            rows.extend(moment | row for row in server.pod_rows(pod))
            incidents.extend({"kind": "serving_failed", "detail": cause} for cause in server.take_causes())
