"""Whether what was sent to a callback is what its page sends: the same elements, in the same order.

dash reads it on trust, and what is missing becomes an error of its own with a long traceback.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flask import Request
from werkzeug.exceptions import HTTPException

CALLBACK = "/_dash-update-component"

_MOST_PARTS = 10_000
"""Objects and lists in one request: of a few bytes each becomes some hundred. What the pages send has a few for each element."""


def is_malformed(asked: Request, callbacks: Mapping[str, Any]) -> bool:
    """Whether a request to a callback is none that the pages send; `callbacks` are dash's own, by what they fill.

    Raises RequestEntityTooLarge.
    """
    content = asked.get_data()
    if content.count(b"{") + content.count(b"[") > _MOST_PARTS:
        return True
    try:
        body = asked.get_json()
    except (HTTPException, RecursionError):  # no JSON, or thousands of brackets
        return True
    if not isinstance(body, dict) or not isinstance(body.get("output"), str):
        return True
    known = callbacks.get(body["output"], {})
    return not (
        "callback" in known  # those of the browser have none
        and _fit(body.get("inputs", []), known["inputs"])
        and _fit(body.get("state", []), known["state"])
        and (known.get("no_output", False) or _fit(_listed(body.get("outputs")), _filled(body["output"])))
        and _are_changes(body.get("changedPropIds", []))
    )


def _fit(sent: object, known: list[dict[str, str]]) -> bool:
    """Whether a list holds an element, or several of one kind, for each of those that the callback names."""
    return (
        isinstance(sent, list)
        and len(sent) == len(known)
        and all(_is_element(each, wanted) for each, wanted in zip(sent, known, strict=True))
    )


def _is_element(sent: object, wanted: dict[str, str]) -> bool:
    if wanted["id"].startswith("{"):  # all whose id has these keys
        keys = json.loads(wanted["id"]).keys()
        return isinstance(sent, list) and all(
            isinstance(each, dict)
            and isinstance(each.get("id"), dict)
            and each["id"].keys() == keys
            and each.get("property") == wanted["property"]
            for each in sent
        )
    return isinstance(sent, dict) and (sent.get("id"), sent.get("property")) == (wanted["id"], wanted["property"])


def _listed(outputs: object) -> object:
    return [outputs] if isinstance(outputs, dict) else outputs


def _filled(output: str) -> list[dict[str, str]]:
    """What a callback fills, from dash's name for it: `..a.children...b.data..` or `a.children`."""
    found = output[2:-2].split("...") if output.startswith("..") else [output]
    return [{"id": name, "property": kind} for name, _, kind in (each.rpartition(".") for each in found)]


def _are_changes(sent: object) -> bool:
    """Whether it names elements and their properties: `a.value`, or an id of several keys as JSON."""
    if not isinstance(sent, list) or not all(isinstance(each, str) for each in sent):
        return False
    try:
        ids = [json.loads(each.rpartition(".")[0]) for each in sent if each.startswith("{")]
    except ValueError:
        return False
    return all(isinstance(each, dict) for each in ids)
