"""/metrics and /healthz. Off by default: whoever switches them on imports this package, and only then."""

from agent.metrics.server import MetricsSettings, metrics_server

__all__ = ["MetricsSettings", "metrics_server"]
