"""The report's page: the same bytes as the command's, the reader's own edition, and sending to the site's targets."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from plotly.utils import PlotlyJSONEncoder

from analytics.delivery import editions
from analytics.delivery.editions import site_targets
from analytics.render.report.formats import FORMATS
from dashboard.access.people import PLANNER, VIEWER, Reader
from dashboard.pages.report import REPORT, SendingAnswer, send_tried, try_target
from dashboard.source import LakeSource
from fallow import schema
from fallow.cli import main
from tests.dashboard.conftest import components, words
from tests.dashboard.sites import Site, content, make_site
from tests.lakes import made_lake

WEEK = "2025-W46"
"""Of which the lake has the last day; 2025-W47 is not over in it."""
SEARCH = f"?start={WEEK}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return make_site(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def _sender(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("sender")
    shutil.copytree(site.lake.root, folder / "lake")
    config = folder / "fallow.toml"
    config.write_text(f'[lake]\npath = "{folder}/lake"\n[report]\nto = ["{folder}/one", "{folder}/two"]\n')
    return Site(made_lake(folder / "lake"), config)


@pytest.fixture
def sender(_sender: Site) -> Iterator[Site]:
    """A copy that may be written to, with two folders as targets; what was sent is forgotten after each test."""
    yield _sender
    for name in ("one", "two", "lake/delivery"):
        shutil.rmtree(_sender.config.parent / name, ignore_errors=True)


def command(site: Site, tmp_path: Path, form: str, *arguments: str) -> bytes:
    target = tmp_path / form
    flags = ["report", "--config", str(site.config), "--week", WEEK, "--format", form, "--out", str(target)]
    assert main([*flags, *arguments]) == 0
    return target.read_bytes()


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(each.name, marks=() if each.name == "json" else pytest.mark.long)
        for each in FORMATS
        if each.name != "pdf"
    ],
)
def test_a_download_is_what_the_command_writes(site: Site, tmp_path: Path, form: str) -> None:
    answer = site.client().get(f"/report/download/{form}?start={WEEK}&lang=fr&pool=train")
    assert answer.status_code == 200
    assert answer.data == command(site, tmp_path, form, "--lang", "fr", "--pool", "train")
    suffix = next(each.suffix for each in FORMATS if each.name == form)
    assert f"fallow-{WEEK}-pool=train-fr{suffix}" in answer.headers["Content-Disposition"]


@pytest.mark.long
def test_the_pdf_is_one(site: Site) -> None:
    answer = site.client().get(f"/report/download/pdf?start={WEEK}")
    assert answer.data[:5] == b"%PDF-"
    assert answer.content_type == "application/pdf"


def test_the_preview_may_stand_in_a_frame_of_these_pages_only(site: Site, tmp_path: Path) -> None:
    answer = site.client().get(f"/report/preview?start={WEEK}")
    assert answer.data == command(site, tmp_path, "html")
    policy = answer.headers["Content-Security-Policy"]
    assert "frame-ancestors 'self'" in policy
    assert "script-src" not in policy
    assert "default-src 'none'" in policy
    assert answer.headers["X-Frame-Options"] == "SAMEORIGIN"
    frame = next(each["props"] for each in components(content(REPORT, site.view())) if each["type"] == "Iframe")
    assert frame["sandbox"] == ""
    assert frame["title"]


def test_a_reader_of_one_team_gets_that_teams_edition(site: Site, tmp_path: Path) -> None:
    client = site.client(Reader("ann", VIEWER, "vision"))
    for search in (f"?start={WEEK}", f"?start={WEEK}&team=language"):
        answer = client.get(f"/report/download/json{search}")
        assert answer.data == command(site, tmp_path, "json", "--team", "vision")
        assert b"hiro" not in client.get(f"/report/preview{search}").data


@pytest.mark.parametrize("path", ["preview", *(f"download/{name}" for name in ("text", "md", "html", "json", "csv"))])
@pytest.mark.parametrize("role", [VIEWER, PLANNER])
def test_where_the_lake_lies_is_in_no_report_for_who_is_no_admin(site: Site, path: str, role: str) -> None:
    answer = site.client(Reader("ann", role)).get(f"/report/{path}?start={WEEK}")
    assert answer.status_code == 200
    assert site.lake.root not in answer.text


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/report/download/docx", 404, "no such format"),
        ("/report/download/json?start=yesterday", 409, "is not a week"),
        ("/report/preview?start=yesterday", 409, "is not a week"),
        ("/report/preview?pool=nowhere", 409, "nothing in this window"),
        ("/report/preview?lang=xx", 409, "is not a language"),
    ],
)
def test_an_edition_that_cannot_be_made_is_a_sentence(site: Site, path: str, status: int, said: str) -> None:
    answer = site.client().get(path)
    assert (answer.status_code, answer.mimetype) == (status, "text/plain")
    assert said in answer.text


def test_the_page_begins_with_the_last_whole_week_and_offers_the_others(site: Site) -> None:
    shown = content(REPORT, site.view())
    chosen = [words(each) for each in components(shown) if each["props"].get("className") == "here"]
    assert chosen == [WEEK]
    links = [each["props"]["href"] for each in components(shown) if each["type"] == "Link"]
    assert links == ["/report?start=2025-W47"]
    assert "2025-W47 (not complete)" in words(shown)
    other = content(REPORT, site.view("?start=2025-W47&lang=fr"))
    downloads = [each["props"]["href"] for each in components(other) if "/download/" in str(each["props"].get("href"))]
    assert len(downloads) == len(FORMATS)
    assert all(each.endswith("?lang=fr&start=2025-W47") for each in downloads)
    wrong = words(content(REPORT, site.view("?start=yesterday")))
    assert "'yesterday' is not a week" in wrong


def test_who_may_only_read_has_no_form(sender: Site) -> None:
    targets = [each.shown for each in site_targets(sender.inputs().settings)]
    assert len(targets) == 2
    assert targets[0] in json.dumps(content(REPORT, sender.view("", Reader("bob", PLANNER))))
    assert targets[0] not in json.dumps(content(REPORT, sender.view("", Reader("bob", VIEWER))))


def answered(site: Site, person: Reader, ask: Callable[[LakeSource], SendingAnswer]) -> SendingAnswer:
    """Return the form's answer to this signed-in person."""
    client: FlaskClient = site.client(person)
    with client.application.test_request_context("/"):
        client.application.preprocess_request()
        return ask(site.source)


