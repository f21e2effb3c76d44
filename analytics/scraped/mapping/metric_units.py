"""Units of metrics, and how many of a column's unit one of them is."""

from __future__ import annotations

_OF: dict[str, tuple[str, float]] = {
    "": ("count", 1),
    "1": ("count", 1),
    "%": ("share", 0.01),
    "ratio": ("share", 1),
    "bytes": ("memory", 1),
    "KiB": ("memory", 2**10),
    "MiB": ("memory", 2**20),
    "GiB": ("memory", 2**30),
    "kB": ("memory", 1e3),
    "MB": ("memory", 1e6),
    "GB": ("memory", 1e9),
    "bytes/s": ("rate", 1),
    "KiB/s": ("rate", 2**10),
    "MiB/s": ("rate", 2**20),
    "GiB/s": ("rate", 2**30),
    "kB/s": ("rate", 1e3),
    "MB/s": ("rate", 1e6),
    "GB/s": ("rate", 1e9),
    "mW": ("power", 1e-3),
    "W": ("power", 1),
    "kW": ("power", 1e3),
    "uJ": ("energy", 1e-6),
    "mJ": ("energy", 1e-3),
    "J": ("energy", 1),
    "Wh": ("energy", 3600),
    "kWh": ("energy", 3.6e6),
    "degC": ("temperature", 1),
    "Hz": ("frequency", 1),
    "MHz": ("frequency", 1e6),
    "GHz": ("frequency", 1e9),
    "ns": ("time", 1e-9),
    "us": ("time", 1e-6),
    "ms": ("time", 1e-3),
    "s": ("time", 1),
}
_CLIMBS_TO = {"bytes/s": "bytes", "%": "s"}
"""What a counter counts whose climb in a second is the key's unit: 0.2 s of CPU time in a second are 20 %."""

UNITS = tuple(_OF)


def convertible(column_unit: str, kind: str) -> tuple[str, ...]:
    """The units that a metric of that kind may have for a column of that unit."""
    quantity = _OF[_counted(column_unit, kind)][0]
    return tuple(unit for unit, (of, _) in _OF.items() if of == quantity)


def factor(unit: str, column_unit: str, kind: str) -> float:
    """What a value in `unit` is multiplied by to be in the column's; of a counter that fills a rate, its climb in a second."""
    counted = _counted(column_unit, kind)
    scale = 100 if column_unit == "%" and counted != "%" else 1
    return _OF[unit][1] / _OF[counted][1] * scale


def _counted(column_unit: str, kind: str) -> str:
    return _CLIMBS_TO.get(column_unit, column_unit) if kind == "counter" else column_unit
