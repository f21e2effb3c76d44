"""What is answered to a request: the rows or the object, and beside them window, time of the data and coverage.

A cursor says where a page of rows begins, in which version of the lake and of which request.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass

from analytics.render.report.json_format import known_figures
from analytics.tables.ledger_columns import SCOPE_COLUMNS, WINDOW_COLUMNS
from analytics.tables.table import fact, flag, record, record_column, records
from dashboard.access.audit import audit_export
from dashboard.access.audit_trail import AuditError
from dashboard.access.people import Reader
from dashboard.api.endpoints import ApiEndpoint, EndpointRows, Json
from dashboard.api.parameters import ReadRequest
from dashboard.source import LakeSource
from dashboard.view import UNREADABLE, Problem, View
from fallow.errors import FallowError, UsageError

_FORM = re.compile(r"(\d{1,9})\.([0-9a-f]{12})\.([0-9a-f]{12})")


class OutdatedCursorError(FallowError):
    """The lake has changed since the page before: the rows of this one are those of another version."""


def write_cursor(position: int, version: str, asked: str) -> str:
    """The cursor of the page that begins at a row; `asked` tells the request, and who asks, from others."""
    text = f"{position}.{short_digest(version)}.{short_digest(asked)}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(cursor: str, version: str, asked: str) -> int:
    """The row that the page begins at.

    Raises UsageError for what is no cursor of this request, OutdatedCursorError for one of another version.
    """
    hint = "take `next` of the answer before, with the same other parameters, or leave the cursor out"
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise UsageError("this is no cursor", hint) from error
    found = _FORM.fullmatch(text)
    if found is None:
        raise UsageError("this is no cursor", hint)
    if found[3] != short_digest(asked):
        raise UsageError("this cursor is of another question", hint)
    if found[2] != short_digest(version):
        raise OutdatedCursorError("the data have changed since the page before", "begin again without a cursor")
    return int(found[1])


def short_digest(text: str) -> str:
    """Twelve hexadecimal digits that change with the text."""
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=6).hexdigest()


class NotNowError(FallowError):
    """There is no answer yet, and waiting a little is enough."""


class NothingToShowError(FallowError):
    """What is asked for has no answer in the lake as it is."""


@dataclass(frozen=True)
class Reply:
    """An answer that has not been made yet, with the tag that changes when it does."""

    endpoint: ApiEndpoint
    asked: ReadRequest
    view: View
    stale: str | None

    @property
    def tag(self) -> str:
        """Changes with the version of the lake, the request and the team of whoever asks."""
        return short_digest(f"{self.view.version} {self._question} {self.asked.limit} {self.asked.cursor} {self.stale}")

    @property
    def _question(self) -> str:
        return f"{self.endpoint.name}{self.asked.search} {self.view.reader.team}"

    def content(self) -> Json:
        """The answer; raises UsageError and OutdatedCursorError for a cursor that is none of its pages'."""
        about = record(ABOUT, self)
        own, columns = self.endpoint.content, self.endpoint.columns
        if not isinstance(own, EndpointRows):
            data = record(columns, own(self.view))
            return about | {"data": known_figures(self.view.report.ledger, data) if self.endpoint.has_figures else data}
        asked, version = self.asked, self.view.version
        begin = read_cursor(asked.cursor, version, self._question) if asked.cursor else 0
        end, items = begin + asked.limit, own.wanted(self.view, asked)
        return about | {
            "data": records(columns, items[begin:end]),
            "total": len(items),
            "next": write_cursor(end, version, self._question) if end < len(items) else None,
        }


ABOUT = (
    record_column("window", WINDOW_COLUMNS, "view.report.ledger.seen", "What was asked for, as far as it has passed."),
    fact("as_of", "moment", "view.as_of_ms", about="The end of the newest row of the lake.", nullable=False),
    fact("stale", "words", about="Why the lake could not be read again since then; null where it could."),
    record_column("scope", SCOPE_COLUMNS[:3], "view.report.scope", "Null is everything."),
    fact(
        "coverage", "share", "view.report.ledger.summary.coverage", about="The observed share of the window's GPU time."
    ),
    record_column(
        "sampled",
        (
            fact("share", "share", "sampled", about="Of the observed time, what only point samples saw."),
            flag("leaves_open", about="Whether that moves a figure by a point or more."),
        ),
        "view.report.ledger.summary.totals",
    ),
    fact("simulated_gpus", "count", "view.report.heading.simulated_gpus", nullable=False),
)
"""What every answer says beside its data, read from a `Reply`."""


def begin_reply(source: LakeSource, endpoint: ApiEndpoint, asked: ReadRequest, reader: Reader) -> Reply:
    """The reply to a reader, of what they may see; raises NotNowError, NothingToShowError and other FallowErrors."""
    look = source.look(asked.query, reader)
    if isinstance(look, Problem):
        kind = NotNowError if look.is_passing else NothingToShowError
        raise kind(look.message, look.hint)
    return Reply(endpoint, asked, look, _stale(source, reader))


def take(reply: Reply, path: str) -> Json:
    """The answer, once it is written down that somebody takes it along; raises AuditError where that cannot be."""
    audit_export(reply.view.reader, path, reply.asked.search.removeprefix("?"))
    return reply.content()


_FOR_EVERYBODY = (NotNowError, NothingToShowError, OutdatedCursorError, AuditError)
"""Errors in words that anybody may read."""


def told_error(source: LakeSource, error: FallowError, reader: Reader) -> FallowError:
    """The error in words that the reader may see: whoever `sees_places` alone is told where the lake lies."""
    if isinstance(error, _FOR_EVERYBODY):
        return error
    told = source.problem(error, reader)
    if (told.message, told.hint) == (error.message, error.hint):
        return error
    return (NotNowError if told.is_passing else NothingToShowError)(told.message, told.hint)


def _stale(source: LakeSource, reader: Reader) -> str | None:
    """Why there is no newer version than the one that answers, in words that the reader may see."""
    found = source.stale_because
    if found is None:
        return None
    told = found if reader.sees_places else UNREADABLE
    return f"{told.message} {told.hint}".strip()
