"""Panels for errors: one sentence on what is wrong, and what to do next."""

from __future__ import annotations

from dash import dcc, html

from analytics.language.language import Language, Sentence
from analytics.language.languages import language
from analytics.language.quantities import Moment
from analytics.language.sentences import tr
from dashboard.query import Query
from dashboard.source import LakeSource
from dashboard.view import UNREADABLE, Problem, View, problem_of
from fallow.errors import FallowError


def problem_panel(speaks: Language, found: Problem) -> html.Div:
    """Instead of a view."""
    title = tr("Still being made") if found.is_passing else tr("Nothing to show")
    return _problem(speaks, title, found.message, found.hint, again=found.is_passing)


_UNFORESEEN = tr("Something went wrong that fallow did not foresee.")
_LOGGED = tr("The log says more.")


def failed_action_message(speaks: Language) -> str:
    """What is told of a fault of fallow itself in what somebody just did on a page that stays."""
    return " ".join(
        speaks.translate(each) for each in (_UNFORESEEN, tr("Load the page again to see what was done."), _LOGGED)
    )


def unforeseen_message(speaks: Language) -> str:
    """The same where there is no page that stays."""
    return f"{speaks.translate(_UNFORESEEN)} {speaks.translate(_LOGGED)}"


def unexpected_error_panel(speaks: Language) -> html.Div:
    """After a fault of fallow itself."""
    return _problem(speaks, tr("This page could not be made"), _UNFORESEEN, _LOGGED)


def in_a_line(speaks: Language, message: str, hint: str) -> str:
    """The same where there is room for a line only: sentences one after the other, a command's message with its hint."""
    said, advice = speaks.translate(message), speaks.translate(hint)
    return f"{said}{' ' if said.endswith('.') else '; '}{advice}" if advice else said


def error_line(view: View, error: FallowError) -> str:
    """In a line, what the view's reader may know of an error."""
    found = problem_of(error, view.reader)
    return in_a_line(view.language, found.message, found.hint)


def problem_line(source: LakeSource, search: str | None, found: Problem) -> str:
    """In a line, why an address has no view, in the address's language."""
    return in_a_line(language_of(source, search), found.message, found.hint)


def missing_page_panel(speaks: Language, path: str) -> html.Div:
    """At an address that nothing lies at."""
    return _problem(
        speaks,
        tr("There is no such page"),
        tr("Nothing lies at {path}.", path=path),
        dcc.Link(speaks.translate(tr("Go to the first page")), href="/"),
    )


def forbidden_page_panel(speaks: Language, role: str) -> html.Div:
    """Where the reader's role is not enough."""
    return _problem(
        speaks,
        tr("This page is not for you"),
        tr("It takes the role {role}.", role=role),
        tr("Ask who runs these pages."),
    )


def stale_data_notice(source: LakeSource, view: View) -> list[html.Div]:
    """Above a page of the last version that could be read: why there is no newer one."""
    found = source.stale_because
    if found is None:
        return []
    sentence = tr(
        "The lake could not be read again; this is what it said up to {moment}.", moment=Moment(view.as_of_ms)
    )
    if not view.reader.sees_places:
        found = UNREADABLE
    why = f"{view.translate(found.message)} {view.translate(found.hint)}"
    return [
        html.Div(
            [
                html.P(view.translate(sentence)),
                html.P(why, className="hint", lang=_tongue(view.language, found.message)),
            ],
            className="stale",
            role="alert",
        )
    ]


def language_of(source: LakeSource, search: str | None) -> Language:
    """That of an address, of the settings, or English."""
    try:
        query = Query.parse(search)
    except FallowError:
        query = Query()
    settings = source.settings
    code = query.lang or (settings.text("report.language") if settings else "en")
    return language(code, query.zone or (settings.text("report.timezone") if settings else "UTC"))


def _problem(speaks: Language, title: str, message: str, hint: str | dcc.Link, *, again: bool = False) -> html.Div:
    said = speaks.translate(message)
    sentence = f"{said[:1].upper()}{said[1:].removesuffix('.')}."
    return html.Div(
        [
            html.H1(speaks.translate(title)),
            html.P(sentence, lang=_tongue(speaks, message)),
            html.P(speaks.translate(hint), className="hint", lang=_tongue(speaks, hint))
            if isinstance(hint, str)
            else html.P(hint),
        ],
        className="problem",
        role="status" if again else "alert",
        **({"data-again": "yes"} if again else {}),
    )


def _tongue(speaks: Language, text: str) -> str | None:
    """Messages of the commands are English whatever the page speaks; whoever has them read aloud is told."""
    return None if speaks.code == "en" or isinstance(text, Sentence) else "en"
