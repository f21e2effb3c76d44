"""Scenarios that planners keep by name: a policy as TOML, for whoever compares them.

Rows are only ever added (analytics.decide.actions): the newest of a name says what it is, or that it was removed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analytics.decide.actions import actor_words, add_rows, file_number
from analytics.frames import read_frame
from fallow import schema
from fallow.actors import Actor, actor_of
from fallow.errors import FallowError, UsageError
from fallow.lake import Lake

LONGEST_NAME = 60
LONGEST_POLICY = 4000
MOST = 50
"""Characters of a name and of a policy, and how many scenarios a lake keeps: each is a replay in every comparison."""

_SAVE, _REMOVE = "save", "remove"


@dataclass(frozen=True)
class SavedScenario:
    """A policy as TOML text, by its name, and who saved it when."""

    name: str
    policy: str
    actor: Actor
    time_ms: int

    @property
    def by(self) -> str:
        """Who saved it."""
        return actor_words(self.actor)


def save_scenario(lake: Lake, name: str, policy: str, actor: Actor, *, now_ms: int) -> SavedScenario:
    """Saves one, in the place of one with the same name; raises UsageError for a name that is none, and LakeError.

    `policy` is TOML that `analytics.plan.replay.policy` has understood.
    """
    words = " ".join(name.split())
    if not words or len(words) > LONGEST_NAME:
        raise UsageError("the scenario needs a name", f"a few words, {LONGEST_NAME} characters at most")
    if len(policy) > LONGEST_POLICY:
        raise UsageError("the scenario is too long to be kept", f"stay below {LONGEST_POLICY} characters")
    others = {each.name for each in load_scenarios(lake)} - {words}
    if len(others) >= MOST:
        raise UsageError("there are as many scenarios as can be kept", "remove one first")
    saved = SavedScenario(words, policy, actor, now_ms)
    _add(lake, _SAVE, saved, now_ms)
    return saved


def remove_scenario(lake: Lake, name: str, actor: Actor, *, now_ms: int) -> SavedScenario:
    """Takes one out of sight and returns it; raises FallowError where there is none of that name, and LakeError."""
    found = next((each for each in load_scenarios(lake) if each.name == name), None)
    if found is None:
        raise FallowError(f"there is no scenario '{name}'", "`fallow plan scenarios` lists them")
    _add(lake, _REMOVE, SavedScenario(name, "", actor, now_ms), now_ms)
    return found


def _add(lake: Lake, kind: str, scenario: SavedScenario, now_ms: int) -> None:
    row: dict[str, object] = {
        "time": now_ms,
        "name": scenario.name,
        "kind": kind,
        "policy": scenario.policy or None,
        **scenario.actor.columns(),
    }
    add_rows(lake, schema.SCENARIO, [row], now_ms, file_number(now_ms))


def load_scenarios(lake: Lake) -> tuple[SavedScenario, ...]:
    """Those that nobody has removed, by name; raises LakeError. A file that cannot be used is left out."""
    files = lake.files(schema.SCENARIO.name)
    frame = read_frame(files, schema.SCENARIO, None, lake.left_out.leave_out).sort("time", maintain_order=True)
    newest = {
        row["name"]: (row["kind"], SavedScenario(row["name"], row["policy"] or "", actor_of(row), row["time"]))
        for row in frame.iter_rows(named=True)
    }
    return tuple(scenario for _, (kind, scenario) in sorted(newest.items()) if kind == _SAVE)


def as_toml(content: Mapping[str, Any]) -> str:
    """Keys and values of a policy file as such a file; names, numbers, lists of names, and tables of numbers by name."""
    return "".join(f"{key} = {_value(value)}\n" for key, value in content.items())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)  # strings and numbers are written alike in both
