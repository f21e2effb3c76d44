"""/metrics and /healthz. Off by default: whoever switches them on imports this package, and only then."""

from agent.metrics.server import MetricsEndpoint
from agent.metrics.settings import MetricsSettings

__all__ = ["MetricsEndpoint", "MetricsSettings"]
