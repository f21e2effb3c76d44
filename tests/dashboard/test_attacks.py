"""Requests that no browser sends: too large, to invalid addresses, and to paths that exist for no reader."""

from __future__ import annotations

import csv
import io
import json
import logging
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from dash._utils import split_callback_id
from flask.testing import FlaskClient

from dashboard.app import build_app
from dashboard.demo import look_at_own_gpus, own_gpus_text
from dashboard.files import as_csv
from dashboard.protection import MOST_SENT_BYTES
from dashboard.source import LakeSource
from fallow.lake import Lake
from tests.dashboard.conftest import inputs_of, page, words

CALLBACK = "/_dash-update-component"
FROM_HERE = {"Origin": "http://localhost"}
NO_CALLBACK = "fallow: the request is not a callback of these pages; open them again\n"
TOO_MANY = "&".join(f"name{number}=1" for number in range(200))


@pytest.fixture(scope="module")
def app(fleet_lake: Lake) -> Any:
    return build_app(LakeSource(lambda: inputs_of(fleet_lake)))


@pytest.fixture(scope="module")
def client(app: Any) -> FlaskClient:
    return app.server.test_client()  # type: ignore[no-any-return]


@pytest.mark.parametrize("path", [CALLBACK, "/export/findings.csv", "/nowhere"])
def test_what_is_too_long_is_not_read(client: FlaskClient, path: str) -> None:
    answer = client.post(path, data=b"x" * (MOST_SENT_BYTES + 1), content_type="application/json", headers=FROM_HERE)
    assert answer.status_code in (405, 413)
    assert answer.status_code == 405 or answer.text.startswith("fallow: the request is too large;")
    assert (answer.status_code == 413) == (path == CALLBACK)
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


def test_all_rows_of_a_long_table_can_be_chosen_at_once(client: FlaskClient) -> None:
    answer = client.post(CALLBACK, headers=FROM_HERE, json=_look(["F-0123456789"] * 10_000, ""))
    assert answer.status_code == 200


def test_what_grows_when_it_is_read_is_refused_before_it_is(client: FlaskClient) -> None:
    """Of `{}` a byte becomes twenty: eight threads would take more than all that is kept."""
    body = json.dumps(_look([{}] * 300_000, ""), separators=(",", ":"))
    tracemalloc.start()
    answer = client.post(CALLBACK, headers=FROM_HERE, data=body, content_type="application/json")
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (answer.status_code, answer.text) == (400, NO_CALLBACK)
    assert most_bytes < 6 * len(body)


@pytest.mark.parametrize("search", [f"?{TOO_MANY}", 7, ["?span=7d"], {"span": "7d"}, True])
def test_a_search_that_is_none_is_answered_in_words(client: FlaskClient, search: object) -> None:
    answer = client.post(CALLBACK, headers=FROM_HERE, json=_look([], search))
    assert answer.status_code == 200
    assert "finding-detail" in answer.get_json()["response"]


def test_an_address_with_too_many_names_is_refused(client: FlaskClient) -> None:
    assert "no address of these pages" in words(page(client, "/", f"?{TOO_MANY}")).lower()


@pytest.mark.parametrize("text", ["x;=1+1", "x\t@SUM(1)", "x\n=1", ";=cmd|' /C calc'!A0"])
def test_a_formula_behind_another_separator_is_text(text: str) -> None:
    [_, row] = csv.reader(io.StringIO(as_csv(pl.DataFrame({"name": [text]})).decode(), newline=""))
    assert not re.search(r"[;\t\n][=+@]", row[0])
    assert row[0].replace("'", "") == text.replace("'", "")


@pytest.mark.parametrize("path", ["/export/findings.csv", "/report/preview", "/report/download/json"])
def test_an_address_with_too_many_names_is_answered_in_words(client: FlaskClient, path: str) -> None:
    answer = client.get(f"{path}?{TOO_MANY}")
    assert (answer.status_code, answer.mimetype) == (409, "text/plain")
    assert "no address of these pages" in answer.text


