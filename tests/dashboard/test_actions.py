"""Actions on the page of findings: recorded as by the command, for planners; undoing another's takes two clicks."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from analytics.decide.actions import Action, load_actions, record
from analytics.decide.lifecycle import RELEASED
from dashboard.access.people import ADMIN, VIEWER, NotAllowedError, Reader
from dashboard.actions import Wish, act, last_of
from fallow.actors import Actor
from fallow.cli import main
from fallow.clock import DAY_MS, HOUR_MS, SystemClock, format_ms
from fallow.errors import UsageError
from tests.dashboard.acting import PLAN, PLAN_ALPHA, VIEW_ALPHA, Held
from tests.dashboard.conftest import filled, page, words
from tests.ledger.rows import snapshot


def now_ms() -> int:
    return SystemClock().now_ms()


def a_day_to_come(days: int = 7) -> str:
    return format_ms(now_ms() + days * DAY_MS)[:10]


def rows(answer: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    data = answer["findings-grid"]["rowData"]
    assert isinstance(data, list)
    return {row["id"]: row for row in data}


def test_acknowledged_by_the_one_who_reads(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    finding_id = held.finding("a").finding_id
    answer = held.pages().press("ack", finding_id, text="asking ann")
    assert answer["acts-status"]["children"] == "Acknowledged 1 finding"
    assert rows(answer)[finding_id]["status"] == "acknowledged"
    assert "pia: acknowledged: asking ann" in words(answer["finding-detail"]["children"])
    assert answer["act-text"]["value"] == ""
    capsys.readouterr()
    assert main(["findings", "--lake", held.lake.root, "history", finding_id, "--json"]) == 0
    (action,) = json.loads(capsys.readouterr().out)["actions"]
    assert (action["kind"], action["actor"], action["reason"]) == ("ack", "pia", "asking ann")


def test_a_release_that_the_ledger_refutes_stands_among_the_notes(held: Held) -> None:
    """Its acknowledgement is told once, in the history."""
    finding_id = held.finding("a").finding_id
    seen_ms = held.view("?span=all", PLAN).whole.context.until_ms
    record(held.lake, "ack", [finding_id], Actor("ann"), now_ms=seen_ms - 2 * HOUR_MS, reason=RELEASED)
    held.source.forget()
    said = words(held.pages().look_at(finding_id))
    assert said.count("ann: acknowledged: released") == 1
    assert "reported as released on " in said
    assert "still held" in said


def test_several_at_once_are_one_file(held: Held) -> None:
    ids = [held.finding(gpu).finding_id for gpu in ("a", "b", "c")]
    answer = held.pages().press("ack", *ids)
    assert answer["acts-status"]["children"] == "Acknowledged 3 findings"
    assert [rows(answer)[each]["status"] for each in ids] == ["acknowledged"] * 3
    assert len(held.lake.files("action")) == 1
    assert {each for each, own in load_actions(held.lake).items() if own[0].actor.name == "pia"} == set(ids)


def test_snoozed_is_hidden_until_its_day_is_over(held: Held) -> None:
    finding_id, day = held.finding("a").finding_id, a_day_to_come()
    answer = held.pages().press("snooze", finding_id, text="warm standby", until=day)
    assert rows(answer)[finding_id]["standing"] == "snoozed"
    assert "1 snoozed" in str(answer["findings-words"]["children"])
    (action,) = load_actions(held.lake)[finding_id]
    assert (action.kind, action.reason) == ("snooze", "warm standby")
    assert action.expires_ms is not None
    assert format_ms(action.expires_ms - 1)[:10] == day


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        (Wish("snooze", ()), "no finding is chosen"),
        (Wish("snooze", ("a",), "  "), "takes a reason"),
        (Wish("note", ("a",)), "takes a text"),
        (Wish("snooze", ("a",), "why", "2001-02-03"), "has passed"),
        (Wish("snooze", ("a",), "why", "some day"), "some day"),
        (Wish("ack", ("a",), "x" * 2001), "too long"),
    ],
)
def test_a_wish_that_lacks_something_changes_nothing(held: Held, wish: Wish, why: str) -> None:
    ids = tuple(held.finding(gpu).finding_id for gpu in wish.ids)
    before = snapshot(held.lake, "action")
    with pytest.raises(UsageError, match=why):
        act(held.pages().view(), Wish(wish.kind, ids, wish.text, wish.until), now_ms())
    assert snapshot(held.lake, "action") == before
    answer = held.pages().press(wish.kind, *ids, text=wish.text, until=wish.until)
    assert why in answer["acts-status"]["children"]
    assert set(answer) == {"acts-status"}
    assert snapshot(held.lake, "action") == before


@pytest.mark.parametrize("kind", ["ack", "snooze", "reopen", "note"])
def test_a_viewer_may_not(held: Held, kind: str, audited: list[str]) -> None:
    before = snapshot(held.lake, "action")
    finding_id = held.finding("a").finding_id
    answer = held.pages(VIEW_ALPHA).press(kind, finding_id, text="x")
    assert "vic may not do this" in answer["acts-status"]["children"]
    assert snapshot(held.lake, "action") == before
    assert audited == [f"person vic: refused {kind} as {VIEW_ALPHA.described}: {finding_id}"]


def test_a_finding_of_another_team_is_not_acted_on_nor_are_those_beside_it(held: Held) -> None:
    before = snapshot(held.lake, "action")
    own, other = held.finding("a").finding_id, held.finding("b").finding_id
    pages = held.pages(PLAN_ALPHA)
    for ids in ([own, other], [other], ["F-0000000000"]):
        with pytest.raises(NotAllowedError):
            act(pages.view(), Wish("ack", tuple(ids)), now_ms())
        assert "on your page" in pages.press("ack", *ids)["acts-status"]["children"]
    assert snapshot(held.lake, "action") == before
    assert rows(pages.press("ack", own))[own]["status"] == "acknowledged"


def test_an_action_of_another_planner_is_shown_and_must_be_confirmed(held: Held) -> None:
    finding_id, pages = held.finding("a").finding_id, held.pages()
    view = pages.view()
    seen = last_of(view.report.review.actions, [finding_id])
    record(held.lake, "ack", [finding_id], Actor("zoe"), now_ms=now_ms())
    answer = pages.press("snooze", finding_id, text="warm standby", seen=seen)
    said = answer["acts-status"]["children"]
    assert "zoe: acknowledged" in said
    assert "press the button again" in said
    assert rows(answer)[finding_id]["status"] == "acknowledged"
    assert "value" not in answer.get("act-text", {})
    assert len(load_actions(held.lake)[finding_id]) == 1
    again = pages.press("snooze", finding_id, text="warm standby", seen=answer["findings-seen"]["data"])
    assert again["acts-status"]["children"] == "Snoozed 1 finding"
    assert rows(again)[finding_id]["standing"] == "snoozed"
    assert [each.actor.name for each in load_actions(held.lake)[finding_id]] == ["zoe", "pia"]


def test_a_note_changes_no_status(held: Held) -> None:
    finding_id = held.finding("a").finding_id
    record(held.lake, "ack", [finding_id], Actor("zoe"), now_ms=now_ms())
    record(held.lake, "note", [finding_id], Actor("zoe"), now_ms=now_ms(), reason="hm")
    noted = held.pages().press("note", finding_id, text="me too")
    assert noted["acts-status"]["children"] == "Noted on 1 finding"
    assert rows(noted)[finding_id]["status"] == "acknowledged"
    seen = noted["findings-seen"]["data"]
    record(held.lake, "note", [finding_id], Actor("zoe"), now_ms=now_ms(), reason="hm")
    assert held.pages().press("reopen", finding_id, seen=seen)["acts-status"]["children"] == "Reopened 1 finding"


def test_nothing_is_reopened_that_stands_open(held: Held) -> None:
    before = snapshot(held.lake, "action")
    answer = held.pages().press("reopen", held.finding("a").finding_id)
    assert answer["acts-status"]["children"].startswith("Nothing to reopen")
    assert snapshot(held.lake, "action") == before


def test_all_who_act_at_once_are_recorded_and_the_later_decides(held: Held) -> None:
    finding_id = held.finding("a").finding_id
    people = [Reader(f"p{number}", ADMIN) for number in range(6)]
    views = [held.pages(who).view() for who in people]
    kinds = ["ack", "snooze"] * 3

    def one(number: int) -> int:
        return len(act(views[number], Wish(kinds[number], (finding_id,), "why"), now_ms()).done)

    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(one, range(6)))
    actions = load_actions(held.lake)[finding_id]
    assert sorted(each.actor.name for each in actions) == [f"p{number}" for number in range(6) if done[number]]
    assert actions
    last = {"ack": "acknowledged", "snooze": "snoozed"}[actions[-1].kind]
    assert held.finding("a").status == last


def test_a_recorded_action_is_shown_though_the_lake_no_longer_answers(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader who sees an error acts again: here the record becomes unreadable between the write and the read."""
    pages, finding_id = held.pages(), held.finding("a").finding_id
    half = Path(held.lake.root) / "action" / "date=2025-01-01" / "host=other" / "1-1.parquet"

    def then_unreadable(*given: Any, **named: Any) -> tuple[Action, ...]:
        done = record(*given, **named)
        half.parent.mkdir(parents=True)
        half.write_bytes(b"half a file")
        return done

    monkeypatch.setattr("dashboard.actions.record", then_unreadable)
    answer = pages.press("snooze", finding_id, text="warm standby", until=a_day_to_come())
    half.unlink()
    (action,) = load_actions(held.lake)[finding_id]
    assert answer["acts-status"]["children"].startswith("Snoozed 1 finding until")
    assert answer["findings-seen"]["data"] == {finding_id: action.action_id}


