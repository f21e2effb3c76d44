"""A small simulated lake, and the pages over it without a browser."""

from __future__ import annotations

import argparse
import logging
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from analytics.simulation import SimulatedFleet, write_fleet
from analytics.window import Inputs, open_inputs
from dashboard.access.allowances import RefusalRation
from dashboard.app import build_app
from dashboard.frame import OUTPUTS
from dashboard.source import LakeSource
from fallow.clock import SystemClock
from tests.dashboard.acting import Held, held_lake
from tests.lakes import made_lake
from tests.shared_results import sharing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from flask.testing import FlaskClient

    from fallow.lake import Lake

UNTIL_MS = 1_763_596_800_000
"""2025-11-20T00:00Z, a midnight."""


def inputs_of(lake: Lake, since: str | None = None, until: str | None = None, config: str | None = None) -> Inputs:
    return open_inputs(argparse.Namespace(lake=lake.root, since=since, until=until, config=config))


@pytest.fixture(autouse=True, scope="module")
def _one_ledger_for_many_looks() -> Iterator[None]:
    with sharing():
        yield


@pytest.fixture(autouse=True)
def every_refusal_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of tests that are refused a thousand times a minute together."""
    for ration in ("_OF_STRANGERS", "_OF_NAMED"):
        monkeypatch.setattr(f"dashboard.access.audit.{ration}", RefusalRation(600, SystemClock()))


@pytest.fixture(autouse=True)
def log_reaches_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the command has run in this process before, which takes the pages' log for itself."""
    monkeypatch.setattr(logging.getLogger("dashboard"), "propagate", True)


@pytest.fixture(scope="session")
def fleet_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Ten GPUs over two days; tests read it and never write to it."""
    lake = made_lake(tmp_path_factory.mktemp("fleet") / "lake")
    write_fleet(lake, SimulatedFleet(until_ms=UNTIL_MS, gpus=10, days=2, seed=3))
    return lake


@pytest.fixture(scope="session")
def fleet_source(fleet_lake: Lake) -> LakeSource:
    """Of all pages over that lake: it stays as it is."""
    return LakeSource(lambda: inputs_of(fleet_lake))


@pytest.fixture(scope="session")
def client(fleet_source: LakeSource) -> FlaskClient:
    return build_app(fleet_source).server.test_client()  # type: ignore[no-any-return]


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
    answer = client.post("/_dash-update-component", headers={"Origin": "http://localhost"}, json={
        "output": "..{}..".format("...".join(f"{name}.{kind}" for name, kind in outputs)),
        "outputs": [{"id": name, "property": kind} for name, kind in outputs],
        "inputs": [{"id": name, "property": kind, "value": value} for name, kind, value in asked],
        "changedPropIds": ["scheme.data"],
    })  # fmt: skip
    assert answer.status_code == 200, answer.text
    found = answer.get_json()
    return {**found["response"], **found.get("sideUpdate", {})}


def components(tree: Any) -> Iterator[dict[str, Any]]:
    """Every component of a tree, as {type, props}."""
    if isinstance(tree, list):
        for each in tree:
            yield from components(each)
    elif isinstance(tree, dict) and "props" in tree:
        yield tree
        yield from components(tree["props"].get("children"))


def words(tree: Any) -> str:
    """All text of a tree."""
    if isinstance(tree, list):
        return " ".join(words(each) for each in tree)
    if isinstance(tree, dict):
        return words(tree["props"].get("children"))
    return "" if tree is None else str(tree)


def empty_folder(path: Path) -> Lake:
    path.mkdir()
    return made_lake(path)


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
