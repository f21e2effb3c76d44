"""Attacks on what readers get: other teams' data, names made to hurt, a cookie that somebody has saved."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import pytest

from analytics.simulation import SimulatedFleet, write_fleet
from dashboard.access.oidc import OUT
from tests.attacks.hostile_site import make_site
from tests.attacks.model import Outcome
from tests.attacks.test_hostile_names import is_harmless, printed, turn_back
from tests.dashboard.conftest import UNTIL_MS
from tests.dashboard.servers import provider
from tests.dashboard.test_access_oidc import LOCAL, clients_of, settings_for, sign_in
from tests.dashboard.test_attacks_worlds import (
    ROUTES,
    answers_of_a_route,
    answers_of_callbacks,
    hold_nothing_of_others,
    two_worlds,
)
from tests.dashboard.test_sessions import ADMITTED, REFUSED, answers, cookie, with_cookie
from tests.lakes import made_lake

if TYPE_CHECKING:
    from pathlib import Path


def other_teams(folder: Path) -> Outcome:
    """A team's reader asks every route and callback of two sites that differ in others' data, by their names and by none."""
    worlds = two_worlds(folder)
    routes = (answers_of_a_route(worlds, path) for path in chain(*ROUTES.values()))
    compared, leaks = 0, list[object]()
    for same, asked in chain(*routes, answers_of_callbacks(worlds)):
        compared += 1
        try:
            hold_nothing_of_others(same, asked, worlds)
        except AssertionError:
            leaks.append(asked)
    return Outcome(f"{compared} questions, three answers each: {len(leaks)} leaks {leaks[:2] or ''}", holds=not leaks)


def hostile_names(folder: Path) -> Outcome:
    """Every command in every form over a site whose users, jobs, hosts and notes have names made to hurt."""
    looked_at, wrong = 0, list[object]()
    with pytest.MonkeyPatch.context() as patch:
        turn_back(patch)
        for done, form, asked in printed(make_site(folder), folder):
            looked_at += 1
            try:
                is_harmless(done, form, asked)
            except AssertionError:
                wrong.append(asked)
    return Outcome(
        f"{looked_at} outputs: {len(wrong)} run, follow or hide something {wrong[:2] or ''}", holds=not wrong
    )


def signed_out(folder: Path) -> Outcome:
    """A cookie that was saved before its owner signed out."""
    lake = made_lake(folder / "lake")
    write_fleet(lake, SimulatedFleet(until_ms=UNTIL_MS, gpus=2, days=1, seed=3))
    with provider() as idp:
        browser = clients_of(settings_for(idp, folder), lake)(state=str(folder / "state"))
        sign_in(browser)
        saved, before = cookie(browser), answers(browser)
        browser.get(OUT, headers=LOCAL | {"Sec-Fetch-Site": "same-origin"})
        after = answers(with_cookie(browser, saved))
    return Outcome(f"before: {before}; afterwards: {after}", holds=(before, after) == (ADMITTED, REFUSED))
