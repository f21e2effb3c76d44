"""A labelled situation: what happened on a fleet, and what each rule has to make of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.findings.scenarios.builder import Fleet


@dataclass(frozen=True)
class Scenario:
    """One situation.

    `fleet` describes what happened. `fires` are the rules that must fire; `may` those that are also true of it
    though it is not about them. Every other rule that fires is a false positive of that rule. `look_alike_of` names the rules
    that a careless tool would fire here: the suite counts them as tried. `settings` are config flags (`section.key` -> text);
    `lists` are extra files (name -> content) whose path goes to the setting of that name, such as money.owners.
    """

    name: str
    fleet: Callable[[], Fleet]
    fires: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()
    look_alike_of: frozenset[str] = frozenset()
    settings: Mapping[str, str] = field(default_factory=dict)
    lists: Mapping[str, str] = field(default_factory=dict)
