"""The load of this host's inference servers by their own metrics: KV cache, requests and tokens; off unless configured.

A server takes its GPU's memory at its start, so used memory does not show demand, and utilization shows little of it.
The supervisor imports `agent.serving.scraper` only if `serving.endpoints` is set. Users read docs/inference-servers.md.
"""
