"""Answers to requests: the rows or the object, with window, end of the data and coverage.

A cursor holds where a page of rows begins, the version of the lake, and the request.
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
    """The lake has changed since the previous page: the rows of this page would be from another version."""


def write_cursor(position: int, version: str, asked: str) -> str:
    """Return the cursor of the page that begins at a row; `asked` identifies the request and the reader."""
    text = f"{position}.{short_digest(version)}.{short_digest(asked)}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(cursor: str, version: str, asked: str) -> int:
    """Return the row at which the page begins.

    Raises UsageError for a text that is no cursor of this request, OutdatedCursorError for a cursor of another version.
    """
    hint = "take `next` of the previous answer and keep the other parameters, or leave the cursor out"
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise UsageError("this is not a cursor", hint) from error
    found = _FORM.fullmatch(text)
    if found is None:
        raise UsageError("this is not a cursor", hint)
    if found[3] != short_digest(asked):
        raise UsageError("this cursor belongs to another request", hint)
    if found[2] != short_digest(version):
        raise OutdatedCursorError("the data have changed since the previous page", "start again without a cursor")
    return int(found[1])


def short_digest(text: str) -> str:
    """Return twelve hexadecimal digits that change with the text."""
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=6).hexdigest()


class NotNowError(FallowError):
    """There is no answer yet; the client can ask again shortly."""


class NothingToShowError(FallowError):
    """The lake has no answer to the request."""


@dataclass(frozen=True)
class Reply:
    """An answer that is not yet computed, with its tag. The answer changes only when the tag does."""

    endpoint: ApiEndpoint
    asked: ReadRequest
    view: View
    stale: str | None

    @property
    def tag(self) -> str:
        """A digest that changes with the version of the lake, the request and the reader's team."""
        return short_digest(f"{self.view.version} {self._question} {self.asked.limit} {self.asked.cursor} {self.stale}")

    @property
    def _question(self) -> str:
        return f"{self.endpoint.name}{self.asked.search} {self.view.reader.team}"

    def content(self) -> Json:
        """Return the answer. Raises UsageError and OutdatedCursorError for a cursor of another request or version."""
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
    record_column(
        "window", WINDOW_COLUMNS, "view.report.ledger.seen", "The part of the requested window that has passed."
    ),
    fact("as_of", "moment", "view.as_of_ms", about="The end of the newest row of the lake.", nullable=False),
    fact("stale", "words", about="The reason why newer data could not be read; null where they could."),
    record_column("scope", SCOPE_COLUMNS[:3], "view.report.scope", "Null is everything."),
    fact(
        "coverage", "share", "view.report.ledger.summary.coverage", about="The observed share of the window's GPU time."
    ),
    record_column(
        "sampled",
        (
            fact(
                "share",
                "share",
                "sampled",
                about="The share of the observed time that only samples at single moments cover.",
            ),
            flag("leaves_open", about="Whether this share moves a figure by a percentage point or more."),
        ),
        "view.report.ledger.summary.totals",
    ),
    fact("simulated_gpus", "count", "view.report.heading.simulated_gpus", nullable=False),
)
"""The facts that every answer has beside its data, read from a `Reply`."""


def begin_reply(source: LakeSource, endpoint: ApiEndpoint, asked: ReadRequest, reader: Reader) -> Reply:
    """Return the reply with what the reader may see; raises NotNowError, NothingToShowError and other FallowErrors."""
    look = source.look(asked.query, reader)
    if isinstance(look, Problem):
        kind = NotNowError if look.is_passing else NothingToShowError
        raise kind(look.message, look.hint)
    return Reply(endpoint, asked, look, _stale_reason(source, reader))


def take(reply: Reply, path: str) -> Json:
    """Write the download to the audit log and return the answer; raises AuditError where the log cannot be written."""
    audit_export(reply.view.reader, path, reply.asked.search.removeprefix("?"))
    return reply.content()


_ERRORS_FOR_ALL = (NotNowError, NothingToShowError, OutdatedCursorError, AuditError)
"""Errors whose words every reader may see."""


def readable_error(source: LakeSource, error: FallowError, reader: Reader) -> FallowError:
    """Return the error in words that the reader may see: only readers who `sees_places` see where the lake is."""
    if isinstance(error, _ERRORS_FOR_ALL):
        return error
    problem = source.problem(error, reader)
    if (problem.message, problem.hint) == (error.message, error.hint):
        return error
    return (NotNowError if problem.is_passing else NothingToShowError)(problem.message, problem.hint)


def _stale_reason(source: LakeSource, reader: Reader) -> str | None:
    """Return the reason why newer data cannot be read, in words that the reader may see; None where they can."""
    found = source.stale_because
    if found is None:
        return None
    problem = found if reader.sees_places else UNREADABLE
    return f"{problem.message} {problem.hint}".strip()
