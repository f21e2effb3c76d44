"""The user, pod and job of a process, from /proc, cgroups, its environment, the kubelet and Slurm, with the source.

docs/attribution.md lists what is read from which source, and what stays unknown.
"""

from agent.attribution.owners import ProcessOwners
from agent.attribution.settings import AttributionSettings

__all__ = ["AttributionSettings", "ProcessOwners"]
