"""Cents as amounts."""

from __future__ import annotations

from decimal import Decimal


def cents(whole: int | None) -> Decimal | None:
    """Whole cents as an amount; None stays unknown."""
    return None if whole is None else Decimal(whole) / 100
