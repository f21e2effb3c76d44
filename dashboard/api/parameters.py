"""The parameters of the endpoints with their meanings, and the request that they form together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from urllib.parse import urlencode

from analytics.money.accounts import ALLOCATION_GROUPS, GROUPS
from analytics.report.weeks import SPANS
from dashboard.query import DEFAULT_SPAN, Query
from fallow.errors import UsageError

LIMIT, MOST_ROWS = 100, 1000
_LONGEST_CURSOR = 200


@dataclass(frozen=True)
class Parameter:
    """One parameter of an address.

    Attributes:
        choices: all valid values; empty where any text is valid.
        most: the largest value of a number; None for a text.
    """

    name: str
    meaning: str
    choices: tuple[str, ...] = ()
    default: str | int | None = None
    most: int | None = None

    @property
    def schema(self) -> dict[str, object]:
        kind: dict[str, object] = {"type": "string"}
        if self.most is not None:
            kind = {"type": "integer", "minimum": 1, "maximum": self.most}
        elif self.choices:
            kind["enum"] = list(self.choices)
        return kind if self.default is None else kind | {"default": self.default}


WINDOW_AND_SCOPE = (
    Parameter(
        "span",
        f"length of the window, up to the end of the data; without a window {DEFAULT_SPAN}, or the window that the"
        " pages started with",
        SPANS,
    ),
    Parameter(
        "since",
        "start of the window, instead of `span`: a day, a week, a moment or a length of time, such as 2026-11-09,"
        " 2026-W46 or 14d",
    ),
    Parameter("until", "end of the window, as `since`"),
    Parameter("first", "first day of the window in the time zone, with `last`, instead of `span`"),
    Parameter("last", "last day of the window, included"),
    Parameter("pool", "only GPUs of this pool"),
    Parameter("model", "only GPUs of this model"),
    Parameter("team", "only this team's allocations; a viewer of one team always gets that team"),
    Parameter("zone", "IANA time zone of days and weeks in the other parameters; the default is report.timezone"),
)

BY = Parameter("by", "group of a row; days are those of report.timezone", (*GROUPS, *ALLOCATION_GROUPS), "team")

PAGING = (
    Parameter("limit", "most rows of an answer", default=LIMIT, most=MOST_ROWS),
    Parameter("cursor", "`next` of the previous answer; keep the other parameters"),
)

GPU = Parameter("gpu", "only rows about this GPU, by its UUID")
HOST = Parameter("host", "only rows about this host")
USER = Parameter("user", "only rows about this user")
FINDING = Parameter("finding", "only the finding with this id, or recommendations with it as evidence")
SHOW = Parameter("show", "`all` adds findings of low confidence", ("all",))
RECOMMENDATION = Parameter("recommendation", "only the recommendation with this id")


@dataclass(frozen=True)
class ReadRequest:
    """A request to an endpoint.

    Attributes:
        query: window and scope.
        wanted: the value of each filter, by name.
        limit: the most rows of a page.
        cursor: the beginning of the page; empty for the first page.
    """

    query: Query
    by: str = ""
    is_all: bool = False
    wanted: Mapping[str, str] = field(default_factory=dict)
    limit: int = LIMIT
    cursor: str = ""

    @property
    def search(self) -> str:
        """The `?...` of the first page, in a fixed order."""
        filters = urlencode(
            [
                (name, value)
                for name, value in (("by", self.by), (SHOW.name, "all" * self.is_all), *sorted(self.wanted.items()))
                if value
            ]
        )
        return "&".join(filter(None, (self.query.search or "?", filters)))


def parse_request(given: Sequence[tuple[str, str]], known: Sequence[Parameter]) -> ReadRequest:
    """Return the request to an endpoint that knows these parameters; an empty value is the same as none.

    Raises UsageError for an unknown name, a name given twice, and an invalid value: no mistake may widen a request.
    """
    values: dict[str, str] = {}
    by_name = {each.name: each for each in known}
    for name, value in given:
        if name not in by_name:
            raise _unknown_name(name, tuple(by_name))
        if name in values:
            raise UsageError(f"{name} is given twice", "give it once")
        values[name] = value
    for each in known:
        if each.choices and (chosen := values.get(each.name)) and chosen not in each.choices:
            raise UsageError(f"'{chosen[:80]}' is not a value of {each.name}", f"take one of {', '.join(each.choices)}")
    own = {each.name for each in WINDOW_AND_SCOPE}
    return ReadRequest(
        query=Query.parse(urlencode({name: value for name, value in values.items() if name in own})),
        is_all=values.get(SHOW.name) == "all",
        by=values.get("by") or (str(BY.default) if "by" in by_name else ""),
        wanted={
            name: _checked_length(value) for name, value in values.items() if value and name not in (own | _NO_FILTERS)
        },
        limit=_limit(values.get("limit", "")),
        cursor=_checked_length(values.get("cursor", ""), _LONGEST_CURSOR),
    )


_NO_FILTERS = {"by", SHOW.name, *(each.name for each in PAGING)}


def _unknown_name(name: str, known: Sequence[str]) -> UsageError:
    near = get_close_matches(name[:80], known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(known)}"
    return UsageError(f"there is no parameter '{name[:80]}' here", hint)


def _checked_length(value: str, most: int = 300) -> str:
    if len(value) > most:
        raise UsageError("a value is too long", f"stay below {most} characters")
    return value


def _limit(text: str) -> int:
    if not text:
        return LIMIT
    if not (text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= MOST_ROWS):
        raise UsageError(f"limit '{text[:80]}' is not a number of rows", f"give 1 to {MOST_ROWS}")
    return int(text)
