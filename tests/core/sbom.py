"""Write requirements/sbom/ from the locks and the packages' own metadata: CycloneDX, and licences as a table.

`make sbom` runs it, after `make lock`; test_locks.py fails where the files are not current. The wheel carries the bills
of materials in its `.dist-info/sboms` (PEP 770), so every package and image that holds it does.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from fallow import __version__
from fallow.csv_text import csv_text
from tests.conftest import REPOSITORY

PIN = re.compile(r"^([a-z0-9._-]+)==(\S+)( ; .+?)? \\$", re.MULTILINE)
FOLDER = REPOSITORY / "requirements" / "sbom"
LOCKS = {"base": "the agent", "all": "every part"}
"""What each lock is installed for."""

ELSEWHERE = {"brotlicffi": ["MIT"], "colorama": ["BSD-3-Clause"], "tomli": ["MIT"]}
"""Licences of packages that only other Pythons or interpreters get, by their metadata."""

_NAMESPACE = uuid.UUID("0b7d7d5c-3c3f-5b0e-9a37-6f2f5a1c8f10")


def text_of(lock: str) -> str:
    return (REPOSITORY / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")


def choices(name: str) -> list[str]:
    """The licences of a package of which one may be chosen; raises PackageNotFoundError."""
    package = distribution(name)
    about = package.metadata
    if expression := about.get("License-Expression"):
        return re.split(r"\s+OR\s+(?![^(]*\))", expression)
    named = [each.split(" :: ")[-1] for each in about.get_all("Classifier") or () if each.startswith("License")]
    return named or (about.get("License") or package.read_text("licenses/LICENSE") or "").splitlines()[:1]


@dataclass(frozen=True)
class Pinned:
    """One entry of a lock."""

    name: str
    version: str
    marker: str
    sha256: tuple[str, ...]
    """Of each of its files."""
    wanted_by: tuple[str, ...]
    """Packages that ask for it, `fallow` among them."""

    @property
    def purl(self) -> PackageURL:
        return PackageURL("pypi", name=self.name, version=self.version)


def entries(lock: str) -> list[Pinned]:
    found = []
    for block in re.split(r"\n(?=[a-z0-9])", text_of(lock)):
        match = PIN.match(block)
        assert match is not None, block[:80]
        via = re.findall(r"^    #\s+(?:via )?([a-z0-9][\w.-]*)", block.replace("# via\n", "#\n"), re.MULTILINE)
        hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", block))
        found.append(Pinned(match[1], match[2], (match[3] or "").removeprefix(" ; "), hashes, tuple(sorted({*via}))))
    return found


def licences(name: str) -> list[str]:
    """The licences of a package of which one may be chosen."""
    try:
        return choices(name)
    except PackageNotFoundError:
        return ELSEWHERE[name]


def bill_of_materials(lock: str) -> str:
    """CycloneDX 1.6 as JSON; the same for the same lock."""
    pinned = entries(lock)
    factory = LicenseFactory()
    root = Component(
        name="fallow",
        version=__version__,
        type=ComponentType.APPLICATION,
        purl=PackageURL("pypi", name="fallow", version=__version__),
        bom_ref=f"fallow-{__version__}",
        licenses=[factory.make_from_string("MIT")],
        description=f"with what {LOCKS[lock]} needs",
    )
    components = {each: _component(each, factory) for each in pinned}
    bom = Bom(components=components.values(), serial_number=uuid.uuid5(_NAMESPACE, f"{__version__}{text_of(lock)}"))
    bom.metadata.component = root
    bom.metadata.timestamp = None  # type: ignore[assignment]  # only the serial number changes with the content
    by_name = {name: [components[each] for each in pinned if each.name == name] for name in {p.name for p in pinned}}
    for each in pinned:
        for parent in each.wanted_by:
            for dependent in [root] if parent == "fallow" else by_name.get(parent, []):
                bom.register_dependency(dependent, [components[each]])
    return f"{JsonV1Dot6(bom).output_as_string(indent=2)}\n"


def _component(pinned: Pinned, factory: LicenseFactory) -> Component:
    return Component(
        name=pinned.name,
        version=pinned.version,
        type=ComponentType.LIBRARY,
        purl=pinned.purl,
        bom_ref=str(pinned.purl),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=each) for each in pinned.sha256],
        licenses=[factory.make_from_string(each) for each in licences(pinned.name)],
        properties=[Property(name="fallow:marker", value=pinned.marker)] if pinned.marker else [],
    )


def licence_table(lock: str) -> str:
    """Name, version and licences of every package, as CSV."""
    rows = [(each.name, each.version, " OR ".join(licences(each.name))) for each in entries(lock)]
    return csv_text(("package", "version", "licence"), rows)


def files() -> dict[str, str]:
    """What lies in requirements/sbom, by name."""
    bills = {f"fallow-{lock}.cdx.json": bill_of_materials(lock) for lock in LOCKS}
    return bills | {f"licences-{lock}.csv": licence_table(lock) for lock in LOCKS}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
