"""Names made to hurt, through every output that there is: nothing in them is obeyed, followed or hidden.

The code itself lists the outputs: a new command, form, format, chat, page or export fails here until this file states
how to ask for it.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
from email import message_from_bytes, policy
from email.headerregistry import Address
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from analytics.commands.report_edition import open_edition
from analytics.delivery.content import pack
from analytics.delivery.mail import compose
from analytics.delivery.model import Delivery
from analytics.delivery.settings import CHATS
from analytics.delivery.webhook import payload
from analytics.render.report.formats import FORMATS
from analytics.report.weeks import parse_week
from dashboard.app import build_app
from dashboard.files import EXPORTS
from dashboard.pages import PAGES
from dashboard.source import LakeSource
from fallow.cli import COMMANDS, VerbParser, load
from fallow.clock import SystemClock
from tests.attacks.hostile_site import NOW_MS, HostileSite, hostile, hostile_actor, make_site
from tests.core.test_outside_text import hidden
from tests.dashboard.conftest import filled
from tests.in_process import run_in_process
from tests.shared_results import share_results

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from subprocess import CompletedProcess

pytestmark = pytest.mark.long


@cache
def unseen() -> frozenset[str]:
    return frozenset(hidden()) - {"\n", "\t"} | set("\u3164\u115f\u2800")


OF_THE_HOST = """agent run, agent once, agent status, agent release, agent resume, agent publish, top, doctor"""
"""They look at this machine: tests/agent and tests/doctor hold them."""

NOT_HERE = """follow otlp, follow prometheus, import prometheus, import gpustat, import nvitop, import series,
allocations import slurm, allocations import kubernetes, dashboard, demo, report send, pseudonym new-key, \
pseudonym of, pseudonym table"""
"""Other kinds of import report on files as `nvidia-smi` does; tests/scraped covers metrics servers, tests below cover
pages and messages; a demo has names of its own; a pseudonym is a hash; a push is read like metrics."""

ARGUMENTS: dict[str, list[list[str]]] = {
    "import nvidia-smi": [
        ["{gpu_csv}", "--host", hostile("host").replace("\r\n", "").translate(dict.fromkeys(range(32))), "--yes"]
    ],
    "allocations import csv": [["{jobs}"]],
    "allocations list": [[], ["--check"]],
    "ledger": [
        [],
        *(["--by", each] for each in ("pool", "team", "organisation", "model", "host", "user", "account", "day")),
    ],
    "prices": [[]],
    "findings": [["--all"]],
    "findings show": [["{finding}"]],
    "findings ack": [["{finding}", "--as", hostile_actor(), "--reason", hostile("reason")]],
    "findings snooze": [["{finding}", "--as", hostile_actor(), "--reason", hostile("reason")]],
    "findings reopen": [["{finding}", "--as", hostile_actor(), "--reason", hostile("reason")]],
    "findings note": [["{finding}", "--as", hostile_actor(), "--text", hostile("reason")]],
    "findings history": [["{finding}"]],
    "sql": [[], ["select * from ledger"], ["select * from findings"], ["select * from recommendations"]],
    "recommendations": [[], ["--lang", "fr"], ["--owner", hostile("nobody")]],
    "plan queue": [[], ["--lang", "fr"], ["--pool", hostile("pool")]],
    "plan allocation": [[], ["--team", hostile("team")]],
    "plan defrag": [[]],
    "plan forecast": [[]],
    "plan purchase": [[]],
    "plan carbon": [[]],
    "plan fit": [[], ["--params", "7B"], ["--seen", hostile("user")]],
    "plan scenarios": [[]],
    "plan replay": [[], ["--idle-timeout", "2h"], ["--merge", hostile("pool") + "," + hostile("other")]],
    "annotations add": [[hostile("note"), "--as", hostile_actor(), "--pool", hostile("pool")]],
    "annotations list": [[]],
    "annotations remove": [[hostile("id")]],
    "evaluate": [["--labels", "{labels}"]],
    "report": [[], ["--lang", "fr"], ["--pool", hostile("pool")], ["--user", hostile("user")]],
    "report nudge": [[]],
    "lake check": [[]],
    "lake init": [[]],
    "lake size": [[]],
    "lake warm": [[]],
    "lake compact": [["--dry-run"]],
    "lake repair": [[]],
    "lake expire": [[]],
    "lake export": [["--to", "{exports}"]],
    "dashboard sessions": [[]],
    "schema": [[], [hostile("table")]],
    **{reference: [[]] for reference in ("settings", "glossary", "rules")},
}
"""How each command is asked for; the forms that it has are added to that."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> HostileSite:
    return make_site(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(autouse=True)
def _then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns back to the moment at which the site ends."""
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: NOW_MS)
    share_results(monkeypatch)


def verbs() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command and verb that can be run, with its parser."""
    for command in COMMANDS:
        parser = argparse.ArgumentParser()
        load(command).add_arguments(parser)
        yield from _below(command.name, parser)


def _below(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    groups = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]  # noqa: SLF001
    if not any(each.required for each in groups):
        yield name, parser
    for each in groups:
        for verb, below in each.choices.items():
            if isinstance(below, VerbParser):
                below.load()
            yield from _below(f"{name} {verb}", below)


def forms(parser: argparse.ArgumentParser) -> list[list[str]]:
    """Text, and whatever else the command writes."""
    found: list[list[str]] = [[]]
    for action in parser._actions:  # noqa: SLF001
        flag = action.option_strings[:1]
        if flag in (["--json"], ["--csv"]):
            found.append([*flag])
        elif flag == ["--format"] and action.choices:
            found += [[*flag, str(each)] for each in action.choices if each not in ("parquet", "pdf", "text")]
    return found


def test_every_command_is_decided_upon() -> None:
    elsewhere = {each.strip() for text in (OF_THE_HOST, NOT_HERE) for each in text.split(",")}
    assert {name for name, _ in verbs()} == elsewhere | ARGUMENTS.keys()


def test_every_command_in_every_form(site: HostileSite, tmp_path: Path) -> None:
    """What a command prints hurts nobody who looks at it."""
    for done, form, asked in printed(site, tmp_path):
        assert done.returncode in (0, 1, 2), asked
        assert "Traceback" not in done.stderr, asked
        seen(done.stderr, asked)
        looked_at(done.stdout, form, asked)


def printed(site: HostileSite, folder: Path) -> Iterator[tuple[CompletedProcess[str], list[str], object]]:
    """What every command prints in every form, and how it was asked."""
    gpu_csv = folder / "=cmd|a \u202e.csv"
    lines = (f"2026/11/19 10:00:{at:02}.000, 0, 5 %\n" for at in range(60))
    gpu_csv.write_text("timestamp, index, utilization.gpu [%]\n" + "".join(lines))
    found = run_in_process("findings", "--all", "--json", "--config", str(site.config))
    finding = json.loads(found.stdout)["findings"][0]["finding_id"]
    names = {"gpu_csv": gpu_csv, "jobs": site.jobs, "labels": site.labels, "finding": finding}
    names["exports"] = folder / "exports"
    for name, parser in verbs():
        own = ["--config", str(site.config)] if name != "schema" else []
        own += ["--lake", str(folder / "other")] if name.startswith(("import", "allocations import")) else []
        for arguments in ARGUMENTS.get(name, ()):
            given = [str(names.get(each[1:-1], each)) if each.startswith("{") else each for each in arguments]
            for form in forms(parser):
                yield run_in_process(*name.split(), *given, *form, *own), form, (name, form, given)


def seen(text: str, asked: object) -> None:
    """Nothing hidden is in it."""
    assert {ascii(each) for each in set(text) & unseen()} == set(), asked


def looked_at(text: str, form: Sequence[str], asked: object) -> None:
    """A form of a command, by what reads it."""
    kind = (form[-1] if form else "text").removeprefix("--")
    seen(text, asked)
    if kind == "json" and text:
        json.loads(text)
    if kind == "csv":
        of_a_spreadsheet(text, asked)
    if kind == "html":
        of_a_browser(text, asked)
    if kind == "md":
        assert not re.search(r"(?<!\\)<(a|img) |(?<!\\)\[l|://e|(?<!\\)@all", _without_code(text)), asked


def _without_code(text: str) -> str:
    return re.sub(r"(?<![\\`])(`+)(?!`)(.+?)(?<!`)\1(?!`)", "", text)


def of_a_spreadsheet(text: str, asked: object) -> None:
    for row in csv.reader(io.StringIO(text, newline="")):
        for cell in row:
            number = re.fullmatch(r"-?[0-9.]+(e[+-]?[0-9]+)?", cell)
            assert number or not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")), (asked, cell)


def of_a_browser(text: str, asked: object) -> None:
    assert not re.search(r"<img src=x|<a href='//|href=['\"]?(https?:)?//e\.vil", text), asked


def test_the_cost_rows_of_a_bill(site: HostileSite, tmp_path: Path) -> None:
    target = tmp_path / "cost.csv"
    assert run_in_process("ledger", "--focus", str(target), "--config", str(site.config)).returncode == 0
    written = target.read_text(encoding="utf-8")
    seen(written.replace("\r\n", "\n"), "focus")
    of_a_spreadsheet(written, "focus")


def test_every_format_of_the_report_and_every_message(site: HostileSite) -> None:
    """Files are looked at too, with no terminal between."""
    unset = dict.fromkeys(("lake", "since", "until", "lang", "timezone", "pool", "model", "team", "user"))
    args = argparse.Namespace(**unset, config=str(site.config), week="last")
    edition = open_edition(args, NOW_MS)
    texts = [each for each in FORMATS if each.name != "pdf"]
    for each in texts:
        looked_at(each.render(edition.report, edition.language).decode(), ["--format", each.name], each.name)
    message = pack(edition.report, parse_week("last", edition.language.zone, NOW_MS), edition.language, texts, None)
    delivery = Delivery("report", message.week, "all/en", "mailto:ann@example.org")
    mail = message_from_bytes(
        compose(message, delivery, Address("gpu", "gpu", "example.org"), "ann@example.org", NOW_MS).as_bytes(),
        policy=policy.default,
    )
    assert "Bcc" not in mail
    for value in (message.subject, message.text, *map(str, mail.values())):
        seen(value, "mail")
    for kind in CHATS:
        sent = payload(kind, message, delivery)
        for value in strings(sent):
            seen(value.replace("\N{ZERO WIDTH SPACE}", "") if kind == "mattermost" else value, kind)
        if kind == "slack":
            assert not re.search(r"<(!|http|a )", sent["text"])
        if kind == "mattermost":
            assert not re.search(r"(?<!\\)\[l|://e|@all", sent["text"])


def strings(tree: Any, data: bool = True) -> Iterator[str]:  # noqa: FBT001, FBT002
    """All texts of a JSON tree; with `data` false only what is displayed, without ids, addresses and stores."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, list):
        for each in tree:
            yield from strings(each, data)
    elif isinstance(tree, dict):
        for name, each in tree.items():
            if data or name not in DATA:
                yield from strings(each, data)


DATA = {"href", "id", "key", "value", "search", "open", "pathname", "gpus"}
"""What the browser works with and nobody reads; the timeline's script shows its GPUs without what is hidden."""


def test_every_page_and_export(site: HostileSite) -> None:
    app = build_app(LakeSource(site.inputs))
    client = app.server.test_client()
    for page in PAGES:
        for search in ("?span=all", "?span=all&sort=user&lang=fr", "?span=all&sort=waste"):
            answer = filled(client, page.path, search)
            for text in strings(answer, data=False):
                seen(text, (page.path, search))
            for label in labels(answer):
                template = "" if label.startswith("<svg") else r"|(?<!&#37;)%\{x\}[^<]*\[l"  # plotly's, not of drawings
                assert not re.search(rf"<(a|img)\b{template}", label), (page.path, label)
            for address in re.findall(r'"(?:href|src)": ?"([^"]*)"', json.dumps(answer)):
                assert not re.match(r"(https?:)?//e|javascript:|data:text", address), (page.path, address)
    for name in EXPORTS:
        text = client.get(f"/export/{name}.csv?span=all").text
        seen(text.replace("\r\n", "\n"), name)
        of_a_spreadsheet(text, name)


def labels(tree: Any) -> Iterator[str]:
    """The texts of plotly's figures, in which it reads markup, and drawings, which are markup."""
    if isinstance(tree, list):
        for each in tree:
            yield from labels(each)
    elif isinstance(tree, dict):
        for name, each in tree.items():
            yield from strings(each) if name in ("figure", "data-drawing") else labels(each)


def test_the_names_are_there(site: HostileSite) -> None:
    """Else nothing here could fail."""
    printed = run_in_process("findings", "--all", "--json", "--config", str(site.config)).stdout
    assert json.dumps(hostile("user"))[1:-1] in printed
    assert "=H(user)" in run_in_process("ledger", "--by", "user", "--csv", "--config", str(site.config)).stdout
