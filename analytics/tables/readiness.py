"""Which rules need more history, in one sentence: nothing found by them is no all-clear."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.decide.review import WaitingRule
from analytics.language.language import SentenceList
from analytics.language.quantities import Moment
from analytics.language.sentences import tr, tr_many
from analytics.rules import RULES
from analytics.tables.table import fact, rows_column

_NAMED = 3
"""The first to speak that are named; of the others the last moment is said."""

WAITING = rows_column(
    "waiting",
    (fact("rule", "words", nullable=False), fact("from", "moment", "from_ms", nullable=False)),
    "",
    "Rules that need more history than there was, with the moment from which they can find something.",
)
"""Of `waiting_rules`."""


def waiting(rules: Sequence[WaitingRule]) -> str:
    """`7 of 22 rules need more history: held from 14:05, ...`; empty where none does."""
    if not rules:
        return ""
    named = [tr("{rule} from {moment}", rule=each.rule, moment=Moment(each.from_ms)) for each in rules[:_NAMED]]
    more = len(rules) - _NAMED
    last = Moment(rules[-1].from_ms)
    rest = (
        [tr_many("{number} more up to {moment}", "{number} more up to {moment}", more, moment=last)] if more > 0 else []
    )
    return tr_many(
        "{number} of {rules} rules needs more history before it can find anything: {named}.",
        "{number} of {rules} rules need more history before they can find anything: {named}.",
        len(rules),
        rules=len(RULES),
        named=SentenceList([*named, *rest], ", "),
    )
