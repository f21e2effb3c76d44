"""The endpoints: what each answers, of which objects its rows are made, and which parameters choose among them.

Routes, the OpenAPI document, the tools of MCP and docs/api.md are made of ENDPOINTS. Every value is read by a column that pages, the
report or the commands' `--json` show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analytics.names import JOINER
from analytics.tables.accounts import ACCOUNT_COLUMNS, PricedAccount, priced_accounts
from analytics.tables.finding_list import FINDING_COLUMNS
from analytics.tables.ledger_columns import GPU_COLUMNS, LEDGER_COLUMNS, gpu_ledger
from analytics.tables.recommendations import DECISION_COLUMNS, RECLAIMABLE, SAVINGS
from analytics.tables.report_columns import OBSERVED_COLUMNS, with_notes
from analytics.tables.table import Column, fact
from dashboard.api.parameters import (
    BY,
    FINDING,
    GPU,
    HOLDER,
    HOST,
    PAGING,
    RECOMMENDATION,
    WINDOW_AND_SCOPE,
    Parameter,
    ReadRequest,
)
from dashboard.view import View

Json = dict[str, object]


@dataclass(frozen=True)
class EndpointRows:
    """The rows of an endpoint, in a stable order, and for each parameter the test whether it wants a row."""

    items: Callable[[View, ReadRequest], Sequence[Any]]
    filters: Mapping[Parameter, Callable[[Any, str], bool]] = field(default_factory=dict)

    def wanted(self, view: View, asked: ReadRequest) -> list[Any]:
        """Return the rows that all filters of the request leave."""
        filters = [(has, asked.wanted[each.name]) for each, has in self.filters.items() if each.name in asked.wanted]
        return [item for item in self.items(view, asked) if all(has(item, value) for has, value in filters)]


@dataclass(frozen=True)
class ApiEndpoint:
    """One thing to ask for: an object of a view, or rows; `columns` read it.

    Its path is its name with `/` for `_`. `more` are parameters beside window, scope, filters and pages. `has_figures` of the
    window: they are null where nothing was seen in it.
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
        """All that it takes, in the order of the documents."""
        own = (*self.content.filters, *PAGING) if isinstance(self.content, EndpointRows) else ()
        return (*WINDOW_AND_SCOPE, *self.more, *own)


def _account_rows(view: View, asked: ReadRequest) -> Sequence[PricedAccount]:
    money = view.report.money

    def make() -> Sequence[PricedAccount]:
        return priced_accounts(money, money.accounts.by(asked.by))

    return view.kept(("accounts", asked.by), make)


_ABOUT_GPUS: Mapping[Parameter, Callable[[Any, str], bool]] = {
    GPU: lambda item, value: value in item.gpus,
    HOST: lambda item, value: value in item.host.split(JOINER),
    HOLDER: lambda item, value: value in (item.holder or "").split(JOINER),
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
        "what each team, user, pool, ... was given, what became of it and what it cost, the most paid first: `fallow ledger --by`",
        ACCOUNT_COLUMNS,
        EndpointRows(_account_rows),
        more=(BY,),
    ),
    ApiEndpoint(
        "gpus",
        "the ledger by GPU, by host: hours in each state, and the observed share of them",
        GPU_COLUMNS,
        EndpointRows(
            lambda view, _: view.kept("gpu rows", lambda: gpu_ledger(view.part.inside.stretches, view.whole.inventory)),
            {GPU: lambda item, value: item.gpu == value, HOST: lambda item, value: item.host == value},
        ),
    ),
    ApiEndpoint(
        "recommendations",
        "the decisions, those that save most first, with their evidence and risk: `fallow recommendations --json`",
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
        "what the decisions save together, how the waste adds up, and what can be given back of which pool",
        (*SAVINGS, RECLAIMABLE),
        lambda view: view.report.recommendations,
        has_figures=True,
    ),
    ApiEndpoint(
        "findings",
        "what the rules found, suppressed ones with their status: `fallow findings --all --json`",
        FINDING_COLUMNS,
        EndpointRows(
            lambda view, _: with_notes(view.report.review, view.report.review.findings),
            {FINDING: lambda item, value: item.finding_id == value, **_ABOUT_GPUS},
        ),
    ),
    ApiEndpoint(
        "coverage",
        "how much of the window's GPU time was observed, and which hosts fell silent",
        OBSERVED_COLUMNS,
        lambda view: view.report.ledger.seen,
    ),
    ApiEndpoint(
        "scopes",
        "the pools, models and teams that there are to choose",
        tuple(
            fact(f"{name}s", "name", lambda names, name=name: tuple(names[name]), "array")  # type: ignore[misc]
            for name in ("pool", "model", "team")
        ),
        lambda view: view.names,
    ),
)

BY_NAME: Mapping[str, ApiEndpoint] = {each.name: each for each in ENDPOINTS}
