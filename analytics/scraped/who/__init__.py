"""The users of the GPUs on a metrics server: from sample labels and kube-state-metrics to allocations and requests."""
