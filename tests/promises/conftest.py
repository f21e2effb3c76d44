"""Every file here holds promises of one subject: a test's name is the sentence, its docstring says where the docs promise it."""

from __future__ import annotations

import pytest

from tests.shared_results import share_results


@pytest.fixture(autouse=True)
def _one_ledger_for_many_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    share_results(monkeypatch, is_kept=False)
