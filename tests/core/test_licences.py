"""Every package that fallow is installed, built and tested with may be used and passed on by anybody, also in a product that is sold.

The lock of `make audit` is not looked at: its tools are installed for the audit alone.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution

from tests.core.test_locks import pins

ACCEPTED = re.compile(
    r"MIT(-0|-CMU)?|0BSD|BSD(-[23]-Clause)?|Apache(-2\.0)?|ISC|PSF-2\.0|Zlib|CC0-1\.0|ZPL-2\.1|MPL-2\.0"
    r"|(MIT|ISC|(3-Clause )?BSD|Apache Software|Zope Public|Python Software Foundation) License"
    r"|Mozilla Public License (1\.1|2\.0) \(MPL (1\.1|2\.0)\)",
    re.IGNORECASE,
)
"""By their SPDX names, and as packages' older metadata say them. MPL binds only who changes the package's own files."""


def choices(name: str) -> list[str]:
    """The licences of a package of which one may be chosen; raises PackageNotFoundError."""
    package = distribution(name)
    about = package.metadata
    if expression := about.get("License-Expression"):
        return re.split(r"\s+OR\s+(?![^(]*\))", expression)
    named = [each.split(" :: ")[-1] for each in about.get_all("Classifier") or () if each.startswith("License")]
    return named or (about.get("License") or package.read_text("licenses/LICENSE") or "").splitlines()[:1]


def is_accepted(licence: str) -> bool:
    """Of each part in brackets one licence is enough: `MPL-2.0 AND (Apache-2.0 OR MIT)`."""
    parts = [part[1:-1] if part[:1] == "(" else part for part in re.split(r"\s+AND\s+", licence)]
    return all(any(map(ACCEPTED.fullmatch, re.split(r"\s+OR\s+", part))) for part in parts)


def test_every_licence_is_one_of_those_that_bind_nobody() -> None:
    looked_at, refused = 0, {}
    for name, _ in sorted(pins("dev")):  # it holds `base`, `all` and `build`
        try:
            found = choices(name)
        except PackageNotFoundError:  # of another system or Python
            continue
        looked_at += 1
        if not any(is_accepted(each) for each in found):
            refused[name] = found
    assert looked_at > 80
    assert not refused


def test_what_binds_is_not_accepted() -> None:
    for binds in (
        "GPL-3.0-only",
        "MIT AND GPL-2.0-or-later",
        "Proprietary, limited use",
        "GPL-3.0 discussion",
        "MIT-Modern-Variant",
        "",
    ):
        assert not is_accepted(binds)
    assert is_accepted("BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0")
    assert is_accepted("MPL-2.0 AND (Apache-2.0 OR GPL-3.0)")
    assert not is_accepted("MPL-2.0 AND (AGPL-3.0 OR GPL-3.0)")
