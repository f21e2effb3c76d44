"""docs/security.md promises nothing that no test holds."""

from __future__ import annotations

import re

from tests.attacks.__main__ import ATTACKS
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs/security.md").read_text(encoding="utf-8")


def test_every_promise_names_a_test_that_is_there() -> None:
    promised = PAGE.partition("## What is promised")[2]
    promises = [each for each in re.findall(r"^\| (.+?) \| (.+?) \|$", promised, re.MULTILINE) if each[0] != "promise"]
    assert len(promises) > 15
    for promise, tested in promises:
        named = re.findall(r"`((?:tests|requirements)/[^`]+)`", tested)
        assert named, promise
        assert not [each for each in named if not (REPOSITORY / each).exists()], promise


def test_every_attack_stands_beside_a_promise_and_is_one() -> None:
    named = {name for each in re.findall(r"attacks? (`[^|]+`)", PAGE) for name in re.findall(r"`([a-z-]+)`", each)}
    assert named == {each.name for each in ATTACKS}
