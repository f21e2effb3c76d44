"""What the fleet's old cards could take over, and what serving a million tokens costs here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, Bytes, GpuHours, Number
from analytics.language.sentences import tr, tr_many
from analytics.plan.fit import MeasuredTokens, measured_tokens
from analytics.plan.seen_work import PATIENT_TIMES, OldCards, PlacedWork, old_cards, seen_works
from analytics.report.report import Report
from analytics.tables.names import GPU_HOURS, NAME_MOST, amount, card_name, decimals
from analytics.tables.plan_seen import job_words, work_columns
from analytics.tables.table import Table, column, fact, for_programs, single
from analytics.workloads.model import joined_by_and
from analytics.workloads.work_kinds import BATCH, INTERACTIVE, POD, PROCESS, SERVES

_SHOWN = 15
_KIND_WORDS = {
    SERVES: tr("server"),
    INTERACTIVE: tr("notebook"),
    BATCH: tr("batch job"),
    POD: tr("pod"),
    PROCESS: tr("process"),
}


def old_cards_on_page(report: Report) -> Table | None:
    """The queue for old cards of a scope; None where the fleet has no old cards."""
    context, stretches = report.whole.context, report.part.inside.stretches
    found = old_cards(context, seen_works(context, stretches), stretches, with_idle=report.scope.is_all)
    return old_card_queue(found) if found.offers else None


def tokens_on_page(report: Report) -> Table | None:
    """What tokens cost; None for people, and where no server counts tokens."""
    gpus = report.part.inside.stretches["gpu"].unique()
    found = () if report.scope.is_personal else measured_tokens(report.whole.context, gpus)
    return token_costs(found, report.money.currency) if found else None


def old_card_queue(found: OldCards) -> Table:
    """A row for each user, kind of work, card and older card that would do: their works, the most GPU time first."""
    groups: dict[tuple[str | None, ...], list[PlacedWork]] = defaultdict(list)
    for each in found.queue:
        work = each.work
        groups[work.holder, work.kind, card_name(work.model), each.option.card.name].append(each)

    def largest(path: str) -> Callable[[Sequence[PlacedWork]], object]:
        return lambda works: attrgetter(path)(works[0])

    return Table(
        name="old_cards",
        title=tr("What old cards could take"),
        question=tr("Which work ran on newer cards although an older one of ours would do?"),
        headline=_queue_sentence(found),
        columns=(
            column("user", tr("user"), "holder", _user_name, largest("work.holder")),
            column("kind", tr("kind"), "words", lambda works: _KIND_WORDS[works[0].work.kind], largest("work.kind")),
            column("largest_job", tr("largest"), "name", lambda works: job_words(works[0].work), largest("work.job")),
            column("workloads", tr("works"), "count", len),
            column("model", tr("card"), "name", lambda works: card_name(works[0].work.model), largest("work.model")),
            column("older_model", tr("older card"), "name", largest("option.card.name"), largest("option.model")),
            column("gpu_hours", tr("GPU-hours"), "gpu_hours", _gpu_ms),
            column(
                "peak_bytes",
                tr("peak"),
                "number",
                lambda works: Bytes(max(each.work.peak_bytes or 0 for each in works)),
            ),
            column(
                "times_as_long_at_most",
                tr("times"),
                "number",
                lambda works: Number(max(each.times for each in works), 1),
            ),
        ),
        rows=tuple(sorted(groups.values(), key=_gpu_ms, reverse=True)),
        shown=_SHOWN,
        rest=tr("and {number} more", number=len(groups) - _SHOWN),
        notes=tuple(_queue_notes(found)),
        wide=True,
    )


def _user_name(works: Sequence[PlacedWork]) -> str | None:
    holder = works[0].work.holder
    return None if holder is None else plain(holder, NAME_MOST)


def _gpu_ms(works: Sequence[PlacedWork]) -> int:
    return sum(each.work.gpu_ms for each in works)


def old_card_works(found: OldCards) -> Table:
    """Return for programs each work of the queue, and the older card that would take it."""
    columns = (
        *work_columns(attrgetter("work")),
        fact("older_model", "name", "option.model"),
        fact("times_as_long_at_most", "number", "times"),
    )
    return for_programs("old_card_works", columns, found.queue)


def old_cards_counted(found: OldCards) -> Table:
    """Return for programs the old cards, how long they stood unused, and what the queue leaves out."""
    return single(
        "old_cards_counted",
        (
            fact("models", "words", lambda each: [offer.model for offer in each.offers], "array"),
            fact("unused_gpu_hours", "gpu_hours", "idle_ms"),
            fact("unmeasured_workloads", "count", "unmeasured"),
            fact("short_runs", "count", "tests"),
            fact("short_run_gpu_hours", "gpu_hours", "tests_ms"),
        ),
        found,
    )


def token_costs(found: Sequence[MeasuredTokens], currency: str | None) -> Table:
    """A row for each served model and card."""
    known = [each for each in found if each.cost_per_million is not None]
    return Table(
        name="tokens",
        title=tr("What a million tokens cost here"),
        question=tr("What does serving cost us, as measured?"),
        headline=_tokens_sentence(known, currency),
        columns=(
            column("model", tr("model"), "name", lambda each: plain(each.served, NAME_MOST), "served"),
            column("card", tr("card"), "name", lambda each: card_name(each.card), "card"),
            GPU_HOURS,
            column("tokens", tr("million tokens"), "number", lambda each: Number(each.tokens / 1e6, 1), "tokens"),
            column("tokens_per_gpu_s", tr("tokens/s"), "number"),
            column("most_requests", tr("requests"), "count", "most_running", json_type="number"),
            column("cost_per_million", tr("a million"), "money", lambda each: amount(each.cost_per_million, currency)),
            column("kwh_per_million", tr("energy, kWh"), "number", lambda each: decimals(each.kwh_per_million, 3)),
            fact("cost", "money", lambda each: amount(each.cost, currency)),
            fact("kwh", "number"),
        ),
        rows=tuple(found),
        notes=(
            tr(
                "Generated tokens as the servers count them; cost and kWh are of a million of them, hours in which nobody asked included. Tokens/s are of one GPU, requests the most at once of any server."
            ),
        ),
        wide=True,
    )


def _queue_sentence(found: OldCards) -> str:
    if not found.offers:
        return tr("No card of this fleet is older and slower than another one.")
    names = joined_by_and([offer.card.name for offer in found.offers])
    if not found.queue:
        return tr("No work is known that ran on newer cards and could have run on {cards}.", cards=names)
    hours = GpuHours(found.gpu_ms)
    if found.idle_ms is None:
        return tr("{hours} GPU-hours of work on newer cards could have run on {cards}.", hours=hours, cards=names)
    return tr(
        "{hours} GPU-hours of work on newer cards could have run on {cards}, which stood unused for {idle} GPU-hours.",
        hours=hours,
        cards=names,
        idle=GpuHours(found.idle_ms),
    )


def _queue_notes(found: OldCards) -> Iterator[str]:
    yield tr(
        "Work on one host of an hour or more, without NVLink traffic, whose measured peak fills at most 80 % of the old card. Times: as long at most, by peak rates; batch jobs may take up to {times} times as long, "
        "whatever somebody waits for no longer than now. It was not tried: run it there once, and compare.",
        times=Number(PATIENT_TIMES),
    )
    if found.tests:
        yield tr_many(
            "Besides, {number} run of less than an hour on newer cards ({hours} GPU-hours) would fit by its memory; how fast it would be is not known.",
            "Besides, {number} runs of less than an hour on newer cards ({hours} GPU-hours) would fit by their memory; how fast they would be is not known.",
            found.tests,
            hours=GpuHours(found.tests_ms),
        )
    without = [offer.card.name for offer in found.offers if "BF16" not in offer.card.formats]
    if without:
        yield tr(
            "Without BF16: {cards}. Work that trains in it has to change to FP16 there.", cards=joined_by_and(without)
        )
    if found.unmeasured:
        yield tr_many(
            "{number} work on newer cards is left out: its memory was reserved in advance or its use not measured.",
            "{number} works on newer cards are left out: their memory was reserved in advance or their use not measured.",
            found.unmeasured,
        )


def _tokens_sentence(known: Sequence[MeasuredTokens], currency: str | None) -> str:
    if not known:
        return tr("What a million tokens cost is not known: no price, or no tokens.")
    best = min(known, key=lambda each: each.cost_per_million or 0.0)
    return tr(
        "Generated tokens are cheapest of {model} on {card}: {cost} a million.",
        cost=Amount(best.cost_per_million, currency),
        model=plain(best.served, NAME_MOST),
        card=card_name(best.card),
    )
