"""The dashboard's `/metrics`: the ledger and the decisions of a window in the Prometheus text format."""
