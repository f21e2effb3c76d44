"""Turns the lake into the ledger, findings and reports."""
