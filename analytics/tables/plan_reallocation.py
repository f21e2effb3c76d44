"""The proposed reallocation: who gets which GPUs, who gets none and why, who gains and loses, and what is left over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from analytics.language.plain_text import plain
from analytics.language.quantities import Date, Number
from analytics.language.sentences import tr, tr_many
from analytics.money.requests_file import GpuRequest
from analytics.plan.reallocation import Reallocation, Reason, ServedRequest, TeamBalance, UnservedRequest
from analytics.plan.supply import Supply
from analytics.tables.names import NAME_MOST, TEAM, pool_column
from analytics.tables.plan_endings import SOURCE_NAMES, chance_cell, chance_columns
from analytics.tables.table import Column, Table, column, fact, single

_LISTED = 20


@dataclass(frozen=True)
class _Freed:
    """GPUs that come free, and the request that gets them; None if no request does."""

    supply: Supply
    served: ServedRequest | None = None

    @property
    def request(self) -> GpuRequest | None:
        """What was asked for."""
        return None if self.served is None else self.served.request


def proposal_table(found: Reallocation | None) -> Table | None:
    """A row for each request, host and source; None where nobody asks."""
    if found is None:
        return None
    rows = tuple(_Freed(grant, each) for each in found.served for grant in each.grants)
    return Table(
        name="reallocation",
        title=tr("Who should get which GPUs"),
        question=tr("Which requests can be served by GPUs that come free, from when, and whose are they?"),
        headline=_headline(found),
        columns=(
            *_request_columns("programs"),
            column("start", tr("start"), "number", "served.start", json_type="string"),
            column("days_late", tr("late"), "count", _days_late),
            fact("gpus_given", "count", "served.given"),
            fact("free_from", "words", "supply.free_from"),
            *_supply_columns(found),
        ),
        rows=rows,
        shown=_LISTED,
        rest=tr("{number} more are in `fallow plan allocation --json`.", number=len(rows) - _LISTED),
        notes=tuple(_notes(found)),
        wide=True,
    )


def _days_late(row: _Freed) -> int | str:
    late = 0 if row.served is None else (row.served.start - row.served.request.first).days
    return late if late > 0 else ""


def _request_columns(numbers: Literal["all", "programs"]) -> tuple[Column, ...]:
    """Return the columns of a row's request; `numbers` is who sees how many GPUs it asks for, and how urgently."""
    return (
        column(
            "name",
            tr("request"),
            "name",
            lambda row: (
                plain(row.request.name, NAME_MOST) if row.request.name else tr("line {number}", number=row.request.line)
            ),
            "request.name",
        ),
        column("team", tr("team"), "team", "request.team"),
        column("gpus_asked", tr("GPUs"), "count", "request.gpus", audience=numbers),
        column("priority", tr("priority"), "count", "request.priority", audience=numbers),
        fact("line", "count", "request.line"),
        fact("card", "words", "request.card"),
        fact("memory_gib", "number", "request.memory_gib"),
        fact("from", "words", "request.first"),
        fact("until", "words", "request.last"),
    )


def cannot_propose(why: str) -> Table:
    """In place of the proposal, why there is none."""
    return Table(
        name="reallocation_wrong",
        title=tr("Who should get which GPUs"),
        question=tr("Which requests can be served by GPUs that come free, from when, and whose are they?"),
        headline=why,
    )


def _headline(found: Reallocation) -> str:
    if found.of_part:
        return tr_many(
            "{number} request is given GPUs of this part of the fleet.",
            "{number} requests are given GPUs of this part of the fleet.",
            len(found.served),
        )
    requests = [*(each.request for each in found.served), *(each.request for each in found.unserved)]
    if not requests:
        return tr("Nobody asks for GPUs.")
    late = sum(each.start > each.request.first for each in found.served)
    said = tr(
        "{served} of {asked} requests can be served, with {gpus} of the {wanted} GPUs asked for.",
        served=len(found.served),
        asked=len(requests),
        gpus=sum(each.request.gpus for each in found.served),
        wanted=sum(each.gpus for each in requests),
    )
    if not late:
        return said
    later = tr_many("{number} begins later than asked for.", "{number} begin later than asked for.", late)
    return tr("{said} {later}", said=said, later=later)


def _supply_columns(found: Reallocation) -> tuple[Column, ...]:
    """Return the columns of GPUs that come free, without whose they are for a reader of one team."""
    whose = (
        column("from_team", tr("from whom"), "name", _giver, "supply.team"),
        fact("ends", "words", lambda row: row.supply.name or None),
    )
    return (
        column("gpu_count", tr("GPUs"), "count", lambda row: len(row.supply.gpus)),
        pool_column("supply.pool"),
        fact("model", "name", "supply.model"),
        column("host", tr("host"), "name" if found.of_one_team else "host", "supply.host"),
        fact("nvlink_island", "words", "supply.island"),
        fact("gpus", "words", "supply.gpus", "array"),
        *(() if found.of_one_team else whose),
        column("source", tr("source"), "words", lambda row: SOURCE_NAMES[row.supply.source], "supply.source"),
        *chance_columns(
            lambda row: "" if row.supply.source == "idle" else chance_cell(row.supply.chance), "supply.chance"
        ),
    )


def _giver(row: _Freed) -> str:
    names = ", ".join(plain(name, NAME_MOST) for name in (row.supply.team, row.supply.name) if name)
    return names or tr("no team")


