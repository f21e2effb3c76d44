"""Documents in a folder or an object store, each under a name that tells week and edition."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from analytics.delivery.model import FAILED, SENT, Outcome
from analytics.language.plain_text import count
from fallow.errors import FallowError
from fallow.stores import open_store

if TYPE_CHECKING:
    from analytics.delivery.journal import Delivery
    from analytics.delivery.model import Parcel
    from analytics.delivery.targets import Target

_MOST = 100
_END = re.compile(r"(-[a-z]{2})?\.[a-z]{1,8}$")
"""What a name keeps, however long it is: the language of an edition, and the suffix by which programs know what it is."""


class FolderChannel:
    """A folder: the same edition again replaces its own files and nothing else."""

    repeatable = True

    def __init__(self, target: Target) -> None:
        self._target = target

    def send(self, parcel: Parcel, delivery: Delivery, now_ms: int) -> Outcome:  # noqa: ARG002  # the content says its time
        """Writes `<week>/<name>` for each document, each one whole or not at all."""
        try:
            store = open_store(self._target.address)
            for part in parcel.attachments:
                key = f"{safe(parcel.week)}/{safe(part.name)}"
                store.put(key, part.data)
                store.confirm(key, part.data)
        except FallowError as error:
            return Outcome(FAILED, error.message)
        return Outcome(SENT, count(len(parcel.attachments), "file"))


def safe(text: str) -> str:
    """A name that is one in every file system and store, and another for every text: names of teams are other people's."""
    whole = re.sub(r"[^A-Za-z0-9._=-]+", "-", text).strip(".-")
    if whole and whole == text and len(whole) <= _MOST:
        return whole
    end = _END.search(whole)
    kept = end[0] if end else ""
    name = whole.removesuffix(kept)[: _MOST - len(kept)]
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}{kept}".lstrip("-")
