"""Panels for errors: one sentence on what is wrong, and what to do next."""

from __future__ import annotations

from dataclasses import replace

from dash import dcc, html

from analytics.language.languages import language
from analytics.language.sentences import Language, Moment, Sentence, tr
from dashboard.query import Query
from dashboard.source import LakeSource
from dashboard.view import UNREADABLE, Problem, View, problem_of
from fallow.errors import FallowError


def problem_panel(speaks: Language, found: Problem) -> html.Div:
    """Return the panel that replaces a page without a view."""
    title = tr("In progress") if found.is_passing else tr("Nothing to show")
    return _problem(speaks, title, found.message, found.hint, again=found.is_passing)


_UNEXPECTED = tr("An unexpected error occurred.")
_LOG_HINT = tr("The log has the details.")


def failed_action_message(speaks: Language) -> str:
    """Return the message for an unexpected error in a reader's action, on a page that stays."""
    return " ".join(
        speaks.translate(each) for each in (_UNEXPECTED, tr("Load the page again to see what was done."), _LOG_HINT)
    )


def unforeseen_message(speaks: Language) -> str:
    """Return the message for an unexpected error where no page stays."""
    return f"{speaks.translate(_UNEXPECTED)} {speaks.translate(_LOG_HINT)}"


def unexpected_error_panel(speaks: Language) -> html.Div:
    """Return the panel for an unexpected error."""
    return _problem(speaks, tr("This page could not be computed"), _UNEXPECTED, _LOG_HINT)


def in_a_line(speaks: Language, message: str, hint: str) -> str:
    """Return a message and its hint in one line, with a blank before the hint after a full stop, else `; `."""
    sentence, advice = speaks.translate(message), speaks.translate(hint)
    return f"{sentence}{' ' if sentence.endswith('.') else '; '}{advice}" if advice else sentence


def error_line(view: View, error: FallowError) -> str:
    """Return in one line what the view's reader may know of an error."""
    found = problem_of(error, view.reader)
    return in_a_line(view.language, found.message, found.hint)


def problem_line(source: LakeSource, search: str | None, found: Problem) -> str:
    """Return in one line why an address has no view, in the address's language."""
    return in_a_line(language_of(source, search), found.message, found.hint)


def button_line(source: LakeSource, search: str | None, found: Problem) -> str:
    """Return in one line why a button did nothing."""
    again = tr("Nothing has been done: press the button again.")
    return problem_line(source, search, replace(found, hint=again) if found.is_passing else found)


def problem_hint(source: LakeSource, search: str | None, found: Problem) -> html.P:
    """Return the line of a panel without a view. Where the panel only needs to wait, the page refreshes by itself."""
    return html.P(problem_line(source, search, found), className="hint", **_announced(again=found.is_passing))


def missing_page_panel(speaks: Language, path: str) -> html.Div:
    """Return the panel for an unknown address."""
    return _problem(
        speaks,
        tr("There is no such page"),
        tr("No page has the address {path}.", path=path),
        dcc.Link(speaks.translate(tr("Go to the first page")), href="/"),
    )


def forbidden_page_panel(speaks: Language, role: str) -> html.Div:
    """Return the panel for a page that needs a higher role than the reader's."""
    return _problem(
        speaks,
        tr("You have no access to this page"),
        tr("This page needs the role {role}.", role=role),
        tr("Ask the operator of these pages."),
    )


def stale_data_notice(source: LakeSource, view: View) -> list[html.Div]:
    """Return the notice above a page of older data: why newer data could not be read; empty for the newest data."""
    found = source.stale_because
    if found is None:
        return []
    sentence = tr(
        "The lake could not be read again; this page has the data up to {moment}.", moment=Moment(view.as_of_ms)
    )
    if not view.reader.sees_places:
        found = UNREADABLE
    why = f"{view.translate(found.message)} {view.translate(found.hint)}"
    return [
        html.Div(
            [
                html.P(view.translate(sentence)),
                html.P(why, className="hint", lang=_lang_attribute(view.language, found.message)),
            ],
            className="stale",
            role="alert",
        )
    ]


def language_of(source: LakeSource, search: str | None) -> Language:
    """Return the language of an address, else of the settings, else English."""
    try:
        query = Query.parse(search)
    except FallowError:
        query = Query()
    settings = source.settings
    code = query.lang or (settings.text("report.language") if settings else "en")
    return language(code, query.zone or (settings.text("report.timezone") if settings else "UTC"))


def _problem(speaks: Language, title: str, message: str, hint: str | dcc.Link, *, again: bool = False) -> html.Div:
    text = speaks.translate(message)
    sentence = f"{text[:1].upper()}{text[1:].removesuffix('.')}."
    return html.Div(
        [
            html.H1(speaks.translate(title)),
            html.P(sentence, lang=_lang_attribute(speaks, message)),
            html.P(speaks.translate(hint), className="hint", lang=_lang_attribute(speaks, hint))
            if isinstance(hint, str)
            else html.P(hint),
        ],
        className="problem",
        **_announced(again=again),
    )


def _announced(*, again: bool) -> dict[str, str]:
    """Return a problem's attributes. With `again`, the page's script requests the page until the problem is over."""
    return {"role": "status", "data-again": "yes"} if again else {"role": "alert"}


def _lang_attribute(speaks: Language, text: str) -> str | None:
    """Return `en` for a command's message on a page in another language, for screen readers; else None."""
    return None if speaks.code == "en" or isinstance(text, Sentence) else "en"
