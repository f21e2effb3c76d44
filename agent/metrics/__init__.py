"""/metrics and /healthz. They are off by default, and only then imported when they are switched on."""

from agent.metrics.server import MetricsSettings, metrics_server

__all__ = ["MetricsSettings", "metrics_server"]
