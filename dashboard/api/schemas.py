"""JSON Schemas of what the endpoints answer: those of the report's JSON, and what it does not have."""

from __future__ import annotations

import json
from typing import Any

from analytics.render.report.json_format import report_schema
from analytics.report.part_tables import GPU_COLUMNS
from analytics.states import UNUSED
from dashboard.api.endpoints import ApiEndpoint

_DEFS, _COMPONENTS = "#/$defs/", "#/components/schemas/"
_KINDS = {str: "string", float: "number", int: "integer", bool: "boolean"}
_MAY_BE_UNKNOWN = ("model", "pool", "coverage")
_TOTALS = ("saving_per_year", "given_back_per_year", "freed_per_year", "waste")

Schema = dict[str, Any]


def schemas() -> dict[str, Schema]:
    """By name, with references among them as OpenAPI has them."""
    report = json.loads(json.dumps(report_schema()).replace(_DEFS, _COMPONENTS))
    found: dict[str, Schema] = report["$defs"]
    own = report["properties"]
    found |= {
        "observed": own["observed"],
        "account": _account(found),
        "gpu": _gpu(),
        "scopes": _object(
            {f"{name}s": {"type": "array", "items": {"type": "string"}} for name in ("pool", "model", "team")}
        ),
        "totals_of_opportunities": _object(
            {name: own[name] for name in _TOTALS} | {"reclaimable": {"$ref": f"{_COMPONENTS}reclaimable_now"}}
        ),
        "problem": _problem(),
    }
    return found


def answer_schema(endpoint: ApiEndpoint) -> Schema:
    """Of a whole answer: window, time of the data, coverage, and the rows or the object."""
    moment, share = {"$ref": f"{_COMPONENTS}moment"}, {"$ref": f"{_COMPONENTS}share"}
    one = {"$ref": f"{_COMPONENTS}{endpoint.schema}"}
    about = {
        "window": _object({"since": moment, "until": moment}, "What was asked for, as far as it has passed."),
        "as_of": moment | {"description": "The end of the newest row of the lake."},
        "stale": _text("Why the lake could not be read again since then; null where it could.", null=True),
        "scope": _object({name: _text("", null=True) for name in ("pool", "model", "team")}, "Null is everything."),
        "coverage": share | {"description": "The observed share of the window's GPU time."},
        "sampled": _object(
            {
                "share": share | {"description": "Of the observed time, what was seen by point samples alone."},
                "leaves_open": {"type": "boolean", "description": "Whether that moves a figure by a point or more."},
            }
        ),
        "simulated_gpus": {"type": "integer", "minimum": 0},
    }
    if not endpoint.has_rows:
        return _object(about | {"data": one})
    return _object(
        about
        | {
            "data": {"type": "array", "items": one},
            "total": {"type": "integer", "minimum": 0, "description": "Rows of all pages."},
            "next": _text("The cursor of the next page; null at the end.", null=True),
        }
    )


def _account(found: dict[str, Schema]) -> Schema:
    """A row of `fallow ledger --by`."""
    money, energy = found["money"]["properties"], found["energy"]["properties"]
    of_energy = ("kwh", "known_share", "drawn_kwh", "cost", "co2_kg")
    rank, number, hours = {"type": ["integer", "null"]}, {"type": ["number", "null"]}, {"type": "number", "minimum": 0}
    return _object(
        {
            "name": _text("Null where there is no name: nobody, or somebody unknown, as the label says.", null=True),
            "label": _text("What stands for the name."),
            "gpus": {"type": "integer", "minimum": 0},
            "gpu_hours": {"$ref": f"{_COMPONENTS}gpu_hours"},
            "unconfirmed_gpu_hours": _object(dict.fromkeys(UNUSED, hours), "What point samples alone call idle."),
            **{name: schema for name, schema in money.items() if name != "prices"},
            "rank_gpu_hours": rank,
            "rank_efficiency": rank,
            "rank_efficiency_of": rank,
            "rank_efficiency_model": _text("", null=True),
            "rank_efficiency_gpu_hours": number,
            "efficiency_on_model": number,
            "energy": _object({name: energy[name] for name in of_energy}),
        },
        "One row of `fallow ledger --by --json`.",
    )


def _gpu() -> Schema:
    def column(name: str, kind: type) -> Schema:
        return {"type": [_KINDS[kind], "null"] if name in _MAY_BE_UNKNOWN else _KINDS[kind]}

    return _object({name: column(name, kind) for name, kind in GPU_COLUMNS.items()}, "The ledger of one GPU.")


def _problem() -> Schema:
    return _object(
        {
            "type": _text(""),
            "title": _text("The status in words."),
            "status": {"type": "integer"},
            "detail": _text("One sentence."),
            "hint": _text("What to do next.", null=True),
        },
        "An error, after RFC 9457.",
    )


def _text(description: str, *, null: bool = False) -> Schema:
    kind: Schema = {"type": ["string", "null"] if null else "string"}
    return kind | ({"description": description} if description else {})


def _object(properties: Schema, description: str = "") -> Schema:
    about = {"description": description} if description else {}
    return {
        "type": "object",
        **about,
        "required": list(properties),
        "properties": properties,
        "additionalProperties": False,
    }
