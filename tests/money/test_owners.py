"""The owners file, as people keep it."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pytest

from analytics.money.owners import Owners
from fallow.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "kind,name,team,organisation,quota_gpus,priority_class,project_end"
TABLE = f"""{HEADER}
user,ann,vision,research,8,best-effort,
user,bob,speech,research,,,2026-12-31

account,vis01,vision,,16,,
namespace,serving,platform,product,4.5,prod,
user,eve,platform,,,,
"""


def owners(folder: Path, text: str, encoding: str = "utf-8") -> Owners:
    file = folder / "owners.csv"
    file.write_text(text, encoding=encoding)
    return Owners.load(str(file))


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        owners(folder, text)
    assert caught.value.exit_code == 2
    return str(caught.value).replace(str(folder), "")


@pytest.mark.parametrize(
    ("user", "account", "team", "organisation"),
    [
        ("ann", None, "vision", "research"),
        ("bob", "vis01", "vision", "research"),  # another line of vision says so
        ("bob", "unheard-of", "speech", "research"),
        ("ann", "serving", "platform", "product"),
        (None, "serving", "platform", "product"),
        ("carl", None, None, None),
        (None, None, None, None),
        ("bob+ann", None, "speech+vision", "research"),
        ("ann+carl", None, "vision", "research"),
        ("ann+bob", "vis01", "vision", "research"),
        ("eve+ann", None, "platform+vision", "product+research"),
    ],
)
def test_account_and_namespace_say_who_is_charged_before_the_users_do(
    tmp_path: Path, user: str | None, account: str | None, team: str | None, organisation: str | None
) -> None:
    found = owners(tmp_path, TABLE)
    assert (found.team(user, account), found.organisation(user, account)) == (team, organisation)
    assert Owners.none().team(user, account) is None


def test_lines_and_teams_keep_what_they_say(tmp_path: Path) -> None:
    found = owners(tmp_path, TABLE)
    bob = found.of("bob", None)
    assert bob is not None
    assert found.of("bob+ann", None) is None, "no one line is about both"
    assert (bob.kind, bob.project_end, bob.quota_gpus) == ("user", date(2026, 12, 31), None)
    serving = found.owner("namespace", "serving")
    assert serving is not None
    assert serving.priority_class == "prod"
    teams = found.teams()
    assert list(teams) == ["platform", "speech", "vision"]
    assert {name: team.quota_gpus for name, team in teams.items()} == {"platform": 4.5, "speech": None, "vision": 24.0}
    assert Owners.none().teams() == {}
    assert len(teams["vision"].owners) == 2


def test_a_line_names_its_project_and_its_days(tmp_path: Path) -> None:
    header = "kind,name,team,project,project_start,project_end"
    line = owners(tmp_path, f"{header}\nuser,ann,vision,maps,2026-11-02,2026-11-02\n").of("ann", None)
    assert line is not None
    assert (line.project, line.project_start, line.project_end) == ("maps", date(2026, 11, 2), date(2026, 11, 2))
    said = refusal(tmp_path, f"{header}\nuser,ann,vision,maps,2026-11-03,2026-11-02\n")
    assert "/owners.csv, line 2: the project ends on 2026-11-02, before it starts on 2026-11-03" in said


def test_what_a_spreadsheet_writes_is_read(tmp_path: Path) -> None:
    text = "# kept by finance\n\nKind;Name;Team;Quota GPUs;E-Mail\nUSER; ann ;vision;7,5;ann@site\n;;;;\n"
    found = owners(tmp_path, text.replace("\n", "\r\n"), "utf-8-sig")
    ann = found.of("ann", None)
    assert ann is not None
    assert (ann.team, ann.quota_gpus) == ("vision", 7.5)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("user,ann,speech,,,,", "line 3: user 'ann' is named in line 2 already"),
        ("group,bob,speech,,,,", "line 3: kind 'group' is none of account, namespace, user"),
        (",bob,speech,,,,", "line 3: kind '' is none of account, namespace, user"),
        ("user,,speech,,,,", "line 3: name is empty"),
        ("user,bob,,,,,", "line 3: team is empty"),
        ("user,bob,speech,,many,,", "line 3: quota_gpus 'many' is not a number"),
        ("user,bob,speech,,-1,,", "line 3: quota_gpus '-1' is not a number from 0 to"),
        ("user,bob,speech,,nan,,", "line 3: quota_gpus 'nan' is not a number from 0 to"),
        ("user,bob,speech,,,,31.12.2026", "line 3: project_end '31.12.2026' is not a day; write it as 2026-11-20"),
        ("user,bob,vision,sales,,,", "line 3: team 'vision' belongs to 'sales' here and to 'research' above"),
        ("user,bob,a,b,c,d,e,f", "line 3: 8 cells where the header names 7 columns"),
        ('user,"bob', "line 3: not CSV"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path: Path, line: str, said: str) -> None:
    assert f"/owners.csv, {said}" in refusal(tmp_path, f"{HEADER}\nuser,ann,vision,research,,,\n{line}\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "/owners.csv has no header line"),
        ("\n\n# nothing\n", "/owners.csv has no header line"),
        ("kind,name\nuser,ann\n", "/owners.csv lacks the column 'team'"),
        ("kind,name,team,organization\n", "has a column 'organization'; did you mean 'organisation'?"),
        ("kind,name,team,team\n", "names a column twice"),
        ("kind,name,team\nuser,ann,\n", "line 2: team is empty"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(tmp_path, text)


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        Owners.load(str(tmp_path / "none.csv"))
    with pytest.raises(ConfigError, match="is a folder"):
        Owners.load(str(tmp_path))
    (tmp_path / "latin.csv").write_bytes("kind,name,team\nuser,Jos\xe9,a\n".encode("latin-1"))
    with pytest.raises(ConfigError, match="not UTF-8"):
        Owners.load(str(tmp_path / "latin.csv"))


def test_a_plus_in_a_name_is_the_backslash_of_the_ledgers_names(tmp_path: Path) -> None:
    found = owners(tmp_path, "kind,name,team\nuser,CORP+ann,vision\nuser,ann,speech\naccount,r+d,research\n")
    assert found.team("CORP\\ann", None) == "vision"
    assert found.team("CORP\\ann+ann", None) == "speech+vision"
    assert found.team("ann", "r\\d") == "research"
    twice = refusal(tmp_path, "kind,name,team\nuser,CORP+ann,vision\nuser,CORP\\ann,speech\n")
    assert "named in line 2 already" in twice
