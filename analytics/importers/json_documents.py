"""JSON documents that stand one after another in a file, as loops write them."""

from __future__ import annotations

import json
from typing import Any

CUT_OFF = "in a document that is cut off or damaged"


def read_documents(text: str) -> tuple[list[Any], int]:
    """The JSON values that stand one after another or in lists, and how many stretches between them are none."""
    decoder, found, damaged, at = json.JSONDecoder(), [], 0, 0
    while (at := _next(text, at)) < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
            found += value if isinstance(value, list) else [value]
        except (ValueError, RecursionError):  # not JSON, or a number of too many digits
            damaged += 1
            again = text.find("\n{", at + 1)
            at = len(text) if again < 0 else again + 1
    return found, damaged


def _next(text: str, at: int) -> int:
    while at < len(text) and (text[at].isspace() or text[at] == ","):
        at += 1
    return at


def number(value: object) -> float | None:
    """The number that a JSON value is; None for what is none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
