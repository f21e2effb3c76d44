"""The file with roles and teams."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from dashboard.access.directory import Directory
from dashboard.access.people import ADMIN, PLANNER, VIEWER, Reader
from fallow.errors import ConfigError

ROWS = """kind,name,role,team
# who is who
user,ann,planner,
user,bob,viewer,nlp
,cleo,admin,
user,mallory,none,
group,gpu-admins,admin,
group,vision,viewer,vision
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text(ROWS, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "groups", "found"),
    [
        ("ann", [], Reader("ann", PLANNER)),
        ("bob", [], Reader("bob", VIEWER, "nlp")),
        ("bob", ["gpu-admins"], Reader("bob", VIEWER, "nlp")),  # the person's own line takes precedence
        ("cleo", [], Reader("cleo", ADMIN)),
        ("dan", ["vision", "gpu-admins"], Reader("dan", ADMIN)),  # the file's order, not the provider's
        ("dan", ["vision"], Reader("dan", VIEWER, "vision")),
        ("Ann", [], None),
        ("vision", [], None),
        ("mallory", ["gpu-admins"], None),
        ("", [], None),
    ],
)
def test_who_is_who(file: Path, name: str, groups: list[str], found: Reader | None) -> None:
    assert Directory(str(file), "none").person(name, groups) == found


def test_the_default_is_for_all_others(file: Path) -> None:
    assert Directory(str(file), VIEWER).person("dan") == Reader("dan", VIEWER)
    assert Directory("", VIEWER).person("dan") == Reader("dan", VIEWER)
    file.write_text(f"{ROWS}default,,viewer,nlp\n", encoding="utf-8")
    assert Directory(str(file), "none").person("dan") == Reader("dan", VIEWER, "nlp")
    assert Directory(str(file), "none").person("mallory") is None


def test_without_a_kind_column_all_are_users(file: Path) -> None:
    file.write_text("name;role;team\nann;Viewer;nlp\n", encoding="utf-8")
    assert Directory(str(file), "none").person("ann") == Reader("ann", VIEWER, "nlp")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("user,ann,viewer,", "line 9: user ann is already named in line 3"),
        ("user,eve,boss,", "line 9: role 'boss' is none of viewer, planner, admin, none"),
        ("robot,eve,viewer,", "line 9: kind 'robot'"),
        ("user,,viewer,", "line 9: name is empty"),
        ("default,eve,viewer,", "line 9: the default line has the name 'eve'"),
        ("user,eve,viewer,a,b", "line 9: 5 cells"),
        ("user,eve,viewer", "line 9: the line has fewer cells than others"),  # not a viewer of all teams
    ],
)
def test_a_mistake_names_file_and_line(file: Path, line: str, words: str) -> None:
    file.write_text(f"{ROWS}{line}\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        Directory(str(file), "none")
    assert str(file) in str(caught.value)
    assert words in str(caught.value)


def test_changes_count_at_once_and_mistakes_do_not(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    people = Directory(str(file), "none")
    file.write_text(ROWS.replace("ann,planner", "ann,admin"), encoding="utf-8")
    assert people.person("ann") == Reader("ann", ADMIN)
    file.write_text("name,role\nann,emperor\n", encoding="utf-8")
    for _ in range(3):
        assert people.person("ann") == Reader("ann", ADMIN)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert f"{file}, line 2: role 'emperor'" in caplog.text
    file.write_text("name,role\nann,viewer\n", encoding="utf-8")
    assert people.person("ann") == Reader("ann", VIEWER)


def test_a_file_that_goes_away_stays_in_force(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    people = Directory(str(file), "none")
    file.unlink()
    assert people.person("ann") == Reader("ann", PLANNER)
    assert "No such file" in caplog.text


def test_a_link_that_is_set_to_another_file_counts(file: Path, tmp_path: Path) -> None:
    link, other = tmp_path / "link", tmp_path / "other"
    link.symlink_to(file)  # how Kubernetes mounts a ConfigMap
    people = Directory(str(link), "none")
    other.write_text(ROWS.replace("ann,planner", "ann,viewer "), encoding="utf-8")
    os.utime(other, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    (tmp_path / "new").symlink_to(other)
    (tmp_path / "new").rename(link)
    assert people.person("ann") == Reader("ann", VIEWER)


@pytest.mark.parametrize(
    "name", ["an\u200dn", "\u0430nn", "\uff41nn", "Mu\u0308ller", "ann\u00a0", "\u3000ann", '"ann\n"', "ann\\u{a}"]
)
@pytest.mark.parametrize("kind", ["user", "token"])
def test_a_name_that_no_person_can_have_is_named_with_its_line(tmp_path: Path, kind: str, name: str) -> None:
    file = tmp_path / "people.csv"
    file.write_text(
        f"kind,name,role,sha256\n{kind},{name},viewer,{'0' * 64 if kind == 'token' else ''}\n", encoding="utf-8"
    )
    with pytest.raises(ConfigError, match=r"people\.csv, line [23]: the name .* (contains|mixes|is not in)"):
        Directory(str(file), "none")


@pytest.mark.parametrize("name", ["planners\u00a0", '"planners\n"', "plan\u200bners"])
def test_a_group_name_with_invisible_characters_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "people.csv"
    file.write_text(f"kind,name,role\ngroup,{name},planner\n", encoding="utf-8")
    with pytest.raises(
        ConfigError, match=r"people\.csv, line [23]: the name of the group plan.*ners.* has invisible characters"
    ):
        Directory(str(file), "none")
