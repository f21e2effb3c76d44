"""What the host itself did while its GPUs worked or waited: CPU, memory, pressure, disks and network."""

from agent.host.meter import HostMeter

__all__ = ["HostMeter"]
