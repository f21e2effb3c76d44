"""Bombs and damaged files end with a sentence or with what could be read, and never with the machine's memory."""

from __future__ import annotations

import pytest

from tests.attacks.inputs import bombs, mutated_inputs

pytestmark = pytest.mark.long

SOME = [
    "3 GB of zeros",
    "250 MB of NUL and letters",
    "XML a million deep",
    "JSON of broken documents",
    "a document of millions of GPUs",
    "200 million nulls",
    "lists of 65,536 hosts",
]
"""One of each way; `make attack` tries all."""


def test_bombs_are_held() -> None:
    tried = list(bombs(SOME))
    assert [each.name for each in tried] == SOME
    assert [each for each in tried if not each.is_held or each.peak_bytes > 2**30] == []


def test_damaged_files_are_read_or_refused() -> None:
    tried = list(mutated_inputs(140))
    assert len(tried) == 140
    assert [each for each in tried if not each.is_held or each.peak_bytes > 2**30] == []
    assert {each.code for each in tried} >= {0, 1}
