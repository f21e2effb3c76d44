"""The OpenAPI 3.1 document, from the endpoints and the columns of their answers."""

from __future__ import annotations

from functools import cache

from analytics.render.json_schema import object_schema
from analytics.tables.table import fact
from dashboard.api.endpoints import ENDPOINTS, ApiEndpoint, Json
from dashboard.api.problems import PROBLEM, STATUS_MEANINGS
from dashboard.api.replies import ABOUT
from fallow import __version__

_JSON = "application/json"
_OF_GET = (400, 401, 403, 409, 429, 500, 503)
_SCHEMAS = "#/components/schemas/"
_PROBLEM_COLUMNS = (
    fact("type", "words", nullable=False),
    fact("title", "words", about="The status in words.", nullable=False),
    fact("status", "count", nullable=False),
    fact("detail", "words", about="One sentence.", nullable=False),
    fact("hint", "words", about="What to do next."),
)
_PAGE_COLUMNS = (
    fact("total", "count", about="Rows of all pages.", nullable=False),
    fact("next", "words", about="The cursor of the next page; null at the end."),
)


@cache
def openapi() -> Json:
    schemas = {each.name: object_schema(each.columns, each.summary) for each in ENDPOINTS}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fallow",
            "version": __version__,
            "summary": "GPUs that are paid for and not used: ledger, findings and recommendations, read-only.",
            "description": (
                "Null is unknown, 0 is measured. Every answer has its window, the end of the data and the observed"
                " share."
            ),
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {}],
        "paths": {each.path: {"get": _operation(each)} for each in ENDPOINTS},
        "components": {
            "schemas": schemas | {"problem": object_schema(_PROBLEM_COLUMNS, "An error, after RFC 9457.")},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A line of kind `token` in dashboard.people; people sign in as on the pages.",
                }
            },
            "responses": {
                f"problem{status}": {
                    "description": STATUS_MEANINGS[status],
                    "content": {PROBLEM: {"schema": {"$ref": f"{_SCHEMAS}problem"}}},
                }
                for status in _OF_GET
            },
        },
    }


def answer_schema(endpoint: ApiEndpoint, data: Json) -> Json:
    """Return the schema of a whole answer: the facts about its window, and its rows or object, described by `data`."""
    page = _PAGE_COLUMNS if endpoint.has_rows else ()
    schema = object_schema((*ABOUT, *page))
    schema["required"].append("data")
    schema["properties"]["data"] = {"type": "array", "items": data} if endpoint.has_rows else data
    return schema


def _operation(endpoint: ApiEndpoint) -> Json:
    tag = {"ETag": {"description": "Changes with the answer.", "schema": {"type": "string"}}}
    schema = answer_schema(endpoint, {"$ref": f"{_SCHEMAS}{endpoint.name}"})
    return {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": [
            # `pool=` asks for every pool, although the schema of a value allows no empty text
            {
                "name": each.name,
                "in": "query",
                "description": each.meaning,
                "schema": each.schema,
                "allowEmptyValue": True,
            }
            for each in endpoint.parameters
        ],
        "responses": {
            "200": {"description": endpoint.summary, "headers": tag, "content": {_JSON: {"schema": schema}}},
            "304": {"description": "nothing has changed since the answer with the tag in If-None-Match"},
            **{str(status): {"$ref": f"#/components/responses/problem{status}"} for status in _OF_GET},
        },
    }
