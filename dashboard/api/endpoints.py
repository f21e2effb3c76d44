"""The endpoints: what each answers, of which objects its rows are made, and which parameters choose among them.

Routes, the OpenAPI document, the tools of MCP and docs/api.md are made of ENDPOINTS. Every number is made by what the pages, the report
and the commands' `--json` show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analytics.money.accounts import Account
from analytics.names import JOINER
from analytics.render.money_json import account_json
from analytics.render.opportunities_json import opportunities_json, opportunity_json
from analytics.render.report.json_format import finding_json, known_figures, ledger_json, seen_json
from analytics.report.part_tables import rows_by_gpu
from dashboard.api.parameters import (
    BY,
    FINDING,
    GPU,
    HOLDER,
    HOST,
    OPPORTUNITY,
    PAGING,
    WINDOW_AND_SCOPE,
    Parameter,
    ReadRequest,
)
from dashboard.view import View

Json = dict[str, object]


@dataclass(frozen=True)
class EndpointRows:
    """What the rows of an endpoint are made of, in a stable order, how one is made, and by parameter whether one is wanted."""

    items: Callable[[View, ReadRequest], Sequence[Any]]
    row: Callable[[View, Any], Json]
    filters: Mapping[Parameter, Callable[[Any, str], bool]] = field(default_factory=dict)

    def wanted(self, view: View, asked: ReadRequest) -> list[Any]:
        """The items that all filters of the request leave."""
        filters = [(has, asked.wanted[each.name]) for each, has in self.filters.items() if each.name in asked.wanted]
        return [item for item in self.items(view, asked) if all(has(item, value) for has, value in filters)]


@dataclass(frozen=True)
class ApiEndpoint:
    """One thing to ask for: one object of a view, or rows; `schema` names what describes the object, or one row.

    Its path is its name with `/` for `_`. `more` are parameters beside window, scope, filters and pages.
    """

    name: str
    summary: str
    schema: str
    content: Callable[[View], Json] | EndpointRows
    more: tuple[Parameter, ...] = ()

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


def _ledger(view: View) -> Json:
    return known_figures(view.report, ledger_json(view.report))


def _coverage(view: View) -> Json:
    return seen_json(view.report.seen)


def _scopes(view: View) -> Json:
    return {f"{name}s": list(values) for name, values in view.names.items()}


def _totals(view: View) -> Json:
    found = opportunities_json(view.opportunities)
    found.pop("opportunities")
    return known_figures(view.report, found)


def _gpu_rows(view: View, _: ReadRequest) -> Sequence[Json]:
    def make() -> Sequence[Json]:
        return rows_by_gpu(view.part.inside.stretches, view.whole.inventory)

    return view.kept("gpu rows", make)


def _account_rows(view: View, asked: ReadRequest) -> Sequence[Account]:
    def make() -> Sequence[Account]:
        return view.report.money.accounts.by(asked.by)

    return view.kept(("accounts", asked.by), make)


ENDPOINTS = (
    ApiEndpoint(
        "ledger",
        "GPU-hours by state, idle shares, money and energy of the window: `fallow ledger --json`",
        "ledger",
        _ledger,
    ),
    ApiEndpoint(
        "accounts",
        "what each team, user, pool, ... was given, what became of it and what it cost, the most paid first: `fallow ledger --by`",
        "account",
        EndpointRows(
            items=_account_rows,
            row=lambda view, item: account_json(item, view.report.money),
        ),
        more=(BY,),
    ),
    ApiEndpoint(
        "gpus",
        "the ledger by GPU, by host: hours in each state, and the observed share of them",
        "gpu",
        EndpointRows(
            items=_gpu_rows,
            row=lambda _, item: item,
            filters={
                GPU: lambda item, value: item["gpu"] == value,
                HOST: lambda item, value: item["host"] == value,
            },
        ),
    ),
    ApiEndpoint(
        "opportunities",
        "the decisions, those that save most first, with their evidence and risk: `fallow recommendations --json`",
        "opportunity",
        EndpointRows(
            items=lambda view, _: view.opportunities.listed,
            row=lambda _, item: opportunity_json(item),
            filters={
                OPPORTUNITY: lambda item, value: item.opportunity_id == value,
                FINDING: lambda item, value: value in {each.finding_id for each in item.evidence},
                GPU: lambda item, value: value in item.gpus,
                HOST: lambda item, value: value in item.host.split(JOINER),
                HOLDER: lambda item, value: value in (item.holder or "").split(JOINER),
            },
        ),
    ),
    ApiEndpoint(
        "opportunities_totals",
        "what the decisions save together, how the waste adds up, and what can be given back of which pool",
        "totals_of_opportunities",
        _totals,
    ),
    ApiEndpoint(
        "findings",
        "what the rules found, suppressed ones with their status: `fallow findings --all --json`",
        "finding",
        EndpointRows(
            items=lambda view, _: view.report.review.findings,
            row=lambda view, item: finding_json(item, view.report),
            filters={
                FINDING: lambda item, value: item.finding_id == value,
                GPU: lambda item, value: value in item.gpus,
                HOST: lambda item, value: value in item.host.split(JOINER),
                HOLDER: lambda item, value: value in (item.holder or "").split(JOINER),
            },
        ),
    ),
    ApiEndpoint(
        "coverage",
        "how much of the window's GPU time was observed, and which hosts fell silent",
        "observed",
        _coverage,
    ),
    ApiEndpoint("scopes", "the pools, models and teams that there are to choose", "scopes", _scopes),
)

BY_NAME: Mapping[str, ApiEndpoint] = {each.name: each for each in ENDPOINTS}
