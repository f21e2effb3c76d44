"""What the Grafana dashboards and the rules of deploy/ ask Prometheus, and the metrics that there are to ask for."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import yaml

from agent.metrics import catalogue
from dashboard.metrics import FAMILIES as OF_PAGES
from fallow.exposition import Family
from tests.conftest import REPOSITORY

OF_AGENTS: list[Family] = [
    each
    for named in vars(catalogue).values()
    for each in (named if isinstance(named, tuple) else (named,))
    if isinstance(each, Family)
]
"""Every metric family of the agent, in the order in which a scrape shows them."""

BOARDS = sorted((REPOSITORY / "deploy" / "grafana").glob("*.json"))
RULES = REPOSITORY / "deploy" / "prometheus" / "fallow.rules.yaml"
CHOICES = {"$host": ".*", "$instance": ".*", "$pool": ".*"}
"""What stands for Grafana's variables in a query: everything is chosen."""

_FOLLOWERS = "".join(
    (REPOSITORY / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("prometheus", "opentelemetry")
)
METRICS = {
    "up",
    *(each.name for each in (*OF_AGENTS, *OF_PAGES)),
    *re.findall(r"`(fallow_(?:follow|otlp)_\w+)`", _FOLLOWERS),
}

_WORDS = set(
    (  # noqa: SIM905  # words
        "and or on by without unless ignoring bool offset sum avg count max min topk rate time increase last_over_time"
    ).split()
)
_CLAUSE = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"\{[^}]*\}")


@cache
def board(name: str) -> Any:
    return json.loads((REPOSITORY / "deploy" / "grafana" / name).read_text(encoding="utf-8"))


def panels(name: str) -> list[Any]:
    """Those with queries."""
    return [each for each in board(name)["panels"] if each["type"] != "row"]


def expressions(name: str) -> list[str]:
    """The queries of a dashboard with everything chosen."""
    found = [target["expr"] for panel in panels(name) for target in panel["targets"]]
    for variable, value in CHOICES.items():
        found = [each.replace(variable, value) for each in found]
    return found


def dcgm_dashboard() -> dict[str, Any]:
    """The queries and variables of NVIDIA's own dashboard for DCGM's exporter."""
    page = REPOSITORY / "tests" / "deploy" / "prometheus" / "dcgm_dashboard.yaml"
    found: dict[str, Any] = yaml.safe_load(page.read_text(encoding="utf-8"))
    return found


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def recorded() -> set[str]:
    """The names that the recording rules make."""
    return {each["record"] for each in rules() if "record" in each}


def metric_names(expression: str) -> set[str]:
    """Every metric that an expression names."""
    rest = _CLAUSE.sub(" ", _SELECTOR.sub(" ", expression))
    return set(re.findall(r"(?<![\w.\[])[A-Za-z_:][\w:]*", re.sub(r"\[\w+\]", " ", rest))) - _WORDS
