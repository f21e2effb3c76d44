"""A snapshot as an OTLP metrics request in JSON, by OpenTelemetry's semantic conventions for hardware.

opentelemetry.io/docs/specs/semconv/hardware/gpu and /hardware/common, in development, read in November 2026. Fractions are 0 to 1.
Unknown values are absent, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.snapshot import WATCHED
from fallow.schema import UNAVAILABLE_HEALTH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.snapshot import Row, Snapshot

_NS_PER_MS = 1_000_000
_CUMULATIVE = 2  # AGGREGATION_TEMPORALITY_CUMULATIVE

_STATES = ("ok", "degraded", "failed")


@dataclass(frozen=True)
class OtlpFamily:
    """One metric of the conventions, read from a column of `gpu` or `device`, or an error counter."""

    name: str
    unit: str
    column: str
    factor: float = 1
    """A float makes one of a whole number: some databases keep the kind of number that came first, and refuse another."""

    kind: str = "gauge"
    """gauge, sum (it goes up and down) or counter."""
    about: tuple[tuple[str, str], ...] = ()
    """Further attributes."""
    sensor: str = ""
    """The part of the GPU that is measured: a component of its own, whose parent the GPU is."""


FAMILIES = (
    OtlpFamily("hw.gpu.utilization", "1", "gpu_util_pct", 0.01, about=(("hw.gpu.task", "general"),)),
    OtlpFamily("hw.gpu.memory.usage", "By", "mem_used_bytes", kind="sum"),
    OtlpFamily("hw.gpu.memory.limit", "By", "mem_total_bytes", kind="sum"),
    OtlpFamily("hw.power", "W", "power_w"),
    OtlpFamily("hw.energy", "J", "energy_mj", 0.001, "counter"),
    OtlpFamily("hw.temperature", "Cel", "temperature_c", 1.0, sensor="GPU_DIE"),
    OtlpFamily("hw.temperature", "Cel", "mem_temperature_c", 1.0, sensor="GPU_MEMORY"),
    OtlpFamily("hw.errors", "{error}", "ecc_corrected_count", kind="counter", about=(("error.type", "corrected"),)),
    OtlpFamily("hw.errors", "{error}", "ecc_uncorrected_count", kind="counter", about=(("error.type", "uncorrected"),)),
)


def otlp_message(snapshot: Snapshot) -> dict[str, Any]:
    """An ExportMetricsServiceRequest; times are the ends of the rows' intervals."""
    metrics: dict[str, dict[str, Any]] = {}
    errors = {row["gpu"]: row for row in snapshot.errors}
    for row in snapshot.gpus:
        device = snapshot.devices.get(row["gpu"], {})
        _add_status(metrics, row, device)
        if row["health"] in WATCHED:
            values = {**device, **errors.get(row["gpu"], {}), **row}
            for family in FAMILIES:
                if values.get(family.column) is not None:
                    _add(metrics, family, values, device, snapshot.started_ms)
    about = {
        "host.name": snapshot.host,
        "service.name": "fallow-agent",
        "service.version": snapshot.version,
        "service.instance.id": snapshot.host,
    }
    scope = {"scope": {"name": "fallow", "version": snapshot.version}, "metrics": list(metrics.values())}
    return {"resourceMetrics": [{"resource": {"attributes": _attributes(about)}, "scopeMetrics": [scope]}]}


def _add(metrics: dict[str, dict[str, Any]], family: OtlpFamily, values: Row, device: Row, started_ms: int) -> None:
    about = _component(values["gpu"], device) | dict(family.about)
    if family.sensor:
        about |= {
            "hw.id": f"{values['gpu']}/{family.sensor}",
            "hw.type": "temperature",
            "hw.parent": values["gpu"],
            "hw.sensor_location": family.sensor,
        }
    point = _point(values, about, values[family.column] * family.factor)
    if family.kind == "sum":
        point["startTimeUnixNano"] = str(started_ms * _NS_PER_MS)
    elif family.kind == "counter" and family.column == "energy_mj" and values.get("counters_since") is not None:
        point["startTimeUnixNano"] = str(values["counters_since"] * _NS_PER_MS)
    _points(metrics, family.name, family.unit, family.kind).append(point)


def _add_status(metrics: dict[str, dict[str, Any]], row: Row, device: Row) -> None:
    """Nothing of a GPU that nobody looks at."""
    state = "failed" if row["health"] in UNAVAILABLE_HEALTH else row["health"]
    if state not in _STATES:
        return
    for each in _STATES:
        about = _component(row["gpu"], device) | {"hw.state": each}
        _points(metrics, "hw.status", "1", "sum").append(_point(row, about, int(state == each)))


def _points(metrics: dict[str, dict[str, Any]], name: str, unit: str, kind: str) -> list[dict[str, Any]]:
    """The data points of a metric, which is added where it is new."""
    if name not in metrics:
        data: dict[str, Any] = {"dataPoints": []}
        if kind != "gauge":
            data |= {"aggregationTemporality": _CUMULATIVE, "isMonotonic": kind == "counter"}
        metrics[name] = {"name": name, "unit": unit, "gauge" if kind == "gauge" else "sum": data}
    found: list[dict[str, Any]] = (metrics[name].get("gauge") or metrics[name]["sum"])["dataPoints"]
    return found


def _point(row: Row, about: dict[str, object], value: float) -> dict[str, Any]:
    end_ms = row["time"] + row["interval_ms"]
    number = {"asInt": str(value)} if isinstance(value, int) else {"asDouble": value}
    return {"timeUnixNano": str(end_ms * _NS_PER_MS), "attributes": _attributes(about), **number}


def _component(gpu: str, device: Row) -> dict[str, object]:
    """What the conventions say of a piece of hardware."""
    return {
        "hw.id": gpu,
        "hw.type": "gpu",
        "hw.parent": device.get("parent_gpu"),
        "hw.model": device.get("model"),
        "hw.serial_number": device.get("serial"),
        "hw.driver_version": device.get("driver_version"),
    }


def _attributes(values: Mapping[str, object]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": str(each)}} for key, each in values.items() if each is not None]
