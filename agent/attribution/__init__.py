"""Whose a process is: from /proc, cgroups, its environment, the kubelet and Slurm, each with its source.

What is read from where, and what stays unknown, is written down in docs/attribution.md.
"""

from agent.attribution.owners import ProcessOwners
from agent.attribution.settings import AttributionSettings

__all__ = ["AttributionSettings", "ProcessOwners"]
