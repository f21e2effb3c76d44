"""All scenarios, and what the rules make of them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from analytics.decide.review import review
from analytics.rules import RULES
from tests.findings.scenarios.builder import T_END
from tests.findings.scenarios.situations import Scenario
from tests.ledger.recording import opened

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analytics.window import Inputs, WindowLedger
    from analytics.workloads.model import Finding
    from tests.findings.conftest import Site

ENOUGH = 1
"""Situations in which a rule must fire, and look-alikes, in every test run; `make test-all` tries all situations."""


def scenarios() -> dict[str, tuple[Scenario, ...]]:
    """The scenarios of every file beside this one, by its name."""
    names = sorted(file.stem for file in Path(__file__).parent.glob("[!_]*.py") if not file.stem.startswith("test_"))
    modules = {name: vars(import_module(f"{__package__}.{name}")).values() for name in names if name != "suite"}
    found = {name: tuple(each for each in values if isinstance(each, Scenario)) for name, values in modules.items()}
    return {name: those for name, those in found.items() if those}


EVERY = {each.name: each for those in scenarios().values() for each in those}


def open_scenario(scenario: Scenario, folder: Path, site: Site | None = None) -> tuple[Inputs, WindowLedger]:
    """The scenario's ledger, of a lake or a recording of it; its settings are written to the folder."""
    config, owners = folder / "fallow.toml", folder / "owners.csv"
    owners.write_text(scenario.owners, encoding="utf-8")
    config.write_text(f'money.owners = "{owners}"\n' if scenario.owners else "", encoding="utf-8")
    return opened(site or scenario.fleet().recording(), config=str(config))


def findings(scenario: Scenario, folder: Path) -> tuple[Finding, ...]:
    """What the commands would say of the scenario."""
    return review(*open_scenario(scenario, folder), now_ms=T_END).findings


def chosen() -> dict[str, frozenset[str]]:
    """Scenario -> rules to try in it, so that each rule has ENOUGH in which it must fire and ENOUGH look-alikes."""
    taken: dict[str, set[str]] = {}
    for rule in RULES:
        for kind in ("fires", "look_alike_of"):
            labelled = [each.name for each in EVERY.values() if rule.name in getattr(each, kind)]
            labelled.sort(key=lambda name: name not in taken)  # one ledger for several rules
            for name in labelled[:ENOUGH]:
                taken.setdefault(name, set()).add(rule.name)
    return {name: frozenset(rules) for name, rules in taken.items()}


def errors(scenario: Scenario, fired: Iterable[str]) -> dict[str, str]:
    """Rule -> `missing` where it must fire and does not, `false` where it fires without reason."""
    rules = frozenset(fired)
    missing, false = scenario.fires - rules, rules - scenario.fires - scenario.may
    return dict.fromkeys(sorted(missing), "missing") | dict.fromkeys(sorted(false), "false")
