"""/metrics and /healthz. Off by default: whoever switches them on imports this package, and only then."""

from agent.metrics.server import MetricsServer
from agent.metrics.settings import MetricsSettings

__all__ = ["MetricsServer", "MetricsSettings"]
