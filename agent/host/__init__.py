"""What the host itself did while its GPUs worked or waited: CPU, memory, pressure, disks and network, from /proc and /sys.

`HostMeter` (meter.py) makes the rows of the `host` table out of what levels.py and transfers.py read. That is written by
hand because a row is made in every interval: psutil takes three times as long on a small host, and eight times on one with
64 CPUs, 20 partitioned disks and 200 containers.
"""

from agent.host.meter import HostMeter

__all__ = ["HostMeter"]
