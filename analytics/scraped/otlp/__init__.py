"""OpenTelemetry metrics that collectors push over OTLP/HTTP, as samples like those of a metrics server."""
