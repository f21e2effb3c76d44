"""The OpenAPI 3.1 document, from the endpoints."""

from __future__ import annotations

from functools import cache

from dashboard.api.endpoints import ENDPOINTS, ApiEndpoint, Json
from dashboard.api.parameters import Parameter
from dashboard.api.problems import PROBLEM, STATUS_MEANINGS
from dashboard.api.schemas import answer_schema, schemas
from fallow import __version__

_JSON = "application/json"
_OF_GET = (400, 401, 403, 409, 429, 500, 503)


@cache
def openapi() -> Json:
    """The document that `/api/v1/openapi.json` serves."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fallow",
            "version": __version__,
            "summary": "Which GPUs are paid for and not used: ledger, findings and decisions, to read.",
            "description": "Null is unknown, 0 is measured. Every answer says its window, how new the data are and how much was observed.",
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {}],
        "paths": {each.path: {"get": _operation(each)} for each in ENDPOINTS},
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A line of kind `token` in dashboard.people; people come as to the pages.",
                }
            },
            "responses": {f"problem{status}": _problem(status) for status in _OF_GET},
        },
    }


def _operation(endpoint: ApiEndpoint) -> Json:
    tag = {"ETag": {"description": "Changes with the answer.", "schema": {"type": "string"}}}
    return {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": [_parameter(each) for each in endpoint.parameters],
        "responses": {
            "200": {
                "description": endpoint.summary,
                "headers": tag,
                "content": {_JSON: {"schema": answer_schema(endpoint)}},
            },
            "304": {"description": "nothing has changed since the answer with the tag in If-None-Match"},
            **{str(status): {"$ref": f"#/components/responses/problem{status}"} for status in _OF_GET},
        },
    }


def _parameter(each: Parameter) -> Json:
    about: Json = {"name": each.name, "in": "query", "description": each.meaning, "schema": each.schema}
    return about | {"allowEmptyValue": True}  # `pool=` asks for every pool, whatever the schema of a value says


def _problem(status: int) -> Json:
    schema = {"$ref": "#/components/schemas/problem"}
    return {"description": STATUS_MEANINGS[status], "content": {PROBLEM: {"schema": schema}}}
