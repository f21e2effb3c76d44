"""The objects in what `kubectl get ... -o json` prints: of a list one by one, for a large cluster's is larger than a document may be."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from analytics.importers.json_documents import document_at
from analytics.importers.limits import InputLimits
from fallow.errors import InputError

EXPORT = "kubectl get pods,jobs,workloads.kueue.x-k8s.io -A -o json"
"""Leave out what the cluster does not have."""

Object = dict[str, Any]

_ITEMS = re.compile(rb'"items"\s*:\s*\[\s*')
_BETWEEN = re.compile(rb"\s*,?\s*")


def read_objects(path: str, text: bytes, limits: InputLimits) -> Iterator[Object]:
    """The objects, each with its `kind`; raises InputError for what is no JSON of Kubernetes."""
    begin = _ITEMS.search(text)
    start = at = len(text) if begin is None else begin.end()
    try:
        while text.startswith(b"{", at):
            item, at = _item(path, text, at, limits)
            yield item
            gap = _BETWEEN.match(text, at)
            at = at if gap is None else gap.end()
        if start + len(text) - at > limits.max_record_bytes:
            raise limits.too_long(path)
        kind = str(json.loads(text[:start] + text[at:])["kind"])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _no_list(path, error) from error
    if not kind.endswith("List"):
        raise _no_list(path, f"its kind is {kind[:40]}")


def _item(path: str, text: bytes, at: int, limits: InputLimits) -> tuple[Object, int]:
    found = document_at(path, text, at, limits)
    if found is None:
        raise ValueError(f"the object that begins at byte {at:,} is cut off or damaged")
    return found


def _no_list(path: str, why: object) -> InputError:
    return InputError(f"{path} is not the JSON of a list of Kubernetes objects ({why})", f"export it with: {EXPORT}")
