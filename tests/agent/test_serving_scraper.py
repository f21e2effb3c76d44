"""The scraper beside the agent's intervals: when it asks, which rows result, and how it reports servers that fail."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agent.collectors import Interval, PodServer
from agent.serving.scraper import ServingScraper
from fallow import schema
from tests.agent import serving_texts as texts
from tests.agent.conftest import wait_until
from tests.agent.loopback import HOLD, Loopback, chunked, ok, status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

TICK_MS = 10_000
ROUND_MS = 30_000
START_MS = 1_790_000_010_000 // ROUND_MS * ROUND_MS
SILENT = ("gpu", "pid", "model", "engine", "kv_cache_used_ratio", "running_requests", "waiting_requests",
          "requests_per_s", "prompt_tokens_per_s", "generated_tokens_per_s", "time_to_first_token_s")  # fmt: skip


class Server:
    """A metrics endpoint whose answers a test can change."""

    def __init__(self, text: str = "") -> None:
        self.answer: Iterable[bytes] = ok(text)
        self.loopback = Loopback(lambda _path: self.answer)


@contextlib.contextmanager
def serving(text: str = "") -> Iterator[Server]:
    server = Server(text)
    with server.loopback:
        yield server


class Agent:
    """Calls the scraper once per interval, as the supervisor does."""

    def __init__(
        self, *endpoints: str, interval_ms: int = ROUND_MS, proc: str = "/proc", find_pods: Any = None
    ) -> None:
        self.scraper = ServingScraper(endpoints, interval_ms, proc, find_pods)
        self.now_ms = START_MS
        self.gpu_pids: dict[str, Sequence[int]] = {}

    def tick(self, tick_ms: int = TICK_MS) -> list[dict[str, Any]]:
        """The rows of one interval; does not wait for those that it orders."""
        self.now_ms += tick_ms
        return self.ask_again(tick_ms, self.gpu_pids)

    def ask_again(
        self, tick_ms: int = TICK_MS, pids: Mapping[str, Sequence[int]] | None = None
    ) -> list[dict[str, Any]]:
        found: list[Any] = self.scraper.collect(Interval(self.now_ms - tick_ms, self.now_ms, pids=pids or {}))
        return found

    def round(self) -> list[dict[str, Any]]:
        """The rows of one round: three intervals, and what is asked at the end of the third."""
        rows = [row for _ in range(ROUND_MS // TICK_MS) for row in self.tick()]
        assert rows == []
        wait_until(lambda: rows.extend(self.ask_again()) or rows)
        return rows


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Agent]]:
    """Those that a test has started; all are ended after it."""
    monkeypatch.setattr("agent.serving.scraper._TIMEOUT_S", 60.0)  # a busy machine is no server that hangs
    started: list[Agent] = []
    yield started
    for agent in started:
        agent.scraper.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "fallow-serving"]


def test_rows_have_exactly_the_columns_of_the_table(agents: list[Agent]) -> None:
    names = {column.name for column in schema.table("serving").columns}
    with serving(texts.vllm()) as server:
        agents.append(agent := Agent("http://127.0.0.1:1/metrics", server.loopback.url()))
        rows = agent.round()
        assert [row.keys() == names for row in rows] == [True] * 2
        assert [row["health"] for row in rows] == ["unreachable", "ok"], "a dead server hides none of the others"


def test_levels_come_first_and_rates_with_the_second_answer(agents: list[Agent]) -> None:
    with serving(texts.vllm()) as server:
        agents.append(agent := Agent(server.loopback.url()))
        (first,) = agent.round()
        assert (first["time"], first["interval_ms"]) == (START_MS, ROUND_MS)
        assert (first["engine"], first["model"], first["health"]) == ("vllm", "meta-llama/Llama-3.1-8B", "ok")
        assert (first["kv_cache_used_ratio"], first["running_requests"], first["waiting_requests"]) == (0.5, 3.0, 3.0)
        assert (first["requests_per_s"], first["generated_tokens_per_s"]) == (None, None)
        server.answer = chunked([piece.encode() + b"\n" for piece in texts.vllm(generated=60_000).splitlines()])
        (second,) = agent.round()
        assert second["time"] == START_MS + ROUND_MS
        assert second["generated_tokens_per_s"] > 0
        assert (second["requests_per_s"], second["prompt_tokens_per_s"]) == (0.0, 0.0)


def test_one_row_for_each_model_and_gpu(agents: list[Agent]) -> None:
    with serving(texts.triton()) as server:
        agents.append(agent := Agent(server.loopback.url()))
        agent.gpu_pids = {"GPU-b": (os.getpid(), 1), "GPU-a": (os.getpid(),), "GPU-other": (1,)}
        rows = agent.round()
        assert {row["pid"] for row in rows} == {os.getpid()}
        assert [(row["model"], row["gpu"]) for row in rows] == [
            (model, gpu) for model in ("chat:1", "resnet:2", "trt:1") for gpu in ("GPU-a", "GPU-b")
        ]
        agent.gpu_pids = {"GPU-other": (1,)}
        assert [(row["pid"], row["gpu"]) for row in agent.round()] == [(os.getpid(), None)] * 3
        assert agent.scraper.take_incidents() == []


def test_pods_of_this_host_are_asked_without_credentials_or_redirects(agents: list[Agent]) -> None:
    def pod(server: Server, name: str, *gpus: str) -> PodServer:
        return PodServer("ml", name, server.loopback.url(), gpus, START_MS)

    with serving(texts.vllm()) as server, serving("up 1\n") as other, serving() as moved:
        moved.answer = status(302, "Location: /elsewhere")
        listed, outdated = [pod(server, "llm-0", "GPU-a", "GPU-b"), pod(other, "web-0"), pod(moved, "moved-0")], []
        agents.append(agent := Agent(find_pods=lambda outdated_ms: outdated.append(outdated_ms) or listed))
        rows = agent.round()
        places = [(row["namespace"], row["pod"], row["gpu"], row["model"]) for row in rows]
        assert places == [("ml", "llm-0", gpu, "meta-llama/Llama-3.1-8B") for gpu in ("GPU-a", "GPU-b")]
        assert agent.scraper.take_incidents() == [], "a pod that is no server gives neither rows nor an event"
        (request,) = server.loopback.requests
        headers = {line.partition(":")[0] for line in request.splitlines()[1:] if line}
        assert headers == {"Host", "User-Agent", "Accept", "Connection"}
        assert len(moved.loopback.requests) == 1

        server.answer = status(503)
        assert [(row["health"], row["pod"]) for row in agent.round()] == [("unrecognised", "llm-0")]
        assert [each["kind"] for each in agent.scraper.take_incidents()] == ["serving_failed"]
        server.answer = ok(texts.vllm())
        rounds = len(outdated)  # its address may be another pod's by now: a newer list has to say that it is not
        wait_until(lambda: agent.tick() or len(outdated) >= rounds + 3)
        assert (len(server.loopback.requests), outdated[-1]) == (2, START_MS)
        listed[0] = replace(listed[0], listed_ms=START_MS + 1)
        agent.now_ms = agent.now_ms // ROUND_MS * ROUND_MS
        assert {row["health"] for row in agent.round()} == {"ok"}
        assert (len(other.loopback.requests), len(moved.loopback.requests)) == (1, 1), "others are asked seldom"


def test_a_server_is_asked_at_the_end_of_each_of_its_own_intervals(agents: list[Agent]) -> None:
    with serving(texts.vllm()) as server:
        agents.append(agent := Agent(server.loopback.url()))
        agent.tick()  # an interval has begun before: its end is waited for
        agent.tick()
        assert server.loopback.requests == []
        rows = agent.tick()
        wait_until(lambda: rows.extend(agent.tick(tick_ms=0)) or rows)
        agent.now_ms += 3 * ROUND_MS + TICK_MS  # suspended, and awake again in the middle of an interval
        agent.tick()
        wait_until(lambda: rows.extend(agent.tick(tick_ms=0)) or len(rows) == 2)
        assert [row["time"] - START_MS for row in rows] == [0, 3 * ROUND_MS]
        assert len(server.loopback.requests) == 2


def test_an_interval_of_the_agent_longer_than_the_servers_decides(agents: list[Agent]) -> None:
    with serving(texts.vllm()) as server:
        agents.append(agent := Agent(server.loopback.url(), interval_ms=1000))
        rows = agent.tick(tick_ms=60_000)
        wait_until(lambda: rows.extend(agent.ask_again(60_000)) or rows)
    assert [(row["time"] % 60_000, row["interval_ms"]) for row in rows] == [(0, 60_000)]


@pytest.mark.parametrize(("answer", "health", "cause"), [
    (status(404), "unrecognised", "HTTP status 404"),
    (ok("python_gc_objects_collected_total 1\n"), "unrecognised", "no metrics of a supported server"),
    (ok("vllm:num_requests_running{ 3\n"), "unrecognised", "vllm:num_requests_running cannot be read"),
    (ok("".join(f'vllm:num_requests_running{{model_name="{n}"}} 1\n' for n in range(501))), "unrecognised",
     "500 models"),
    ([b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", texts.vllm().encode()], "unreachable",
     "closed the connection"),
], ids=["404", "another program", "garbage", "many models", "cut off"])  # fmt: skip
def test_an_answer_of_no_use_is_one_row_without_numbers_and_one_event(
    agents: list[Agent], answer: list[bytes], health: str, cause: str
) -> None:
    with serving(texts.vllm()) as server:
        agents.append(agent := Agent(server.loopback.url()))
        agent.gpu_pids = {"GPU-a": (os.getpid(),)}
        agent.round()
        server.answer = answer
        for _ in range(3):
            (row,) = agent.round()
            assert (row["endpoint"], row["health"]) == (server.loopback.url(), health)
            assert {name: row[name] for name in SILENT} == dict.fromkeys(SILENT)
        (incident,) = agent.scraper.take_incidents()
        assert incident["kind"] == "serving_failed"
        assert incident["detail"].startswith(server.loopback.url())
        assert cause in incident["detail"]
        server.answer = ok(texts.vllm(generated=99_999))
        (row,) = agent.round()
        assert (row["health"], row["gpu"], row["generated_tokens_per_s"]) == ("ok", "GPU-a", None)
        server.answer = answer
        agent.round()
        assert len(agent.scraper.take_incidents()) == 1  # it came back after an answer


def test_a_server_that_hangs_holds_nobody_up(agents: list[Agent]) -> None:
    with serving() as server:
        server.answer = [HOLD]
        agents.append(agent := Agent(server.loopback.url()))
        for _ in range(ROUND_MS // TICK_MS):
            assert agent.tick() == []
        wait_until(lambda: server.loopback.requests)
        agent.now_ms += 2 * ROUND_MS - TICK_MS
        assert agent.tick() == []  # the round before still waits: no second one beside it
        assert len(server.loopback.requests) == 1


def test_a_process_that_cannot_be_seen_is_said_once(agents: list[Agent], tmp_path: Any) -> None:
    with serving(texts.vllm()) as server:
        agents.append(agent := Agent(server.loopback.url(), proc=str(tmp_path)))
        agent.gpu_pids = {"GPU-a": (os.getpid(),)}
        for _ in range(2):
            (row,) = agent.round()
            assert (row["health"], row["running_requests"], row["pid"], row["gpu"]) == ("ok", 3.0, None, None)
        (incident,) = agent.scraper.take_incidents()
        assert "CAP_SYS_PTRACE" in incident["detail"]
