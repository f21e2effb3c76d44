"""OpenTelemetry metrics that are pushed here over OTLP/HTTP, as samples like those of a metrics server."""
