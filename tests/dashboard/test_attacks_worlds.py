"""A team's reader gets the same answers whatever the others are and do: from every route and every callback.

Two sites differ in everything of the others and in nothing of the team. Each question is put to both, and a third time
with names that do not exist: three equal answers hold nothing of the others, not even that a name exists. The app
itself lists what it answers: a new route, callback or input fails here until this file states what may be sent to it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from dash._utils import split_callback_id

from analytics.commands.report_nudge import add_nudge_arguments, run_nudge
from analytics.decide.actions import load_actions
from analytics.decide.annotations import load_annotations
from analytics.money.accounts import GROUPS
from analytics.render.report.formats import FORMATS
from dashboard.access.choose import access_of
from dashboard.access.people import ADMIN, Reader
from dashboard.actions import KINDS
from dashboard.api.endpoints import ENDPOINTS
from dashboard.app import build_app
from dashboard.files import EXPORTS
from dashboard.pages import PAGES
from dashboard.query import Query
from dashboard.source import LakeSource
from dashboard.view import View
from fallow import config
from fallow.cli import main
from fallow.errors import FallowError
from tests.dashboard.sites import Site
from tests.dashboard.worlds import (
    OF_THE_FLEET,
    ONE,
    OTHER,
    OTHERS,
    OWN_GPU,
    PASSED_ON,
    SHARED_GPUS,
    SHARED_HOST,
    TEAM,
    make_world,
)
from tests.delivery.hands import Hands
from tests.findings.scenarios.builder import T_END

pytestmark = pytest.mark.long

HEADER = "X-Forwarded-User"
VIEWER, PLANNER, THEIRS, BOSS = "vic", "pia", "tom", "boss"
_OF_ALL = (("version", "data"),)
"""What changes with the lake's files, whatever they hold."""

_OF_THE_MOMENT = re.compile(r'"next": "[^"]+"|^fallow_data_age_seconds .*$', re.MULTILINE)
"""A cursor has a hash of the lake's files, whatever they hold; an age that of the clock."""

UNKNOWN = "numbat"
"""In place of a mark: no name of either world has it."""
UNKNOWN_ID = "F-0000000000"


def decision(finding_id: str) -> str:
    """The id of the decision that a finding leads."""
    return "R" + finding_id[1:]


Sent = dict[tuple[str, str], Any]
"""What a browser sends to a callback, by element and property."""


@dataclass(frozen=True)
class World:
    """A site, its pages, and what those who know it by name would ask for."""

    site: Site
    app: Any
    access: Any
    mark: str
    finding: str
    own_finding: str

    def get(self, who: str, address: str) -> str:
        """The answer to an address, tables as text."""
        answer = self.app.server.test_client().get(address, headers={HEADER: who})
        assert answer.status_code < 500, address
        if "parquet" in answer.content_type:
            return json.dumps(pl.read_parquet(io.BytesIO(answer.data)).to_dicts(), default=str)
        return f"{answer.status_code} {answer.headers.get('Content-Disposition')}\n{answer.text}"

    def call(self, who: str, callback_id: str, sent: Sent, trigger: str) -> str:
        """The answer of a callback to what is sent."""
        found = self.app.callback_map[callback_id]
        outputs = split_callback_id(callback_id)
        answer = self.app.server.test_client().post(
            "/_dash-update-component",
            headers={HEADER: who, "Origin": "http://localhost"},
            json={
                "output": callback_id,
                "outputs": outputs,
                "inputs": [_argument(each, sent) for each in found["inputs"]],
                "state": [_argument(each, sent) for each in found["state"]],
                "changedPropIds": [trigger],
            },
        )
        assert answer.status_code in (200, 204), (callback_id, answer.status_code, answer.text[:300])
        assert "An unexpected error" not in answer.text, (callback_id, sent)
        response = answer.get_json()["response"] if answer.status_code == 200 else {}
        for element, what in _OF_ALL:
            response.get(element, {}).pop(what, None)
        return json.dumps(response, sort_keys=True, indent=0)

    def same(self, text: str, mark: str, finding: str) -> str:
        """An answer without the names that were asked with; where the site lies is in none."""
        assert str(self.site.config.parent) not in text
        names = {mark: "MARK", finding: "FINDING", decision(finding): "DECISION"}
        for name, stands_for in names.items():
            text = text.replace(name, stands_for)
        text = _OF_THE_MOMENT.sub("", OF_THE_FLEET.sub("", text))
        return re.sub(r'"end_id":"[^"]+"', "", text)  # dash makes one for each page that is loaded


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, World]:
    return two_worlds(tmp_path_factory.mktemp("worlds"))


