"""A small fleet through a day and a quarter: `make fleet` runs fifty hosts through ten days."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fleet.days import FleetDays, Size
from tests.publishing import swift

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long


@pytest.mark.parametrize("store", ["folder", "s3"])
def test_every_row_is_there_once_whatever_befalls_the_agents(tmp_path: Path, store: str) -> None:
    if store == "s3" and (lacking := swift.missing()):
        pytest.skip(lacking)
    size = Size(hosts=4, days=1, store=store, seed=3, publish_every="30min" if store == "folder" else "2h")
    days = FleetDays(size, tmp_path)
    try:
        judge = days.run()
    finally:
        for host in days.hosts:
            host.kill()
    assert [*days.failures, *judge.wrong] == []
    assert judge.looks > 0
    assert days.told["vanish"] == days.told["come back"] > 0
