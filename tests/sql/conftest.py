"""Ledgers and findings of a lake are made once for all that is asked of it."""

from __future__ import annotations

from tests.shared_results import one_ledger_for_many_looks

__all__ = ["one_ledger_for_many_looks"]
