"""Sentences are English strings that other languages can say: numbers and dates their way, names as they are."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from decimal import Decimal

import pytest

from analytics.language.languages import language
from analytics.language.sentences import (
    ENGLISH,
    Amount,
    Bytes,
    Day,
    GpuHours,
    Language,
    Moment,
    Number,
    Quantity,
    Sentence,
    SentenceList,
    Share,
    Span,
    tr,
    tr_many,
)
from analytics.workloads.model import agreeing, of_gpus
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, parse_day_ms
from fallow.errors import UsageError

AT_MS = parse_day_ms("2026-11-20") + 23 * HOUR_MS + 30 * MINUTE_MS
NBSP, NARROW = "\N{NO-BREAK SPACE}", "\N{NARROW NO-BREAK SPACE}"


@pytest.fixture(scope="module")
def french() -> Language:
    return language("fr", "Europe/Paris")


@pytest.mark.parametrize(
    ("number", "english", "sentence"),
    [
        (0, "0 hosts", "0 hôte"),
        (1, "1 host", "1 hôte"),
        (2, "2 hosts", "2 hôtes"),
        (1234, "1,234 hosts", f"1{NARROW}234 hôtes"),
    ],
    ids=str,
)
def test_the_number_decides_the_form(french: Language, number: int, english: str, sentence: str) -> None:
    text = tr_many("{number} {host|hosts}", number)
    assert text == english
    assert ENGLISH.translate(text) == english
    assert french.translate(text) == sentence


@pytest.mark.parametrize(
    ("value", "english", "sentence"),
    [
        (Number(1234.5, 1), "1,234.5", f"1{NARROW}234,5"),
        (Number(Decimal("0.25"), 2), "0.25", "0,25"),
        (Number(None), "unknown", "inconnu"),
        (Share(0.123), "12.3 %", f"12,3{NBSP}%"),
        (Share(None), "unknown", "inconnu"),
        (GpuHours(1.5 * HOUR_MS), "1.5", "1,5"),
        (Amount(Decimal("1234.5"), "EUR"), "1,234.50 EUR", f"1{NARROW}234,50{NBSP}EUR"),
        (Amount(None, "EUR"), "unknown", "inconnu"),
        (
            Span(DAY_MS + 90 * MINUTE_MS),
            "1 d 1 h 30 min",
            "1\N{NO-BREAK SPACE}j 1\N{NO-BREAK SPACE}h 30\N{NO-BREAK SPACE}min",
        ),
        (Bytes(1.5 * 2**30), "1.5 GiB", f"1,5{NBSP}GiB"),
        (Day(AT_MS), "20 Nov 2026", "21 nov. 2026"),
        (Moment(AT_MS), "20 Nov 2026, 23:30 UTC", "21 nov. 2026, 00:30 CET"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else None,
)
def test_each_language_writes_quantities_its_own_way(
    french: Language, value: Quantity, english: str, sentence: str
) -> None:
    text = tr("{value}", value=value)
    assert text == english
    assert ENGLISH.translate(text) == english
    assert french.translate(text) == sentence


@pytest.mark.parametrize("name", ["{x}", "unknown", "{value}", "high", "%s", "{0.__class__}", "heat", "{"])
def test_a_name_is_neither_translated_nor_filled_in(french: Language, name: str) -> None:
    text = tr("model {value}", value=name)
    assert text == f"model {name}"
    assert french.translate(text) == f"modèle {name}"
    nested = tr("{sentence}: {reason}", sentence=text, reason=name)
    assert nested == f"model {name}: {name}"
    assert french.translate(nested) == f"modèle {name} : {name}".replace(" :", f"{NBSP}:")


def test_sentences_stand_in_sentences(french: Language) -> None:
    inner = tr("{grade} {wrong} of {judged}", grade=tr("high"), wrong=Number(1), judged=Number(2000))
    text = tr(
        "{name} and {other}",
        name=inner,
        other=SentenceList([tr("heat"), tr_many("{number} {row|rows}", 3)], ", "),
    )
    assert text == "high 1 of 2,000 and heat, 3 rows"
    assert french.translate(text) == f"confiance élevée 1 sur 2{NARROW}000 et la chaleur, 3 lignes"


def test_a_list_is_said_part_by_part(french: Language) -> None:
    text = SentenceList([tr("no"), tr("model {value}", value="no")])
    assert text == "no; model no"
    assert french.translate(text) == f"non{NBSP}; modèle no"
    assert SentenceList([]) == ""
    assert french.translate(SentenceList([])) == ""


def test_what_has_no_translation_stays_english(french: Language) -> None:
    assert french.translate("nobody ever said this") == "nobody ever said this"
    assert french.translate(tr("nobody ever said {value}", value=Number(1.5, 1))) == "nobody ever said 1,5"
    assert french.translate(tr_many("{number} {gnu|gnus}", 0)) == "0 gnus"


def test_to_everything_else_it_is_the_english_text() -> None:
    text = tr_many("{number} {GPU|GPUs}", 2)
    assert text == "2 GPUs"
    assert hash(text) == hash("2 GPUs")
    assert {text: 1}["2 GPUs"] == 1
    again = pickle.loads(pickle.dumps(SentenceList([text])))  # noqa: S301  # our own
    assert again == "2 GPUs"
    assert type(again) is str
    assert type(pickle.loads(pickle.dumps(text))) is str  # noqa: S301


@pytest.mark.parametrize(
    ("gpus", "english", "sentence"),
    [
        (0, "needing at most half of the card's memory: a smaller card is enough", "a besoin"),
        (1, "needing at most half of the card's memory: a smaller card is enough", "a besoin"),
        (2, "needing at most half of the card's memory: a smaller card is enough", "ont besoin"),
    ],
)
def test_a_rules_sentence_agrees_with_its_gpus(french: Language, gpus: int, english: str, sentence: str) -> None:
    rule = of_gpus(
        "needing at most half of the card's memory: a smaller card is enough",
        "needing at most half of the card's memory: a smaller card is enough",
    )
    found = agreeing(rule, gpus)
    assert found == english
    assert french.translate(found).startswith(sentence)


def test_a_sentence_without_a_number_agrees_with_any() -> None:
    assert agreeing("as it is", 1) == "as it is"
    assert agreeing(tr("as it is"), 1) == "as it is"
    assert isinstance(agreeing(of_gpus("held idle, without a running kernel"), 1), Sentence)


@pytest.mark.parametrize("value", [7.65, 0.25, 2.5, 1234.05, -0.05])
def test_every_language_rounds_alike(value: float) -> None:
    english, french = (language(code).number(value, 1) for code in ("en", "fr"))
    assert re.sub(r"\s", ",", french.replace(",", ".")) == english


@pytest.mark.parametrize("code", ["", "de", "FR", "fr_FR"])
def test_other_languages_are_refused(code: str) -> None:
    with pytest.raises(UsageError, match="no catalogue for the language"):
        language(code)


@pytest.mark.parametrize("zone", ["Nowhere/At_all", "../etc/passwd", "/etc/localtime", "localtime", "right/UTC"])
def test_other_time_zones_are_refused(zone: str) -> None:
    with pytest.raises(UsageError, match="is not a time zone"):
        language("en", zone)


def test_english_loads_no_library_for_languages() -> None:
    code = (
        "import sys, analytics.decide.review, analytics.tables.finding_list, analytics.quality.remarks\n"
        "from analytics.language.sentences import tr_many\n"
        "assert tr_many('{number} {GPU|GPUs}', 2) == '2 GPUs'\n"
        "print('babel' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "False"
