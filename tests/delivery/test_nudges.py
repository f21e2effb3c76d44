"""Who is reached where and when, whom to tell where several hold together, and what never goes to a user."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from analytics.decide.actions import load_actions, record
from analytics.delivery.links import AnswerLinks
from analytics.delivery.model import Delivery
from analytics.delivery.nudges import Chosen, Contacts, Nudge, Past, Quiet, choose, pack_nudge
from analytics.delivery.settings import parse_targets
from analytics.delivery.webhook import payload
from analytics.language.languages import language
from analytics.money.owners import Owner, Owners
from analytics.workloads.model import Confidence, Evidence, Finding
from fallow import config
from fallow.actors import Actor
from fallow.clock import DAY_MS, WEEK_MS, parse_window
from fallow.errors import ConfigError
from tests.delivery.hands import Hands, journal
from tests.delivery.made_items import asked, found, left_behind, recommendation, worth

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.decide.recommendations import Recommendation
    from analytics.delivery.model import Message
    from fallow.lake import Lake


def chosen(lake: Lake, folder: Path, *findings: Finding | Recommendation, operators: tuple[str, ...] = ()) -> Chosen:
    """Of recommendations, each finding being one of its own."""
    hands = Hands()
    past = Past(load_actions(lake), journal(lake, hands), hands.now_ms() - WEEK_MS)
    made = [recommendation(each) if isinstance(each, Finding) else each for each in findings]
    return choose(asked(*made).items, load(folder, TABLE), parse_targets(operators), past, Owners.none())


def told(lake: Lake, channel: str | None) -> None:
    record(lake, "notify", [TOGETHER.finding_id], Actor("zoe"), now_ms=Hands().now_ms() - DAY_MS, channel=channel)


TOGETHER = found("held", user="ann+proj")


def message(nudge: Nudge, code: str = "en") -> Message:
    return pack_nudge(nudge, language(code, "UTC"), "2026-11-20", (0, Hands().now_ms()), None)


def addresses(done: Chosen) -> list[str]:
    return [nudge.target.address for nudge in done.nudges]


def test_several_who_hold_together_are_all_told(lake: Lake, tmp_path: Path) -> None:
    assert addresses(chosen(lake, tmp_path, TOGETHER)) == ["ann@example.org", "pi@example.org"]


@pytest.mark.parametrize(
    ("channel", "left"),
    [
        ("mailto:ann@example.org", ["pi@example.org"]),
        ("by telephone", []),
        (None, []),
        ("mailto:pi@example.org", ["ann@example.org"]),
    ],
)
def test_that_one_of_them_was_told_leaves_the_other(
    lake: Lake, tmp_path: Path, channel: str | None, left: list[str]
) -> None:
    told(lake, channel)
    assert addresses(chosen(lake, tmp_path, TOGETHER)) == left


def test_whoever_has_no_address_is_held_back(lake: Lake, tmp_path: Path) -> None:
    nobody = chosen(lake, tmp_path, found("held", user="stranger", team=None))
    assert (nobody.nudges, [why for _, why in nobody.held_back]) == ((), ["no address, or opted out of nudges"])


def test_asks_of_one_address_are_one_mail_the_first_due_first(lake: Lake, tmp_path: Path) -> None:
    change, release = found("inefficient", "b"), found("held", "a")
    [nudge] = chosen(lake, tmp_path, change, release).nudges
    assert [each.key for each in nudge.items] == [release.finding_id, change.finding_id]


def test_faults_go_to_the_operators_in_one_message_and_to_nobody_else(lake: Lake, tmp_path: Path) -> None:
    faults = found("throttled", "ab"), found("blind_spot", "c", user=None)
    user, operators = chosen(lake, tmp_path, *faults, found("held", "d"), operators=("mailto:ops@example.org",)).nudges
    assert (user.target.address, [each.gpus for each in user.items]) == ("ann@example.org", [("d",)])
    assert (operators.target.address, [each.gpus for each in operators.items]) == (
        "ops@example.org",
        [("a", "b"), ("c",)],
    )
    without = chosen(lake, tmp_path, *faults)
    assert (without.nudges, {why for _, why in without.held_back}) == (
        (),
        {"for operators, and report.operators is empty"},
    )


@pytest.mark.parametrize(
    ("findings", "subject", "intro"),
    [
        ((found("held", "ab"),), "Release 2 GPUs or give a reason, by 23 Nov 2026", "seem to do no work"),
        (
            (found("memory_oversized", next_command="#SBATCH --gres=gpu:l40s:1"),),
            "1 recommendation for your GPUs, by 27 Nov 2026",
            "need less than the GPUs they have",
        ),
        ((found("inefficient"),), "1 recommendation for your GPUs, by 27 Nov 2026", "use little of their GPUs"),
        (
            (found("held"), found("inefficient", "b")),
            "2 recommendations for your GPUs, by 23 Nov 2026",
            "or less than they could",
        ),
        ((found("throttled", "ab"),), "1 GPU fault to check", "The users of the GPUs get no message"),
    ],
)
def test_the_message_says_what_is_asked_and_no_more(
    lake: Lake, tmp_path: Path, findings: tuple[Finding, ...], subject: str, intro: str
) -> None:
    [nudge] = chosen(lake, tmp_path, *findings, operators=("ops@example.org",)).nudges
    made = message(nudge)
    assert made.subject == subject
    for mark in (made.subject, message(nudge, "fr").subject):
        assert len(mark) <= 70 - len("SIMULATED: ")
    for body in (" ".join(made.text.split()), made.html or ""):
        assert intro in body
        assert bool(re.search(r"\bRelease (it|them)\b", body)) is any(each.rule == "held" for each in findings)


def test_operators_read_what_they_own_with_what_it_saves(lake: Lake, tmp_path: Path) -> None:
    spare = recommendation(
        found("never_used", "ab"), cents=12_345, gpus=("a", "b"), value=worth(1000, 2000.4, 3000), next_command=""
    )
    orphan = left_behind("c")
    [nudge] = chosen(lake, tmp_path, spare, orphan, found("throttled", "d"), operators=("ops@example.org",)).nudges
    assert [each.gpus for each in nudge.items] == [("c",), ("d",), ("a", "b")]
    made = message(nudge)
    text = " ".join(made.text.split())
    assert made.subject == "4 GPUs to release or check, the first by 23 Nov 2026"
    assert "Each GPU is listed once" in text
    assert "wasted: 1.0 GPU-hours, 123.45 USD; GPU time per year: 2,000 USD (1,000 to 3,000)" in text
    assert "user: ann" in text
    assert "Please handle this by the end of 2026-12-04." in text
    assert len(message(nudge, "fr").subject) <= 70 - len("SIMULATED: ")


def test_what_rests_on_samples_alone_costs_at_most_that_much(lake: Lake, tmp_path: Path) -> None:
    one = recommendation(found("held"), cents=300, unconfirmed_ms=3.6e6)
    [nudge] = chosen(lake, tmp_path, one).nudges
    assert "wasted: 1.0 GPU-hours, up to 3.00 USD, not confirmed" in " ".join(message(nudge).text.split())


def test_of_a_share_there_is_no_answer_that_would_settle_the_others(lake: Lake, tmp_path: Path) -> None:
    """And it counts as told, under a name of its own."""
    one = recommendation(found("held", "ab", user="ann+bob"))
    items = asked(one, users={"a": "ann", "b": "bob"}).items
    links = AnswerLinks("https://gpus.example.org", b"k" * 64)
    past = Past({}, journal(lake, Hands()), 0)
    [nudge, *_] = choose(items, load(tmp_path, TABLE), (), past, Owners.none()).nudges
    made = pack_nudge(nudge, language("en", "UTC"), "2026-11-20", (0, Hands().now_ms()), links)
    assert ("/answer/" in made.text, "fallow findings" in made.text) == (False, False)
    assert made.finding_ids == (items[0].key,)


def test_each_of_several_teams_reads_nothing_of_the_others(lake: Lake, tmp_path: Path) -> None:
    """No user has an own address: each is reached through the team, which must not learn who else is on the GPU."""
    teams = {"bob": "nlp", "quinn": "vision"}
    owners = Owners({("user", name): Owner("user", name, team) for name, team in teams.items()})
    contacts = load(tmp_path, "kind,name,email\nteam,nlp,nlp@example.org\nteam,vision,vision@example.org\n")
    jobs = "pod:nlp/bobs+pod:vision/quinns"
    finding = found(
        "held",
        user="bob+quinn",
        team="nlp+vision",
        job=jobs,
        next_command="kubectl delete pod -n vision quinns",
        confidence=Confidence(("pod quinns of bob may come back",)),
        evidence=Evidence(0, 1, {"jobs": jobs}),
    )
    past = Past({}, journal(lake, Hands()), 0)
    nudges = choose(asked(recommendation(finding)).items, contacts, (), past, owners).nudges
    assert [(each.target.address, each.names) for each in nudges] == [
        ("nlp@example.org", ("bob",)),
        ("vision@example.org", ("quinn",)),
    ]
    for nudge, other in zip(nudges, ("quinn", "bob"), strict=True):
        made = message(nudge)
        assert other not in made.text
        assert other not in made.html
        assert "GPUs: a" in made.text


@pytest.mark.parametrize("kind", ["slack", "mattermost", "teams", "generic"])
def test_a_chat_of_operators_reads_what_the_fault_is(lake: Lake, tmp_path: Path, kind: str) -> None:
    target = f"{kind}+https://chat.example.org/hooks/secret"
    [nudge] = chosen(lake, tmp_path, found("throttled", "ab"), operators=(target,)).nudges
    delivery = Delivery("nudge", "2026-11-20", "operators/en", nudge.target.shown)
    sent = json.dumps(payload(kind, message(nudge), delivery))
    assert "said to be throttled" in sent
    assert ("****" in sent, '"-"' in sent, "secret" in sent) == (False, False, False)


def test_simulated_ones_are_called_so_first_of_all(lake: Lake, tmp_path: Path) -> None:
    [real] = chosen(lake, tmp_path, found("held", "ab")).nudges
    [nudge] = chosen(lake, tmp_path, found("held", "ab", simulated=True), found("inefficient", "c")).nudges
    made = message(nudge)
    assert made.subject == "SIMULATED: 2 recommendations for your GPUs, by 23 Nov 2026"
    assert made.text.startswith("SIMULATED: 2 GPUs in this message do not exist.")
    assert (made.html or "").partition("<h1")[0].count("SIMULATED: 2 GPUs in this message do not exist.") == 1
    assert "SIMULATED" not in message(real).subject + message(real).text + (message(real).html or "")


def test_without_links_it_says_how_to_answer_and_names_commands_that_run(lake: Lake, tmp_path: Path) -> None:
    held, fading = found("held"), found("ending")
    [nudge] = chosen(lake, tmp_path, recommendation(held, fading)).nudges
    text = message(nudge).text
    assert "/answer/" not in text
    assert "reply to this mail with the day until which you need them." in " ".join(text.split())
    ids = f"{held.finding_id} {fading.finding_id}"
    assert "Or, with access to fallow's lake:" in text
    assert f"fallow findings snooze {ids} --until 2026-11-30 --reason 'still needed'" in text
    assert f"fallow findings ack {ids} --reason released" in text


def test_a_command_that_acts_says_of_when_it_is(lake: Lake, tmp_path: Path) -> None:
    [nudge] = chosen(lake, tmp_path, found("held", next_command="scancel 7")).nudges
    assert "to release:\n        scancel 7\n    as of 2026-11-20 00:00 UTC: check that" in message(nudge).text


@pytest.mark.parametrize("code", ["en", "fr"])
def test_names_in_a_nudge_are_nothing_but_names(lake: Lake, tmp_path: Path, code: str) -> None:
    evil = "{0} {user} \r\n.\r\nBcc: x \u202e\x1b[31m"
    finding = replace(
        found("held"),
        job=evil,
        host=evil,
        gpus=(evil,),
        reclaimable_gpus=(evil,),
        next_command=evil,
        confidence=Confidence((evil,)),
    )
    [nudge] = chosen(lake, tmp_path, finding).nudges
    made = message(nudge, code)
    assert "\x1b" not in (made.html or "")
    text = made.text
    assert "{user}" in text
    assert not any(line.startswith(("Bcc", ".")) for line in text.splitlines())
    assert all(character.isprintable() or character in "\n\N{NO-BREAK SPACE}" for character in text)


def load(folder: Path, contacts: str, opt_out: str = "") -> Contacts:
    paths = []
    for name, text in (("contacts.csv", contacts), ("opt-out.csv", opt_out)):
        path = folder / name
        path.write_text(text, encoding="utf-8")
        paths.append(str(path) if text else "")
    return Contacts.load(*paths)


TABLE = (
    "kind,name,email\nuser,ann,ann@example.org\nteam,nlp,nlp@example.org\naccount,proj,pi@example.org\n"
    "user,cy,cy@a.org\nuser,cy,cy@b.org\n"
)


@pytest.mark.parametrize(
    ("user", "team", "reached"),
    [
        ("ann", "nlp", {"ann@example.org": "ann"}),
        ("bob", "nlp", {"nlp@example.org": "bob"}),
        ("bob", "cv", {}),
        ("bob", None, {}),
        ("proj", None, {"pi@example.org": "proj"}),
        ("ann+proj", None, {"ann@example.org": "ann", "pi@example.org": "proj"}),
        ("cy", None, {"cy@a.org": "cy", "cy@b.org": "cy"}),
        (None, "nlp", {}),
    ],
)
def test_who_is_reached(tmp_path: Path, user: str | None, team: str | None, reached: dict[str, str]) -> None:
    assert load(tmp_path, TABLE).of(user, team, Owners.none()) == reached


@pytest.mark.parametrize(
    ("line", "user", "reached"),
    [
        ("user,ann", "ann", set()),
        ("email,Ann@example.org", "ann", set()),
        ("email,ann@EXAMPLE.org", "ann", set()),
        ("team,nlp", "bob", set()),
        ("team,nlp", "ann", {"ann@example.org"}),
        ("user,bob", "bob", set()),
        ("user,ann", "ann+proj", {"pi@example.org"}),
    ],
)
def test_who_wants_none_gets_none(tmp_path: Path, line: str, user: str, reached: set[str]) -> None:
    contacts = load(tmp_path, TABLE, f"kind,name\n{line}\n")
    assert set(contacts.of(user, "nlp", Owners.none())) == reached


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


def quiet(hours: str = "20:00-07:00", days: str = "sat,sun") -> Quiet:
    settings = config.load({"report.quiet_hours": hours, "report.quiet_days": days}, None, {})
    return Quiet.of(settings, ZoneInfo("Europe/Paris"))


@pytest.mark.parametrize(
    ("moment", "holds"),
    [
        ("2026-11-19T19:59:59+01:00", False),
        ("2026-11-19T20:00:00+01:00", True),
        ("2026-11-20T06:59:59+01:00", True),
        ("2026-11-20T07:00:00+01:00", False),
        ("2026-11-20T06:30:00Z", False),
        ("2026-11-21T12:00:00+01:00", True),
        ("2026-11-22T12:00:00+01:00", True),
        ("2026-11-23T12:00:00+01:00", False),
        ("2026-07-01T05:30:00Z", False),
        ("2026-07-01T18:30:00Z", True),
    ],
)
def test_when_it_is_quiet(moment: str, *, holds: bool) -> None:
    at_ms = parse_window(moment, None).since_ms
    assert at_ms is not None
    assert quiet().holds(at_ms) is holds


@pytest.mark.parametrize(
    ("hours", "quiet_hours"),
    [("", []), ("12:00-14:00", [12, 13]), ("22:00-24:00", [22, 23]), ("00:00-24:00", [*range(24)])],
)
def test_spans(hours: str, quiet_hours: list[int]) -> None:
    own = quiet(hours, "")
    midnight_ms = parse_window("2026-11-20T00:00:00+01:00", None).since_ms
    assert midnight_ms is not None
    assert [hour for hour in range(24) if own.holds(midnight_ms + hour * 3_600_000)] == quiet_hours


@pytest.mark.parametrize(
    ("hours", "days"), [("8-9", ""), ("20:00", ""), ("25:00-07:00", ""), ("20:00-24:30", ""), ("", "someday")]
)
def test_what_cannot_be_read(hours: str, days: str) -> None:
    with pytest.raises(ConfigError, match=r"report\.quiet_"):
        quiet(hours, days)
