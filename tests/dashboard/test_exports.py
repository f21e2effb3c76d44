"""Tables as files: all rows and columns of the commands, typed, within the reader's scope, without formulas."""

from __future__ import annotations

import csv
import io
import json
from contextlib import suppress
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.language.languages import language
from analytics.tables.table import column
from dashboard.access.people import Reader
from dashboard.files import as_csv, exported
from dashboard.grid import check_address
from dashboard.query import Query
from dashboard.source import LATE
from fallow.cli import main
from fallow.clock import from_ms
from fallow.errors import UsageError
from fallow.schema import STATES
from tests.dashboard.acting import FORMULA, MARKUP, PLAN, VIEW_ALPHA, Held
from tests.report.html.reports import changed

ALL = "?span=all"
WITH_LOW = f"{ALL}&show=all"
"""Of findings, those of low confidence too: the lake's short history has no others."""


def lines(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def frame(held: Held, name: str, who: Reader = PLAN, search: str = ALL) -> pl.DataFrame:
    answer = held.pages(who).client.get(f"/export/{name}.parquet{search}")
    assert answer.status_code == 200, answer.text
    assert answer.content_type == "application/vnd.apache.parquet"
    return pl.read_parquet(io.BytesIO(answer.data))


def printed(held: Held, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main([*arguments, "--config", str(held.config), "--lake", held.lake.root]) == 0
    return capsys.readouterr().out


def test_findings_are_those_of_the_command_with_all_columns(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    snoozed = held.finding("a").finding_id
    held.pages().press("snooze", snoozed, text="warm standby")
    told = lines(printed(held, capsys, "findings", "--all", "--csv"))
    own = held.pages().client.get(f"/export/findings.csv{WITH_LOW}")
    assert own.headers["Content-Disposition"] == 'attachment; filename="fallow-findings.csv"'
    assert lines(own.text) == told
    assert {each["finding_id"]: each["status"] for each in told}[snoozed] == "snoozed"
    assert len(told) >= 4
    plain = lines(held.pages().client.get(f"/export/findings.csv{ALL}").text)
    assert plain == [each for each in told if each["confidence"] != "low"] != told


def test_findings_have_types_and_nulls(held: Held) -> None:
    found = frame(held, "findings", search=WITH_LOW)
    assert found.schema["since"] == pl.Datetime("ms", "UTC")
    assert found.schema["gpu_hours"] == found.schema["cost"] == pl.Float64
    assert found.schema["reclaimable"] == pl.Boolean
    by_gpu = {row["gpus"]: row for row in found.iter_rows(named=True)}
    finding = held.finding("b")
    assert finding.cost is None
    assert by_gpu["b"]["cost"] is None
    assert by_gpu["b"]["gpu_hours"] == finding.gpu_hours
    assert by_gpu["b"]["since"] == from_ms(finding.since_ms)
    assert by_gpu["c"]["user"] == MARKUP
    assert by_gpu["d"]["user"] == FORMULA
    assert by_gpu["d"]["team"] is None


def test_users_are_those_of_the_command(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    told = lines(printed(held, capsys, "ledger", "--by", "user", "--csv"))
    assert lines(held.pages().client.get(f"/export/users.csv{ALL}").text) == told
    found = frame(held, "users")
    assert found.schema["gpus"] == found.schema["rank_gpu_hours"] == pl.Int64
    assert {row["name"] for row in found.iter_rows(named=True)} == {"ann", "bob", MARKUP, FORMULA}


def test_gpus_add_up_to_the_ledger(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = json.loads(printed(held, capsys, "ledger", "--json"))
    found = frame(held, "gpus")
    assert found["gpu"].to_list() == ["a", "b", "c", "d"]
    assert found["gpu_hours"].sum() == pytest.approx(ledger["gpu_hours"]["total"])
    for state in STATES:
        assert found[f"{state}_gpu_hours"].sum() == pytest.approx(ledger["gpu_hours"][state])
    assert found["coverage"].to_list() == pytest.approx([ledger["coverage"]] * 4)
    assert found["simulated"].to_list() == [False] * 4


def test_the_scope_of_the_address_is_that_of_the_file(held: Held) -> None:
    assert frame(held, "gpus", search=f"{ALL}&team=beta")["gpu"].to_list() == ["b"]
    assert set(frame(held, "findings", search=f"{WITH_LOW}&model=NVIDIA+H100+80GB+HBM3")["gpus"]) == {"a", "c"}


def test_a_viewer_of_a_team_learns_neither_who_acted_nor_their_words(held: Held) -> None:
    held.pages().press("snooze", held.finding("a").finding_id, text="warm standby")
    assert "warm standby" in held.pages().client.get(f"/export/findings.csv{WITH_LOW}").text
    for path in (f"/export/findings.csv{WITH_LOW}", f"/api/v1/findings{WITH_LOW}"):
        told = held.pages(VIEW_ALPHA).client.get(path).text
        assert "snoozed" in told
        assert "warm standby" not in told
        assert "pia" not in told


def test_what_a_spreadsheet_would_run_is_text(held: Held) -> None:
    for name in ("findings", "users"):
        text = held.pages().client.get(f"/export/{name}.csv{WITH_LOW}").text
        assert FORMULA in text
        cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
        assert not [cell for cell in cells if cell.startswith(("=", "+", "@", "\t", "\r"))]


def test_texts_alone_get_an_apostrophe() -> None:
    table = pl.DataFrame(
        {
            "text": ["=1", "+1", "-1", "@x", "\tx", "\rx", "\n=x", "\uff1d1", "a=1", None, ""],
            "number": [-1.5, -2.0, 0.0, None, 1, 1, 1, 1, 1, 1, 1],
        }
    )
    rows = list(csv.reader(io.StringIO(as_csv(table).decode(), newline="")))[1:]
    assert [row[0][:1] for row in rows] == ["'"] * 5 + ["\\"] + ["'"] * 2 + ["a", "", ""]
    assert [row[1] for row in rows[:4]] == ["-1.5", "-2.0", "0.0", ""]


def test_an_empty_table_keeps_its_columns_and_their_types(held: Held) -> None:
    view = held.pages().view()
    nothing = replace(view, report=changed(view.report, review=replace(view.report.review, findings=())))
    table = exported(nothing, "findings")
    assert table.height == 0
    assert table.schema == exported(view, "findings").schema
    assert as_csv(table).decode().count("\n") == 1


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/export/secrets.csv", 404),
        ("/export/findings.xlsx", 404),
        ("/export/findings.csv?span=never", 409),
    ],
)
def test_what_there_is_not(held: Held, path: str, status: int) -> None:
    assert held.pages().client.get(path).status_code == status


@pytest.mark.parametrize("path", ["/export/findings.csv", "/report/preview", "/report/download/json"])
def test_an_unexpected_error_is_a_sentence_in_the_readers_language(
    held: Held, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    pages = held.pages()

    def broken(*_: object, **__: object) -> None:
        raise OverflowError("a fault of the test's own")

    monkeypatch.setattr(pages.source, "look", broken)
    answer = pages.client.get(f"{path}?span=all&lang=fr")
    assert (answer.status_code, answer.mimetype) == (500, "text/plain")
    assert "erreur inattendue" in answer.text
    assert "a fault of the test's own" not in answer.text
    assert "a fault of the test's own" in caplog.text


@pytest.mark.parametrize("path", ["/export/findings.csv", "/report/preview"])
def test_a_late_answer_is_announced_in_the_readers_language(
    held: Held, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    pages = held.pages()
    monkeypatch.setattr(pages.source, "look", lambda *_, **__: LATE)
    answer = pages.client.get(f"{path}?span=all&lang=fr")
    assert answer.status_code == 409
    assert answer.text == f"fallow: {language('fr').translate(LATE.message)} {language('fr').translate(LATE.hint)}\n"
    assert LATE.message not in answer.text


COLUMNS = [
    column("user", "user", "user"),
    column("status", "status", "state", json_type="integer"),
    column("cost", "cost", "money"),
    column("since", "since", "moment"),
]


@pytest.mark.parametrize(
    "query",
    [
        Query(), Query(show="all"), Query(sort="-cost,user"), Query(filter="user:ann"), Query(filter="user.is:a:b"),
        Query(filter="user.begins:a|user.ends:z,cost.above:-1.5"), Query(filter="cost.between:1..2,cost.known"),
        Query(filter="since:2024-02-29"), Query(filter="since.between:2026-01-01..2026-02-01"),
        Query(filter="status.unknown"), Query(filter=r"user:a\,b\|c\\"), Query(filter="user:a,user.without:b"),
    ],
)  # fmt: skip
def test_what_the_columns_can_do(query: Query) -> None:
    check_address(query, COLUMNS)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (Query(show="none"), "'none' is not a value of show"),
        (Query(sort="wages"), "the table has no column 'wages'"),
        (Query(sort="cost,-cost"), "names a column twice"),
        (Query(sort="cost,"), "the table has no column ''"),
        (Query(filter="wages:1"), "the table has no column 'wages'"),
        (Query(filter="user:a,"), "the table has no column ''"),
        (Query(filter="user"), "'user' is not a filter of the column 'user'"),
        (Query(filter="user:"), "is not a filter of the column 'user'"),
        (Query(filter="user.above:a"), "'above' does not compare the column 'user'"),
        (Query(filter="user.:a"), "does not compare the column 'user'"),
        (Query(filter="user.known:a"), "is not a filter of the column 'user'"),
        (Query(filter="cost:much"), "is not a filter of the column 'cost'"),
        (Query(filter="cost:1e5"), "is not a filter of the column 'cost'"),
        (Query(filter="cost:\N{ARABIC-INDIC DIGIT ONE}"), "is not a filter of the column 'cost'"),
        (Query(filter="cost.between:1"), "is not a filter of the column 'cost'"),
        (Query(filter="since:2026-02-30"), "is not a filter of the column 'since'"),
        (Query(filter="since:20260201"), "is not a filter of the column 'since'"),
        (Query(filter="user:a|cost:1"), "joins two columns"),
        (Query(filter="user:a|user:b|user:c"), "too many filters of the column 'user'"),
        (Query(filter="user:a|user:b,user:c"), "too many filters of the column 'user'"),
        (Query(filter="user:a\\"), "ends with a single backslash"),
    ],
)
def test_anything_else_is_one_sentence(query: Query, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        check_address(query, COLUMNS)
    assert caught.value.hint


@given(st.text(max_size=60), st.text(max_size=20))
def test_no_text_is_worse_than_a_sentence(filters: str, order: str) -> None:
    with suppress(UsageError):
        check_address(Query(filter=filters, sort=order), COLUMNS)


@given(st.text(min_size=1, max_size=40))
def test_every_name_can_be_asked_for(name: str) -> None:
    written = name.replace("\\", "\\\\").replace(",", "\\,").replace("|", "\\|")
    check_address(Query(filter=f"user.is:{written},cost.above:1"), COLUMNS)
