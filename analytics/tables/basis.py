"""What a section of a page is made from."""

from __future__ import annotations

from typing import Protocol

from analytics.report.model import Report, Whole
from analytics.window import WindowLedger


class PageBasis(Protocol):
    """The report and the ledger (`part`) of a scope, and the `whole` window that it is a part of."""

    @property
    def report(self) -> Report: ...

    @property
    def part(self) -> WindowLedger: ...

    @property
    def whole(self) -> Whole: ...
