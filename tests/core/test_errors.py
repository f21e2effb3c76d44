"""The error tree: what its file's first lines draw is what there is."""

from __future__ import annotations

import inspect
import re

from fallow import errors
from fallow.errors import ConfigError, FallowError, UnsafeSpoolError, UsageError

LINE = re.compile(r"^(?P<indent>[│├└─ ]*)(?P<name>\w+Error)\s{2,}\S", re.MULTILINE)


def drawn_tree() -> dict[str, str]:
    """Parent per class, as the docstring draws it."""
    parents: dict[str, str] = {}
    above: list[str] = []
    for line in LINE.finditer(errors.__doc__ or ""):
        depth = len(line["indent"]) // 4
        above[depth:] = [line["name"]]
        parents[line["name"]] = above[depth - 1] if depth else "Exception"
    return parents


def real_tree() -> dict[str, str]:
    found = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, FallowError)]
    return {each.__name__: each.__bases__[0].__name__ for each in found}


def test_the_drawn_tree_is_the_real_one() -> None:
    assert drawn_tree() == real_tree()


def test_every_error_has_its_line_of_description() -> None:
    for name in real_tree():
        assert inspect.getdoc(getattr(errors, name)), name


def test_exit_codes() -> None:
    for name in real_tree():
        error = getattr(errors, name)
        assert error.exit_code == (2 if issubclass(error, (UsageError, UnsafeSpoolError)) else 1), name


def test_message_and_hint_make_one_sentence() -> None:
    assert str(FallowError("the disk is full", "free some space")) == "the disk is full; free some space"
    assert str(ConfigError("it is wrong")) == "it is wrong"
