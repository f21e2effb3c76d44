"""Counted things of which several stand in one remark."""

from __future__ import annotations

from analytics.language.language import Sentence
from analytics.language.sentences import tr_many


def gpus_of(number: int) -> Sentence:
    """`1 GPU`, `2 GPUs`."""
    return tr_many("{number} GPU", "{number} GPUs", number)


def hosts_of(number: int) -> Sentence:
    """`1 host`, `2 hosts`."""
    return tr_many("{number} host", "{number} hosts", number)


def allocations_of(number: int) -> Sentence:
    """`1 allocation`, `2 allocations`."""
    return tr_many("{number} allocation", "{number} allocations", number)


def rows_of(number: int) -> Sentence:
    """`1 row`, `2 rows`."""
    return tr_many("{number} row", "{number} rows", number)
