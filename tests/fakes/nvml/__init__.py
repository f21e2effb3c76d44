"""A fake NVIDIA driver: a real libnvidia-ml.so.1 that plays a scenario, loaded through the real pynvml."""

from tests.fakes.nvml.build import NoCompilerError, library_folder
from tests.fakes.nvml.devices import GIB, Gpu, MigInstance, Process
from tests.fakes.nvml.faults import Fault, Xid
from tests.fakes.nvml.fleet import standard_fleet
from tests.fakes.nvml.scenario import RING_SIZE, RingEntry, Scenario, ms_ago
from tests.fakes.nvml.steps import Steps, constant

__all__ = [
    "GIB",
    "RING_SIZE",
    "Fault",
    "Gpu",
    "MigInstance",
    "NoCompilerError",
    "Process",
    "RingEntry",
    "Scenario",
    "Steps",
    "Xid",
    "constant",
    "library_folder",
    "ms_ago",
    "standard_fleet",
]
