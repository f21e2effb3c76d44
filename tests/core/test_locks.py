"""The locks: packages pinned with their hashes, licences that bind nobody, and the bills of materials."""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files as resources
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource

from tests.conftest import REPOSITORY
from tests.core import sbom
from tests.core.sbom import PIN, choices, text_of

ACCEPTED = re.compile(
    r"MIT(-0|-CMU)?|0BSD|BSD(-[23]-Clause)?|Apache(-2\.0)?|ISC|PSF-2\.0|Zlib|CC0-1\.0|ZPL-2\.1|MPL-2\.0"
    r"|(MIT|ISC|(3-Clause )?BSD|Apache Software|Zope Public|Python Software Foundation) License"
    r"|Mozilla Public License (1\.1|2\.0) \(MPL (1\.1|2\.0)\)",
    re.IGNORECASE,
)
"""By their SPDX names, and as packages' older metadata say them. MPL binds only who changes the package's own files."""


def pins(lock: str) -> set[tuple[str, str]]:
    """Name and version; a package has two versions where a newer one has left Python 3.11."""
    return {(name, version) for name, version, _ in PIN.findall(text_of(lock))}


@pytest.mark.parametrize("lock", ["base", "all", "build", "dev", "ziglang", "kube-tools", "audit", "engines"])
def test_every_package_is_pinned_with_hashes_and_names_no_index(lock: str) -> None:
    text = text_of(lock)
    entries = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert len(entries) == len(pins(lock)) > 0
    assert all(block.count("--hash=sha256:") >= 1 for block in re.split(r"\n(?=[a-z0-9])", text))
    assert "://" not in text
    assert not re.search(r"^-", text, re.MULTILINE)


@pytest.mark.parametrize(("smaller", "larger"), [("base", "all"), ("all", "dev"), ("build", "dev")])
def test_a_larger_lock_holds_the_smaller_one(smaller: str, larger: str) -> None:
    """Save for what Python 3.10 alone needs: the agent runs on it, the extras do not."""
    only_3_10 = {(name, version) for name, version, marker in PIN.findall(text_of(smaller)) if "< '3.11'" in marker}
    assert pins(smaller) - only_3_10 <= pins(larger)


def test_the_agent_is_locked_for_every_python_that_it_runs_on_and_what_builds_it_apart() -> None:
    """arro3 and obstore have left Python 3.10: each has a version for it beside the newest."""
    for name in ("arro3-core", "arro3-io", "obstore"):
        markers = [marker for found, _, marker in PIN.findall(text_of("base")) if found == name]
        assert sorted(each.split()[-2] for each in markers) == ["<", ">="], name
    tools = {"hatchling", "editables"}
    assert tools <= {name for name, _ in pins("build")}
    assert not tools & {name for name, _ in pins("all")}


def is_accepted(licence: str) -> bool:
    """Of each part in brackets one licence is enough: `MPL-2.0 AND (Apache-2.0 OR MIT)`."""
    parts = [part[1:-1] if part[:1] == "(" else part for part in re.split(r"\s+AND\s+", licence)]
    return all(any(map(ACCEPTED.fullmatch, re.split(r"\s+OR\s+", part))) for part in parts)


def test_every_licence_is_one_of_those_that_bind_nobody() -> None:
    """Of what fallow is installed, built and tested with; the tools of `make audit` are for the audit alone."""
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


BINDS = """GPL-3.0-only; MIT AND GPL-2.0-or-later; Proprietary, limited use; GPL-3.0 discussion; MIT-Modern-Variant; ;
MPL-2.0 AND (AGPL-3.0 OR GPL-3.0)"""


def test_what_binds_is_not_accepted() -> None:
    assert not any(is_accepted(each.strip()) for each in BINDS.split(";"))
    assert is_accepted("BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0")
    assert is_accepted("MPL-2.0 AND (Apache-2.0 OR GPL-3.0)")


def bill(lock: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((sbom.FOLDER / f"fallow-{lock}.cdx.json").read_text(encoding="utf-8"))
    return found


def test_the_bills_of_materials_are_current_and_the_wheel_carries_them() -> None:
    made = sbom.files()
    assert {path.name for path in sbom.FOLDER.iterdir()} == set(made)
    stale = [name for name, text in made.items() if (sbom.FOLDER / name).read_text(encoding="utf-8") != text]
    assert stale == [], "run `make sbom`"
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    carried = project["tool"]["hatch"]["build"]["targets"]["wheel"]["sbom-files"]
    assert {REPOSITORY / each for each in carried} == {sbom.FOLDER / each for each in made if each.endswith(".json")}


@pytest.mark.parametrize("lock", sbom.LOCKS)
def test_cyclonedx_accepts_a_bill(lock: str) -> None:
    def schema(name: str) -> Any:
        text = (resources("cyclonedx.schema._res") / f"{name}.SNAPSHOT.schema.json").read_text(encoding="utf-8")
        return json.loads(text)

    address = "http://cyclonedx.org/schema/{}.SNAPSHOT.schema.json"
    others = ((address.format(name), Resource.from_contents(schema(name))) for name in ("spdx", "jsf-0.82"))
    validator = jsonschema.Draft7Validator(schema("bom-1.6"), registry=Registry().with_resources(others))
    assert list(validator.iter_errors(bill(lock))) == []
    assert list(validator.iter_errors(bill(lock) | {"specVersion": 1.6})), "it would find a mistake"


@pytest.mark.parametrize("lock", sbom.LOCKS)
def test_a_bill_names_every_package_of_the_lock_with_hashes_licence_and_who_asks_for_it(lock: str) -> None:
    found = bill(lock)
    components = found["components"]
    assert {(each["name"], each["version"]) for each in components} == pins(lock)
    assert [each["name"] for each in components if not each.get("hashes") or not each.get("licenses")] == []
    asked_for = {ref for each in found["dependencies"] for ref in each.get("dependsOn", ())}
    assert {each["bom-ref"] for each in components} == asked_for
    root = found["metadata"]["component"]["bom-ref"]
    [direct] = [each["dependsOn"] for each in found["dependencies"] if each["ref"] == root]
    assert any(ref.startswith("pkg:pypi/psutil@") for ref in direct)
    assert not any(ref.startswith("pkg:pypi/hpack@") for ref in direct), "h2 asks for it, and not fallow"
    text = (sbom.FOLDER / f"licences-{lock}.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {(row["package"], row["version"]) for row in rows} == pins(lock)
    assert all(row["licence"] for row in rows)


def test_licences_are_written_down_only_where_no_metadata_can_be_read_here() -> None:
    for name, licences in sbom.ELSEWHERE.items():
        try:
            distribution(name)
        except PackageNotFoundError:
            continue
        assert choices(name) == licences
