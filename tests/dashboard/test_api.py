"""The API: the commands' numbers, pages with every row once, and answers as the OpenAPI document describes them."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from flask import Request
from jsonschema import Draft202012Validator

from analytics.money.accounts import GROUPS
from dashboard.access.audit_trail import NoTrail
from dashboard.access.people import Reader
from dashboard.access.refusal import Rates, Visitor
from dashboard.access.refusal import answer as plain_answer
from dashboard.api.endpoints import BY_NAME, ENDPOINTS, ApiEndpoint
from dashboard.api.openapi import openapi
from dashboard.api.replies import write_cursor
from dashboard.app import build_app
from dashboard.source import LATE
from fallow.cli import main
from fallow.schema import STATES
from tests.core import pages
from tests.dashboard.acting import MARKUP, PLAN, VIEW_ALPHA, Held, Pages
from tests.dashboard.sites import As

ALL = "?span=all"
FINDINGS = f"findings{ALL}&show=all"
"""With those of low confidence: the lake's short history has no others."""
DOCUMENT: Any = openapi()


@pytest.fixture(scope="module")
def of_alpha(_held_site: Held) -> Pages:
    """The same for a viewer of one team."""
    return _held_site.pages(VIEW_ALPHA)


def of_all(path: str) -> str:
    return FINDINGS if path == "findings" else path + ALL


def answer(held: Held, path: str, who: Reader = PLAN) -> Any:
    return told(held.pages(who), path)


def told(pages: Pages, path: str) -> Any:
    found = pages.client.get(f"/api/v1/{path}")
    assert (found.status_code, found.content_type) == (200, "application/json"), found.text
    return found.get_json()


def refused(pages: Pages, path: str) -> tuple[int, str]:
    """The status, and sentence and hint of the problem document."""
    found = pages.client.get(f"/api/v1/{path}")
    assert found.content_type == "application/problem+json"
    content = found.get_json()
    assert content["status"] == found.status_code
    assert content["detail"].endswith(".")
    assert set(content) == set(DOCUMENT["components"]["schemas"]["problem"]["properties"])
    return found.status_code, f"{content['detail']} {content['hint']}"


