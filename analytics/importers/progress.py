"""A progress bar on a terminal, silence anywhere else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import track

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from analytics.importers.model import Progress, T


class Silent:
    """Shows nothing."""

    def each(self, items: Iterable[T], what: str) -> Iterator[T]:  # noqa: ARG002 (the protocol's name)
        """The items."""
        yield from items


class Bar:
    """A bar on stderr that goes away when it is done, so that stdout stays clean."""

    def each(self, items: Iterable[T], what: str) -> Iterator[T]:
        """The items, while the bar moves."""
        yield from track(list(items), what, console=Console(stderr=True), transient=True)


def progress() -> Progress:
    """A bar where stderr is a terminal."""
    return Bar() if sys.stderr.isatty() else Silent()