def _notes(found: Reallocation) -> Iterator[str]:
    yield tr(
        "What can be given is idle and safe to give back now, or comes free by {day}. A GPU goes to one request; parts of cards and shared GPUs go to none. "
        "A request is served whole or not at all, from one day to its last: on one NVLink island or host, a larger one by whole hosts of one pool. "
        "The most urgent are served first; then those proposals come first that make them wait the fewest GPU-days, that use the GPUs likeliest to come free (by the point of the chance, of which the table shows the lower end; an unknown one counts as none), "
        "and that leave the fewest GPUs over in blocks that are broken. No team has more than its quota when it is given GPUs. Work may go on after its end: then its GPUs are missing.",
        day=Date(found.last_day),
    )
    if found.without_quota:
        yield tr(
            "No quota is known for {teams}: nothing limits what they are given.",
            teams=plain(", ".join(found.without_quota), NAME_MOST),
        )
    if not found.serves_most:
        yield tr("The search was stopped by its time limit: it may be that more can be served.")
    elif not found.is_proven:
        yield tr(
            "That no more can be served is proven. The search for less waiting, surer GPUs and fewer leftovers was stopped by its time limit: there may be a better answer."
        )


def unserved_table(found: Reallocation | None) -> Table | None:
    """A row for each request that is given nothing; None where there is none."""
    if found is None or not found.unserved:
        return None
    return Table(
        name="unserved",
        title=tr("Requests that get nothing"),
        question=tr("Which requests cannot be served, and what stands in the way?"),
        headline=tr_many("{number} request gets nothing.", "{number} requests get nothing.", len(found.unserved)),
        columns=(
            *_request_columns("all"),
            column("reason", tr("why"), "sentence", lambda each: _REASONS[each.reason](each), "reason"),
            fact("gpus_free_in_time", "count", "free"),
            fact("by", "words"),
        ),
        rows=found.unserved,
        shown=_LISTED,
        rest=tr("{number} more are in `fallow plan allocation --json`.", number=len(found.unserved) - _LISTED),
        wide=True,
    )


_REASONS: dict[Reason, Callable[[UnservedRequest], str]] = {
    "over": lambda each: tr("Its last day, {day}, is over.", day=Date(each.request.last)),
    "no_card": lambda each: tr("No GPU of the fleet is what it asks for: {card}.", card=_asked(each.request)),
    "too_few": lambda each: (
        tr_many(
            "Only {number} GPU of that kind can be given by {day}.",
            "Only {number} GPUs of that kind can be given by {day}.",
            each.free,
            day=Date(each.by),
        )
        if each.free
        else tr("No GPU of that kind can be given by {day}.", day=Date(each.by))
    ),
    "no_block": lambda each: tr(
        "{number} GPUs of that kind can be given by {day}, but they lie apart: there is no block of {gpus}.",
        number=each.free,
        day=Date(each.by),
        gpus=each.request.gpus,
    ),
    "quota": lambda each: tr("The quota of {team} does not allow it.", team=plain(each.request.team, NAME_MOST)),
    "others": lambda _: tr("Requests of the same or a higher priority take what it would need."),
}


def _asked(request: GpuRequest) -> str:
    if request.memory_gib is None:
        return plain(request.card or "", NAME_MOST)
    memory = tr("{number} GiB each", number=Number(request.memory_gib))
    return (
        memory if request.card is None else tr("{card}, {memory}", card=plain(request.card, NAME_MOST), memory=memory)
    )


def balance_table(found: Reallocation | None) -> Table | None:
    """A row for each team that gains or loses; None for a reader of one team, and where nothing is given."""
    if found is None or found.of_one_team or not found.served:
        return None
    balances = found.balances
    return Table(
        name="balance",
        title=tr("Who gains and who loses"),
        question=tr("How many GPUs does each team gain and lose by the proposal?"),
        headline=_balance_sentence(balances),
        columns=(
            TEAM,
            column("gains", tr("gains"), "count"),
            column("loses", tr("loses"), "count"),
            column("keeps", tr("keeps its own"), "count"),
        ),
        rows=balances,
        shown=_LISTED,
        rest=tr("{number} more are in `fallow plan allocation --json`.", number=len(balances) - _LISTED),
        notes=(
            tr(
                "A team loses what it would have let go of anyway, by an end or because it is idle. What no known team had is no team's loss."
            ),
        ),
    )


def _balance_sentence(balances: tuple[TeamBalance, ...]) -> str:
    gained, lost = sum(each.gains for each in balances), sum(each.loses for each in balances)
    return tr_many(
        "{number} GPU changes hands; teams give {lost}, no known team had {free}.",
        "{number} GPUs change hands; teams give {lost}, no known team had {free}.",
        gained,
        lost=lost,
        free=gained - lost,
    )


def left_table(found: Reallocation | None) -> Table | None:
    """What nobody is given; None for a reader of one team, and where nothing is left."""
    if found is None or not found.left:
        return None
    return Table(
        name="left_over",
        title=tr("What is left over"),
        question=tr("Which GPUs come free that nobody is given?"),
        headline=tr_many(
            "{number} GPU comes free and is given to nobody.",
            "{number} GPUs come free and are given to nobody.",
            sum(len(each.gpus) for each in found.left),
        ),
        columns=(
            column("free_from", tr("free from"), "number", "supply.free_from", json_type="string"),
            *_supply_columns(found),
        ),
        rows=tuple(map(_Freed, found.left)),
        shown=_LISTED,
        rest=tr("{number} more are in `fallow plan allocation --json`.", number=len(found.left) - _LISTED),
        wide=True,
    )


def proposal_facts(found: Reallocation | None) -> Table | None:
    """Return for programs how far the proposal looks ahead, and what is proven of it; None where nobody asks."""
    if found is None:
        return None
    return single(
        "reallocation_facts",
        (
            fact("known_up_to", "words", "last_day"),
            fact("proven_to_serve_most", "words", "serves_most", "boolean"),
            fact("proven_best", "words", "is_proven", "boolean"),
            fact("teams_without_quota", "words", "without_quota", "array"),
        ),
        found,
    )
