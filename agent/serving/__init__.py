"""What the inference servers of this host say of their own load: KV cache, requests and tokens, off unless configured.

A server takes its GPU's memory when it starts, asked or not, so memory says nothing of need and utilization little. The
supervisor imports `agent.serving.scraper` only where `serving.endpoints` is set. docs/inference-servers.md is for users.
"""
