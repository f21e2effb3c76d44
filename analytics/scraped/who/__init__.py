"""The users of the GPUs on a metrics server: from labels of samples and from kube-state-metrics to allocations and requests."""
