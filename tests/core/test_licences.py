"""Every package that fallow is installed with may be used and passed on by anybody, also in a product that is sold."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution

from tests.core.test_locks import pins

ACCEPTED = re.compile(
    r"MIT|ZPL|Zope Public|BSD|Apache|ISC|PSF|Python Software|Zlib|CC0|MPL|Mozilla Public", re.IGNORECASE
)
"""MPL binds only who changes the package's own files."""


def choices(name: str) -> list[str]:
    """The licences of a package of which one may be chosen; raises PackageNotFoundError."""
    about = distribution(name).metadata
    if expression := about.get("License-Expression"):
        return re.split(r"\s+OR\s+", expression)
    named = [each.split(" :: ")[-1] for each in about.get_all("Classifier") or () if each.startswith("License")]
    return named or (about.get("License") or "").splitlines()[:1]


def is_accepted(licence: str) -> bool:
    return all(ACCEPTED.search(part) for part in re.split(r"\s+AND\s+", licence))


def test_every_licence_is_one_of_those_that_bind_nobody() -> None:
    looked_at, refused = 0, {}
    for name, _ in sorted(pins("all")):
        try:
            found = choices(name)
        except PackageNotFoundError:  # of another system or Python
            continue
        looked_at += 1
        if not any(is_accepted(each) for each in found):
            refused[name] = found
    assert looked_at > 40
    assert not refused


def test_what_binds_is_not_accepted() -> None:
    assert not is_accepted("GPL-3.0-only")
    assert not is_accepted("MIT AND GPL-2.0-or-later")
    assert is_accepted("BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0")