def test_the_audit_has_a_line_for_each(held: Held, audited: list[str]) -> None:
    ids = [held.finding(gpu).finding_id for gpu in ("a", "b")]
    eve = Reader("eve root (admin)", ADMIN)
    held.pages(eve).press("ack", *ids)
    actions = load_actions(held.lake)
    assert audited == [
        f'person "eve root (admin)": asks to ack as {eve.described}: {", ".join(ids)}',
        *(f'person "eve root (admin)": ack as {eve.described}: {each} ({actions[each][0].action_id})' for each in ids),
    ]


def test_a_reader_who_may_not_act_has_no_buttons(held: Held) -> None:
    assert '"act-ack"' in json.dumps(page(held.pages().client, "/findings", "?span=all"))
    assert '"act-ack"' not in json.dumps(page(held.pages(Reader("val", VIEWER)).client, "/findings", "?span=all"))


@pytest.mark.parametrize(
    ("search", "said"), [("?span=all", "unexpected error"), ("?span=all&lang=fr", "erreur inattendue")]
)
def test_an_unexpected_error_is_shown_on_a_page_that_stays(
    held: Held, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, search: str, said: str
) -> None:
    finding_id = held.finding("a").finding_id
    pages = held.pages()

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a fault of the test's own")

    monkeypatch.setattr(pages.source, "look", broken)
    answer = pages.answer(
        "findings-chosen.data",
        {
            "findings-chosen.data": [finding_id],
            "url.search": search,
        },
    )
    assert said in answer["sideUpdate"]["failed-action"]["children"]
    assert not answer["response"]
    assert "a fault of the test's own" not in json.dumps(answer)
    assert "a fault of the test's own" in caplog.text
    monkeypatch.undo()
    assert filled(held.pages().client, "/findings", "?span=all")["failed-action"] == {"children": ""}
