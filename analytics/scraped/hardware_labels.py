"""The GPU of a series by OpenTelemetry's conventions for hardware, with dotted names or as Prometheus writes them.

Names: opentelemetry.io/docs/specs/semconv/hardware/gpu and /hardware/common (in development, read in November 2026).
"""

from __future__ import annotations

from analytics.mig import MIG_PREFIX
from analytics.scraped.samples import Labels

UUIDS = ("GPU-", MIG_PREFIX)


def hardware_labels(labels: Labels) -> dict[str, str]:
    """Return `uuid`, `mig_uuid` or `index` of the GPU that a series describes; empty where it describes none.

    A sensor is a component of its own, and its parent the GPU.
    """
    own, parent, kind = (labels.get(f"hw.{name}") or labels.get(f"hw_{name}", "") for name in ("id", "parent", "type"))
    name = labels.get("__name__", "").replace("_", ".")
    if not own or not name.startswith("hw."):
        return {}
    if not (name.startswith("hw.gpu.") or kind == "gpu"):
        own, parent = (parent, "") if parent.startswith(UUIDS) else ("", "")
    if own.startswith(MIG_PREFIX):
        return {"mig_uuid": own} | ({"uuid": parent} if parent else {})
    if own.startswith(UUIDS):
        return {"uuid": own}
    return {"index": own} if own else {}
