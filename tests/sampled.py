"""Which tests a run takes, and in which order.

Of a test with many cases every fifth is tried where FALLOW_SAMPLE is set, as `make test` does: all take twenty minutes. The
others are told as deselected. A run without the variable, such as `make test PYTEST_ARGS=tests`, takes all of them. Files that
take long come first, so that none of several workers has to wait for another at the end.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_MANY = 3
"""Cases of which none is left out."""

_EVERY = 5
"""Of more cases the first, and from there on every so many."""

_WHOLE = (
    "tests/core/", "tests/language/", "tests/agent/", "tests/deploy/",
    *(f"tests/dashboard/browser/test_{name}" for name in ("detail", "film", "findings", "frame", "report")),
)  # fmt: skip
"""Where cases are quick, or there are few of them and each is another."""


_LONG = (
    "tests/publishing/test_full_disk.py", "tests/agent/test_fault", "tests/dashboard/browser/", "tests/agent/test_truth.py",
    "tests/findings/scenarios/", "tests/agent/test_run.py", "tests/dashboard/test_attacks_worlds.py",
    "tests/agent/test_endurance.py", "tests/dashboard/test_report_page.py",
)  # fmt: skip
"""What takes a minute and more."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out four of five cases, and brings what takes long to the front."""
    items.sort(key=lambda item: not item.nodeid.startswith(_LONG))
    if not os.environ.get("FALLOW_SAMPLE"):
        return
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec") and not item.nodeid.startswith(_WHOLE):
            cases[item.nodeid.partition("[")[0]].append(item)
    left_out = {
        id(item) for own in cases.values() if len(own) > _MANY for place, item in enumerate(own) if place % _EVERY
    }
    config.hook.pytest_deselected(items=[item for item in items if id(item) in left_out])
    items[:] = [item for item in items if id(item) not in left_out]
