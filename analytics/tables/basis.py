"""What tables are made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from analytics.decide.review import Review
from analytics.ledger.sampled import IdleFloors
from analytics.ledger.summary import Summary
from analytics.money.window_money import Money
from analytics.report.coverage import Seen
from analytics.report.figures import Step, UserFigures
from analytics.report.model import Report, Whole
from analytics.report.weeks import Week
from analytics.scope import Scope
from analytics.window import WindowLedger


class LedgerBasis(Protocol):
    """The ledger of a scope in numbers, for what needs no findings; `sensitivity` is held GPU-hours by shortest interval."""

    @property
    def scope(self) -> Scope: ...

    @property
    def summary(self) -> Summary: ...

    @property
    def money(self) -> Money: ...

    @property
    def steps(self) -> tuple[Step, ...]: ...

    @property
    def seen(self) -> Seen: ...

    @property
    def week(self) -> Week | None: ...

    @property
    def floors(self) -> IdleFloors | None: ...

    @property
    def sensitivity(self) -> Mapping[int, float]: ...


class FindingsBasis(Protocol):
    """The findings of a scope; `holders` are the users that it is about, for what may name people."""

    @property
    def scope(self) -> Scope: ...

    @property
    def summary(self) -> Summary: ...

    @property
    def review(self) -> Review: ...

    @property
    def simulated_gpus(self) -> int: ...

    @property
    def holders(self) -> tuple[UserFigures, ...]: ...


class PageBasis(Protocol):
    """The report and the ledger (`part`) of a scope, and the `whole` window that it is a part of."""

    @property
    def report(self) -> Report: ...

    @property
    def part(self) -> WindowLedger: ...

    @property
    def whole(self) -> Whole: ...
