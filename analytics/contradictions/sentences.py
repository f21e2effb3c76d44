"""What a contradiction between values is, and how fallow treats it: one sentence for data quality and for imports."""

from __future__ import annotations

from analytics.contradictions import verdicts
from analytics.language.sentences import GpuHours, Sentence, tr, tr_many

SENTENCES = {
    verdicts.READINGS_REPEAT: "readings that repeat although one of them cannot stay equal: this time is not observed",
    verdicts.UTIL_WITHOUT_CONTEXT: (
        "utilization without the memory or the process of a kernel: this time is not observed"
    ),
    verdicts.COUNTER_STANDS_STILL: "an energy counter that stands still beside power: the energy is power times time",
    verdicts.ENERGY_AGAINST_POWER: "an energy counter that does not fit the power: the energy is power times time",
    verdicts.POWER_AGAINST_ENERGY: "power that no card draws and the energy counter denies: it counts as unknown",
    verdicts.POWER_REPEATS: "power that repeats beside a card at work: it counts as unknown",
    verdicts.ACTIVITY_REPEATS: "SM and memory activity that repeat to the last digit: they count as unknown",
    verdicts.MEMORY_WITHOUT_CONTEXT: "memory in use that is too small for the work beside it: it counts as unknown",
}
"""The fault in the values of a kind, and how fallow treats it. The kinds that cost observed time come first."""

_SOURCES = {"scraped": tr("scraped"), "import": tr("imported")}


def contradiction_sentence(kind: str, source: str | None, gpus: int, span_ms: int, example: str) -> Sentence:
    """Return the time of one kind of contradiction from one `util_source`, with an example."""
    return tr_many(
        "{hours} GPU-hours of {number} {GPU|GPUs} ({source}) with {what} (such as {example})",
        gpus,
        hours=GpuHours(span_ms),
        source=_SOURCES.get(source or "", tr("from the agent")),
        what=tr(SENTENCES[kind]),
        example=example,
    )
