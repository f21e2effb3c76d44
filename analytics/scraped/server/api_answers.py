"""The envelope that every JSON answer of this family of servers comes in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from analytics.scraped.server.address import ServerAddress
from analytics.scraped.server.refusals import no_metrics_server, unreadable_answer
from fallow.errors import InputError
from fallow.outside_text import plain


def api_data(body: bytes, address: ServerAddress, tell: Callable[[str], None]) -> Any:
    """What an answer carries; its warnings are told. Raises InputError for one that is cut off, partial or no such answer."""
    try:
        content = json_content(body)
    except orjson.JSONDecodeError as error:
        raise (unreadable_answer if body.lstrip()[:1] == b"{" else no_metrics_server)(address) from error
    if not isinstance(content, dict) or content.get("status") != "success" or "data" not in content:
        raise no_metrics_server(address)
    if content.get("isPartial"):
        raise InputError(f"{address.url} answers with a part of its data", "look which of its storage nodes is down")
    for warning in content.get("warnings") or ():
        tell(f"{address.url} warns: {plain(address.masked(str(warning)), 240)}")
    return content["data"]


def json_content(body: bytes) -> Any:
    """What it says. VictoriaMetrics hands on labels that are no UTF-8 as they are: what is none in them becomes U+FFFD, as in Prometheus.

    Raises orjson.JSONDecodeError.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return orjson.loads(body.decode(errors="replace"))
