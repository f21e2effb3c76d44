"""The weekly report as documents: a preview for a frame on the page, and every format to download."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flask import Response, request

from analytics.delivery.channels import safe
from analytics.delivery.content import edition_name
from analytics.render.report import FORMATS
from analytics.report.model import Asked, Report, edition_of
from analytics.report.weeks import Week, parse_week, week_of
from dashboard.access.audit import audit_export
from dashboard.error_panels import in_a_line, language_of
from dashboard.source import LakeSource, view_of
from dashboard.view import Problem, View, problem_of
from fallow.errors import FallowError

_MOST_WEEKS = 8


def weeks(view: View) -> list[Week]:
    """The last weeks of which the lake has rows, the newest first, in the reader's time zone."""
    found = [week_of(view.as_of_ms - 1, view.zone)]
    first_ms = view.report.known.since_ms or 0
    while len(found) < _MOST_WEEKS and found[-1].since_ms > first_ms:
        found.append(found[-1].before())
    return found


def chosen_week(view: View) -> Week:
    """The week that the address names, else the newest that the lake has to its end; raises UsageError for what is none."""
    if view.query.start:
        return parse_week(view.query.start, view.zone, view.as_of_ms)
    known = weeks(view)
    return next((week for week in known if week.until_ms <= view.as_of_ms), known[0])


def edition(view: View, week: Week) -> Report:
    """The report of the week, of the view's scope; raises EmptyLakeError and its kinds."""
    asked = Asked(week, view.report.scope, view.zone)
    made: Report = view.made.of(("edition", asked), lambda: edition_of(view.whole_of(week.window), asked))
    return made if view.reader.sees_places else replace(made, lake=None)


def file_name(view: View, week: Week, suffix: str) -> str:
    """That which `fallow report send` gives the same edition: `fallow-2026-W46-all-en.html`."""
    scope, _, code = edition_name(view.report.scope, view.language.code).rpartition("/")
    return f"fallow-{week.label}-{safe(scope)}-{code}{suffix}"


_TYPES = {
    "text": "text/plain; charset=utf-8",
    "md": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "pdf": "application/pdf",
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
}
_BY_NAME = {each.name: each for each in FORMATS}

FRAME_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)
"""Of the preview: it fetches nothing and runs nothing; the document itself names the one style that it has."""


def serve_documents(server: Any, source: LakeSource) -> None:
    """Adds the routes; each comes to its view as the pages do, so that a team's reader gets that team's edition."""

    @server.route("/report/preview")  # type: ignore[untyped-decorator]
    def preview() -> Response:
        def made(view: View) -> Response:
            content = _BY_NAME["html"].render(edition(view, chosen_week(view)), view.language)
            return Response(
                content,
                content_type=_TYPES["html"],
                headers={"Content-Security-Policy": FRAME_POLICY, "X-Frame-Options": "SAMEORIGIN"},
            )

        return _answer(source, made)

    @server.route("/report/download/<name>")  # type: ignore[untyped-decorator]
    def download(name: str) -> Response:
        form = _BY_NAME.get(name)
        if form is None:
            return Response("fallow: there is no such format\n", status=404, mimetype="text/plain")

        def made(view: View) -> Response:
            audit_export(view.reader, f"/report/download/{name}", request.query_string.decode(errors="replace"))
            week = chosen_week(view)
            content = form.render(edition(view, week), view.language)
            named = f'attachment; filename="{file_name(view, week, form.suffix)}"'
            kind = _TYPES.get(name, "application/octet-stream")
            return Response(content, content_type=kind, headers={"Content-Disposition": named})

        return _answer(source, made)


def _answer(source: LakeSource, make: Callable[[View], Response]) -> Response:
    """The document, or one sentence on why there is none; never a traceback."""
    search = request.query_string.decode(errors="replace")
    look = view_of(source, search)
    try:
        if not isinstance(look, Problem):
            return make(look)
        said = in_a_line(language_of(source, search), look.message, look.hint)
    except FallowError as error:
        told = look if isinstance(look, Problem) else problem_of(error, look.reader)
        said = in_a_line(language_of(source, search), told.message, told.hint)
    return Response(f"fallow: {said}\n", status=409, mimetype="text/plain")
