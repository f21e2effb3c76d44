"""Sites that all pages' tests read, the pages over them without a browser, and what a page shows."""

from __future__ import annotations

import html
import logging
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from dash.development.base_component import Component
from flask.testing import FlaskClient

from analytics.simulation import SimulatedFleet, owners_csv
from dashboard.access.allowances import RefusalRation
from dashboard.access.audit import AUDIT
from dashboard.access.people import VIEWER, Reader
from dashboard.app import build_app
from dashboard.frame import OUTPUTS
from dashboard.source import LakeSource
from fallow.clock import SystemClock
from fallow.lake import Lake
from tests.dashboard.acting import FROM_HERE, Held, Pages, held_lake
from tests.dashboard.sites import UNTIL_MS, Site, configured, fleet_lake_of, inputs_of, planned_site
from tests.lakes import made_lake
from tests.shared_results import one_ledger_for_many_looks

__all__ = ["UNTIL_MS", "inputs_of", "one_ledger_for_many_looks"]

HIRO = Reader("hiro", VIEWER, "vision")


@pytest.fixture(autouse=True)
def every_refusal_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of tests that are refused a thousand times a minute together."""
    for ration in ("_STRANGERS_RATION", "_NAMED_RATION"):
        monkeypatch.setattr(f"dashboard.access.audit.{ration}", RefusalRation(600, SystemClock()))


@pytest.fixture(autouse=True)
def log_reaches_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the command has run in this process before, which takes the pages' log for itself."""
    monkeypatch.setattr(logging.getLogger("dashboard"), "propagate", True)


@pytest.fixture
def audited() -> Iterator[list[str]]:
    """The lines of the audit, wherever else they go."""
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler, before = Kept(), AUDIT.level
    AUDIT.addHandler(handler)
    AUDIT.setLevel(logging.INFO)
    yield lines
    AUDIT.removeHandler(handler)
    AUDIT.setLevel(before)


@pytest.fixture(scope="session")
def fleet_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Ten GPUs over two days; tests read it and never write to it."""
    return fleet_lake_of(tmp_path_factory.getbasetemp(), 2)


@pytest.fixture(scope="session")
def fleet_source(fleet_lake: Lake) -> LakeSource:
    """Of all pages over that lake: it stays as it is."""
    return LakeSource(lambda: inputs_of(fleet_lake))


@pytest.fixture(scope="session")
def client(fleet_source: LakeSource) -> FlaskClient:
    return build_app(fleet_source).server.test_client()  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def teams(fleet_lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The ten GPUs of the small lake, with the simulation's own owners file."""
    folder = tmp_path_factory.mktemp("teams")
    fleet = SimulatedFleet(until_ms=UNTIL_MS, gpus=10, days=2, seed=3)
    (folder / "owners.csv").write_text(owners_csv(fleet))
    return Site(fleet_lake, configured(folder, fleet_lake, "owners"))


@pytest.fixture(scope="session")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Twenty-four GPUs over two weeks, with prices."""
    return planned_site(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def _held_site(tmp_path_factory: pytest.TempPathFactory) -> Held:
    folder = tmp_path_factory.mktemp("held")
    return held_lake(made_lake(folder / "lake"), folder)


@pytest.fixture
def held(_held_site: Held) -> Iterator[Held]:
    """Four GPUs that are held; what a test does about the findings is forgotten after it."""
    yield _held_site
    for table in ("action", "annotation", "scenario"):
        shutil.rmtree(f"{_held_site.lake.root}/{table}", ignore_errors=True)
    _held_site.source.forget()


@pytest.fixture(scope="module")
def reading(_held_site: Held) -> Pages:
    """The pages over the held GPUs, for tests without actions."""
    return _held_site.pages()


def page(client: FlaskClient, path: str = "/", search: str = "", scheme: str = "light") -> Any:
    """The page's components as the browser gets them."""
    return filled(client, path, search, scheme)["page"]["children"]


