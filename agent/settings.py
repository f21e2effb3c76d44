"""Settings of a run of the agent, from flags, environment and config file."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, parse_duration_ms
from fallow.errors import UsageError
from fallow.lake import Lake
from fallow.lake_marker import is_lake_id

if TYPE_CHECKING:
    from fallow.config import Config

_LONGEST_HOST = 80  # the percent-encoded name must fit into a file name
_SMALLEST_SPOOL = (
    16_000_000  # bytes: an hour of eight GPUs takes 3 MB, and published and unpublished rows must fit together
)


@dataclass(frozen=True)
class Compaction:
    """The agent's merging of its own files; see the settings of the section `compaction`."""

    hours: bool = True
    days: bool = True
    grace_ms: int = HOUR_MS
    lateness_ms: int = 15 * MINUTE_MS
    back_days: int = 7

    @classmethod
    def from_config(cls, loaded: Config) -> Compaction:
        return cls(
            hours=loaded.text("compaction.own") != "off",
            days=loaded.text("compaction.own") == "days",
            grace_ms=loaded.integer("compaction.grace"),
            lateness_ms=loaded.integer("compaction.lateness"),
            back_days=loaded.integer("compaction.look_back") // DAY_MS,
        )


@dataclass(frozen=True)
class AgentSettings:
    """The settings of sampling; surfaces and attribution read their own settings."""

    lake: str
    spool: str
    host: str
    pool: str
    interval_ms: int
    process_interval_ms: int
    slow_interval_ms: int
    publish_every_ms: int
    call_timeout_s: float
    expected_gpus: int = 0
    """Number of GPUs that the host should have; 0: by the inventory and the PCI bus."""
    stalled_after_ms: int = 7 * MINUTE_MS
    spool_max_bytes: int = 2_000_000_000
    keep_published_ms: int = 3_600_000
    lake_id: str = ""
    """The required id of the lake; empty: the id that it had first."""
    machine_id: str = "/etc/machine-id"
    compaction: Compaction = Compaction()
    proc: str = "/proc"
    sys: str = "/sys"
    run_for_ms: int | None = None

    @classmethod
    def from_config(cls, loaded: Config, run_for: str | None = None) -> AgentSettings:
        """Return the settings in force; raises UsageError for a missing or invalid setting."""
        interval_ms = loaded.integer("agent.interval")
        if interval_ms < SECOND_MS:
            raise UsageError(
                f"an interval of {interval_ms} ms ({loaded.origins['agent.interval']}) is too short", "use 1s or more"
            )
        return cls(
            lake=Lake.at(loaded.require("lake.path", "--lake")).root,
            spool=loaded.require("agent.spool", "--spool"),
            host=host_name(loaded),
            pool=_pool(loaded),
            interval_ms=interval_ms,
            process_interval_ms=max(interval_ms, loaded.integer("agent.process_interval")),
            slow_interval_ms=max(interval_ms, loaded.integer("agent.slow_interval")),
            publish_every_ms=loaded.integer("agent.publish_every"),
            call_timeout_s=loaded.integer("agent.call_timeout") / SECOND_MS,
            expected_gpus=loaded.integer("agent.expected_gpus"),
            stalled_after_ms=loaded.integer("agent.stalled_after"),
            spool_max_bytes=_spool_max_bytes(loaded),
            keep_published_ms=loaded.integer("agent.keep_published"),
            lake_id=_lake_id(loaded),
            machine_id=loaded.text("agent.machine_id"),
            compaction=Compaction.from_config(loaded),
            proc=_proc(loaded),
            sys=_sys(loaded),
            run_for_ms=None if run_for is None else parse_duration_ms(run_for),
        )


def host_name(loaded: Config) -> str:
    """Return this host's name in the lake; raises UsageError for a name that cannot be a folder's name."""
    host = loaded.text("agent.host") or socket.gethostname()
    if not host.isprintable() or len(host.encode()) > _LONGEST_HOST:
        raise UsageError(
            f"--host {host[:40]!r} cannot be the name of a folder", "use a printable name of at most 80 bytes"
        )
    return host


def _pool(loaded: Config) -> str:
    pool = loaded.text("agent.pool")
    if not pool.isprintable():
        raise UsageError(
            f"the pool {pool[:40]!r} ({loaded.origins['agent.pool']}) is not printable", "use a printable name"
        )
    return pool


def _spool_max_bytes(loaded: Config) -> int:
    most = loaded.integer("agent.spool_max")
    if most < _SMALLEST_SPOOL:
        raise UsageError(
            f"a spool of {most} bytes (agent.spool_max, {loaded.origins['agent.spool_max']}) is too small",
            "use 16MB or more",
        )
    return most


def _lake_id(loaded: Config) -> str:
    lake_id = loaded.text("lake.id")
    if lake_id and not is_lake_id(lake_id):
        raise UsageError(
            f"'{lake_id[:40]}' (lake.id, {loaded.origins['lake.id']}) is not the id of a lake",
            "use the id that `fallow lake init` shows",
        )
    return lake_id


def _proc(loaded: Config) -> str:
    proc = loaded.text("agent.proc")
    if not (Path(proc) / "stat").is_file():
        raise UsageError(
            f"{proc} (agent.proc, {loaded.origins['agent.proc']}) is not a /proc: it has no file stat",
            "use the folder where the host's /proc is mounted",
        )
    return proc


def _sys(loaded: Config) -> str:
    sys = loaded.text("agent.sys")
    if not Path(sys).is_dir():
        raise UsageError(
            f"{sys} (agent.sys, {loaded.origins['agent.sys']}) is not a folder",
            "use the folder where the host's /sys is mounted",
        )
    return sys
