"""`fallow findings ack|snooze|reopen|note|history`: who did what, also when several people act at once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from analytics.commands.finding_actions import beside_others
from analytics.decide.actions import KINDS, Action, load_actions, record
from fallow.actors import Actor
from fallow.cli import main
from fallow.clock import DAY_MS, SystemClock
from fallow.leases import leased
from fallow.os_user import os_user
from fallow.schema import ACTION
from tests.conftest import REPOSITORY, clean_environment
from tests.findings.conftest import HELD, HOUR
from tests.in_process import run_in_process
from tests.ledger.rows import fill, ms, processes, samples, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from fallow.lake import Lake

Run = tuple[int, str, str]

WAITING = "the ledger waits for another writer"
ID = "F-f3eb8c41f7"
"""What ann holds on h1."""
BY_US = f"(as OS user {os_user()})"
"""What stands beside a name that was given with --as."""


pytestmark = pytest.mark.usefixtures("low_is_listed")


@pytest.fixture
def held(lake: Lake) -> Lake:
    rows = samples("a", 0, 2 * HOUR, every_s=60, **HELD)
    return fill(lake, rows, processes("a", *range(0, 2 * HOUR, 60), every_s=60))


@pytest.fixture
def run(held: Lake, capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    def call(*arguments: str) -> Run:
        code = main(["findings", "--lake", held.root, *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def listed(run: Callable[..., Run], *arguments: str) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = json.loads(run("--json", *arguments)[1])["findings"]
    return content


def test_no_variable_says_who_one_is(held: Lake) -> None:
    posing = dict.fromkeys(("LOGNAME", "USER", "LNAME", "USERNAME", "SUDO_USER"), "eve")
    done = run_in_process("findings", "ack", ID, "--lake", held.root, **posing)
    assert done.stdout == f"acknowledged {ID} as {os_user()}\n"
    [action] = load_actions(held)[ID]
    assert action.actor == Actor(os_user(), os_user=os_user())


def test_notes_change_no_status_and_an_id_is_taken_in_small_and_in_capital_letters(
    held: Lake, run: Callable[..., Run]
) -> None:
    for number, written in enumerate((ID.lower(), ID.upper(), ID), 1):
        assert run("note", written, "--text", " hm ", "--as", "zoe") == (0, f"noted on {ID} as zoe {BY_US}\n", "")
        assert len(load_actions(held)[ID]) == number
    (finding,) = listed(run)
    assert finding["status"] == "new"
    assert [note.partition(", ")[2] for note in finding["notes"]] == [f"zoe {BY_US}: note: hm"] * 3
    assert run("history", ID.lower())[1].count("hm") == 3


def test_snoozed_is_hidden_counted_and_shown_when_asked_for(held: Lake, run: Callable[..., Run]) -> None:
    """Who acts as somebody else is recorded, and said wherever the actor is."""
    code, out, _ = run("snooze", ID, "--as", "zoe", "--reason", "warm standby", "--for", "30d")
    assert (code, out.startswith(f"snoozed {ID} as zoe {BY_US} until ")) == (0, True)
    [action] = load_actions(held)[ID]
    assert action.actor == Actor("zoe", os_user=os_user())
    assert listed(run) == []
    text = run()[1]
    assert "1 finding snoozed; --all shows it" in text
    assert ID not in text
    (finding,) = listed(run, "--all")
    assert (finding["status"], finding["notes"][0].endswith(": warm standby")) == ("snoozed", True)
    assert f"zoe {BY_US}: snoozed" in finding["notes"][0]
    assert run("reopen", ID)[0] == 0
    assert [each["status"] for each in listed(run)] == ["new"]


def test_what_an_action_ends_is_said(held: Lake, run: Callable[..., Run]) -> None:
    assert run("reopen", ID)[:2] == (0, f"nothing to reopen: {ID} has no actions\n")
    assert load_actions(held) == {}
    out = run("snooze", ID, "--as", "ann", "--reason", "warm standby")[1]
    assert out == f"snoozed {ID} as ann {BY_US} until it is reopened\n"
    out = run("ack", ID, "--as", "bob", "--reason", "asking")[1]
    ended = f"this ends the snooze by ann {BY_US} until it is reopened (reason: warm standby)"
    assert out == f"acknowledged {ID} as bob {BY_US}; {ended}\n"
    (finding,) = listed(run)
    assert (finding["status"], finding["notes"][1].partition(", ")[2]) == (
        "acknowledged",
        f"bob {BY_US}: acknowledged: asking",
    )
    out = run("reopen", ID, "--as", "cy")[1]
    assert out.startswith(f"reopened {ID} as cy {BY_US}; this ends the acknowledgement by bob {BY_US}")
    assert run("reopen", ID)[1].startswith(f"nothing to reopen: {ID} is neither acknowledged nor snoozed")
    assert [each.kind for each in load_actions(held)[ID]] == ["snooze", "ack", "reopen"]


def test_a_note_is_no_longer_by_command_than_on_the_pages(held: Lake, run: Callable[..., Run]) -> None:
    for words, name in (("x" * 2001, "ann"), ("ok", "a" * 301)):
        code, _, err = run("note", ID, "--text", words, "--as", name)
        assert (code, "is too long; stay below" in err or "is longer than 300 characters" in err) == (2, True)
    assert load_actions(held) == {}


def test_history_shows_everything_in_order(held: Lake, run: Callable[..., Run]) -> None:
    assert run("history", ID) == (0, f"{ID} has no actions yet\n", "")
    for number, kind in enumerate(KINDS):
        channel = "x@y" if kind == "notify" else None
        record(held, kind, [ID], Actor(f"p{number}"), now_ms=ms(number), reason=f"r{number}", channel=channel)
    text = run("history", ID)[1]
    rows = [line for line in text.splitlines() if re.search(r"\bp\d\b", line)]
    done = ("acknowledged", "snoozed", "reopened", "notified", "note")
    assert all(
        f"p{at}" in row and word in row and f"r{at}" in row
        for at, (row, word) in enumerate(zip(rows, done, strict=True))
    )
    assert "x@y" in rows[3]
    content = json.loads(run("history", ID, "--json")[1])
    assert [each["kind"] for each in content["actions"]] == list(KINDS)
    assert set(content["actions"][0]) == set(ACTION.names)


def test_the_window_before_the_verb_is_the_one_that_the_id_is_looked_for_in(
    run: Callable[..., Run], tmp_path: Path
) -> None:
    code, _, error = run("--until", "2026-11-20T00:30Z", "ack", ID)
    assert (code, f"there is no finding {ID} in this window" in error) == (1, True)
    assert run("--until", "2026-11-20T00:30Z", "ack", ID, "--force")[0] == 0
    code, _, error = run("--lake", str(tmp_path / "no"), "ack", "F-1", "--force")
    assert (code, "there is no lake at" in error, (tmp_path / "no").exists()) == (1, True, False)


def test_an_unknown_id_names_near_ones_and_nothing_is_written(held: Lake, run: Callable[..., Run]) -> None:
    wrong = ID[:-1] + ("0" if ID[-1] != "0" else "1")
    code, out, error = run("ack", ID, wrong)
    assert (code, out) == (1, "")
    assert f"there is no finding {wrong} in this window; similar ids: {ID};" in error
    assert load_actions(held) == {}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["snooze", "F-1"], "the following arguments are required: --reason"),
        (["snooze", "F-1", "--reason", " "], "--reason is empty"),
        (["snooze", "F-1", "--reason", "x", "--until", "2020-01-01"], "--until 2020-01-01 has passed"),
        (["snooze", "F-1", "--reason", "x", "--until", "soon"], "'soon' is not a time"),
        (["snooze", "F-1", "--reason", "x", "--for", "long"], "'long' is not a duration"),
        (["snooze", "F-1", "--reason", "x", "--for", "1d", "--until", "2099-01-01"], "not allowed with"),
        (["note", "F-1"], "the following arguments are required: --text"),
        (["ack"], "the following arguments are required: ID"),
        (["ack", "F-1", "--as", ""], 'the name "" is empty; give --as a name in ordinary letters of one script'),
        (["ack", "F-1", "--as", "ann "], "the name ann has a blank at its start or end"),
        (
            ["ack", "F-1", "--as", "ann\u00a0"],
            "the name ann contains U+00A0 (NO-BREAK SPACE), which readers cannot see",
        ),
        (
            ["ack", "F-1", "--as", "\u0430nn"],
            "mixes letters of different scripts: U+0430 (CYRILLIC SMALL LETTER A) and",
        ),
        (["acknowledge", "F-1"], "invalid choice"),
    ],
)
def test_wrong_use(run: Callable[..., Run], arguments: list[str], error: str) -> None:
    code, out, said = run(*arguments)
    assert (code, out) == (2, "")
    assert error in said


def test_a_lake_that_cannot_be_written_is_one_clear_sentence(held: Lake, run: Callable[..., Run]) -> None:
    Path(held.root, "action").write_text("no folder", encoding="utf-8")
    before = snapshot(held)
    code, out, error = run("ack", ID)
    assert (code, out) == (1, "")
    assert "action is a file; the lake needs a folder here; move it out of the lake" in error
    assert error.count("\n") == 1
    assert snapshot(held) == before


def test_actions_of_one_moment_are_all_kept_and_none_hides_another(lake: Lake) -> None:
    """Sixteen threads, one clock that stands still; one call on several findings is one file."""
    with ThreadPoolExecutor(16) as pool:
        for number in range(200):
            pool.submit(record, lake, "ack", ["F-1", "F-2", "F-1"], Actor(f"p{number}"), now_ms=ms(0))
    for kept in (load_actions(lake)["F-1"], load_actions(lake)["F-2"]):
        assert sorted(each.actor.name for each in kept) == sorted(f"p{number}" for number in range(200))
        assert len({each.action_id for each in kept}) == 200
        assert list(kept) == sorted(kept)
    assert len(lake.files("action")) == len(lake.all_files("action")) == 200


@pytest.mark.long
def test_two_people_at_once_are_both_recorded_and_the_later_decides(held: Lake, run: Callable[..., Run]) -> None:
    """Both keep the ledger, one at a time: a command that has to wait may report that, and nothing else."""
    calls = [["ack", ID, "--as", "zoe"], ["snooze", ID, "--reason", "mine", "--as", "yan"]]
    with leased(held, "ledger", "the test"):
        words = (sys.executable, "-W", "error", "-m", "fallow", "findings", "--lake", held.root)
        at: Any = {"cwd": REPOSITORY, "env": clean_environment(), "text": True}
        at |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started = [subprocess.Popen([*words, *call], **at) for call in calls]
        assert all(WAITING in each.stderr.readline() for each in started if each.stderr is not None)
    ended = [each.communicate(timeout=120) for each in started]
    assert [line for _, errors in ended for line in errors.splitlines() if WAITING not in line] == []
    assert [each.returncode for each in started] == [0, 0]
    actions = load_actions(held)[ID]
    assert {each.actor.name for each in actions} == {"zoe", "yan"}
    decided = {"ack": "acknowledged", "snooze": "snoozed"}[actions[-1].kind]
    assert [each["status"] for each in listed(run, "--all")] == [decided]
    assert run("history", ID)[1].count("  - ") == 2


@pytest.mark.parametrize(("later_ms", "files"), [(0, 1), (7, 1), (DAY_MS, 2)])
def test_what_is_said_once_by_two_workers_at_the_same_moment_is_one_row(lake: Lake, later_ms: int, files: int) -> None:
    """Also where midnight is between them, or a host: then there are two files, and the first counts."""
    for now_ms in (ms(0), ms(0) + later_ms):
        record(lake, "ack", ["F-1", "F-2"], Actor("ann"), now_ms=now_ms, channel="link a", once="link a")
    record(lake, "ack", ["F-1"], Actor("ann"), now_ms=ms(0), channel="link b", once="link b")
    assert len(snapshot(lake, "action")) == files + 1
    found = load_actions(lake)
    assert [(each.channel, each.time_ms) for each in found["F-2"]] == [("link a", ms(0) + later_ms * (files == 1))]
    assert len(found["F-1"]) == 2


def test_what_is_done_after_anothers_action_comes_after_it_whatever_the_clocks_say(
    held: Lake, run: Callable[..., Run]
) -> None:
    """Ann's machine is an hour ahead: what bob does once he has seen her snooze still ends it."""
    ahead_ms = SystemClock().now_ms() + 3_600_000
    record(held, "snooze", [ID], Actor("ann"), now_ms=ahead_ms, reason="standby")
    out = run("reopen", ID, "--as", "bob")[1]
    assert out.startswith(f"reopened {ID} as bob {BY_US}; this ends the snooze by ann")
    assert [each["status"] for each in listed(run)] == ["new"]
    assert [each.actor.name for each in load_actions(held)[ID]] == ["ann", "bob"]


def test_who_acted_at_the_same_time_is_told() -> None:
    """Read after one's own action is recorded: what came between reading and writing is said too."""
    ann = Action(5, "A-1-0", "F-1", "snooze", Actor("ann"), reason="standby")
    bob = Action(6, "A-2-0", "F-1", "ack", Actor("bob"))
    assert beside_others([ann, bob], bob, 7) == ("; this ends the snooze by ann until it is reopened (reason: standby)")
    assert beside_others([ann, bob], ann, 7) == (
        "; bob acknowledged it at the same time, and the later action counts: see `history`"
    )
    note = Action(8, "A-3-0", "F-1", "note", Actor("cy"), reason="hm")
    assert beside_others([ann, note], ann, 9) == ""
