"""Filters and an order in an address: what a table has columns for, and one sentence for all else."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.tables.table import column
from dashboard.grid import check_address
from dashboard.query import Query
from fallow.errors import UsageError

COLUMNS = [
    column("holder", "holder", "holder"),
    column("status", "status", "state", json_type="integer"),
    column("cost", "cost", "money"),
    column("since", "since", "moment"),
]


@pytest.mark.parametrize(
    "query",
    [
        Query(), Query(show="all"), Query(sort="-cost,holder"), Query(filter="holder:ann"), Query(filter="holder.is:a:b"),
        Query(filter="holder.begins:a|holder.ends:z,cost.above:-1.5"), Query(filter="cost.between:1..2,cost.known"),
        Query(filter="since:2024-02-29"), Query(filter="since.between:2026-01-01..2026-02-01"), Query(filter="status.unknown"),
        Query(filter=r"holder:a\,b\|c\\"), Query(filter="holder:a,holder.without:b"),
    ],
)  # fmt: skip
def test_what_the_columns_can_do(query: Query) -> None:
    check_address(query, COLUMNS)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (Query(show="none"), "'none' is nothing to show"),
        (Query(sort="wages"), "the table has no column 'wages'"),
        (Query(sort="cost,-cost"), "names a column twice"),
        (Query(sort="cost,"), "the table has no column ''"),
        (Query(filter="wages:1"), "the table has no column 'wages'"),
        (Query(filter="holder:a,"), "the table has no column ''"),
        (Query(filter="holder"), "'holder' is no filter of the column 'holder'"),
        (Query(filter="holder:"), "is no filter of the column 'holder'"),
        (Query(filter="holder.above:a"), "'above' does not compare the column 'holder'"),
        (Query(filter="holder.:a"), "does not compare the column 'holder'"),
        (Query(filter="holder.known:a"), "is no filter of the column 'holder'"),
        (Query(filter="cost:much"), "is no filter of the column 'cost'"),
        (Query(filter="cost:1e5"), "is no filter of the column 'cost'"),
        (Query(filter="cost:\N{ARABIC-INDIC DIGIT ONE}"), "is no filter of the column 'cost'"),
        (Query(filter="cost.between:1"), "is no filter of the column 'cost'"),
        (Query(filter="since:2026-02-30"), "is no filter of the column 'since'"),
        (Query(filter="since:20260201"), "is no filter of the column 'since'"),
        (Query(filter="holder:a|cost:1"), "joins two columns"),
        (Query(filter="holder:a|holder:b|holder:c"), "too many filters of the column 'holder'"),
        (Query(filter="holder:a|holder:b,holder:c"), "too many filters of the column 'holder'"),
        (Query(filter="holder:a\\"), "ends within a sign"),
    ],
)
def test_anything_else_is_one_sentence(query: Query, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        check_address(query, COLUMNS)
    assert caught.value.hint


@given(st.text(max_size=60), st.text(max_size=20))
def test_no_text_is_worse_than_a_sentence(filters: str, order: str) -> None:
    with suppress(UsageError):
        check_address(Query(filter=filters, sort=order), COLUMNS)


@given(st.text(min_size=1, max_size=40))
def test_every_name_can_be_asked_for(name: str) -> None:
    written = name.replace("\\", "\\\\").replace(",", "\\,").replace("|", "\\|")
    check_address(Query(filter=f"holder.is:{written},cost.above:1"), COLUMNS)
