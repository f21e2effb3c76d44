"""A series selector taken apart, for servers that are not asked in PromQL."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fallow.errors import UsageError
from fallow.outside_text import visible

_NAME = re.compile(r"\s*([a-zA-Z_:][\w:]*)?\s*(\{(.*)\}\s*)?", re.DOTALL | re.ASCII)
_STRING = r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`[^`]*`"
_MATCHER = re.compile(rf"\s*([a-zA-Z_]\w*|{_STRING})\s*(?:(=~|!~|!=|=)\s*({_STRING}))?\s*(?:,|$)", re.ASCII)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


@dataclass(frozen=True)
class LabelMatcher:
    """`kind` is one of =, !=, =~ and !~."""

    name: str
    kind: str
    value: str


def matchers(selector: str) -> tuple[LabelMatcher, ...]:
    """Those of a selector such as `up{job="a"}`; raises UsageError for anything else."""
    whole = _NAME.fullmatch(selector)
    if whole is None or not (whole[1] or whole[2]):
        raise _no_selector(selector)
    found = [LabelMatcher("__name__", "=", whole[1])] if whole[1] else []
    rest, at = whole[3] or "", 0
    while rest[at:].strip():
        matcher = _MATCHER.match(rest, at)
        if matcher is None:
            raise _no_selector(selector)
        found.append(_matcher(matcher, selector))
        at = matcher.end()
    return tuple(found)


def _matcher(found: re.Match[str], selector: str) -> LabelMatcher:
    """A text alone is the name of the metric (Prometheus 3)."""
    name = found[1] if found[1][0] not in "\"'`" else _text(found[1])
    if found[2] is None:
        if name == found[1]:
            raise _no_selector(selector)
        return LabelMatcher("__name__", "=", name)
    return LabelMatcher(name, found[2], _text(found[3]))


def _text(literal: str) -> str:
    """What a literal of PromQL stands for, which are those of Go."""
    if literal[0] == "`":
        return literal[1:-1]
    return _ESCAPE.sub(lambda found: _character(found[1]), literal[1:-1])


def _character(escape: str) -> str:
    if escape[0] in "xuU":
        return chr(int(escape[1:], 16))
    return chr(int(escape, 8)) if len(escape) == 3 else _ESCAPED.get(escape, escape)


def _no_selector(selector: str) -> UsageError:
    return UsageError(
        f"'{visible(selector, 200)}' is not a series selector", 'write it as in PromQL: up{job="a",instance=~"b|c"}'
    )
