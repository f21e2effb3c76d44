"""Refused and too frequent requests: plain-text answers, with a line in the audit log.

Every process counts the rates of its own requests, by name.
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

_TOO_OFTEN = "sends too many requests and must wait"


@dataclass(frozen=True)
class Visitor:
    """A reader who does not get the pages, or not yet.

    Attributes:
        answer: makes the answer, a refusal or the way to sign in. It costs time and log lines, so rates apply first.
        who: the actor; None where only the address is known.
    """

    answer: Callable[[], AnyResponse]
    who: Actor | None = None


def refuse(request: Request, sentence: str, *, who: Actor | None = None, why: str = "", status: int = 403) -> Response:
    """Return a plain-text refusal, and log the user, or else the address, with the reason."""
    # without a link's token: a reader of the log must not be able to answer for others
    path = f"{PATH}..." if request.path.startswith(PATH) else request.path
    did = f"was refused {path}: {why or sentence}"
    if who is not None:
        audit(who, did, REFUSED)
    else:
        audit_stranger(request.remote_addr, did)
    return answer(f"fallow: {sentence}\n", status)


def answer(text: str, status: int = 200) -> Response:
    """Return a plain-text answer that is never cached."""
    return Response(text, status=status, mimetype="text/plain", headers={"Cache-Control": "no-store"})


@dataclass(frozen=True)
class Rates:
    """The settings of the same names."""

    requests_per_minute: int
    sign_ins_per_minute: int


UNLIMITED = Rates(requests_per_minute=sys.maxsize, sign_ins_per_minute=sys.maxsize)
"""The rates of the demo, which serves one person."""


def rates_of(settings: Config) -> Rates:
    return Rates(settings.integer("dashboard.requests_per_minute"), settings.integer("dashboard.sign_ins_per_minute"))


class Gate:
    """Asks clients that exceed the rates to wait, with one line per client and minute in the log."""

    def __init__(self, rates: Rates, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._readers = Allowance(rates.requests_per_minute, self._clock)
        self._strangers = Allowance(rates.sign_ins_per_minute, self._clock)
        self._logged = Allowance(1, self._clock)

    def stop_reader(self, who: Actor, request: Request) -> Response | None:
        """Return 429 where this person sent too many requests from this address, else None."""
        name = f"{who.log_words} at {request.remote_addr}"
        return None if self._readers.take(name) else self._refusal(name, partial(audit, who, _TOO_OFTEN, REFUSED))

    def stop_stranger(self, request: Request) -> Response | None:
        """Return 429 where too many requests without a sign-in came from this address, else None."""
        name = str(request.remote_addr)
        return None if self._strangers.take(name) else self._refusal(name, partial(audit_stranger, name, _TOO_OFTEN))

    def _refusal(self, name: str, write_down: Callable[[], None]) -> Response:
        if self._logged.take(name):
            write_down()
        remaining_s = math.ceil((MINUTE_MS - self._clock.now_ms() % MINUTE_MS) / 1000)
        found = answer(f"fallow: too many requests; try again in {remaining_s} s\n", 429)
        found.headers["Retry-After"] = str(remaining_s)
        return found
