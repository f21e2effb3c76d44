"""`fallow dashboard` in a separate process, with requests over loopback like a browser's, but without a browser."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from dashboard.frame import OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Iterator


USER_HEADER = "X-Forwarded-User"
_PACKED = b"\x1f\x8b"


@dataclass(frozen=True)
class Answer:
    """Seconds until a page arrived, its compressed bytes, and its content."""

    spent_s: float
    wire_bytes: int
    text: bytes

    def figures(self) -> dict[str, int]:
        """Return the compressed bytes of each figure, and of the texts that some figures have beside them, by id."""
        found: dict[str, int] = {}

        def walk(part: object) -> None:
            if isinstance(part, list):
                for each in part:
                    walk(each)
            elif isinstance(part, dict) and "props" in part:
                own = part["props"].get({"Graph": "figure", "Store": "data"}.get(part["type"], ""))
                if own is not None:
                    name = str(part["props"].get("id", part["type"]))
                    found[name] = len(gzip.compress(json.dumps(own).encode(), 6))
                walk(part["props"].get("children"))

        walk(json.loads(self.text)["response"]["page"]["children"])
        return found


@dataclass(frozen=True)
class Server:
    process: psutil.Process
    port: int
    start_s: float

    def ask(self, path: str, search: str, user: str = "") -> Answer:
        """Return a page, for a user that a proxy names; fails for other answers."""
        before = time.perf_counter()
        while True:
            content = self._answer(path, search, user)
            spent_s = time.perf_counter() - before
            text = (
                gzip.decompress(content) if content.startswith(_PACKED) else content
            )  # short answers are not compressed
            if b'"data-again"' in text:  # an answer that takes longer: the page asks again, like this loop
                time.sleep(0.1)
                continue
            if b'"className":"heading"' not in text:
                raise RuntimeError(f"{path}{search} is no page: {text[:300]!r}")
            return Answer(spent_s, len(content), text)

    def request(self, path: str, search: str, user: str = "") -> http.client.HTTPConnection:
        """Return the connection of a page's request, whose answer is unread."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("POST", "/_dash-update-component", json.dumps(question(path, search)), {
            "Content-Type": "application/json", "Accept-Encoding": "gzip", "Origin": f"http://127.0.0.1:{self.port}",
            **({USER_HEADER: user} if user else {}),
        })  # fmt: skip
        return connection

    def get(self, path: str, port: int | None = None) -> float:
        """Return the seconds until an address, other than a page, answers with 200; raises OSError and RuntimeError."""
        before = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=120)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise RuntimeError(f"{path}: {answer.status}")
        return time.perf_counter() - before

    def _answer(self, path: str, search: str, user: str) -> bytes:
        connection = self.request(path, search, user)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if answer.status != http.client.OK:
            raise RuntimeError(f"{path}{search}: {answer.status}")
        return content

    def largest_bytes(self) -> int:
        """Return the resident memory of the largest of its processes."""
        return max(each.memory_info().rss for each in self._processes())

    def largest_ever_bytes(self) -> int:
        """Return the kernel's maximum of resident memory of one of its processes since `forget_largest`."""
        return max(_most_resident_bytes(each.pid) for each in self._processes())

    def forget_largest(self) -> None:
        """Restart the kernel's maximum from the current resident memory."""
        for each in self._processes():
            Path(f"/proc/{each.pid}/clear_refs").write_text("5")

    def cpu_s(self) -> float:
        """Return the CPU seconds of the server and its children so far."""
        return sum(each.cpu_times().user + each.cpu_times().system for each in self._processes())

    def resident_bytes(self) -> int:
        """Return the resident memory of the server and its children."""
        return sum(each.memory_info().rss for each in self._processes())

    def _processes(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]


def _most_resident_bytes(pid: int) -> int:
    """Return the kernel's own maximum, which no sampling misses."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(each.split()[1]) * 1024 for each in lines if each.startswith("VmHWM:"))


def question(path: str, search: str) -> dict[str, object]:
    outputs = [("page", "children"), ("nav", "children"), ("version", "data")]
    outputs += [(each.component_id, each.component_property) for each in OUTPUTS]
    asked = [
        ("scheme", "data", "light"),
        ("url", "pathname", path),
        ("url", "search", search),
        ("again", "n_clicks", None),
    ]
    return {
        "output": "..{}..".format("...".join(f"{name}.{kind}" for name, kind in outputs)),
        "outputs": [{"id": name, "property": kind} for name, kind in outputs],
        "inputs": [{"id": name, "property": kind, "value": value} for name, kind, value in asked],
        "changedPropIds": ["url.search"],
    }


@contextmanager
def served(
    root: str, *flags: str, environment: dict[str, str] | None = None, python: str = sys.executable
) -> Iterator[Server]:
    """Run `fallow dashboard` over a lake, on its own port, with further flags and by the fallow of this Python."""
    before = time.perf_counter()
    command = [python, "-P", "-m", "fallow", "dashboard", "--lake", root, "--port", "0", *flags]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        try:
            yield Server(psutil.Process(process.pid), _port(process), time.perf_counter() - before)
        finally:
            process.terminate()


def _port(process: subprocess.Popen[str]) -> int:
    output = []
    for line in process.stdout or ():
        output.append(line)
        if found := re.search(r"http://[^/ ]+:(\d+)", line):
            return int(found[1])
    raise RuntimeError("no address: " + "".join(output))
