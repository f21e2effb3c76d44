"""The witnesses of a stalled finding: in words, a fact for each, and for programs."""

from __future__ import annotations

from collections.abc import Iterator

from analytics.language.sentences import Bytes, Number, Sentence, tr
from analytics.tables.table import fact, rows_column
from analytics.workloads.model import Finding

_TITLES = {
    "power": tr("power"),
    "energy_counter": tr("power by the energy counter"),
    "sm_activity": tr("SM activity"),
    "tensor_activity": tr("tensor activity"),
    "dram_activity": tr("DRAM activity"),
    "pcie_traffic": tr("PCIe traffic"),
    "nvlink_traffic": tr("NVLink traffic"),
    "clocks_held_down": tr("time with clocks held down"),
    "time_without_process": tr("time without a process"),
    "process_cpu_max": tr("highest CPU use of a process"),
    "host_traffic": tr("largest traffic of the host, disk or network"),
    "memory_max": tr("largest memory in use"),
    "other_stalled_gpus": tr("other stalled GPUs of the job"),
}
_SAYS = {"stalled": tr("speaks for stalled"), "work": tr("speaks for work"), "nothing": tr("says nothing")}

WITNESSES = rows_column(
    "witnesses",
    (
        fact("name", "name", nullable=False),
        fact("value", "number", about="null: not measured."),
        fact("unit", "words", nullable=False),
        fact("most", "number", about="The largest value without work; null where there is no limit or it is unknown."),
        fact("says", "words", about="stalled, work or nothing; null without a value."),
    ),
    about="Of stalled time what each witness measured, and what that speaks for.",
)


def witness_facts(finding: Finding) -> Iterator[tuple[Sentence, Sentence]]:
    """Yield title and words of each witness; a missing one is not measured."""
    for each in finding.witnesses:
        if each.value is None or each.says is None:
            yield _TITLES[each.name], tr("not measured")
            continue
        value, says = _shown(each.value, each.unit), _SAYS[each.says]
        if each.most is None:
            yield _TITLES[each.name], tr("{value}, {says}", value=value, says=says)
        else:
            most = _shown(each.most, each.unit)
            yield (
                _TITLES[each.name],
                tr("{value}, at most {most} without work: {says}", value=value, most=most, says=says),
            )


def _shown(value: float, unit: str) -> Sentence:
    if unit.startswith("bytes"):
        return tr("{value}/s", value=Bytes(value)) if unit == "bytes/s" else tr("{value}", value=Bytes(value))
    if unit == "GPUs":
        return tr("{value}", value=Number(value))
    number = Number(value, 2 if value < 1 else 1)
    return tr("{value} W", value=number) if unit == "W" else tr("{value} %", value=number)
