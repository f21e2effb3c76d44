"""What commands write for a team or a user is the same whatever the others are and do, and no nudge names others."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

import pytest

from analytics.commands.report_nudge import add_nudge_arguments, run_nudge
from fallow.cli import main
from tests.dashboard.worlds import OF_THE_FLEET, ONE, OTHER, OTHERS, TEAM, make_world
from tests.delivery.hands import Hands
from tests.findings.scenarios.builder import T_END

if TYPE_CHECKING:
    from pathlib import Path

    from tests.dashboard.sites import Site

pytestmark = pytest.mark.long

SCOPES = (("--team", TEAM), ("--user", "ann"), ("--user", "bea"))
COMMANDS = [
    *(("report", "--week", "2026-W46", "--format", name) for name in ("text", "md", "html", "json", "csv")),
    ("report", "--week", "2026-W46", "--compare", "before", "--format", "json"),
    *(("recommendations", *form) for form in ((), ("--json",), ("--csv",))),
    *(("ledger", "--by", name, "--csv") for name in ("pool", "team", "organisation", "model", "host", "holder", "account", "day")),
    *(("ledger", *form) for form in ((), ("--json",))),
]  # fmt: skip


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Site]:
    folder = tmp_path_factory.mktemp("worlds")
    return {each.mark: make_world(folder / f"quota-{each.quota}", each) for each in (ONE, OTHER)}


@pytest.mark.parametrize("scope", SCOPES, ids=" ".join)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command(
    sites: dict[str, Site], command: tuple[str, ...], scope: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for mark, site in sites.items():
        code = main([*command, *scope, "--config", str(site.config)])
        printed = capsys.readouterr()
        assert code == 0, printed.err
        assert mark not in printed.out
        said.append(OF_THE_FLEET.sub("", printed.out.replace(str(site.config.parent), "SITE")))
    assert said[0] == said[1]
    assert OTHERS not in re.sub(r"\bothers?\b", "", said[0]).split()


def nudged(site: Site, folder: Path) -> dict[str, str]:
    """Every message by its file: `ann` has an address, all others are reached through their team."""
    contacts = site.config.parent / "contacts.csv"
    contacts.write_text(
        f"kind,name,email\nuser,ann,ann@example.org\nteam,{TEAM},us@example.org\nteam,{OTHERS},them@example.org\n",
        encoding="utf-8",
    )
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    add_nudge_arguments(parser)
    flags = parser.parse_args(["--config", str(site.config), "--as", "zoe", "--out", str(folder)])
    shared = {"lake": None, "lang": None, "timezone": None, "user": None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FALLOW_REPORT_CONTACTS", str(contacts))
        assert run_nudge(argparse.Namespace(**shared | vars(flags)), Hands(T_END)) == 0
    return {file.name: file.read_text(encoding="utf-8") for file in sorted(folder.iterdir())}


def test_a_nudge_tells_nobody_of_other_teams(sites: dict[str, Site], tmp_path: Path) -> None:
    one, other = (nudged(site, tmp_path / mark) for mark, site in sites.items())
    theirs = {name for name in one if "them" in name}
    ours = one.keys() - theirs
    assert ours
    assert theirs
    assert one.keys() == other.keys()
    for mark, messages in zip((ONE.mark, OTHER.mark), (one, other), strict=True):
        assert not [name for name in ours if mark in messages[name]]
        assert not [
            name for name in theirs if re.search(rf"\b(ann|bea|cleo|{TEAM}-pod|{TEAM}-account)\b", messages[name])
        ]