def two_worlds(folder: Path) -> tuple[World, World]:
    """Both sites with their pages and people; those of the team are the same."""
    people = folder / "people.csv"
    people.write_text(
        f"name,role,team\n{VIEWER},viewer,{TEAM}\n{PLANNER},planner,{TEAM}\n{THEIRS},viewer,{OTHERS}\n{BOSS},admin,\n",
        encoding="utf-8",
    )
    settings = {"dashboard.proxy_header": HEADER, "dashboard.proxies": "127.0.0.1", "dashboard.people": str(people)}
    access = access_of(config.load(settings, None, {}), address="10.0.0.1", local=False, insecure=False)

    def make(others: Any) -> World:
        site = make_world(folder / f"quota-{others.quota}", others)
        source = LakeSource(site.inputs)
        look = source.look(Query(), Reader(BOSS, ADMIN))
        assert isinstance(look, View)
        theirs = [each for each in look.report.review.findings if each.team == OTHERS]
        led = {each.recommendation_id for each in look.report.recommendations.listed}
        # what is done to one that leads a decision of the team's is done
        ours = [
            each.finding_id
            for each in look.report.review.findings
            if each.team == TEAM and decision(each.finding_id) not in led
        ]
        return World(site, build_app(source, access), access, others.mark, theirs[0].finding_id, ours[0])

    return make(ONE), make(OTHER)


def searches(mark: str, finding: str) -> list[str]:
    """Return the searches of a reader who knows the others by name."""
    return [
        "",
        "?span=all",
        f"?team={OTHERS}",
        f"?span=24h&team={TEAM}&team={OTHERS}&lang=fr",
        f"?pool={mark}-pool",
        f"?model=NVIDIA%20{mark}",
        f"?finding={finding}&gpu=GPU-{mark}-host-0&host={mark}-host&user={mark}-user-a",
    ]


def addresses(mark: str, finding: str) -> list[tuple[str, str]]:
    """Every page with every search, and those about one thing with things that the team has, shares or never had."""
    about = {
        "/gpu": [f"?gpu={gpu}&span=all" for gpu in (OWN_GPU, PASSED_ON, "GPU-both-1", "GPU-both-3", *SHARED_GPUS)],
        "/host": [f"?host={host}&span=all" for host in ("own", SHARED_HOST, "shared")],
        "/users": ["?user=ann", "?user=cleo", f"?user=ann%2B{mark}-user-a"],
        "/timeline": ["?sort=user", "?sort=waste"],
        "/report": ["?start=2026-W46", "?start=2026-W45"],
    }
    paths = [each.path for each in PAGES]
    plain = list(itertools.product([*paths, "/nowhere"], searches(mark, finding)))
    return plain + [(path, search) for path, those in about.items() for search in those]


ROUTES: dict[str, list[str]] = {
    "/": ["/"],
    "/<path:path>": ["/findings", "/nowhere"],
    "/_dash-layout": ["/_dash-layout"],
    "/_dash-dependencies": ["/_dash-dependencies"],
    "/_dash-update-component": [],  # the callbacks
    "/_reload-hash": [],  # another one at each start
    "/_dash-component-suites/<string:package_name>/<path:fingerprinted_path>": [],  # files of the packages
    "/_dash-component-suites/plotly/package_data/plotly.min.js": [],
    "/_favicon.ico": [],
    "/answer/<token>": ["/answer/forged"],
    "/assets/<path:filename>": [],
    "/assets/pages-<digest>.<suffix>": [],
    "/static/<path:filename>": [],
    "/export/<name>.<kind>": [f"/export/{name}.{kind}" for name in EXPORTS for kind in ("csv", "parquet")],
    **{each.path: [each.path] for each in ENDPOINTS},
    "/api/v1/openapi.json": [],  # of the code
    "/api/": [],
    "/api/<path:path>": ["/api/v1/nothing"],
    "/mcp/": [],
    "/mcp/<path:path>": ["/mcp/nothing"],
    "/.well-known/<path:path>": ["/.well-known/oauth-protected-resource"],
    "/mcp": [],  # the endpoints again, which `test_the_tools` asks
    "/metrics": ["/metrics"],
    "/report/preview": ["/report/preview"],
    # a PDF is the HTML on paper, and no two are the same
    "/report/download/<name>": [f"/report/download/{each.name}" for each in FORMATS if each.name != "pdf"],
}
"""Every rule of the app, and what of it is asked for; none for what is the same for everybody by its making."""