def filled(client: FlaskClient, path: str = "/", search: str = "", scheme: str = "light") -> dict[str, dict[str, Any]]:
    """All that a page's callback fills and sets, by element and property."""
    outputs = [("page", "children"), ("nav", "children"), ("version", "data")]
    outputs += [(each.component_id, each.component_property) for each in OUTPUTS]
    asked = [
        ("scheme", "data", scheme),
        ("url", "pathname", path),
        ("url", "search", search),
        ("again", "n_clicks", None),
    ]
    body = {
        "output": "..{}..".format("...".join(f"{name}.{kind}" for name, kind in outputs)),
        "outputs": [{"id": name, "property": kind} for name, kind in outputs],
        "inputs": [{"id": name, "property": kind, "value": value} for name, kind, value in asked],
        "changedPropIds": ["scheme.data"],
    }
    answer = client.post("/_dash-update-component", headers=FROM_HERE, json=body)
    assert answer.status_code == 200, answer.text
    found = answer.get_json()
    return {**found["response"], **found.get("sideUpdate", {})}


def components(tree: Any) -> Iterator[dict[str, Any]]:
    """Every component of a tree as the browser gets it, as {type, props}."""
    if isinstance(tree, list):
        for each in tree:
            yield from components(each)
    elif isinstance(tree, dict) and "props" in tree:
        yield tree
        yield from components(tree["props"].get("children"))


def words(tree: Any) -> str:
    """All text of a tree, of a page or as the browser gets it."""
    if isinstance(tree, list | tuple):
        return " ".join(words(each) for each in tree)
    if isinstance(tree, dict):
        return words(tree["props"].get("children"))
    if isinstance(tree, Component):
        return words(getattr(tree, "children", None))
    return "" if tree is None else str(tree)


def by_id(tree: Any, wanted: str) -> dict[str, Any]:
    """The properties of the component of that id."""
    return next(each["props"] for each in components(tree) if each["props"].get("id") == wanted)


def hints(tree: Any, name: str) -> list[list[str]]:
    """Return the lines that a chart shows under the pointer, place after place, with ordinary spaces."""
    drawings = [each["props"]["data-drawing"] for each in by_id(tree, name)["children"]]
    found = [[html.unescape(each) for each in re.findall(r'data-tip="([^"]*)"', drawing)] for drawing in drawings]
    assert all(each == found[0] for each in found), "the widths differ"
    return [[" ".join(line.split()) for line in each.split("\n")] for each in found[0]]


def drawing(tree: Any, name: str) -> str:
    """Return the first drawing of a chart."""
    return str(by_id(tree, name)["children"][0]["props"]["data-drawing"])


def section(tree: Any, name: str) -> dict[str, Any]:
    """The panel, or the box of a table, that its title labels."""
    return next(each for each in components(tree) if each["props"].get("aria-labelledby") == f"{name}-title")


def table(tree: Any, name: str) -> list[list[str]]:
    """The rows of a panel's tables, heads left out, by their cells' words."""
    labelled = [each for each in components(tree) if each["props"].get("aria-labelledby") == f"{name}-title"]
    boxes = [each for each in labelled if each["type"] == "Div"]
    rows = [row["props"]["children"] for box in boxes for row in components(box) if row["type"] == "Tr"]
    return [
        [words(cell).strip() for cell in row]
        for row in rows
        if any(cell["props"].get("scope") != "col" for cell in row)
    ]


def parts(tree: Any) -> Iterator[Component]:
    """Every component of a page as it is made, from the outside in."""
    if isinstance(tree, list | tuple):
        for each in tree:
            yield from parts(each)
    elif isinstance(tree, Component):
        yield tree
        yield from parts(getattr(tree, "children", None))


def one(tree: Any, wanted: str) -> Any:
    """The component of that id of a page as it is made."""
    return next(each for each in parts(tree) if getattr(each, "id", None) == wanted)


def links(tree: Any) -> list[str]:
    """Where a page leads, of either kind."""
    if found := [each.href for each in parts(tree) if getattr(each, "href", None)]:
        return found
    return [each["props"]["href"] for each in components(tree) if "href" in each["props"]]
