"""Two windows side by side as JSON: null is unknown, and a difference that is refused."""

from __future__ import annotations

from analytics.report.compare import OF_POOLS, Comparison, Comparisons, Side
from analytics.tables.compare import FIGURE_COLUMNS
from analytics.tables.table import record
from fallow.clock import format_ms


def comparison_json(found: Comparisons) -> dict[str, object]:
    """The windows, and every figure of both for the scope and for each pool."""
    return {
        "currency": found.currency,
        "scope": dict(vars(found.scope)),
        **_both(found.whole, found.names),
        "pools": {
            pool: _both(each, tuple(name for name in OF_POOLS if name in found.names))
            for pool, each in found.pools.items()
        },
    }


def _both(own: Comparison, names: tuple[str, ...]) -> dict[str, object]:
    return {
        "comparable": own.is_comparable,
        "now": _window(own.now),
        "before": _window(own.before),
        "figures": {each.name: record(FIGURE_COLUMNS, each) for each in own.rows(names)},
    }


def _window(side: Side) -> dict[str, object]:
    return {
        "since": format_ms(side.seen.since_ms),
        "until": format_ms(side.seen.until_ms),
        "observed_share": side.seen.share,
    }
