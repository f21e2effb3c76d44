"""Real metrics servers, each in a folder of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.scraped.servers import SERVERS, missing
from tests.shared_results import one_ledger_for_many_looks

if TYPE_CHECKING:
    from pathlib import Path

    from tests.scraped.servers import MetricsProcess


__all__ = ["one_ledger_for_many_looks"]


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where journals lie, of each test its own."""
    folder = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@pytest.fixture(params=SERVERS, ids=lambda server: server.name)
def server_type(request: pytest.FixtureRequest) -> type[MetricsProcess]:
    """Each server in turn."""
    if lacking := missing():
        pytest.skip(lacking)
    kind: type[MetricsProcess] = request.param
    return kind
