"""Every setting with its value and where it was set, without secrets; prices and owners as the commands show them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from analytics.language.languages import language
from dashboard.access.people import ADMIN, PLANNER, VIEWER, Reader
from dashboard.pages.settings import SETTINGS_PAGE, shown_settings
from fallow import config
from fallow.config import SETTINGS
from tests.dashboard.conftest import components, page, section, table, words
from tests.dashboard.sites import Site, content, make_site
from tests.in_process import run_in_process

SECRETS = """[report]
to = ["https://hooks.slack.com/services/T0/B0/verysecret", "mailto:lead@example.org"]
operators = ["https://hooks.slack.com/services/T1/B1/verysecret"]
[serving]
endpoints = "http://ann:verysecret@127.0.0.1:8000/metrics?token=verysecret"
[ledger]
idle_after = "7min"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return make_site(tmp_path_factory.mktemp("settings"), days=2, settings=SECRETS)


def test_every_setting_is_there_with_its_origin(site: Site) -> None:
    shown = named(content(SETTINGS_PAGE, site.view()), "settings")
    assert shown.keys() == {each.name for each in SETTINGS}
    assert shown["ledger.idle_after"][:2] == ["7\N{NO-BREAK SPACE}min", f"file {site.config}"]
    assert shown["findings.held_min"][:2] == ["1\N{NO-BREAK SPACE}h", "default"]
    assert shown["ledger.workers"][:2] == ["auto", "default"]
    assert shown["agent.command_arguments"][0] == "off"
    assert shown["money.pue"][0] == "1.54"
    assert shown["mail.server"][0] == "not set"
    assert [plainly(shown[each.name][2]) for each in SETTINGS] == [plainly(each.meaning) for each in SETTINGS]


def named(tree: Any, name: str) -> dict[str, list[str]]:
    return {row[0]: row[1:] for row in table(tree, name)}


def plainly(text: str) -> str:
    """Without the marks of what is to be typed, and with ordinary spaces."""
    return " ".join(text.replace("`", " ").split())


def test_what_is_to_be_typed_is_marked_up(site: Site) -> None:
    shown = content(SETTINGS_PAGE, site.view())
    assert "`" not in words(shown)
    typed = [each["props"]["children"] for each in components(shown) if each["type"] == "Code"]
    assert sorted(typed) == sorted(
        part for each in SETTINGS for part in each.meaning.split("`")[1::2]
    )  # those of agents are last
    assert "held" in typed


def test_a_meaning_is_in_the_readers_language_or_marked_as_english(site: Site) -> None:
    shown = content(SETTINGS_PAGE, site.view("?lang=fr"))
    french = language("fr")
    cells = [each["props"] for each in components(shown) if each["type"] == "Td"]
    for setting in SETTINGS:
        said = french.translate(setting.meaning)
        (found,) = {each.get("lang", "fr") for each in cells if plainly(words(each["children"])) == plainly(said)}
        assert found == ("en" if said == setting.meaning else "fr"), setting.name


def test_variables_and_flags_are_named_as_origins() -> None:
    found = config.load({"lake.path": "/srv/lake"}, None, {"FALLOW_MONEY_PUE": "1.2"})
    shown = {each.name: each for each in shown_settings(found, language("en"))}
    assert (shown["money.pue"].value, shown["money.pue"].origin) == ("1.2", "variable FALLOW_MONEY_PUE")
    assert (shown["lake.path"].value, shown["lake.path"].origin) == ("/srv/lake", "command line")


def test_no_secret_is_shown(site: Site) -> None:
    shown = json.dumps(content(SETTINGS_PAGE, site.view()))
    assert "verysecret" not in shown
    assert "hooks.slack.com" in shown
    assert "mailto:lead@example.org" in shown
    assert "http://127.0.0.1:8000/metrics?" in shown


def test_the_prices_are_those_of_the_command(site: Site) -> None:
    told = json.loads(run_in_process("prices", "--config", str(site.config), "--json").stdout)["tables"]["prices"][
        "rows"
    ]
    shown = named(content(SETTINGS_PAGE, site.view()), "prices")
    assert len(told) > 5
    for each in told:
        cells = shown[each["model"]]
        assert cells[1] == f"{each['price_per_gpu_hour']:,.4f} {each['currency']}"
        assert each["source"] in cells[4]
        assert cells[5] == str(each["gpus"])
    assert shown["NVIDIA H100 80GB HBM3"][3] == "the site's own"


def test_the_owners_are_counted_and_not_named(site: Site) -> None:
    shown = named(content(SETTINGS_PAGE, site.view()), "owners")
    assert shown == {"language": ["products", "1", "0", "1", "2"], "vision": ["research", "0", "0", "2", "4"]}
    own = content(SETTINGS_PAGE, site.view("", Reader("ann", ADMIN, "vision")))
    assert named(own, "owners").keys() == {"vision"}
    assert "language" not in words(section(own, "owners"))
    assert {cells[5] for cells in named(own, "prices").values()} == {""}


@pytest.mark.parametrize("role", [VIEWER, PLANNER])
def test_it_is_for_admins(site: Site, role: str) -> None:
    text = words(page(site.client(Reader("ann", role)), "/settings"))
    assert "hooks.slack.com" not in text
    assert ADMIN in text
    assert "Settings in force" in words(page(site.client(), "/settings"))
