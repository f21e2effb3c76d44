"""Commands that only look, for findings where nothing can be ended or given back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.workloads.process_holders import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST = 8
"""UUIDs in one command: a whole host. Nobody reads more side by side."""


def on_host(host: str, *words: str) -> str:
    """A command on another host. Its words pass two shells, this one and the host's, and are quoted for both."""
    dashes = "-- " if host.startswith("-") else ""
    return f"ssh {dashes}{quote(host)} {' '.join(quote(quote(word)) for word in words)}"


def monitor_command(host: str, gpus: Sequence[str]) -> str:
    """Half a minute of utilization, power and clocks of some GPUs, second by second."""
    return on_host(host, "nvidia-smi", "dmon", "-i", ",".join(gpus[:_MOST]), "-s", "puc", "-c", "30")


def throttle_command(host: str, gpu: str) -> str:
    """Why a GPU's clocks are held down, how hot it is and what it may draw."""
    return on_host(host, "nvidia-smi", "-q", "-d", "PERFORMANCE,TEMPERATURE,POWER", "-i", gpu)