def test_every_route_is_decided_upon(worlds: tuple[World, World]) -> None:
    assert {rule.rule for rule in worlds[0].app.server.url_map.iter_rules()} == ROUTES.keys()


@pytest.mark.parametrize("path", list(itertools.chain(*ROUTES.values())))
def test_a_route(worlds: tuple[World, World], path: str) -> None:
    for answers, asked in answers_of_a_route(worlds, path):
        hold_nothing_of_others(answers, asked, worlds)


def test_the_tools(worlds: tuple[World, World]) -> None:
    """Asked for everything, and for what is the others', by assistants of the team."""
    for each in ENDPOINTS:
        for arguments in ({"span": "all"}, {"span": "all", "team": OTHERS}):
            message = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": each.name, "arguments": arguments},
            }
            answers = [
                world.same(
                    world.app.server.test_client().post("/mcp", json=message, headers={HEADER: VIEWER}).text,
                    world.mark,
                    world.finding,
                )
                for world in (*worlds, worlds[0])
            ]
            hold_nothing_of_others(answers, each.name, worlds)


Answers = Iterator[tuple[list[str], object]]
"""For each question the three answers, without the names that were asked with, and the question."""


def answers_of_a_route(worlds: tuple[World, World], path: str) -> Answers:
    """With every search, known by name in each world and by none."""
    ways = names_to_ask_with(worlds)
    asked = [[*searches(*names), *_more_searches(path, *names)] for _, names in ways]
    for those in zip(*asked, strict=True):
        yield (
            [
                world.same(world.get(VIEWER, path + search), *names)
                for (world, names), search in zip(ways, those, strict=True)
            ],
            path + those[0],
        )


def _more_searches(path: str, mark: str, finding: str) -> list[str]:
    """What this path alone understands; the API takes no name that it does not know."""
    if path.startswith("/report"):
        return ["?start=2026-W46", f"?start=2026-W45&team={OTHERS}"]
    if path.startswith("/api/"):
        wanted = {
            "gpu": f"GPU-{mark}-host-0",
            "host": f"{mark}-host",
            "user": f"{mark}-user-a",
            "finding": finding,
            "recommendation": decision(finding),
        }
        by = [f"?span=all&by={group}" for group in GROUPS] if path.endswith("/accounts") else []
        return [
            f"?span=24h&team={OTHERS}",
            "?span=all&limit=1",
            *by,
            *(f"?span=all&{name}={value}" for name, value in wanted.items()),
        ]
    return []


def names_to_ask_with(worlds: tuple[World, World]) -> list[tuple[World, tuple[str, str]]]:
    """Return the worlds with a name and a finding of their others, and the first world with unknown names."""
    one, other = worlds
    return [(one, (one.mark, one.finding)), (other, (other.mark, other.finding)), (one, (UNKNOWN, UNKNOWN_ID))]


def test_what_is_asked_for_is_there(worlds: tuple[World, World]) -> None:
    """A reader who may see everything sees the others: without this, no other test here could fail."""
    for world in worlds:
        for path in ("/export/findings.csv", "/export/users.csv", "/export/workloads.csv", "/report/download/json"):
            assert world.mark in world.get(BOSS, path)
            assert world.mark not in world.get(VIEWER, path)
        assert world.finding in world.get(BOSS, "/export/findings.csv?show=all")


