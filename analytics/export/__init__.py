"""The ledger as tables of Delta Lake, which other engines read."""
