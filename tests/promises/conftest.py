"""Each file holds promises of one subject: a test's name is the sentence, its docstring names its place in the docs."""

from __future__ import annotations

import pytest

from tests.promises.site import Site, changed_hands, wasteful
from tests.shared_results import share_results


@pytest.fixture(autouse=True)
def _one_ledger_for_many_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    share_results(monkeypatch)


@pytest.fixture(scope="session")
def handed_on(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """GPUs that most often had another user before."""
    return Site.of(changed_hands(), tmp_path_factory.mktemp("handed-on"))


@pytest.fixture(scope="session")
def waste(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Waste of every kind in two pools; no test writes into this lake."""
    return Site.of(wasteful(), tmp_path_factory.mktemp("waste"))