def _values(world: World, mark: str, finding: str) -> dict[tuple[str, str], list[Any]]:
    """What a browser may send by element and property, the usual first; what follows is what a forger would send."""
    rows = [[], [finding], [world.own_finding, finding], [f"GPU-{mark}-host-0"], [{"id": finding}], "x", 7]
    pressed: dict[tuple[str, str], list[Any]] = {(f"act-{kind}", "n_clicks"): [1] for kind in KINDS}
    pressed |= {(f"recommendation-act-{kind}", "n_clicks"): [1] for kind in KINDS}
    return pressed | {
        ("recommendation-chosen", "data"): ["", decision(world.own_finding), decision(finding), 7],
        ("recommendation-act-text", "value"): ["because"],
        ("recommendation-act-until", "value"): [""],
        ("recommendation-findings-seen", "data"): [{}, {finding: "A-1-0"}],
        ("reserve-tried", "data"): [0, "x"],
        ("reserve", "value"): [0, 99, "x"],
        ("annotation-add", "n_clicks"): [1],
        ("annotation-text", "value"): ["because"],
        ("annotation-when", "value"): ["2025-11-13 09:00"],
        ("annotation-about", "value"): [f"team:{OTHERS}", f"pool:{mark}-pool", "x"],
        ('{"index":["ALL"],"type":"annotation-out"}', "n_clicks"): [1],
        ('{"name":["ALL"],"type":"what-if"}', "value"): [2, "x"],
        ("what-if-off", "value"): [0],
        ("what-if-share", "value"): [0],
        ("what-if-merge", "value"): [[mark, 7]],
        ("what-if-small", "value"): [f"{mark}-pool"],
        ("what-if-curve", "value"): [f"{mark}-pool"],
        ("what-if-tick", "n_intervals"): [1],
        ("what-if-saved-tick", "n_intervals"): [1],
        ("what-if-done", "children"): [""],
        ("what-if-save", "n_clicks"): [1],
        ("what-if-remove", "n_clicks"): [1],
        ("what-if-name", "value"): [mark],
        ("what-if-chosen", "title"): [f"gpus.{mark}-pool=-2&idle=2"],
        ("scheme", "data"): ["light"],
        ("url", "pathname"): ["/"],
        ("url", "search"): searches(mark, finding),
        ("again", "n_clicks"): [1],
        ("news", "n_intervals"): [1],
        ("version", "data"): ["", "x"],
        ("findings-chosen", "data"): rows,
        ("findings-hidden", "n_clicks"): [0, 1],
        ("act-text", "value"): ["because"],
        ("act-until", "value"): [""],
        ("findings-seen", "data"): [{}, {finding: "A-1-0"}],
        ("send-now", "n_clicks"): [1],
        ("send-tried", "data"): [{}, {"search": f"?team={OTHERS}", "targets": [f"{mark}@example.org"]}],
        ('{"target":["ALL"],"type":"send-try"}', "n_clicks"): [1],
    }


def _argument(wanted: dict[str, str], sent: Sent) -> Any:
    """One input or state of a request; of a pattern the list of elements that fit."""
    value = sent[wanted["id"], wanted["property"]]
    if not wanted["id"].startswith("{"):
        return {"id": wanted["id"], "property": wanted["property"], "value": value}
    fitting = {name: 0 if each == ["ALL"] else each for name, each in json.loads(wanted["id"]).items()}
    return [{"id": fitting, "property": wanted["property"], "value": value}]


def _questions(world: World, found: Any, mark: str, finding: str) -> Iterator[tuple[Sent, str]]:
    """All that may be sent to a callback, and which input says so; a page is asked for with each of its addresses."""
    keys = [(each["id"], each["property"]) for each in (*found["inputs"], *found["state"])]
    values = _values(world, mark, finding)
    missing = [key for key in keys if key not in values]
    assert not missing, f"what may a browser send as {missing}? Say so in _values, with what a forger would send"
    triggers = [_trigger(each) for each in found["inputs"]]
    if ("url", "pathname") in keys:
        usual = {key: values[key][0] for key in keys}
        for path, search in addresses(mark, finding):
            yield usual | {("url", "pathname"): path, ("url", "search"): search}, triggers[0]
        return
    for combination in itertools.product(*(values[key] for key in keys)):
        for trigger in triggers:
            yield dict(zip(keys, combination, strict=True)), trigger


def _trigger(wanted: dict[str, str]) -> str:
    name = wanted["id"].replace('["ALL"]', "0")
    return f"{name}.{wanted['property']}"


def test_every_callback(worlds: tuple[World, World]) -> None:
    """Those that the server runs; what the browser runs by itself the server does not answer for."""
    one, other = (
        {re.sub("@.*?(?=[.]|$)", "", name) for name, found in world.app.callback_map.items() if found.get("callback")}
        for world in worlds
    )
    assert one == other != set()
    for answers, asked in answers_of_callbacks(worlds):
        hold_nothing_of_others(answers, asked, worlds)
    for world in worlds:
        assert not load_actions(world.site.lake)  # no reader has acted on findings of others
        assert not load_annotations(world.site.lake)


def answers_of_callbacks(worlds: tuple[World, World]) -> Answers:
    """Every callback with all that may be sent to it."""
    ways = names_to_ask_with(worlds)
    for name, found in worlds[0].app.callback_map.items():
        if not found.get("callback"):
            continue
        is_page = any(each["id"] == "url" and each["property"] == "pathname" for each in found["inputs"])
        for who in (VIEWER,) if is_page else (VIEWER, PLANNER):
            asked = [list(_questions(world, found, *names)) for world, names in ways]
            for those in zip(*asked, strict=True):
                yield (
                    [
                        world.same(world.call(who, name, *question), *names)
                        for (world, names), question in zip(ways, those, strict=True)
                    ],
                    (name, who, those[0]),
                )


