"""Requests that are refused, and those that come too often: plain-text answers, with a line in the audit log.

Rates are counted in this process, under each name.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from flask import Request, Response
from werkzeug.wrappers import Response as AnyResponse

from analytics.delivery.links import PATH
from dashboard.access.allowances import Allowance
from dashboard.access.audit import REFUSED, audit, audit_stranger
from fallow.actors import Actor
from fallow.clock import MINUTE_MS, Clock, SystemClock
from fallow.config import Config

_TOO_OFTEN = "asks too often and is told to wait"


@dataclass(frozen=True)
class Visitor:
    """A reader who does not get the pages, or not yet; `who` is None where only the address is known.

    `answer` makes what they get, a refusal or the way to sign in. It takes time and lines of the log, so that it waits for its turn.
    """

    answer: Callable[[], AnyResponse]
    who: Actor | None = None


def refuse(request: Request, sentence: str, *, who: Actor | None = None, why: str = "", status: int = 403) -> Response:
    """A plain-text answer; the log names the user, or else their address, and the reason."""
    # without a link's token: who reads the log may not answer for others
    path = f"{PATH}..." if request.path.startswith(PATH) else request.path
    did = f"was refused {path}: {why or sentence}"
    if who is not None:
        audit(who, did, REFUSED)
    else:
        audit_stranger(request.remote_addr, did)
    return answer(f"fallow: {sentence}\n", status)


def answer(text: str, status: int = 200) -> Response:
    """A plain-text answer that is never cached."""
    return Response(text, status=status, mimetype="text/plain", headers={"Cache-Control": "no-store"})


@dataclass(frozen=True)
class Rates:
    """The settings of the same names."""

    requests_per_minute: int
    sign_ins_per_minute: int


UNLIMITED = Rates(requests_per_minute=sys.maxsize, sign_ins_per_minute=sys.maxsize)
"""Of the demo, which is one person's own."""


def rates_of(settings: Config) -> Rates:
    return Rates(settings.integer("dashboard.requests_per_minute"), settings.integer("dashboard.sign_ins_per_minute"))


class Gate:
    """Asks whoever exceeds the rates to wait, with one line a minute in the log for each of them."""

    def __init__(self, rates: Rates, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._readers = Allowance(rates.requests_per_minute, self._clock)
        self._strangers = Allowance(rates.sign_ins_per_minute, self._clock)
        self._logged = Allowance(1, self._clock)

    def stop_reader(self, who: Actor, request: Request) -> Response | None:
        """429 where this person has asked too often from this address."""
        asks = f"{who.log_words} at {request.remote_addr}"
        return None if self._readers.take(asks) else self._wait(asks, partial(audit, who, _TOO_OFTEN, REFUSED))

    def stop_stranger(self, request: Request) -> Response | None:
        """429 where too much has come from this address that nobody has signed in for."""
        who = str(request.remote_addr)
        return None if self._strangers.take(who) else self._wait(who, partial(audit_stranger, who, _TOO_OFTEN))

    def _wait(self, who: str, write_down: Callable[[], None]) -> Response:
        if self._logged.take(who):
            write_down()
        rest_s = math.ceil((MINUTE_MS - self._clock.now_ms() % MINUTE_MS) / 1000)
        found = answer(f"fallow: too many requests; try again in {rest_s} s\n", 429)
        found.headers["Retry-After"] = str(rest_s)
        return found
