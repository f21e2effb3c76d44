"""/metrics and /healthz. Off by default: whoever switches them on imports this package, and only then."""

from agent.metrics.http_server import MetricsSettings
from agent.metrics.server import MetricsEndpoint

__all__ = ["MetricsEndpoint", "MetricsSettings"]
