"""The endpoints: their answers, the objects of their rows, and the parameters that filter the rows.

ENDPOINTS is the source of the routes, the OpenAPI document, the MCP tools and docs/api.md. Every value is read by a
column that pages, the report or the commands' `--json` show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analytics.names import JOINER
from analytics.tables.accounts import ACCOUNT_COLUMNS, PricedAccount, priced_accounts
from analytics.tables.finding_list import FINDING_COLUMNS
from analytics.tables.ledger_columns import GPU_COLUMNS, LEDGER_COLUMNS, gpu_ledger
from analytics.tables.recommendations import DECISION_COLUMNS, VALUES
from analytics.tables.report_columns import OBSERVED_COLUMNS, for_reading
from analytics.tables.table import Column, fact
from analytics.tables.verdicts import POOL_DEMAND
from dashboard.api.parameters import (
    BY,
    FINDING,
    GPU,
    HOST,
    PAGING,
    RECOMMENDATION,
    SHOW,
    USER,
    WINDOW_AND_SCOPE,
    Parameter,
    ReadRequest,
)
from dashboard.view import View

Json = dict[str, object]


@dataclass(frozen=True)
class EndpointRows:
    """The rows of an endpoint.

    Attributes:
        items: returns the rows, in a stable order.
        filters: by parameter, the test whether a row has the parameter's value.
    """

    items: Callable[[View, ReadRequest], Sequence[Any]]
    filters: Mapping[Parameter, Callable[[Any, str], bool]] = field(default_factory=dict)

    def wanted(self, view: View, asked: ReadRequest) -> list[Any]:
        filters = [(has, asked.wanted[each.name]) for each, has in self.filters.items() if each.name in asked.wanted]
        return [item for item in self.items(view, asked) if all(has(item, value) for has, value in filters)]


@dataclass(frozen=True)
class ApiEndpoint:
    """One endpoint, which answers with an object of a view or with rows. Its path is its name with `/` for `_`.

    Attributes:
        columns: read the object or the rows.
        content: returns the object, or has the rows.
        more: parameters besides window, scope, filters and paging.
        has_figures: true if the answer has figures of the window; they are null if nothing was observed in it.
    """

    name: str
    summary: str
    columns: tuple[Column, ...]
    content: Callable[[View], object] | EndpointRows
    more: tuple[Parameter, ...] = ()
    has_figures: bool = False

    @property
    def path(self) -> str:
        return f"/api/v1/{self.name.replace('_', '/')}"

    @property
    def has_rows(self) -> bool:
        return isinstance(self.content, EndpointRows)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All parameters of the endpoint, in the order of the documents."""
        own = (*self.content.filters, *PAGING) if isinstance(self.content, EndpointRows) else ()
        return (*WINDOW_AND_SCOPE, *self.more, *own)


def _account_rows(view: View, asked: ReadRequest) -> Sequence[PricedAccount]:
    report = view.report

    def make() -> Sequence[PricedAccount]:
        return priced_accounts(report.money_by(asked.by), asked.by)

    return view.kept(("accounts", asked.by), make)


_ABOUT_GPUS: Mapping[Parameter, Callable[[Any, str], bool]] = {
    GPU: lambda item, value: value in item.gpus,
    HOST: lambda item, value: value in item.host.split(JOINER),
    USER: lambda item, value: value in (item.user or "").split(JOINER),
}

ENDPOINTS = (
    ApiEndpoint(
        "ledger",
        "GPU-hours by state, idle shares, money and energy of the window: `fallow ledger --json`",
        LEDGER_COLUMNS,
        lambda view: view.report.ledger,
        has_figures=True,
    ),
    ApiEndpoint(
        "accounts",
        "allocated, used and wasted GPU-hours with their cost, by team, user, pool or another group, the most paid"
        " first: `fallow ledger --by`",
        ACCOUNT_COLUMNS,
        EndpointRows(_account_rows),
        more=(BY,),
    ),
    ApiEndpoint(
        "gpus",
        "the ledger of each GPU, ordered by host: hours in each state, and their observed share",
        GPU_COLUMNS,
        EndpointRows(
            lambda view, _: view.kept("gpu rows", lambda: gpu_ledger(view.part.inside.segments, view.whole.inventory)),
            {GPU: lambda item, value: item.gpu == value, HOST: lambda item, value: item.host == value},
        ),
    ),
    ApiEndpoint(
        "recommendations",
        "the recommendations, the largest saving first, with evidence and risk: `fallow recommendations --json`",
        DECISION_COLUMNS,
        EndpointRows(
            lambda view, _: view.report.recommendations.listed,
            {
                RECOMMENDATION: lambda item, value: item.recommendation_id == value,
                FINDING: lambda item, value: value in {each.finding_id for each in item.evidence},
                **_ABOUT_GPUS,
            },
        ),
    ),
    ApiEndpoint(
        "recommendations_totals",
        "the sum of the recommendations, how the waste adds up, and how many GPUs each pool can release",
        (*VALUES, POOL_DEMAND),
        lambda view: view.report.recommendations,
        has_figures=True,
    ),
    ApiEndpoint(
        "findings",
        "findings of at least medium confidence, snoozed ones included: `fallow findings --json`",
        FINDING_COLUMNS,
        EndpointRows(
            lambda view, asked: for_reading(view.report.review, is_all=asked.is_all or FINDING.name in asked.wanted),
            {FINDING: lambda item, value: item.finding_id == value, **_ABOUT_GPUS},
        ),
        more=(SHOW,),
    ),
    ApiEndpoint(
        "coverage",
        "the observed share of the window's GPU time, and the hosts that stopped reporting",
        OBSERVED_COLUMNS,
        lambda view: view.report.ledger.seen,
    ),
    ApiEndpoint(
        "scopes",
        "the pools, models and teams of the lake",
        tuple(
            fact(f"{name}s", "name", lambda names, name=name: tuple(names[name]), "array")  # type: ignore[misc]
            for name in ("pool", "model", "team")
        ),
        lambda view: view.names,
    ),
)

BY_NAME: Mapping[str, ApiEndpoint] = {each.name: each for each in ENDPOINTS}
