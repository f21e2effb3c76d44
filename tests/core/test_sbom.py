"""The bills of materials: what the locks hold and nothing else, valid for CycloneDX, and in the wheel."""

from __future__ import annotations

import csv
import io
import json
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files as resources

import jsonschema
import pytest
from referencing import Registry, Resource

from tests.conftest import REPOSITORY
from tests.core import sbom
from tests.core.test_locks import pins

BILLS = {lock: sbom.FOLDER / f"fallow-{lock}.cdx.json" for lock in sbom.LOCKS}


def bill(lock: str) -> dict:
    return json.loads(BILLS[lock].read_text(encoding="utf-8"))


def test_the_files_are_current() -> None:
    made = sbom.files()
    assert {path.name for path in sbom.FOLDER.iterdir()} == set(made)
    assert [name for name, text in made.items() if (sbom.FOLDER / name).read_text(encoding="utf-8") != text] == [], (
        "run `make sbom`"
    )


@pytest.mark.parametrize("lock", sbom.LOCKS)
def test_cyclonedx_accepts_it(lock: str) -> None:
    schemas = resources("cyclonedx.schema._res")

    def schema(name: str) -> dict:
        return json.loads((schemas / f"{name}.SNAPSHOT.schema.json").read_text(encoding="utf-8"))

    others = [
        (f"http://cyclonedx.org/schema/{name}.SNAPSHOT.schema.json", schema(name)) for name in ("spdx", "jsf-0.82")
    ]
    registry = Registry().with_resources((uri, Resource.from_contents(each)) for uri, each in others)
    validator = jsonschema.Draft7Validator(schema("bom-1.6"), registry=registry)
    assert list(validator.iter_errors(bill(lock))) == []
    assert list(validator.iter_errors(bill(lock) | {"specVersion": 1.6})), "it would find a mistake"


@pytest.mark.parametrize("lock", sbom.LOCKS)
def test_it_names_every_package_of_the_lock_with_hashes_licence_and_who_asks_for_it(lock: str) -> None:
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


@pytest.mark.parametrize("lock", sbom.LOCKS)
def test_the_table_of_licences_is_about_the_same_packages(lock: str) -> None:
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
        assert sbom.choices(name) == licences


def test_the_wheel_carries_them() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    carried = project["tool"]["hatch"]["build"]["targets"]["wheel"]["sbom-files"]
    assert {REPOSITORY / each for each in carried} == {*BILLS.values()}
