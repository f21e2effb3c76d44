"""All scenarios, what the rules make of them, and how precise each rule is over the whole suite."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from analytics.decide.review import review
from analytics.rules import RULES
from tests.findings.scenarios.grid import T_END
from tests.ledger.recording import opened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from analytics.window import Inputs, WindowLedger
    from analytics.workloads.model import Finding
    from tests.findings.conftest import Site
    from tests.findings.scenarios.model import Scenario

RULE_NAMES = (
    "held", "reserved_unused", "never_used", "standing_surplus", "partial_use", "imbalance", "memory_oversized",
    "compute_oversized", "mig_fit", "co_location", "preallocated", "loaded_no_traffic", "zombie_holder", "input_starved",
    "throttled", "inefficient", "stalls", "low_efficiency", "wind_down", "slow_uptake", "hoarding", "blind_spot",
)  # fmt: skip
"""Every rule that the suite knows."""

ENOUGH = 2
"""Situations in which a rule must fire, and look-alikes, in every test run; `make test-all` tries all situations."""

KNOWN_ERRORS: Mapping[tuple[str, str], str] = {}
"""(scenario, rule) -> why the rule is wrong there and stays so; counted against its precision or recall."""


@dataclass(frozen=True)
class Score:
    """How one rule fares: situations in which it must fire and does, look-alikes, and where it fires without reason."""

    rule: str
    must_fire: int
    found: int
    look_alikes: int
    false: int

    @property
    def precision(self) -> float | None:
        """Share of its firings that are right; None without any."""
        return self.found / (self.found + self.false) if self.found + self.false else None

    @property
    def recall(self) -> float | None:
        """Share of what it must find that it finds; None where there is nothing."""
        return self.found / self.must_fire if self.must_fire else None


def scenarios() -> dict[str, tuple[Scenario, ...]]:
    """The scenarios of every file beside this one, by its name."""
    names = sorted(file.stem for file in Path(__file__).parent.glob("[!_]*.py") if not file.stem.startswith("test_"))
    modules = {name: import_module(f"tests.findings.scenarios.{name}") for name in names if name != "suite"}
    return {name: module.SCENARIOS for name, module in modules.items() if hasattr(module, "SCENARIOS")}


def open_scenario(scenario: Scenario, folder: Path, site: Site | None = None) -> tuple[Inputs, WindowLedger]:
    """The scenario's ledger, of a lake or a recording of it; its settings are written to the folder."""
    settings = dict(scenario.settings)
    for name, content in scenario.lists.items():
        file = folder / f"{name}.csv"
        file.write_text(content, encoding="utf-8")
        settings[name] = str(file)
    config = folder / "fallow.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in sorted(settings.items())]
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")  # dotted keys are sections
    return opened(site or scenario.fleet().recording(), config=str(config))


def findings(scenario: Scenario, folder: Path) -> tuple[Finding, ...]:
    """What the commands would say of the scenario."""
    return review(*open_scenario(scenario, folder), now_ms=T_END).shown


def chosen() -> dict[str, frozenset[str]]:
    """Scenario -> rules to try in it, so that each rule has ENOUGH in which it must fire and ENOUGH look-alikes."""
    every = [each for those in scenarios().values() for each in those]
    taken: dict[str, set[str]] = {}
    for rule in RULE_NAMES:
        for kind in ("fires", "look_alike_of"):
            labelled = [each.name for each in every if rule in getattr(each, kind)]
            labelled.sort(key=lambda name: name not in taken)  # one lake for several rules
            for name in labelled[:ENOUGH]:
                taken.setdefault(name, set()).add(rule)
    return {name: frozenset(rules) for name, rules in taken.items()}


def errors(scenario: Scenario, fired: Iterable[str]) -> dict[str, str]:
    """Rule -> what is wrong with it: `missing` where it must fire and does not, `false` where it fires without reason."""
    rules = frozenset(fired)
    return dict.fromkeys(sorted(scenario.fires - rules), "missing") | dict.fromkeys(
        sorted(rules - scenario.fires - scenario.may), "false"
    )


def score(rule: str, every: Iterable[Scenario], wrong: Iterable[tuple[str, str]]) -> Score:
    """The rule over these scenarios, given the (scenario, rule) in which something is wrong."""
    there, those = list(every), set(wrong)
    must = [each.name for each in there if rule in each.fires]
    missing = [name for name in must if (name, rule) in those]
    return Score(
        rule,
        len(must),
        len(must) - len(missing),
        sum(rule in each.look_alike_of for each in there),
        sum((each.name, rule) in those for each in there if each.name not in must),
    )


def registered() -> frozenset[str]:
    """The rules that the product has."""
    return frozenset(rule.name for rule in RULES)


def table(scores: Iterable[Score], *, markdown: bool = False) -> str:
    """The scores for people, as text or Markdown."""
    heads = ("rule", "must fire", "found", "look-alikes", "false", "precision", "recall")
    there = registered()
    rows = [
        (each.rule, str(each.must_fire), str(each.found), str(each.look_alikes), str(each.false), _share(each.precision), _share(each.recall))
        if each.rule in there else (each.rule, str(each.must_fire), "not registered", str(each.look_alikes), "-", "-", "-")
        for each in scores
    ]  # fmt: skip
    if markdown:
        lines = [heads, ("---", *("---:" for _ in heads[1:])), *rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)
    widths = [max(len(line[column]) for line in [heads, *rows]) for column in range(len(heads))]
    return "\n".join(
        "  ".join(text.ljust(width) if not at else text.rjust(width) for at, (text, width) in enumerate(zip(line, widths, strict=True)))
        for line in [heads, *rows]
    )  # fmt: skip


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
