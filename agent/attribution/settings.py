"""What attribution is told by the config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fallow.config import Config


@dataclass(frozen=True)
class AttributionSettings:
    """Where to look and what to record; empty texts switch a source off.

    The defaults are those of a plain host: /proc and scontrol, no kubelet, no command arguments.
    """

    proc: str = "/proc"
    command_arguments: bool = False
    sees_all_processes: str = "auto"
    pod_resources: str = ""
    kubelet_url: str = ""
    kubelet_token_file: str = ""
    kubelet_ca_file: str = ""
    scontrol: str = "scontrol"

    @staticmethod
    def from_config(config: Config) -> AttributionSettings:
        """The settings `agent.*`, `kubernetes.*` and `slurm.scontrol` that concern attribution."""
        return AttributionSettings(
            proc=config.text("agent.proc"),
            command_arguments=config.switch("agent.command_arguments"),
            sees_all_processes=config.text("agent.sees_all_processes"),
            pod_resources=config.text("kubernetes.pod_resources"),
            kubelet_url=config.text("kubernetes.kubelet_url"),
            kubelet_token_file=config.text("kubernetes.kubelet_token_file"),
            kubelet_ca_file=config.text("kubernetes.kubelet_ca_file"),
            scontrol=config.text("slurm.scontrol"),
        )
