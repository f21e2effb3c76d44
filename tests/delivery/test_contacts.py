"""Who is reached where, and who is left in peace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from analytics.delivery.nudges import Contacts
from analytics.money.owners import Owners
from analytics.workloads.model import Confidence, Evidence, Finding
from fallow.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

FINDING = Finding(
    rule="held_idle", category="reclaim", sentence="held without a kernel", subject="ann", gpus=("GPU-0",), host="h1",
    id_host="h1", holder="ann", since_ms=0, gpu_ms=3.6e6, energy_kwh=None, confidence=Confidence(()),
    reclaimable_gpus=("GPU-0",), evidence=Evidence(0, 1, {}), next_command="scancel 1", simulated=False, team="nlp",
)  # fmt: skip


def load(folder: Path, contacts: str, opt_out: str = "") -> Contacts:
    paths = []
    for name, text in (("contacts.csv", contacts), ("opt-out.csv", opt_out)):
        path = folder / name
        path.write_text(text, encoding="utf-8")
        paths.append(str(path) if text else "")
    return Contacts.load(*paths)


TABLE = "kind,name,email\nuser,ann,ann@example.org\nteam,nlp,nlp@example.org\naccount,proj,pi@example.org\nuser,cy,cy@a.org\nuser,cy,cy@b.org\n"


@pytest.mark.parametrize(
    ("holder", "team", "reached"),
    [
        ("ann", "nlp", {"ann@example.org": "ann"}), ("bob", "nlp", {"nlp@example.org": "bob"}), ("bob", "cv", {}), ("bob", None, {}),
        ("proj", None, {"pi@example.org": "proj"}), ("ann+proj", None, {"ann@example.org": "ann", "pi@example.org": "proj"}),
        ("cy", None, {"cy@a.org": "cy", "cy@b.org": "cy"}), (None, "nlp", {}),
    ],
)  # fmt: skip
def test_who_is_reached(tmp_path: Path, holder: str | None, team: str | None, reached: dict[str, str]) -> None:
    assert load(tmp_path, TABLE).of(holder, team, Owners.none()) == reached


@pytest.mark.parametrize(
    ("line", "holder", "reached"),
    [
        ("user,ann", "ann", set()), ("email,Ann@example.org", "ann", set()), ("email,ann@EXAMPLE.org", "ann", set()),
        ("team,nlp", "bob", set()), ("team,nlp", "ann", {"ann@example.org"}), ("user,bob", "bob", set()),
        ("user,ann", "ann+proj", {"pi@example.org"}),
    ],
)  # fmt: skip
def test_who_wants_none_gets_none(tmp_path: Path, line: str, holder: str, reached: set[str]) -> None:
    contacts = load(tmp_path, TABLE, f"kind,name\n{line}\n")
    assert set(contacts.of(holder, "nlp", Owners.none())) == reached


@pytest.mark.parametrize(
    ("contacts", "opt_out", "said"),
    [
        ("kind,name\nuser,ann\n", "", "lacks the column 'email'"),
        ("kind,name,email\nuser,ann,ann\n", "", "contacts.csv, line 2: email: 'ann' is not a mail address"),
        (
            "kind,name,email\nperson,ann,a@b.org\n",
            "",
            "line 2: kind 'person' is none of user, account, namespace, team",
        ),
        ("kind,name,email\nuser,,a@b.org\n", "", "line 2: name is empty"),
        (TABLE, "kind,name\nemail,ann\n", "opt-out.csv, line 2: name: 'ann' is not a mail address"),
        (TABLE, "kind,name\nuser\n", "name is empty"),
        ("kind,name,mail\n", "", "did you mean 'email'"),
    ],
)
def test_mistakes_name_the_line(tmp_path: Path, contacts: str, opt_out: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(tmp_path, contacts, opt_out)
