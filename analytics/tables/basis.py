"""Marks of idle time that is only sampled: `up to 16.2` in the cell, and its basis in a word for programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter, methodcaller
from typing import Any

from analytics.glossary import state_label
from analytics.language.sentences import Amount, Number, Quantity, Sentence, tr
from analytics.ledger.sampled import Basis
from analytics.states import UNUSED
from analytics.tables.table import Cell, Column, column, fact


def at_most(unconfirmed: float, cell: Quantity) -> Sentence | Quantity:
    """Return a cell of idle time or its cost, as an upper limit if only point samples show this share of it as idle."""
    is_known = not isinstance(cell, Amount | Number) or cell.value is not None
    return tr("up to {figure}", figure=cell) if is_known and Basis.of(unconfirmed) is Basis.SAMPLED else cell


def cost_words(unconfirmed: float, amount: Amount) -> Sentence:
    """Return the cost of idle time, in a sentence."""
    is_sampled = Basis.of(unconfirmed) is Basis.SAMPLED
    return tr("up to {cost}, not confirmed", cost=amount) if is_sampled else tr("{cost}", cost=amount)


def marked(figure: Column, unconfirmed: Callable[[Any], float] = attrgetter("unconfirmed")) -> Column:
    """Return a column of idle time or its cost whose cells carry the mark.

    `unconfirmed` returns the unconfirmed share of a row, by default its attribute. Programs get the same figures
    without the mark.
    """

    def cell(row: object) -> Cell:
        found = figure.cell(row)
        return at_most(unconfirmed(row), found) if isinstance(found, Quantity) else found

    return replace(figure, read=cell, machine=figure.value)


def state_hours(state: str) -> Column:
    """Return the column of GPU time in a state; rows have `state_ms` and `unconfirmed`. Idle states carry the mark."""
    figure = column(f"{state}_gpu_hours", state_label(state), "gpu_hours", f"state_ms.{state}")
    return marked(figure, methodcaller("unconfirmed", state)) if state in UNUSED else figure


def basis_fact(key: str, read: str | Callable[[Any], Basis | None]) -> Column:
    """Return a column for programs: the evidence of a row's idle time."""
    about = f"What the idle time rests on: {', '.join(Basis)}; null without any."
    return fact(key, "words", read, about=about)
