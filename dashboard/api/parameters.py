"""What may stand behind an endpoint's path: each parameter with its meaning, and the request that they make together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from urllib.parse import urlencode

from analytics.money.accounts import GROUPS
from dashboard.query import DEFAULT_SPAN, SPANS, Query
from fallow.errors import UsageError

LIMIT, MOST_ROWS = 100, 1000
_LONGEST_CURSOR = 200


@dataclass(frozen=True)
class Parameter:
    """One name behind the `?`; `choices` are all values that there are, none where it is free; `most` is the largest of a number."""

    name: str
    meaning: str
    choices: tuple[str, ...] = ()
    default: str | int | None = None
    most: int | None = None

    @property
    def schema(self) -> dict[str, object]:
        """Its value in JSON Schema."""
        kind: dict[str, object] = {"type": "string"}
        if self.most is not None:
            kind = {"type": "integer", "minimum": 1, "maximum": self.most}
        elif self.choices:
            kind["enum"] = list(self.choices)
        return kind if self.default is None else kind | {"default": self.default}


WINDOW_AND_SCOPE = (
    Parameter(
        "span",
        f"length of the window, up to the end of the data; {DEFAULT_SPAN}, or what the pages were started with, where no window is named",
        SPANS,
    ),
    Parameter(
        "since",
        "begin of the window, instead of `span`: a day, a week, a moment or a length of time, such as 2026-11-09, 2026-W46 or 14d",
    ),
    Parameter("until", "end of the window, as `since`"),
    Parameter("first", "first day of the window in the time zone, with `last`, instead of `span`"),
    Parameter("last", "last day of the window, which counts"),
    Parameter("pool", "of this pool's GPUs only"),
    Parameter("model", "of this model's GPUs only"),
    Parameter("team", "of what this team was given only; who may see one team gets that one"),
    Parameter("zone", "IANA time zone of days and weeks in the other names; report.timezone where it is left out"),
)

BY = Parameter("by", "what a row is about; days are those of UTC", GROUPS, "team")

PAGING = (
    Parameter("limit", "rows of one answer at most", default=LIMIT, most=MOST_ROWS),
    Parameter("cursor", "`next` of the answer before; with the same other parameters"),
)

GPU = Parameter("gpu", "only rows about this GPU, by its UUID")
HOST = Parameter("host", "only rows about this host")
HOLDER = Parameter("holder", "only rows about this user")
FINDING = Parameter("finding", "only the finding of this id, or what rests on it")
RECOMMENDATION = Parameter("recommendation", "only the recommendation of this id")


@dataclass(frozen=True)
class ReadRequest:
    """What is asked of an endpoint: window and scope, the rows that are wanted, and which page of them."""

    query: Query
    by: str = ""
    wanted: Mapping[str, str] = field(default_factory=dict)
    limit: int = LIMIT
    cursor: str = ""

    @property
    def search(self) -> str:
        """The `?...` of its first page, in one order."""
        rest = urlencode([(name, value) for name, value in (("by", self.by), *sorted(self.wanted.items())) if value])
        return "&".join(filter(None, (self.query.search or "?", rest)))


def parse_request(given: Sequence[tuple[str, str]], known: Sequence[Parameter]) -> ReadRequest:
    """The request of an endpoint that knows these parameters; an empty value asks for nothing in particular.

    Raises UsageError for another name, a name that comes twice, and a value that cannot be meant: no mistake widens what is asked for.
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
        by=values.get("by") or (str(BY.default) if "by" in by_name else ""),
        wanted={name: _short(value) for name, value in values.items() if value and name not in (own | _NO_FILTERS)},
        limit=_limit(values.get("limit", "")),
        cursor=_short(values.get("cursor", ""), _LONGEST_CURSOR),
    )


_NO_FILTERS = {"by", *(each.name for each in PAGING)}


def _unknown_name(name: str, known: Sequence[str]) -> UsageError:
    near = get_close_matches(name[:80], known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(known)}"
    return UsageError(f"there is no parameter '{name[:80]}' here", hint)


def _short(value: str, most: int = 300) -> str:
    if len(value) > most:
        raise UsageError("a value is too long", f"stay below {most} characters")
    return value


def _limit(text: str) -> int:
    if not text:
        return LIMIT
    if not (text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= MOST_ROWS):
        raise UsageError(f"limit '{text[:80]}' is no number of rows", f"give 1 to {MOST_ROWS}")
    return int(text)
