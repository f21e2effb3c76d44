"""One finding on a few lines of plain text, in any language: `fallow findings` in English, the report in its reader's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analytics.decide.totals import wanted
from analytics.inventory import Inventory
from analytics.language.language import Language, Sentence, SentenceList
from analytics.language.plain_text import plain, wrap
from analytics.language.quantities import GpuHours, Number
from analytics.language.sentences import tr, tr_many
from analytics.quality.timestamps import Stamp
from analytics.tables.evidence_text import evidence
from analytics.tables.finding_heading import cost_of, heading, label_of_wanted
from analytics.workloads.model import Finding

ENDED = tr("nothing to take back: it has ended")
NONE = tr("no findings: no rule that has enough history found anything in this window")
_WIDTH = 98
"""100 columns less the report's indent."""
_LABEL = 12
_INNER = _WIDTH - _LABEL - 3
_NAMES = 4
"""GPUs in a line that is shortened. Those that can be taken back are always all named."""
_WHOLE = 100_000


@dataclass(frozen=True)
class Beside:
    """What is known beside the findings.

    The inventory tells the index of a GPU on its host, and `look` why no command that ends anything is given, where that is
    the same for all of them.
    """

    inventory: Inventory | None = None
    look: str = ""


def block(
    finding: Finding,
    beside: Beside | None = None,
    language: Language | None = None,
    *,
    whole: bool = False,
    notified: str = "",
) -> str:
    """One finding on a few lines, in the words of the commands where no language is given; `whole` shortens nothing.

    `notified` says how often its user was notified.
    """
    said = str if language is None else language.translate
    long = _WHOLE if whole else _INNER
    beside = beside or Beside()
    look = beside.look if finding.reclaimable and finding.category == "reclaim" else ""
    grade, failed = said(finding.confidence.grade), finding.confidence.failed
    lines = [
        *wrap(said(heading_with_sums(finding)), _WIDTH, f"{finding.finding_id}  ", "  "),
        *_labelled(said("user"), said(holder_since(finding))),
        *(_labelled(said("job"), plain(finding.job, long)) if finding.job else []),
        *(
            line
            for label, gpus in taken(finding, beside.inventory, None if whole else _NAMES)
            for line in _labelled(said(label), said(gpus))
        ),
        *_labelled(said("rule"), f"{finding.rule}, {said(finding.status)}"),
        *(_labelled(said("notified"), said(notified)) if notified else []),
        *_labelled(said("confidence"), said(tr("{grade}:", grade=grade)) if failed else grade),
        *(line for each in failed for line in wrap(said(each), _WIDTH, f"{'':15}- ", f"{'':17}")),
        *_labelled(said("evidence"), said(evidence(finding))),
        *(
            line
            for each in finding.notes
            for line in _labelled(said("note"), plain(said(each), _WHOLE if whole else 400))
        ),
        *(_labelled(said("note"), said(look)) if look else []),
        f"  {said('next'):<{_LABEL}} {finding.next_command or said(ENDED)}",
    ]
    return "\n".join(lines)


def left_out(findings: Sequence[Finding], shown: Sequence[Finding]) -> str:
    """What a shortened list leaves out; its GPUs are those of the header that are not listed."""
    rest = len(wanted(findings) - wanted(shown))
    gpus = tr_many("{number} more GPU", "{number} more GPUs", rest) if rest else tr("no more GPU")
    return tr_many(
        "and {number} more finding with {gpus} to take back or ask about; `fallow findings` lists all",
        "and {number} more findings with {gpus} to take back or ask about; `fallow findings` lists all",
        len(findings) - len(shown), gpus=gpus,
    )  # fmt: skip


def heading_with_sums(finding: Finding) -> Sentence:
    """What it comes to before its heading: `96.0 GPU-hours, 660.48 USD: 1 GPU on node-07 held without a kernel`."""
    cost = [] if finding.cost is None else [cost_of(finding)]
    energy = [] if finding.energy_kwh is None else [tr("{kwh} kWh", kwh=Number(finding.energy_kwh, 1))]
    sums = SentenceList([tr("{hours} GPU-hours", hours=GpuHours(finding.gpu_ms)), *cost, *energy], ", ")
    return tr("{label}: {value}", label=sums, value=heading(finding))


def holder_since(finding: Finding) -> str:
    """`ann (team nlp), since 2026-11-20 06:00 UTC`."""
    holder: str = plain(finding.holder) if finding.holder else tr(finding.without_holder)
    if finding.team:
        holder = tr("{holder} (team {team})", holder=holder, team=plain(finding.team))
    return tr("{holder}, since {moment}", holder=holder, moment=Stamp(finding.since_ms))


def taken(finding: Finding, inventory: Inventory | None = None, most: int | None = _NAMES) -> list[tuple[str, str]]:
    """Which GPUs can be taken back, all by name, and which others the finding is about, `most` by name; each with its label."""
    own = finding.reclaimable_gpus
    others = [gpu for gpu in finding.gpus if gpu not in own]
    named = names_of(others, finding, inventory, most)
    if not own:
        return [(label_of_wanted(finding), tr("none now")), (tr("seen on"), named)]
    back = tr(
        "{gpus} ({part} of {all})",
        gpus=names_of(own, finding, inventory), part=Number(len(own)), all=Number(len(finding.gpus)),
    )  # fmt: skip
    if not others:
        return [(label_of_wanted(finding), back)]
    also = tr_many(
        "{number} more GPU, in use or given back: {names}", "{number} more GPUs, in use or given back: {names}",
        len(others), names=named,
    )  # fmt: skip
    return [(label_of_wanted(finding), back), (tr("also seen on"), also)]


def names_of(gpus: Sequence[str], finding: Finding, inventory: Inventory | None = None, most: int | None = None) -> str:
    """The first of these GPUs, all by default, with their indexes where the inventory is there, by host where it is not one."""
    devices = {} if inventory is None else inventory.devices
    several = not finding.host or "+" in finding.host
    hosts: dict[str, list[str]] = {}
    for gpu in gpus[:most]:
        device = devices.get(gpu)
        index = None if device is None else device.gpu_index
        name = plain(gpu) if index is None else tr("{gpu} (index {index})", gpu=plain(gpu), index=index)
        hosts.setdefault(device.host if device is not None and several else "", []).append(name)
    parts = [
        tr("{host}: {names}", host=plain(host), names=SentenceList(names, ", ")) if host else SentenceList(names, ", ")
        for host, names in hosts.items()
    ]
    rest = len(gpus) - len(gpus[:most])
    named = SentenceList(parts)
    return tr("{names} and {number} more", names=named, number=Number(rest)) if rest else named


def _labelled(label: str, text: str) -> list[str]:
    return [
        f"  {label if number == 0 else '':<{_LABEL}} {line}" for number, line in enumerate(wrap(text, _INNER) or [""])
    ]
