"""Workloads that the fleet's old cards could take, and the cost of a million served tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from operator import itemgetter

from analytics.language.sentences import Amount, Bytes, Date, GpuHours, Number, plain, tr, tr_many
from analytics.money.prices import PriceBook
from analytics.money.window_money import open_prices
from analytics.plan.fit import OUTPUT_WEIGHT, ApiPrice, MeasuredTokens, api_price, measured_tokens
from analytics.plan.seen_work import PATIENT_TIMES, OldCards, PlacedWork, old_cards, seen_workloads
from analytics.report.report import Report
from analytics.tables.names import GPU_HOURS, NAME_MOST, amount_column, card_name
from analytics.tables.plan_seen import WORK_COLUMNS, job_words
from analytics.tables.table import Column, Table, column, column_of, fact, for_programs, single
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
    """Return the queue for old cards of a scope; None if the fleet has no old cards."""
    context, segments = report.whole.context, report.part.inside.segments
    found = old_cards(context, seen_workloads(context, segments), segments, with_idle=report.scope.is_all)
    return old_card_queue(found) if found.offers else None


def tokens_on_page(report: Report) -> Table | None:
    """Return the cost of tokens; None for people, and if no server counts tokens."""
    gpus = report.part.inside.segments["gpu"].unique()
    found = () if report.scope.is_personal else measured_tokens(report.whole.context, gpus)
    return token_costs(found, open_prices(report.whole.inputs.settings)) if found else None


def old_card_queue(found: OldCards) -> Table:
    """Return a row per user, kind of workload, card and fitting older card, with workloads; the most GPU time first."""
    groups: dict[tuple[str | None, ...], list[PlacedWork]] = defaultdict(list)
    for each in found.queue:
        work = each.work
        groups[work.user, work.kind, card_name(work.model), each.option.card.name].append(each)

    def of_largest(figure: Column) -> Column:
        return column_of(itemgetter(0), figure)

    return Table(
        name="old_cards",
        title=tr("Workloads that older cards could run"),
        question=tr("Which workloads ran on newer cards although one of our older cards would do?"),
        headline=_queue_sentence(found),
        columns=(
            of_largest(column("user", tr("user"), "user", _user_name, "work.user")),
            of_largest(column("kind", tr("kind"), "words", lambda each: _KIND_WORDS[each.work.kind], "work.kind")),
            of_largest(column("largest_job", tr("largest job"), "name", lambda each: job_words(each.work), "work.job")),
            column("workloads", tr("workloads"), "count", len),
            of_largest(column("model", tr("card"), "name", lambda each: card_name(each.work.model), "work.model")),
            of_largest(column("older_model", tr("older card"), "name", "option.card.name", "option.model")),
            column("gpu_hours", tr("GPU-hours"), "gpu_hours", _gpu_ms),
            column(
                "peak_bytes",
                tr("peak memory"),
                "number",
                lambda workloads: Bytes(max(each.work.peak_bytes or 0 for each in workloads)),
            ),
            column(
                "times_as_long_at_most",
                tr("times as long, at most"),
                "number",
                lambda workloads: Number(max(each.times for each in workloads), 1),
            ),
        ),
        rows=tuple(sorted(groups.values(), key=_gpu_ms, reverse=True)),
        shown=_SHOWN,
        rest=tr("and {number} more", number=len(groups) - _SHOWN),
        notes=tuple(_queue_notes(found)),
        wide=True,
    )


def _user_name(each: PlacedWork) -> str | None:
    return None if each.work.user is None else plain(each.work.user, NAME_MOST)


def _gpu_ms(workloads: Sequence[PlacedWork]) -> int:
    return sum(each.work.gpu_ms for each in workloads)


def old_card_workloads(found: OldCards) -> Table:
    """Return for programs each workload of the queue, and the older card for it."""
    columns = (
        *(column_of("work", each) for each in WORK_COLUMNS),
        fact("older_model", "name", "option.model"),
        fact("times_as_long_at_most", "number", "times"),
    )
    return for_programs("old_card_workloads", columns, found.queue)


def old_cards_counted(found: OldCards) -> Table:
    """Return for programs the old cards, their unused time, and what the queue leaves out."""
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


def token_costs(found: Sequence[MeasuredTokens], prices: PriceBook) -> Table:
    """Return a row per served model and card, beside the list price of the same model behind an API."""
    currency = prices.currency
    listed = {each.served: api_price(each.served, prices) for each in found}
    stated = [price for price in listed.values() if price is not None]
    known = [each for each in found if each.cost_per_million is not None]

    return Table(
        name="tokens",
        title=tr("What a million tokens cost here"),
        question=tr("What does serving cost us, as measured?"),
        headline=_tokens_sentence(known, currency),
        columns=(
            column("model", tr("model"), "name", lambda each: plain(each.served, NAME_MOST), "served"),
            column("card", tr("card"), "name", lambda each: card_name(each.card), "card"),
            column(
                "namespace", tr("namespace"), "name", lambda each: plain(each.namespace or "", NAME_MOST), "namespace"
            ),
            column("team", tr("team"), "name", lambda each: plain(each.team or "", NAME_MOST), "team"),
            GPU_HOURS,
            _millions("prompt_tokens", tr("million in")),
            _millions("tokens", tr("million tokens")),
            column("tokens_per_gpu_s", tr("tokens/s"), "number"),
            column("most_requests", tr("requests"), "count", "most_running", json_type="number"),
            amount_column("cost_per_million", tr("per million"), currency),
            amount_column("input_cost_per_million", tr("input"), currency),
            amount_column("output_cost_per_million", tr("output"), currency),
            *(
                column_of(lambda each: listed[each.served], figure)
                for figure in (
                    amount_column("api_per_million", tr("API, per million"), currency, "output_per_million"),
                    fact("api_input_per_million", "money", "input_per_million"),
                    fact("api_provider", "name", "provider"),
                    fact("api_source", "words", "source"),
                )
            ),
            amount_column("allocated_cost_per_million", tr("all tokens, allocated"), currency),
            amount_column("used_cost_per_million", tr("all tokens, used"), currency),
            column("estimated_tflops_per_gpu", tr("TFLOP/s, estimated"), "number", "tflops_per_gpu", digits=1),
            column("estimated_peak_share", tr("of peak, estimated"), "share", "peak_share"),
            column("kwh_per_million", tr("energy, kWh"), "number", digits=3),
            fact("cost", "money"),
            fact("kwh", "number"),
        ),
        rows=tuple(found),
        notes=(
            tr(
                "Tokens: generated tokens, as the servers count them. Cost and kWh are per million tokens and include"
                " hours without requests. Tokens/s are per GPU. Requests: the highest number at once on any server."
            ),
            tr(
                "Per million: the whole cost over the generated tokens. Input and output: the same cost split over"
                " both, where an output token costs as much as {weight} input tokens.",
                weight=Number(OUTPUT_WEIGHT),
            ),
            tr(
                "All tokens: cost per million input and output tokens together, on the two bases of OpenCost. Allocated"
                " is the whole time of the GPUs. Used is that time times its utilization. Both count GPUs alone."
                " OpenCost adds CPUs, memory and shared services."
            ),
            tr(
                "TFLOP/s: estimated per GPU over all hours, at 2 operations per token and active parameter. The model's"
                " name gives the parameters. Prompt tokens from a cache count too, so the estimate may be too high. Of"
                " peak: the share of the card's dense rate for the weights' number format."
            ),
            *_api_notes(stated),
        ),
        wide=True,
    )


def _millions(key: str, title: str) -> Column:
    return column_of(key, column(key, title, "number", lambda tokens: Number(tokens / 1e6, 1), ""))


def _api_notes(stated: Sequence[ApiPrice]) -> Iterator[str]:
    if stated:
        yield tr(
            "API: the lowest list price of a million generated tokens of the same model ({providers}, {day} or later)."
            " An API charges prompt tokens too, and the cost of own cards includes them: own cards are certainly"
            " cheaper where they cost less.",
            providers=joined_by_and(sorted({each.provider for each in stated})),
            day=Date(min(each.date for each in stated)),
        )


def _queue_sentence(found: OldCards) -> str:
    if not found.offers:
        return tr("No card of this fleet is older and slower than another card.")
    names = joined_by_and([offer.card.name for offer in found.offers])
    if not found.queue:
        return tr("No known workload on newer cards could have run on {cards}.", cards=names)
    return tr(
        (
            "{hours} GPU-hours of work on newer cards could have run on {cards}."
            if found.idle_ms is None
            else (
                "{hours} GPU-hours of work on newer cards could have run on {cards}, which were unused for {idle}"
                " GPU-hours."
            )
        ),
        hours=GpuHours(found.gpu_ms),
        cards=names,
        idle=GpuHours(found.idle_ms or 0.0),
    )


def _queue_notes(found: OldCards) -> Iterator[str]:
    yield tr(
        "Listed: workloads of an hour or more on a single host, without NVLink traffic. Their measured memory peak"
        " fills at most 80 % of the older card. Times as long: an upper bound by peak rates. Batch jobs may take up to"
        " {times} times as long, all other work no longer than now. Nothing was tested: run the workload there once and"
        " compare.",
        times=Number(PATIENT_TIMES),
    )
    if found.tests:
        yield tr_many(
            "By {its|their} memory, {number} more {run|runs} of less than an hour on newer cards ({hours} GPU-hours)"
            " would fit. {Its|Their} speed there is unknown.",
            found.tests,
            hours=GpuHours(found.tests_ms),
        )
    without = [offer.card.name for offer in found.offers if "BF16" not in offer.card.formats]
    if without:
        yield tr("Without BF16: {cards}. Training in BF16 must change to FP16 there.", cards=joined_by_and(without))
    if found.unmeasured:
        yield tr_many(
            "{number} {workload|workloads} on newer cards {is|are} left out: {its|their} memory was reserved in"
            " advance, or {its|their} use was not measured.",
            found.unmeasured,
        )


def _tokens_sentence(known: Sequence[MeasuredTokens], currency: str | None) -> str:
    if not known:
        return tr("The cost per million tokens is unknown: no price is known, or no tokens were generated.")
    best = min(known, key=lambda each: each.cost_per_million or 0.0)
    return tr(
        "The cheapest tokens come from {model} on {card}: {cost} per million.",
        cost=Amount(best.cost_per_million, currency),
        model=plain(best.served, NAME_MOST),
        card=card_name(best.card),
    )
