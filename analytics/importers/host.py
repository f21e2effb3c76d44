"""Checks the name under which rows are filed."""

from __future__ import annotations

from fallow.errors import UsageError


def check_host(name: str) -> str:
    """The host's name; UsageError where it is empty or holds control characters."""
    if not name.strip() or any(ord(letter) < 32 for letter in name):
        raise UsageError(f"--host '{name}' is not a host name", "such as --host gn001")
    return name.strip()
