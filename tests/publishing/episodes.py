"""`python -m tests.publishing.episodes DISK LAKE PORT SEED COUNT`: an agent's spool and publishing in bad times.

The disk fills up, the store fails and publishers are killed, one episode after another, under load. Prints the events
as JSON.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

from agent.spool.backlog import Backlog
from agent.spool.publishing import ProcessRun, Publishing
from agent.spool.spool import Spool
from tests.publishing.proxy import FaultyProxy
from tests.publishing.rows import settings, ticks

EPISODES = ("disk full", "disk nearly full", "store down", "both", "publisher killed")
TICKS = 12
ROWS = 60


class Filler:
    """A file that takes all the room that is left."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "filler"

    def fill(self, leave_bytes: int = 0) -> None:
        """Leaves so many bytes of the disk free, and not one more."""
        with self._file.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                facts = os.statvfs(self._file.parent)
                left = facts.f_bavail * facts.f_frsize - leave_bytes
                if left <= 0 or not file.write(b"x" * min(left, 1 << 16)):
                    return

    def empty(self) -> None:
        """Gives all of it back."""
        self._file.unlink(missing_ok=True)


class Host:
    """One host under load."""

    def __init__(self, disk: Path, lake: str, spool: Spool, proxy: FaultyProxy | None, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311  # nothing secret
        self.broken = False
        self.disk, self.filler, self.proxy, self.lake = disk, Filler(disk), proxy, Path(lake)
        self.spool = spool
        self.backlog = Backlog(spool, 1 << 30, room_bytes=1 << 20, calm_s=0.5)
        self.settings = settings(disk, lake)
        self.publishing = Publishing(self.settings, spool)
        self.count = self.pressure = self.in_memory = 0
        self.told: list[str] = []

    def tick(self, *, kill: float = 0.0) -> None:
        """One interval: rows, and a publisher as often as can be."""
        self.backlog.append({"gpu": ticks(self.count, ROWS)}, {"last": str(self.count + ROWS)})
        self.count += ROWS
        self.publishing.configure(self.settings)  # due at once
        self.publishing.start_if_due(time.monotonic())
        self.pressure = max(self.pressure, self.backlog.pressure)
        self.in_memory = max(self.in_memory, self.backlog.memory_rows)
        self._listen()
        running = self.publishing._running  # noqa: SLF001
        if isinstance(running, ProcessRun) and self.random.random() < kill:
            running.kill()
        time.sleep(self.random.uniform(0.0, 0.1))

    def play(self, episode: str) -> None:
        """Something goes wrong for a while, and then not any more."""
        if episode in ("disk full", "both"):
            self.filler.fill()
        elif episode == "disk nearly full":
            self.filler.fill(self.random.randrange(200_000))
        if episode in ("store down", "both"):
            self._break_store()
        for _ in range(self.random.randint(TICKS // 2, TICKS)):
            self.tick(kill=0.5 if episode == "publisher killed" else 0.05)
        self._see_it_fail()
        self.filler.empty()
        self._mend_store()
        for _ in range(self.random.randint(0, 3)):
            self.tick()

    def play_to_the_last(self) -> None:
        """No store and no room, until rows wait in memory."""
        self.filler.fill()
        self._break_store()
        while not self.backlog.memory_rows:
            self.tick()
        self.filler.empty()
        self._mend_store()

    def _break_store(self) -> None:
        self.broken = True
        if self.proxy is not None:
            self.proxy.behave(self.random.choice(("refuse", "drop", "drop_answer", "hang")))
            self.broken = self.proxy.way != "hang"
        elif self.lake.exists():
            self.lake.rename(f"{self.lake}.away")
            self.lake.write_text("not mounted")

    def _see_it_fail(self) -> None:
        """A store that is down shows when a publisher gives up; one that hangs takes longer than a test does."""
        # where the disk is full too, all that waits may wait in memory, and then no publisher runs
        # that a publisher was killed says nothing of the store: on a busy machine that may be all that has happened yet
        while self.broken and self.spool.count() and not self.publishing._store_down:  # noqa: SLF001
            self.tick()

    def _mend_store(self) -> None:
        self.broken = False
        if self.proxy is not None:
            self.proxy.behave("pass")
        elif self.lake.is_file():
            self.lake.unlink()
            Path(f"{self.lake}.away").rename(self.lake)

    def end(self) -> None:
        """Until all rows have left memory and the spool."""
        while self.backlog.memory_rows:
            self.tick()
        while not self.publishing.finish(60):
            time.sleep(0.1)
        self._listen()

    def _listen(self) -> None:
        self.told += [each["kind"] for each in self.backlog.take_incidents() + self.publishing.take_incidents()]


def main() -> None:
    """Plays the episodes and prints what there was to see."""
    disk, lake, port, seed, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
    with ExitStack() as stack:
        proxy = None
        if port:
            proxy = stack.enter_context(FaultyProxy(port))
            os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{proxy.port}"
        spool = stack.enter_context(closing(Spool(str(disk / "spool"), for_agent=True)))
        host = Host(disk, lake, spool, proxy, seed)
        host.tick()
        played = [EPISODES[number % len(EPISODES)] for number in range(count)]
        host.random.shuffle(played)
        for episode in played:
            host.play(episode)
        host.play_to_the_last()
        host.end()
        seen: dict[str, Any] = {"played": played, "rows": host.count, "told": host.told, "pressure": host.pressure}
        seen |= {"in_memory": host.in_memory, "last": spool.noted("last"), "waiting": spool.count()}
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
