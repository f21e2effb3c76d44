"""The real agent with intervals far below a second: LAKE SPOOL INTERVAL_MS TICKS; a day of ticks takes minutes.

The command refuses such intervals; the rest is as an operator starts it: worker, spool, publisher, signals.
"""

from __future__ import annotations

import signal
import sys
from dataclasses import replace

from agent.settings import AgentSettings
from agent.spool.spool import Spool
from agent.supervise.supervisor import Supervisor
from fallow import config

PUBLISH_EVERY_MS = 2_000  # often enough that the first 150 ticks have seen what a publishing needs


def main(lake: str, spool_folder: str, interval_ms: int, ticks: int) -> None:
    """Runs for so many intervals; the lanes keep the proportions that they have at 10 s, save for publishing."""

    def load() -> tuple[config.Config, AgentSettings]:
        loaded = config.load({"lake.path": lake, "agent.spool": spool_folder, "agent.host": "fast"}, None)
        settings = replace(
            AgentSettings.from_config(loaded),
            interval_ms=interval_ms,
            process_interval_ms=3 * interval_ms,
            slow_interval_ms=30 * interval_ms,
            publish_every_ms=PUBLISH_EVERY_MS,
            keep_published_ms=360 * interval_ms,
            run_for_ms=ticks * interval_ms,
        )
        return loaded, settings

    spool = Spool(spool_folder)
    try:
        spool.lock()
        supervisor = Supervisor(load, spool)
        signal.signal(signal.SIGTERM, lambda *_: supervisor.stop())
        supervisor.run()
    finally:
        spool.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
