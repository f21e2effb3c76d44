"""Who had the GPUs that a metrics server tells of: from labels of samples and from kube-state-metrics to allocations and requests."""
