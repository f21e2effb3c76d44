"""What busy time used of the cards: its share of their peak, what bounded it, and the time without tensor cores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from analytics.glossary import Term, term
from analytics.language.sentences import Number, Sentence, Share, tr
from analytics.ledger.card_use import LIMITS, TENSOR_USED_FROM_PCT, CardUse
from analytics.tables.table import Cell, column, column_of, fact

_LIMIT_NAMES: Mapping[str, str] = {
    "tensor": tr("tensor cores"),
    "fp64": "FP64",
    "fp32": "FP32",
    "fp16": "FP16",
    "dram": tr("memory bandwidth"),
}


def peak_share(use: CardUse | None) -> Sentence | None:
    """Return the bounds of the share of peak with the limit that came closest; None where it was not measured.

    For example `42 % (tensor cores) to 91 %`.
    """
    if use is None or not use.measured_ms:
        return None
    low, high = Share(use.peak_share_low, 0), Share(use.peak_share_high, 0)
    if use.peak_by is None:
        return tr("up to {figure}", figure=high)
    return tr("{low} ({limit}) to {high}", low=low, limit=_LIMIT_NAMES[use.peak_by], high=high)


CARD_USE = (
    column("peak_share_low", tr("share of peak"), "share", peak_share, "peak_share_low"),
    fact(
        "peak_share_high",
        "share",
        about="Upper bound of the share of peak: SM activity, or utilization where that was not measured.",
    ),
    fact("peak_share_by", "words", "peak_by", about=f"The closest limit: {', '.join(LIMITS)}."),
    fact("peak_measured_share", "share", about="Share of the busy time with a share of peak."),
    fact("tensor_active_share", "share", "tensor_share", about="Mean tensor activity in busy time."),
    column("without_tensor_share", tr("busy without tensor cores"), "share"),
    fact("tensor_measured_share", "share", about="Share of the busy time with known tensor activity."),
)
"""Columns of a `CardUse`, unknown if not measured. People see both bounds of the share of peak in one cell."""

CARD_USE_COLUMNS = tuple(column_of("card_use", each) for each in CARD_USE)
"""The same of a row with a `card_use`."""


def measured_columns(uses: Iterable[CardUse | None]) -> frozenset[str]:
    """Return the keys of the columns that people see: those with a value in at least one row."""
    known = [use for use in uses if use is not None]
    has_peak = any(use.measured_ms for use in known)
    has_tensor = any(use.tensor_measured_ms for use in known)
    return frozenset(("peak_share_low",) * has_peak + ("without_tensor_share",) * has_tensor)


def card_use_facts(use: CardUse | None) -> list[tuple[str, Cell]]:
    """Return the title and the cell of each of these columns."""
    measured = measured_columns([use])
    return [(each.title, each.cell(use)) for each in CARD_USE if each.key in measured]


def card_use_note(total: CardUse | None) -> tuple[str, ...]:
    """Return how much of the busy time was measured; empty if none was."""
    if total is None or not total.measured_ms:
        return ()
    return (
        tr(
            "The share of peak is known for {peak} of the busy time, tensor activity for {tensor}. Time without tensor"
            " cores has less than {least} % tensor activity.",
            peak=Share(total.peak_measured_share),
            tensor=Share(total.tensor_measured_share),
            least=Number(TENSOR_USED_FROM_PCT),
        ),
    )


def card_use_terms(total: CardUse | None) -> tuple[Term, ...]:
    """Return the words that need an explanation; empty if nothing was measured."""
    return (term("share of peak"),) if card_use_note(total) else ()
