"""The data page: every remark, and the ledger's coverage of each group; nothing of it for one team's reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dashboard.access.people import VIEWER, Reader
from dashboard.pages.trust import QUALITY
from fallow.lake import Lake
from tests.dashboard.conftest import components, section, table, words
from tests.dashboard.sites import Site, content, make_site
from tests.ledger.rows import device, fill, samples


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return make_site(tmp_path_factory.mktemp("quality"), days=2)


def rows(tree: Any, name: str) -> dict[str, list[str]]:
    """The rows of one table: what it is about, and its figures."""
    found = table(tree, f"coverage_{name}")
    return {row[0]: [cell.replace("\N{NO-BREAK SPACE}", " ").strip() for cell in row[1:]] for row in found}


def test_the_least_observed_comes_first(site: Site) -> None:
    shares = [
        float(cells[0].removesuffix(" %")) for cells in rows(content(QUALITY, site.view("?span=all")), "host").values()
    ]
    assert shares == sorted(shares)
    assert shares[0] < 100


def test_every_host_leads_to_its_page(site: Site) -> None:
    shown = content(QUALITY, site.view("?span=all&lang=fr"))
    there = [each["props"]["href"] for each in components(shown) if each["type"] == "Link"]
    hosts = rows(content(QUALITY, site.view("?span=all")), "host")
    assert len(hosts) > 1
    assert there == [f"/host?span=all&lang=fr&host={host}" for host in hosts]


def test_a_host_that_fell_silent_is_named(lake: Lake, tmp_path: Path) -> None:
    fill(
        lake,
        [*samples("a0", 0, 36_000, every_s=300), *samples("b0", 0, 3600, every_s=300)],
        host="gn1",
        devices=[device("a0"), device("b0")],
    )
    fill(lake, samples("c0", 0, 7200, every_s=300), host="<b>gn2</b>")
    config = tmp_path / "fallow.toml"
    config.write_text(f'[lake]\npath = "{lake.root}"\n')
    shown = content(QUALITY, Site(lake, config).view("?span=all"))
    silent = section(shown, "silent")
    text = words(silent)
    assert "the whole host" in text
    assert "<b>gn2</b>" in text
    assert "some of its GPUs" in text
    assert any(each["type"] == "Link" and "%3Cb%3Egn2" in each["props"]["href"] for each in components(silent))


@pytest.mark.parametrize("search", ["?team=vision", "?team=vision&lang=fr"])
def test_nothing_of_it_is_for_one_team(site: Site, search: str) -> None:
    for view in (
        site.view(search),
        site.view(search.replace("team=vision", "team=language"), Reader("ann", VIEWER, "vision")),
    ):
        shown = content(QUALITY, view)
        assert "sim-" not in json.dumps(shown)
        assert len(words(shown)) > 40
        assert not [each for each in components(shown) if each["type"] == "Table"]