def test_readers_at_once_are_answered_as_each_alone(worlds: tuple[World, World]) -> None:
    """What was made for one reader is kept for the next: never for one of another team or another role."""
    world = worlds[0]
    asked = [
        (who, path, search)
        for search in ("?span=3d", "?span=3d&team=theirs", "?span=3d&lang=fr")
        for path in ("/", "/findings", "/users", "/settings")
        for who in (VIEWER, THEIRS, BOSS, PLANNER)
    ]
    name = next(each for each in world.app.callback_map if each.startswith("..page.children"))

    def page(question: tuple[str, str, str], app: Any = None) -> str:
        who, path, search = question
        sent = {
            ("scheme", "data"): "light",
            ("url", "pathname"): path,
            ("url", "search"): search,
            ("again", "n_clicks"): 1,
        }
        return (replace(world, app=app) if app else world).call(who, name, sent, "scheme.data")

    fresh = build_app(LakeSource(world.site.inputs), world.access)  # nothing is kept yet
    with ThreadPoolExecutor(8) as threads:
        at_once = list(threads.map(lambda each: page(each, fresh), asked))
    assert at_once == [page(each) for each in asked]
    for (who, _, search), answer in zip(asked, at_once, strict=True):
        if who in (VIEWER, PLANNER) and OTHERS not in search:
            assert world.mark not in answer
        if who == THEIRS:
            assert not re.search(r"\b(ann|bea|cleo)\b", answer)


@pytest.mark.parametrize("is_read_before", [True, False])
def test_a_file_of_others_that_needs_a_newer_fallow_is_reported_without_details(
    worlds: tuple[World, World], *, is_read_before: bool
) -> None:
    """Its path names where the lake lies, and a host that is nothing of the team's."""
    world = worlds[0]
    source = LakeSource(world.site.inputs)
    app = build_app(source, world.access)
    broken = replace(world, app=app)
    if is_read_before:
        source.refresh()
    file = Path(world.site.lake.files("gpu", hosts=[f"{world.mark}-host"])[-1].url)
    content = file.read_bytes()
    newer = pq.read_table(io.BytesIO(content)).replace_schema_metadata({"fallow_schema_version": "99"})
    pq.write_table(newer, file)
    try:
        with contextlib.suppress(FallowError):
            source.refresh()
        name = next(each for each in app.callback_map if each.startswith("..page.children"))
        values = _values(world, UNKNOWN, UNKNOWN_ID)
        sent = {key: each[0] for key, each in values.items()}
        said = {
            who: broken.call(who, name, sent, "scheme.data") + broken.get(who, "/export/gpus.csv")
            for who in (VIEWER, PLANNER, BOSS)
        }
    finally:
        file.write_bytes(content)
    assert file.name in said[BOSS]
    for who in (VIEWER, PLANNER):
        assert "The data cannot be read" in said[who]
        assert world.mark not in said[who]
        assert str(world.site.config.parent) not in said[who]


def hold_nothing_of_others(answers: list[str], question: object, worlds: tuple[World, World]) -> None:
    first, second, third = answers
    assert third == first, question
    assert second == first, question
    for world in worlds:
        assert world.mark not in third
        assert world.finding not in third


SCOPES = (("--team", TEAM), ("--user", "ann"), ("--user", "bea"))
COMMANDS = [
    *(("report", "--week", "2026-W46", "--format", name) for name in ("text", "md", "html", "json", "csv")),
    ("report", "--week", "2026-W46", "--compare", "before", "--format", "json"),
    *(("recommendations", *form) for form in ((), ("--json",), ("--csv",))),
    *(
        ("ledger", "--by", name, "--csv")
        for name in ("pool", "team", "organisation", "model", "host", "user", "account", "day")
    ),
    *(("ledger", *form) for form in ((), ("--json",))),
]


@pytest.mark.parametrize("scope", SCOPES, ids=" ".join)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command(
    worlds: tuple[World, World],
    command: tuple[str, ...],
    scope: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = []
    for world in worlds:
        code = main([*command, *scope, "--config", str(world.site.config)])
        printed = capsys.readouterr()
        assert code == 0, printed.err
        assert world.mark not in printed.out
        said.append(OF_THE_FLEET.sub("", printed.out.replace(str(world.site.config.parent), "SITE")))
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


def test_a_nudge_contains_nothing_of_other_teams(worlds: tuple[World, World], tmp_path: Path) -> None:
    one, other = (nudged(world.site, tmp_path / world.mark) for world in worlds)
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
