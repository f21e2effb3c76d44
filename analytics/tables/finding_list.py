"""The findings of a window: a row per finding, sums by rule, and evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from analytics.decide.totals import FindingTotals, to_take, totals
from analytics.inventory import Inventory
from analytics.language.sentences import GpuHours, Number, Sentence, SentenceList, Span, plain, tr, tr_many
from analytics.quality.model import Stamp
from analytics.tables.basis import basis_fact, marked
from analytics.tables.finding_heading import ENDED, cost_of, heading, label_of_wanted, reasons, user_name
from analytics.tables.names import CONFIDENCE, GPU_HOURS, GPUS, HOST, RULE
from analytics.tables.table import (
    Cell,
    Fold,
    Table,
    column,
    column_of,
    entries_column,
    fact,
    flag,
    record_column,
    rows_column,
)
from analytics.tables.witnesses import WITNESSES, witness_facts
from analytics.workloads.model import Context, Finding
from fallow.clock import DAY_MS, HOUR_MS, floor_ms, format_ms

_NAMED = 4
"""Most GPUs with names in a shortened list. Reclaimable GPUs always have their names."""
_NOTE_MOST = 400


def finding_list(
    found: Sequence[Finding], limit: int | None = None, *, headline: str = "", notes: tuple[str, ...] = ()
) -> Table:
    """Return a row per finding, or for the first `limit` findings."""
    shown, cost = found[:limit], _cost_title(next((each.currency for each in found if each.currency), None))
    left_out = (_left_out(found, shown),) if len(shown) < len(found) else ()
    return Table(
        name="findings",
        title=tr("Findings"),
        question=tr("Which GPUs are reclaimable or can be used better?"),
        headline=headline,
        columns=tuple(replace(each, title=cost) if each.key == "cost" else each for each in FINDING_COLUMNS),
        rows=tuple(shown),
        notes=(*left_out, *notes),
        wide=True,
    )


def _cost_title(currency: str | None) -> str:
    return tr("cost, {currency}", currency=plain(currency)) if currency else tr("cost")


FINDING_COLUMNS = (
    column("finding_id", tr("finding"), "finding"),
    RULE,
    *(fact(key, "words", nullable=False) for key in ("category", "sentence", "status")),
    fact("gpus", "gpu", json_type="array"),
    HOST,
    column("user", tr("user"), "user", lambda each: user_name(each, 30), "user"),
    *(fact(key, "words") for key in ("team", "job")),
    fact("since", "moment", "since_ms", nullable=False),
    marked(GPU_HOURS),
    basis_fact("basis", "basis"),
    fact("energy_kwh", "number"),
    marked(column("cost", tr("cost"), "money")),
    fact("currency", "words"),
    CONFIDENCE,
    fact("failed_conditions", "words", "confidence.failed", "array"),
    flag("reclaimable"),
    column("to_take", tr("GPUs to free"), "count", lambda each: len(each.reclaimable_gpus), audience="people"),
    fact("reclaimable_gpus", "gpu", json_type="array", about="What could be taken back at the end of the window."),
    fact(
        "evidence",
        "words",
        lambda each: {
            "since": format_ms(each.evidence.since_ms),
            "until": format_ms(each.evidence.until_ms),
            **each.evidence.numbers,
        },
        "object",
        "Numbers by name; the names carry the units, and each rule has its own. `since` and `until` say of which time.",
        nullable=False,
    ),
    fact("next_command", "words"),
    flag("simulated"),
    fact("notes", "words", json_type="array"),
    WITNESSES,
)
"""Columns of a `Finding`, in every format."""

_SUMS = (fact("findings", "count"), fact("gpus", "count"))
_UNPRICED = fact("findings_without_price", "count", "unpriced")
TOTALS_COLUMNS = (
    *_SUMS,
    fact("reclaimable_gpus", "count", "gpus_to_take"),
    fact("reclaimable_gpus_of_high_confidence", "count", "gpus_to_take_surely"),
    _UNPRICED,
    fact("low_findings", "count", about="Findings of low confidence: they are in no other figure here."),
    entries_column(
        "by_rule",
        record_column(
            "",
            (
                *_SUMS,
                fact("reclaimable_gpus", "count", "gpus_to_take"),
                fact("gpu_hours", "number"),
                fact("cost", "money"),
                fact("unconfirmed_cost", "money"),
                fact("currency", "words"),
                _UNPRICED,
            ),
        ),
        "rules",
    ),
)
"""Columns of the totals of findings."""

RATE_COLUMNS = (
    fact("reversed", "count", "wrong"),
    fact("judged", "count"),
    fact("rate", "share", "share"),
    fact("interval_90", "share", lambda rate: rate.interval if rate.judged else None, "array"),
)
REVERSALS = record_column(
    "reversals",
    (
        fact("until", "moment", "until_ms", nullable=False),
        fact("horizon_hours", "number", lambda found: found.horizon_ms / HOUR_MS),
        *(column_of("total", each) for each in RATE_COLUMNS),
        fact("not_judged", "count"),
        fact("observed_share", "share"),
        entries_column("by_confidence", record_column("", RATE_COLUMNS), "by_grade"),
        rows_column(
            "findings",
            (
                fact("finding_id", "finding", "finding.finding_id", nullable=False),
                fact("rule", "name", "finding.rule", nullable=False),
                column_of("finding", CONFIDENCE),
                fact("gpus", "gpu", json_type="array"),
                fact("used", "moment", "used_ms", nullable=False),
            ),
        ),
    ),
    about="How often last week's findings were wrong: the measured false-positive rate.",
)
"""Columns of objects with `reversals`."""


def worth(sums: FindingTotals, low: int = 0) -> Sentence:
    """Return the totals of the findings; each GPU counts once. `low` findings of low confidence are listed as well."""
    parts: list[str] = [tr_many("{number} {finding|findings}", sums.findings)]
    if sums.gpus_to_take:
        sure = Number(sums.gpus_to_take_surely)
        parts.append(
            tr_many("{number} {GPU|GPUs} to free, {sure} of them with high confidence", sums.gpus_to_take, sure=sure)
        )
    else:
        parts.append(tr("no GPU to free"))
    if low:
        parts.append(tr_many("{number} {finding|findings} of low confidence, which no sum counts", low))
    if 0 < sums.unpriced < sums.findings:
        parts.append(tr_many("{number} {finding|findings} without a price", sums.unpriced))
    if sums.gpus_to_take:
        parts.append(tr("`fallow recommendations` shows how many of them the pools can release"))
    return tr("{sentence}.", sentence=SentenceList(parts, "; "))


def _left_out(findings: Sequence[Finding], shown: Sequence[Finding]) -> Sentence:
    rest = len(to_take(findings) - to_take(shown))
    gpus = tr_many("{number} more {GPU|GPUs}", rest) if rest else tr("no more GPU")
    return tr_many(
        "and {number} more {finding|findings} with {gpus} to reclaim; `fallow findings` lists all",
        len(findings) - len(shown),
        gpus=gpus,
    )


def totals_by_rule(found: Sequence[Finding]) -> Table | None:
    """Return the sums of each rule, the most reclaimable GPUs first; None without findings."""
    rules = tuple(totals(found).rules.values())
    if not rules:
        return None
    cost = _cost_title(next((each.currency for each in rules if each.currency), None))
    unconfirmed = any(each.unconfirmed_cost for each in rules)
    return Table(
        name="rules",
        title=tr("Findings by rule"),
        question=tr("How much did each rule find?"),
        headline=tr("Several rules can count the same hours of a GPU, so their GPU-hours and costs do not add up.")
        if len(rules) > 1
        else "",
        columns=(
            RULE,
            column("findings", tr("findings"), "count"),
            GPUS,
            column("gpus_to_take", tr("GPUs to free"), "count"),
            column("gpu_hours", tr("GPU-hours"), "gpu_hours", lambda each: each.gpu_hours * HOUR_MS),
            column(
                "cost",
                cost,
                "money",
                lambda each: None if each.cost is None else Number(each.cost - (each.unconfirmed_cost or 0.0), 2),
                "cost",
            ),
            column("unconfirmed_cost", tr("not confirmed"), "money", audience="all" if unconfirmed else "programs"),
        ),
        rows=rules,
        notes=(tr("The cost leaves out time that only point samples show as idle (“not confirmed”)."),)
        if unconfirmed
        else (),
    )


def finding_folds(found: Sequence[Finding], inventory: Inventory, *, whole: bool = False) -> Table | None:
    """Return the evidence and the next command of each finding; `whole` shortens nothing. None without findings."""
    if not found:
        return None
    return Table(
        name="evidence",
        title=tr("Evidence of each finding"),
        question=tr("What is the evidence for each finding, and how certain is it?"),
        headline="",
        folds=tuple(_fold(each, inventory, whole=whole) for each in found),
        wide=True,
    )


def _fold(finding: Finding, inventory: Inventory, *, whole: bool) -> Fold:
    cost = [] if finding.cost is None else [cost_of(finding)]
    energy = [] if finding.energy_kwh is None else [tr("{kwh} kWh", kwh=Number(finding.energy_kwh, 1))]
    sums = SentenceList([tr("{hours} GPU-hours", hours=GpuHours(finding.gpu_ms)), *cost, *energy], ", ")
    return Fold(
        key=finding.finding_id,
        title=tr("{label}: {value}", label=sums, value=heading(finding)),
        facts=tuple(_facts(finding, inventory, None if whole else _NAMED)),
        lines=tuple(_lines(finding, None if whole else _NOTE_MOST)),
        command=finding.next_command,
    )


def _facts(finding: Finding, inventory: Inventory, most: int | None) -> Iterator[tuple[str, Cell]]:
    person = user_name(finding)
    if finding.team:
        person = tr("{user} (team {team})", user=person, team=plain(finding.team))
    yield tr("user"), tr("{user}, since {moment}", user=person, moment=Stamp(finding.since_ms))
    if finding.job:
        yield tr("job"), plain(finding.job, 100_000)
    own = finding.reclaimable_gpus
    others = [gpu for gpu in finding.gpus if gpu not in own]
    named = _names(others, finding, inventory, most)
    if own:
        names = _names(own, finding, inventory, None)
        yield label_of_wanted(finding), tr("{gpus} ({part} of {all})", gpus=names, part=len(own), all=len(finding.gpus))
    else:
        yield label_of_wanted(finding), tr("none at present")
        yield tr("observed on"), named
    if own and others:
        yield (
            tr("also observed on"),
            tr_many("{number} more {GPU|GPUs}, in use or released since: {names}", len(others), names=named),
        )
    yield tr("rule"), finding.rule
    yield tr("status"), tr(finding.status)
    yield tr("confidence"), tr(finding.confidence.grade)
    yield from witness_facts(finding)


def _lines(finding: Finding, most: int | None) -> Iterator[str]:
    yield from reasons(finding)
    for note in finding.notes:
        yield tr(
            "{label}: {value}", label=tr("note"), value=plain(note, most or 100_000) if type(note) is str else note
        )
    if not finding.next_command:
        yield ENDED


def _names(gpus: Sequence[str], finding: Finding, inventory: Inventory, most: int | None) -> Sentence | SentenceList:
    """Return the first of these GPUs with their indexes, by host if the finding has several hosts."""
    several = not finding.host or "+" in finding.host
    hosts: dict[str, list[str]] = {}
    for gpu in gpus[:most]:
        device = inventory.devices.get(gpu)
        index = None if device is None else device.gpu_index
        name = plain(gpu) if index is None else tr("{gpu} (index {index})", gpu=plain(gpu), index=index)
        hosts.setdefault(device.host if device is not None and several else "", []).append(name)
    parts = [
        tr("{host}: {names}", host=plain(host), names=SentenceList(names, ", ")) if host else SentenceList(names, ", ")
        for host, names in hosts.items()
    ]
    named, rest = SentenceList(parts), len(gpus) - len(gpus[:most])
    return tr("{names} and {number} more", names=named, number=rest) if rest else named


def only_a_look(context: Context, now_ms: int) -> str:
    """Return why commands only inspect: the window does not end now. Empty if it does."""
    end_ms, age_ms = context.window.until_ms, now_ms - context.until_ms
    if context.latest:
        return ""
    if end_ms is not None and end_ms <= now_ms:
        return tr("Commands only inspect, because the window ended in the past and its processes may be gone.")
    if age_ms <= 0:
        return tr("Commands only inspect, because the newest row lies in the future.")
    age = Span(floor_ms(age_ms, DAY_MS if age_ms >= 2 * DAY_MS else HOUR_MS))
    return tr("Commands only inspect, because the newest row is {age} old.", age=age)


def closed_by_rule(gone: Sequence[Finding]) -> Iterator[Sentence]:
    """Yield by rule how many of last week's findings ended, wrong findings apart."""
    for status in ("closed", "unseen", "reversed"):
        rules = Counter(finding.rule for finding in gone if finding.status == status)
        if rules:
            each = [tr("{rule} {number}", rule=rule, number=number) for rule, number in rules.most_common()]
            yield tr_many(
                "{number} {finding|findings} {status} since last week: {rules}",
                rules.total(),
                status=tr(status),
                rules=SentenceList(each, ", "),
            )
