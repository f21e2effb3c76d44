"""The ledger: every millisecond of every GPU in exactly one state."""
