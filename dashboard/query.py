"""A reader's choices, all of them in the page's address: readers can share addresses and go back."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import UTC, tzinfo
from typing import Any
from urllib.parse import parse_qsl, urlencode

from analytics.language.languages import CODES, time_zone
from analytics.report.compare import window_against
from analytics.report.weeks import ALL, SPANS, day_window, days_between
from analytics.scope import Scope
from fallow.clock import SECOND_MS, AskedWindow, Window, parse_window
from fallow.errors import UsageError

DEFAULT_SPAN = "7d"

_GRID_MS = 10 * SECOND_MS

_LONGEST, _LONGEST_SCENARIO = 300, 2000
"""Most characters of a value: names are not longer, and a scenario names several pools."""


@dataclass(frozen=True)
class Query:
    """Window, scope, time zone and language; then what single pages ask for. An empty field means its default.

    `since` and `until` are days, weeks or moments as the commands take them, and replace `span`. `first` and `last` are
    days in the reader's zone, both inclusive, and replace either. `against` is the window to compare with: `before`,
    `13w` or days as `2026-08-10..2026-08-16`. `zone` and `lang` replace `report.timezone` and `report.language`. `gpu`,
    `host`, `user`, `finding` and `recommendation` (ids) are the subject of a page. `sort` is the order of its rows,
    `filter` selects rows, and `show` adds those that the page leaves out by default (grid.py). `start` and `end` are
    the part of the window that a chart shows, `rows` what a row of the timeline stands for, `group` what
    recommendations are grouped by, `reserve` the reserve in percent that is tried out, `scenario` what is tried out on
    the page What if.
    """

    span: str = ""
    since: str = ""
    until: str = ""
    first: str = ""
    last: str = ""
    pool: str = ""
    model: str = ""
    team: str = ""
    zone: str = ""
    lang: str = ""
    gpu: str = ""
    host: str = ""
    user: str = ""
    finding: str = ""
    recommendation: str = ""
    sort: str = ""
    filter: str = ""
    show: str = ""
    start: str = ""
    end: str = ""
    against: str = ""
    rows: str = ""
    group: str = ""
    reserve: str = ""
    scenario: str = ""

    @classmethod
    def parse(cls, search: object) -> Query:
        """Return the query of an address's `?...`, without unknown names; raises UsageError for invalid values.

        A `search` that is not text is an empty query.
        """
        known = {field.name for field in fields(cls)}
        try:
            pairs = parse_qsl((search if isinstance(search, str) else "").removeprefix("?"), max_num_fields=100)
        except ValueError as error:
            raise UsageError("this is no address of these pages", "begin again at /") from error
        values = {name: value for name, value in pairs if name in known}
        for name, value in values.items():
            if len(value) > (most := _LONGEST_SCENARIO if name == "scenario" else _LONGEST):
                raise UsageError("a value of the address is too long", f"stay below {most} characters")
        query = cls(**values)
        query._check()
        return query

    def _check(self) -> None:
        if self.span and self.span not in SPANS:
            raise UsageError(f"'{self.span}' is not a valid window", f"take one of {', '.join(SPANS)}")
        if self.lang and self.lang not in CODES:
            raise UsageError(f"'{self.lang}' is not a language of these pages", f"take one of {', '.join(CODES)}")
        if self.zone:
            time_zone(self.zone)
        parse_window(self.since or None, self.until or None)
        days_between(self.first, self.last)
        if self.against:
            window_against(Window(0, 1), self.against, UTC)
        if self.end:
            parse_window(self.start or None, self.end)

    @property
    def search(self) -> str:
        """The `?...` of an address that asks the same, in one order; empty where nothing is asked."""
        asked = [(field.name, value) for field in fields(self) if (value := getattr(self, field.name))]
        return f"?{urlencode(asked)}" if asked else ""

    def but(self, **changes: Any) -> Query:
        """Return this query with other values."""
        return replace(self, **changes)

    @property
    def on_every_page(self) -> Query:
        """The part that other pages keep: window, scope, zone and language."""
        names = ("span", "since", "until", "first", "last", "pool", "model", "team", "zone", "lang")
        return Query(**{name: getattr(self, name) for name in names})

    @property
    def scope(self) -> Scope:
        return Scope(self.pool or None, self.model or None, self.team or None)

    @property
    def names_window(self) -> bool:
        """Whether it names days or moments, in place of a length of time."""
        return bool(self.since or self.until or self.first or self.last)

    def window(self, data_end_ms: int, zone: tzinfo) -> Window:
        """Return the window; a length of time counts back from the end of the data, as with `--since`.

        Moments are rounded outward to the 10 s of the agents' samples, so that similar windows share their results.
        """
        if self.first or self.last:
            return day_window(*days_between(self.first, self.last), zone)
        if self.since or self.until:
            asked = AskedWindow(self.since or None, self.until or None, zone)
            exact = asked.before(data_end_ms)
            return exact if asked.counts_back else exact.rounded_out(_GRID_MS)
        span = self.span or DEFAULT_SPAN
        return AskedWindow(None if span == ALL else span, None, zone).before(data_end_ms)