def text(answer: SendingAnswer) -> str:
    return words(json.loads(json.dumps(answer.shown, cls=PlotlyJSONEncoder)))


def trying(site: Site, person: Reader, number: int = -1, search: str = SEARCH) -> SendingAnswer:
    return answered(site, person, lambda source: try_target(source, search, number))


def sending(site: Site, person: Reader, tried: Mapping[str, Any], search: str = SEARCH) -> SendingAnswer:
    return answered(site, person, lambda source: send_tried(source, search, tried))


def sent(site: Site) -> list[tuple[str, str]]:
    """Who did what, by the lake's own record."""
    from analytics.frames import read_frame

    rows = read_frame(site.lake.files(schema.DELIVERY.name), schema.DELIVERY).sort("time")
    return [(row["actor"], row["step"]) for row in rows.iter_rows(named=True)]


@pytest.fixture
def html_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out the PDF, which takes longer than all else."""
    monkeypatch.setattr(editions, "DOCUMENTS", editions.DOCUMENTS[:1])


@pytest.mark.usefixtures("html_only")
def test_a_try_sends_nothing_and_a_planner_then_sends(sender: Site) -> None:
    planner, folder = Reader("bob", PLANNER), sender.config.parent
    targets = [each.shown for each in site_targets(sender.inputs().settings)]
    tried = trying(sender, planner)
    assert tried.tried == {"search": SEARCH, "targets": targets}
    assert text(tried).count("would be sent") == 2
    assert sent(sender) == []
    assert not (folder / "one").exists()
    assert "Try it first" in text(sending(sender, planner, tried.tried, f"{SEARCH}&pool=train"))
    assert sent(sender) == []
    assert not sending(sender, planner, tried.tried).tried
    assert {actor for actor, _ in sent(sender)} == {"bob"}
    assert [step for _, step in sent(sender)].count("sent") == 2
    names = sorted(path.name for path in (folder / "one").rglob("*") if path.is_file())
    assert f"fallow-{WEEK}-all-en.html" in names
    again = trying(sender, planner)
    assert not again.tried
    assert text(again).count("would not be sent: it was sent on") == 2
    assert text(sending(sender, planner, tried.tried)).count("not sent: it was sent before") == 2
    assert [step for _, step in sent(sender)].count("sent") == 2


@pytest.mark.long  # a PDF takes longer than all else
def test_html_and_pdf_would_be_sent(sender: Site) -> None:
    tried = text(trying(sender, Reader("bob", PLANNER), 1))
    assert f"fallow-{WEEK}-all-en.html, fallow-{WEEK}-all-en.pdf" in tried


@pytest.mark.usefixtures("html_only")
def test_one_target_can_be_chosen(sender: Site) -> None:
    planner, folder = Reader("bob", PLANNER), sender.config.parent
    sending(sender, planner, trying(sender, planner, 1).tried)
    assert not (folder / "one").exists()
    assert list((folder / "two").rglob("*.html"))


@pytest.mark.parametrize("number", [7, -1])
def test_who_may_only_read_sends_nothing(sender: Site, number: int) -> None:
    targets = [each.shown for each in site_targets(sender.inputs().settings)]
    viewer = Reader("ann", VIEWER)
    for answer in (trying(sender, viewer, number), sending(sender, viewer, {"search": SEARCH, "targets": targets})):
        assert "it needs the role planner" in text(answer)
        assert not answer.tried
    assert sent(sender) == []


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (["mailto:me@evil.example"], "report.to does not name mailto:me@evil.example"),
        (["/etc"], "report.to does not name /etc"),
        ([], "no target is chosen"),
    ],
)
def test_no_other_target_is_sent_to(sender: Site, targets: list[str], said: str) -> None:
    told = sending(sender, Reader("bob", PLANNER), {"search": SEARCH, "targets": targets})
    assert said in text(told)
    assert sent(sender) == []


def test_a_week_that_is_not_over_for_now_is_refused(sender: Site) -> None:
    told = trying(sender, Reader("bob", PLANNER), search="?start=2100-W01")
    assert "2100-W01 is not over" in text(told)
    assert not told.tried


@pytest.mark.usefixtures("html_only")
def test_a_planner_of_one_team_sends_that_teams_edition(sender: Site, tmp_path: Path) -> None:
    owners = tmp_path / "owners.csv"
    owners.write_text("kind,name,team\nuser,farid,vision\nuser,hiro,language\n")
    config = tmp_path / "fallow.toml"
    config.write_text(sender.config.read_text() + f'[money]\nowners = "{owners}"\n')
    planner, search, own = Reader("bob", PLANNER, "vision"), f"{SEARCH}&team=language", Site(sender.lake, config)
    sending(own, planner, trying(own, planner, 0, search).tried, search)
    [html] = list((sender.config.parent / "one").rglob("*.html"))
    assert html.name.startswith(f"fallow-{WEEK}-team=vision-en")
    assert "hiro" not in html.read_text()
