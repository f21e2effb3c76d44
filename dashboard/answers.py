"""Answers by a link in a nudge: they need no account, concern one of its recommendations, and open no other page.

The link's token authorizes the answer. GET and HEAD change nothing, since mail programs follow links before their user
does. The button sends a POST, which must come from this page.
"""

from __future__ import annotations

import logging
import threading
from datetime import timedelta, tzinfo
from urllib.parse import urlsplit

from flask import Request, Response, request

from analytics.decide.actions import load_actions
from analytics.decide.answers import KEEP, Answer, days_to_keep, keep_until_ms, record_answer, recorded
from analytics.delivery.links import PATH, AnswerLinks
from analytics.language.languages import CODES, language
from analytics.language.sentences import Language, tr
from analytics.render.html.answer import DaysToChoose, answer_form, answer_recorded
from analytics.window import Inputs
from dashboard.access.allowances import Allowance
from dashboard.access.audit import ANSWER, audit, audit_first, audit_stranger
from dashboard.access.hosts import AllowedHosts
from dashboard.access.local import NOT_THIS_NAME
from dashboard.access.refusal import answer as plain_answer
from dashboard.access.refusal import refuse
from dashboard.source import LakeSource
from fallow.clock import Clock, SystemClock
from fallow.errors import FallowError, UsageError

_LOG = logging.getLogger(__name__)

POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
_MOST_SENT_BYTES = 4096
_MOST_A_MINUTE = 20
"""Limit on the requests with one link, and on the lines in the log about invalid links."""

_PROPOSED_DAYS = 7

_INVALID = tr("This link is not valid, or no longer valid. Reply to the mail that contains the link.")
_BUSY = tr("This link was opened too often. Try again in a minute.")
_FAILED = tr("Your answer could not be recorded. Try again later, or reply to the mail that contains the link.")


def serve_answers(server: object, source: LakeSource, endpoint: str, clock: Clock | None = None) -> None:
    """Add the route of the answers; requests to `endpoint` need no session."""
    desk = _Desk(source, clock or SystemClock())
    server.add_url_rule(  # type: ignore[attr-defined]  # flask's
        f"{PATH}<token>", endpoint, desk.answer, methods=["GET", "POST"], provide_automatic_options=False
    )


class _Desk:
    """Records answers, one at a time, so that two clicks at once make one answer."""

    def __init__(self, source: LakeSource, clock: Clock) -> None:
        self._source, self._clock = source, clock
        self._opened, self._invalid_opened = Allowance(_MOST_A_MINUTE, clock), Allowance(_MOST_A_MINUTE, clock)
        self._turn = threading.Lock()

    def answer(self, token: str) -> Response:
        request.max_content_length = _MOST_SENT_BYTES
        try:
            inputs = self._source.inputs()
            links = AnswerLinks.of(inputs.settings)
        except FallowError as error:
            _LOG.warning("a link cannot be answered: %s", error)
            links = None
        if links is None:
            return self._invalid_link_refusal(request)
        hosts = (urlsplit(links.address).hostname or "", *inputs.settings.texts("dashboard.hosts"))
        if not AllowedHosts(hosts).allow(request.host):
            return refuse(request, NOT_THIS_NAME)
        found = links.read(token, self._clock.now_ms())
        if found is None:
            return self._invalid_link_refusal(request)
        speaks = language(found.language, inputs.settings.text("report.timezone"))
        if not self._opened.take(found.channel):
            return plain_answer(f"{speaks.translate(_BUSY)}\n", 429)
        try:
            return self._answer_page(inputs, found, speaks)
        except FallowError as error:
            _LOG.warning("an answer by a link was not recorded: %s", error)
            return plain_answer(f"{speaks.translate(_FAILED)}\n", 503)

    def _answer_page(self, inputs: Inputs, found: Answer, speaks: Language) -> Response:
        lake = inputs.lake.require()
        before = recorded(found, load_actions(lake))
        if before is not None:
            return _page(answer_recorded(found, before, speaks))
        if request.method != "POST":
            return _page(answer_form(found, self._days(speaks.zone), speaks))
        try:
            until_ms = self._until_ms(found, speaks.zone)
        except UsageError as error:
            return _page(answer_form(found, self._days(speaks.zone), speaks, speaks.translate(error.message)), 400)
        asked = f"asks to {found.verb} by a link: {', '.join(found.finding_ids)}"
        audit_first(found.actor, asked, ANSWER)
        with self._turn:
            done = record_answer(
                lake, found, now_ms=self._clock.now_ms(), until_ms=until_ms, reason=request.form.get("reason", "")
            )
        self._source.forget()
        audit(found.actor, f"{done.kind} by a link: {', '.join(found.finding_ids)} ({done.action_id})", ANSWER)
        return _page(answer_recorded(found, done, speaks))

    def _until_ms(self, found: Answer, zone: tzinfo) -> int | None:
        if found.verb != KEEP:
            return None
        return keep_until_ms(request.form.get("until", ""), self._clock.now_ms(), zone)

    def _days(self, zone: tzinfo) -> DaysToChoose:
        first, last = days_to_keep(self._clock.now_ms(), zone)
        return DaysToChoose(first, last, first + timedelta(days=_PROPOSED_DAYS))

    def _invalid_link_refusal(self, asked: Request) -> Response:
        """Return the same refusal for every invalid link, whatever the fault."""
        if self._invalid_opened.take(""):
            audit_stranger(asked.remote_addr, "opened a link that is not valid")
        sentences = "\n".join(language(code).translate(_INVALID) for code in CODES)
        return plain_answer(f"{sentences}\n", 404)


def _page(content: str, status: int = 200) -> Response:
    """Return a page that is never cached and fetches nothing; browsers send its address to this site only."""
    return Response(
        content,
        status=status,
        mimetype="text/html",
        headers={"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin", "Cache-Control": "no-store"},
    )
