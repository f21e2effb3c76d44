"""Real metrics servers, each in a folder of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.scraped.servers import SERVERS, missing

if TYPE_CHECKING:
    from tests.scraped.servers import MetricsProcess


@pytest.fixture(params=SERVERS, ids=lambda server: server.name)
def server_type(request: pytest.FixtureRequest) -> type[MetricsProcess]:
    """Each server in turn."""
    if lacking := missing():
        pytest.skip(lacking)
    kind: type[MetricsProcess] = request.param
    return kind