@pytest.mark.parametrize("path", ["nope/x.js", "x%0aforged/y.js", "dash/..%2f..%2fdash.py", "dash/deps/../../../x.js",
                                  "dash/dash.py", "dashboard/app.py",
                                  "dash_ag_grid/../dashboard/access/oidc.py"])  # fmt: skip
def test_a_script_that_is_not_there_is_no_fault_of_the_pages(
    client: FlaskClient, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = client.get(f"/_dash-component-suites/{path}")
    assert (answer.status_code, answer.text) == (404, "fallow: there is no such script\n")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("path", ["/assets/..%2fapp.py", "/assets/%2e%2e/app.py", "/assets/../access/oidc.py",
                                  "/static/../app.py", "/assets/%2e%2e%5capp.py", "/assets/%00",
                                  "/static/x"])  # fmt: skip
def test_no_other_file_can_be_had(client: FlaskClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert "import" not in answer.text


def _look(chosen: object, search: object) -> dict[str, Any]:
    """The request for the evidence of chosen findings."""
    return {
        "output": "finding-detail.children",
        "outputs": {"id": "finding-detail", "property": "children"},
        "inputs": [{"id": "findings-chosen", "property": "data", "value": chosen}],
        "state": [{"id": "url", "property": "search", "value": search}],
        "changedPropIds": ["findings-chosen.data"],
    }


def _bodies() -> Iterator[Any]:
    yield from (None, [], "x", 7, {}, {"output": "x"}, {"output": ["x"]}, {"output": "finding-detail.children"})
    good = _look([], "")
    yield good | {"output": "url.search"}  # filled in the browser
    yield good | {"inputs": good["inputs"] * 2}
    yield good | {"inputs": good["state"], "state": good["inputs"]}
    for part in ("outputs", "inputs", "state", "changedPropIds"):
        for wrong in (None, 5, "x", {}, [None], [{}], [[]], [{"id": 5, "property": []}]):
            yield good | {part: wrong}
    yield good | {"changedPropIds": ["{.x"]}


BODIES = [*map(json.dumps, _bodies()), "{", "[" * 100_000, '{"output": "\\ud800"}', "1" * 5000]


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_a_callback_that_is_none_is_refused_in_one_line(
    client: FlaskClient, body: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        answer = client.post(CALLBACK, data=body, content_type="application/json", headers=FROM_HERE)
    assert answer.status_code == 400
    assert answer.text == NO_CALLBACK
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    [logged] = caplog.records
    assert (logged.name, logged.exc_info) == ("dashboard.access.audit", None)


@pytest.mark.parametrize("wrong", [5, [None], {"a": 1}], ids=json.dumps)
def test_no_value_that_is_sent_to_a_callback_is_a_fault_of_the_pages(
    app: Any, client: FlaskClient, wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client.get("/healthz")  # has dash set itself up
    for output, known in app.callback_map.items():
        if "callback" not in known:
            continue
        for odd in (*known["inputs"], *known["state"]):
            body = {
                "output": output,
                "outputs": split_callback_id(output),
                "changedPropIds": [_prop_id(odd)],
                **{
                    part: [_sent(each, wrong if each is odd else None) for each in known[part]]
                    for part in ("inputs", "state")
                },
            }
            answer = client.post(CALLBACK, json=body, headers=FROM_HERE)
            assert answer.status_code in (200, 204), (output, odd)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_program_that_lies_in_the_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fallow demo` may be typed in a folder where others can put files."""
    for name in ("fallow.py", "argparse.py"):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with look_at_own_gpus() as look:
        own_gpus_text(look)
    assert not (tmp_path / "ran").exists()


def _sent(known: dict[str, str], value: Any) -> Any:
    """An element as a page sends it, or the only one of a kind."""
    if not known["id"].startswith("{"):
        return known | {"value": value}
    return [{"id": json.loads(known["id"].replace('["ALL"]', "0")), "property": known["property"], "value": value}]


def _prop_id(known: dict[str, str]) -> str:
    return known["id"].replace('["ALL"]', "0") + "." + known["property"]
