"""What `fallow findings` says of last week's findings that are not there any more, counted and one by one."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from fallow.cli import main
from tests.findings.conftest import BUSY, DAY, HELD, HOUR
from tests.lakes import made_lake
from tests.ledger.rows import fill, processes, samples

if TYPE_CHECKING:
    from fallow.lake import Lake

WEEK = 7 * DAY


pytestmark = pytest.mark.usefixtures("low_is_listed")


@pytest.fixture(scope="module")
def fortnight(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """At first all three idle; ann works from day three on, bob from an hour before a week on; cy leaves then."""
    names = {"a": "ann", "b": "bob", "c": "\x1b[31mcy"}
    rows = samples("a", 0, 3 * DAY, every_s=600, **HELD) + samples("a", 3 * DAY, 2 * WEEK, every_s=600, **BUSY)
    rows += samples("b", 0, WEEK - HOUR, every_s=600, **HELD) + samples("b", WEEK - HOUR, 2 * WEEK, every_s=600, **BUSY)
    rows += samples("c", 0, WEEK, every_s=600, **HELD)
    rows += samples("c", WEEK, 2 * WEEK, every_s=600, gpu_util_pct=0.0, process_count=0, gpu_util_coverage_ratio=1.0)
    ends = {"a": 2 * WEEK, "b": 2 * WEEK, "c": WEEK}
    lists = [
        row
        for number, (gpu, name) in enumerate(names.items())
        for row in processes(gpu, *range(0, ends[gpu], 600), every_s=600, user=name, pid=100 + number)
    ]
    return fill(made_lake(tmp_path_factory.mktemp("fortnight") / "lake"), rows, lists)


def text(capsys: pytest.CaptureFixture[str], lake: Lake, *flags: str) -> str:
    assert main(["findings", "--lake", lake.root, "--since", "2026-11-27", "--until", "2026-11-29", *flags]) == 0
    return capsys.readouterr().out


def gone(capsys: pytest.CaptureFixture[str], lake: Lake) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(text(capsys, lake, "--json"))["gone"]
    return found


def test_they_are_counted_by_rule_the_wrong_ones_apart(fortnight: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the days of a week before, two were named with a GPU that they used again within the week."""
    by_status = {
        status: [each for each in gone(capsys, fortnight) if each["status"] == status]
        for status in ("closed", "reversed")
    }
    assert {each["user"] for each in by_status["reversed"] if each["rule"] == "held"} == {"ann", "bob"}
    assert len([each for each in by_status["closed"] if each["rule"] == "held"]) == 1
    said = text(capsys, fortnight, "--all")
    assert all(by_status.values())
    for status, found in by_status.items():
        match = re.search(rf"- (\d+) findings? {status} since last week: ((?:\w+ \d+(?:, )?)+)", " ".join(said.split()))
        assert match is not None
        assert int(match[1]) == len(found)
        assert f"held {sum(each['rule'] == 'held' for each in found)}" in match[2].split(", ")


def test_one_by_one_each_says_who_where_and_what_was_wrong(fortnight: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    said = text(capsys, fortnight, "--all")
    rest = said[said.index("LAST WEEK'S FINDINGS THAT ENDED") :]
    listed = re.findall(r"^  - (F-[0-9a-f]{10}):", rest, re.MULTILINE)
    assert sorted(listed) == sorted({each["finding_id"] for each in gone(capsys, fortnight)})
    wrong = re.findall(
        r"user: (\w+); [^;]*; outcome: reversed: (last week's finding was wrong: the GPUs were used again from [-\d]+"
        r" [:\d]+ UTC)",
        " ".join(rest.split()),
    )
    assert {
        ("ann", "last week's finding was wrong: the GPUs were used again from 2026-11-23 00:00 UTC"),
        ("bob", "last week's finding was wrong: the GPUs were used again from 2026-11-26 23:00 UTC"),
    } <= set(wrong)
    assert "\x1b" not in said
    assert all(len(line) <= 100 for line in said.splitlines() if not line.startswith("    next "))