def printed(held: Held, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert main([*arguments, "--json", "--config", str(held.config), "--lake", held.lake.root]) == 0
    return json.loads(capsys.readouterr().out)


def faults(endpoint: ApiEndpoint, content: object) -> list[str]:
    """Return the differences between an answer and the document."""
    schema = DOCUMENT["paths"][endpoint.path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    whole = {"components": DOCUMENT["components"], "allOf": [schema]}
    return [f"{each.json_path}: {each.message}" for each in Draft202012Validator(whole).iter_errors(content)]


@pytest.mark.parametrize("who", [PLAN, VIEW_ALPHA], ids=str)
def test_every_answer_matches_the_document(held: Held, who: Reader) -> None:
    pages = held.pages(who)
    for each in ENDPOINTS:
        for search in [ALL, f"{ALL}&pool=none"] if not each.more else [f"{ALL}&by={group}" for group in GROUPS]:
            found = pages.client.get(each.path + search)
            if found.status_code == 200:
                assert faults(each, found.get_json()) == [], (each.name, search)
        assert pages.client.get(each.path + ALL).status_code == 200


def test_the_document_describes_every_route_and_nothing_else(reading: Pages) -> None:
    pages = reading
    served = pages.client.get("/api/v1/openapi.json").get_json()
    assert served == json.loads(json.dumps(DOCUMENT))
    rules = {each.rule for each in pages.app.server.url_map.iter_rules() if each.rule.startswith("/api/v1/")}
    assert rules - {"/api/v1/openapi.json"} == set(served["paths"])
    Draft202012Validator.check_schema({"$defs": served["components"]["schemas"]})
    names = {f"#/components/{kind}/{name}" for kind, each in served["components"].items() for name in each}
    assert set(_references(served)) <= names
    assert all(each["allowEmptyValue"] for path in served["paths"].values() for each in path["get"]["parameters"])
    nothing = "&".join(f"{each.name}=" for each in BY_NAME["accounts"].parameters)
    assert pages.client.get(f"/api/v1/accounts?{nothing}").status_code == 200


def test_the_page_lists_what_there_is() -> None:
    page = (pages.DOCS / "api.md").read_text(encoding="utf-8")
    assert page == pages.api_page(page), "run `make docs`"


def _references(content: Any) -> list[str]:
    if isinstance(content, list):
        return [name for each in content for name in _references(each)]
    if isinstance(content, dict):
        own = [content["$ref"]] if "$ref" in content else []
        return own + [name for each in content.values() for name in _references(each)]
    return []


def test_the_ledger_is_that_of_the_command(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    content = answer(held, f"ledger{ALL}")
    assert content["data"] == printed(held, capsys, "ledger")
    assert content["coverage"] == content["data"]["coverage"]
    assert content["window"] == content["data"]["window"]
    assert content["as_of"] == content["window"]["until"]
    assert content["sampled"] == {"share": 0.0, "leaves_open": False}
    assert content["stale"] is None


def test_rows_are_those_of_the_commands(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    snoozed = held.finding("a").finding_id
    held.pages().press("snooze", snoozed, text="warm standby")
    findings = answer(held, FINDINGS)["data"]
    assert findings == printed(held, capsys, "findings", "--all")["findings"]
    assert {each["finding_id"]: each["status"] for each in findings}[snoozed] == "snoozed"
    sure = [each for each in findings if each["confidence"] != "low"]
    assert answer(held, f"findings{ALL}")["data"] == sure != findings
    recommendations = printed(held, capsys, "recommendations")
    assert answer(held, f"recommendations{ALL}")["data"] == recommendations["recommendations"] != []
    totals = answer(held, f"recommendations/totals{ALL}")["data"]
    assert totals == {name: recommendations[name] for name in totals}
    ledger = printed(held, capsys, "ledger", "--by", "user")
    assert answer(held, f"accounts{ALL}&by=user")["data"] == ledger["groups"]["rows"]
    gpus = answer(held, f"gpus{ALL}")["data"]
    for state in STATES:
        assert sum(each[f"{state}_gpu_hours"] for each in gpus) == pytest.approx(ledger["gpu_hours"][state])


@pytest.mark.parametrize(("path", "wanted"), [
    ("findings", {"gpu": "b"}), ("findings", {"user": MARKUP}), ("recommendations", {"gpu": "c"}),
    ("gpus", {"gpu": "d"}), ("gpus", {"host": "none"}), ("findings", {"finding": "F-0000000000"}),
])  # fmt: skip
def test_filters_leave_what_they_name(reading: Pages, path: str, wanted: dict[str, str]) -> None:
    pages = reading
    [(name, value)] = wanted.items()
    found = pages.client.get(
        f"/api/v1/{path}", query_string={"span": "all", **({"show": "all"} if path == "findings" else {}), **wanted}
    ).get_json()

    def has(row: dict[str, Any]) -> bool:
        return value in (row.get(name), row.get("finding_id")) or value in row.get("gpus", ())

    assert found["data"] == [each for each in told(pages, of_all(path))["data"] if has(each)]
    assert found["total"] == len(found["data"])


def test_one_thing_can_be_asked_for_by_its_id(reading: Pages) -> None:
    pages = reading
    for path, name, key in (("findings", "finding", "finding_id"), ("recommendations", "recommendation", "id")):
        own = told(pages, of_all(path))["data"][1]
        assert told(pages, f"{path}{ALL}&{name}={own[key]}")["data"] == [own]


@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_pages_have_each_row_once_and_in_order(reading: Pages, limit: int) -> None:
    pages = reading
    for path in ("findings", "gpus", "recommendations", "accounts"):
        whole = told(pages, of_all(path))
        found: list[Any] = []
        cursor = ""
        while cursor is not None:
            content = told(pages, f"{of_all(path)}&limit={limit}&cursor={cursor}")
            assert len(content["data"]) <= limit
            assert content["total"] == whole["total"]
            found += content["data"]
            cursor = content["next"]
        assert found == whole["data"]
        assert len(found) == whole["total"] > 1


def test_a_cursor_is_of_one_question_and_one_version_of_the_lake(held: Held) -> None:
    pages = held.pages()
    cursor = told(pages, f"{FINDINGS}&limit=1")["next"]
    for other in (
        f"findings?span=28d&cursor={cursor}",
        f"{FINDINGS}&gpu=a&cursor={cursor}",
        f"gpus{ALL}&cursor={cursor}",
    ):
        assert refused(pages, other) == (
            400,
            (
                "This cursor belongs to another request. take `next` of the previous answer and keep the other"
                " parameters, or leave the cursor out"
            ),
        )
    assert refused(held.pages(VIEW_ALPHA), f"{FINDINGS}&cursor={cursor}")[0] == 400
    pages.press("ack", held.finding("a").finding_id)
    status, said = refused(pages, f"{FINDINGS}&limit=1&cursor={cursor}")
    assert (status, said) == (409, "The data have changed since the previous page. start again without a cursor")


@pytest.mark.parametrize(
    "cursor", ["x", "%00", "e30", "MQ", "A" * 201, "-1", "MTIzNDU2Nzg5MC4wLjA", write_cursor(-1, "", ""), "\u00e9"]
)
def test_an_invalid_cursor_is_refused(reading: Pages, cursor: str) -> None:
    status, said = refused(reading, f"{FINDINGS}&cursor={cursor}")
    assert status == 400
    assert "cursor" in said or "too long" in said


@pytest.mark.parametrize(("search", "said"), [
    ("?teem=alpha", "did you mean team?"),
    ("?team=alpha&team=beta", "team is given twice"),
    ("?lang=fr", "there is no parameter 'lang' here"),
    ("?limit=0", "give 1 to 1000"), ("?limit=1001", "give 1 to 1000"), ("?limit=1e9", "give 1 to 1000"),
    ("?limit=\u0661", "give 1 to 1000"), ("?limit=00000000099999", "give 1 to 1000"),
    ("?limit=" + "9" * 5000, "give 1 to 1000"), ("?span=never", "take one of 24h"),
    ("?since=yesterday-ish", "is not a time"), ("?zone=Nowhere/Town", "zone"), ("?first=2026-13-01", "2026-13-01"),
    (f"?team={'x' * 301}", "too long"), (f"?gpu={'x' * 301}", "too long"),
    ("?" + "&".join(f"n{number}=1" for number in range(2000)), "there is no parameter 'n0' here"),
])  # fmt: skip
def test_a_mistake_is_a_sentence_and_never_widens_the_question(reading: Pages, search: str, said: str) -> None:
    status, found = refused(reading, f"findings{search}")
    assert status == 400
    assert said.lower() in found.lower()


@pytest.mark.parametrize(
    "path", ["", "nothing", "findings/", "findings/F-1", "../../etc/passwd", "openapi.yaml", "%2e%2e/x"]
)
def test_what_is_not_there_is_a_problem_document(reading: Pages, path: str) -> None:
    assert refused(reading, path)[0] == 404


@pytest.mark.parametrize(
    "path",
    ["/.well-known/oauth-protected-resource/mcp", "/.well-known/openid-configuration", "/mcp/", "/mcp/sse", "/api"],
)
def test_where_clients_look_for_a_sign_in_is_no_page(reading: Pages, path: str) -> None:
    found = reading.client.get(path, follow_redirects=True)
    assert (found.status_code, found.content_type) == (404, "application/problem+json")


def test_an_unknown_name_is_refused_in_words_of_the_api(reading: Pages) -> None:
    status, found = refused(reading, "gpus?span=all&team=nobody")
    assert status == 409
    assert "/api/v1/scopes" in found
    assert "fallow ledger" not in found


def test_only_reading_is_answered(reading: Pages) -> None:
    client = reading.client
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        found = client.open("/api/v1/findings", method=method)
        assert (found.status_code, found.content_type) == (405, "application/problem+json")
    foreign = client.post("/api/v1/findings", headers={"Origin": "https://elsewhere.example"})
    assert (foreign.status_code, foreign.content_type) == (403, "application/problem+json")


def test_the_tag_changes_with_the_answer_and_with_nothing_else(held: Held) -> None:
    pages = held.pages()

    def get(search: str = ALL, tag: str = "") -> Any:
        return pages.client.get(f"/api/v1/findings{search}", headers={"If-None-Match": tag} if tag else {})

    tag = get().headers["ETag"]
    again = get(tag=tag)
    assert (again.status_code, again.data, again.headers["ETag"]) == (304, b"", tag)
    assert get(f"{ALL}&limit=1", tag).status_code == 200
    assert get("?span=28d", tag).status_code == 200
    assert (
        held.pages(VIEW_ALPHA).client.get(f"/api/v1/findings{ALL}", headers={"If-None-Match": tag}).status_code == 200
    )
    pages.press("ack", held.finding("a").finding_id)
    assert get(tag=tag).status_code == 200


@pytest.mark.parametrize("search", ["", "&team=beta", "&team=", "&gpu=b", "&user=bob"])
def test_a_viewer_of_a_team_gets_that_team_only(of_alpha: Pages, reading: Pages, search: str) -> None:
    for each in ENDPOINTS:
        known = {parameter.name for parameter in each.parameters}
        if search.strip("&").partition("=")[0] not in known | {""}:
            continue
        path = of_all(each.path.removeprefix("/api/v1/"))
        found = of_alpha.client.get(f"/api/v1/{path}{search}")
        assert found.status_code == 200
        content = found.get_json()
        assert content["scope"]["team"] == "alpha"
        assert not {"bob", "beta"} & set(found.text.replace('"', " ").split())
        assert "HYPERLINK" not in found.text
        assert "onerror" not in found.text
        assert str(of_alpha.config.parent) not in found.text
        if not search and each.has_rows:
            assert 0 < content["total"] < told(reading, path)["total"]
    gpus = [
        each["gpu"] for each in told(of_alpha, f"gpus{ALL}{search}" if "user" not in search else f"gpus{ALL}")["data"]
    ]
    assert gpus == ([] if "gpu=b" in search else ["a"])


def test_a_slow_answer_has_a_retry_time(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = held.pages()
    monkeypatch.setattr(pages.source, "look", lambda *_: LATE)
    found = pages.client.get("/api/v1/ledger")
    assert (found.status_code, found.headers["Retry-After"]) == (503, "5")
    assert found.get_json()["detail"] == LATE.message


def test_an_unexpected_error_is_a_problem_document(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = held.pages()

    def broken(*_: object) -> None:
        raise OverflowError("a fault of the test's own")

    monkeypatch.setattr(pages.source, "look", broken)
    status, said = refused(pages, "ledger")
    assert status == 500
    assert "fault of the test" not in said


class Stranger:
    """Nobody is signed in."""

    way_out = ""

    def admit(self, request: Request) -> Visitor:  # noqa: ARG002  # a way in asks for it
        return Visitor(partial(plain_answer, "fallow: sign in first\n", 401))


def test_a_refusal_of_the_pages_is_a_problem_document_here(held: Held) -> None:
    client = build_app(held.pages().source, Stranger()).server.test_client()
    for path in ("/api/v1/ledger", "/api/v1/openapi.json"):
        found = client.get(path)
        assert (found.status_code, found.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert found.get_json()["detail"] == "Sign in first."
    assert client.post("/mcp", json={}).status_code == 401
    metrics = client.get("/metrics")
    assert (metrics.status_code, metrics.text) == (401, "fallow: sign in first\n")


def test_too_many_requests_get_a_retry_time(held: Held) -> None:
    client = build_app(held.pages().source, As(PLAN), rates=Rates(2, 2)).server.test_client()
    found = [client.get("/api/v1/scopes?span=all") for _ in range(3)]
    assert [each.status_code for each in found] == [200, 200, 429]
    assert found[-1].content_type == "application/problem+json"
    assert int(found[-1].headers["Retry-After"]) > 0
    assert "Too many requests" in found[-1].get_json()["detail"]


class FullTrail(NoTrail):
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.is_full = False

    def write(self, line: str, *, sync: bool = False) -> None:  # noqa: ARG002  # as a trail is asked
        if self.is_full:
            raise OSError(28, "No space left on device")
        self.lines.append(line)


def test_what_is_taken_along_is_written_down_first(held: Held) -> None:
    trail = FullTrail()
    pages = held.pages(PLAN, trail)
    told(pages, f"{FINDINGS}&team=beta")
    [line] = [json.loads(each) for each in trail.lines]
    assert (line["event"], line["who"]) == ("export", "pia")
    assert line["did"] == "takes /api/v1/findings?span=all&team=beta&show=all as planner"
    trail.is_full = True
    status, said = refused(pages, FINDINGS)
    assert status == 503
    assert "the audit log cannot be written" in said
