"""Every attack, the worst of the first table first."""

from __future__ import annotations

from tests.attacks import pages
from tests.attacks.model import Attack

ATTACKS = (
    Attack(
        "many-windows", "a viewer asks for one new window after another",
        "64 GPUs: 2.9 GB after 200 windows, never given back", "within dashboard.memory; known pages p95 < 300 ms",
        pages.many_windows,
    ),
    Attack(
        "abandoned", "200 requests for new windows, hung up at once",
        "100: /healthz silent for 175 s", "/healthz < 100 ms throughout", pages.abandoned,
    ),
)  # fmt: skip
