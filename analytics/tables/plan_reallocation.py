"""The proposed reallocation: which requests get which GPUs, or none and why, changes by team, and remaining GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from analytics.language.sentences import Date, Number, plain, tr, tr_many
from analytics.money.requests_file import GpuRequest
from analytics.plan.reallocation import Reallocation, Reason, ServedRequest, UnservedRequest
from analytics.plan.supply import Supply
from analytics.tables.names import NAME_MOST, POOL, TEAM
from analytics.tables.plan_endings import SOURCE_NAMES, chance_cell, chance_columns
from analytics.tables.table import Column, Table, column, column_of, fact, single

_LISTED = 20
_TITLE = tr("Who should get which GPUs")
_QUESTION = tr("Which requests can be served by GPUs that become free, from when, and from which team?")


@dataclass(frozen=True)
class _Freed:
    """GPUs that become free, and the request that gets them; None if no request does."""

    supply: Supply
    served: ServedRequest | None = None

    @property
    def request(self) -> GpuRequest | None:
        return None if self.served is None else self.served.request


def proposal_table(found: Reallocation | None) -> Table | None:
    """Return a row per request, host and source; None without requests."""
    if found is None:
        return None
    rows = tuple(_Freed(grant, each) for each in found.served for grant in each.grants)
    return Table(
        name="reallocation",
        title=_TITLE,
        question=_QUESTION,
        headline=_headline(found),
        columns=(
            *_request_columns("programs"),
            column("start", tr("start"), "number", "served.start", json_type="string"),
            column("days_late", tr("days late"), "count", _days_late),
            fact("gpus_given", "count", "served.given"),
            fact("free_from", "words", "supply.free_from"),
            *_supply_columns(found),
        ),
        rows=rows,
        shown=_LISTED,
        rest=_rest(rows),
        notes=tuple(_notes(found)),
        wide=True,
    )


def _rest(rows: Sequence[object]) -> str:
    return tr("`fallow plan allocation --json` lists {number} more.", number=len(rows) - _LISTED)


def _days_late(row: _Freed) -> int | str:
    late = 0 if row.served is None else (row.served.start - row.served.request.first).days
    return late if late > 0 else ""


def _request_columns(numbers: Literal["all", "programs"]) -> tuple[Column, ...]:
    """Return the columns of a row's request. `numbers`: who sees its number of GPUs and its priority."""
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
    return Table(name="reallocation_wrong", title=_TITLE, question=_QUESTION, headline=why, wide=True)


def _headline(found: Reallocation) -> str:
    if found.of_part:
        return tr_many("{number} {request gets|requests get} GPUs of this part of the fleet.", len(found.served))
    requests = [*(each.request for each in found.served), *(each.request for each in found.unserved)]
    if not requests:
        return tr("There are no requests for GPUs.")
    late = sum(each.start > each.request.first for each in found.served)
    served = tr(
        "{served} of {requests} requests can be served, with {gpus} of {wanted} requested GPUs.",
        served=len(found.served),
        requests=len(requests),
        gpus=sum(each.request.gpus for each in found.served),
        wanted=sum(each.gpus for each in requests),
    )
    if not late:
        return served
    later = tr_many("{number} {starts|start} later than requested.", late)
    return tr("{served} {later}", served=served, later=later)


def _supply_columns(found: Reallocation) -> tuple[Column, ...]:
    """Return the columns of GPUs that become free; for a reader of one team, without their teams."""
    whose = (
        column("from_team", tr("from team"), "name", _freeing_team, "supply.team"),
        fact("ends", "words", lambda row: row.supply.name or None),
    )
    return (
        column("gpu_count", tr("GPUs"), "count", lambda row: len(row.supply.gpus)),
        column_of("supply", POOL),
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


def _freeing_team(row: _Freed) -> str:
    names = ", ".join(plain(name, NAME_MOST) for name in (row.supply.team, row.supply.name) if name)
    return names or tr("no team")


def _notes(found: Reallocation) -> Iterator[str]:
    yield tr(
        "The proposal reallocates GPUs that are releasable now or become free by {day}. A GPU goes to one request."
        " Parts of cards and shared GPUs go to none. A request is served in full or not at all, from one day to its"
        " last, on one NVLink island or host. A larger request gets whole hosts of one pool. The most urgent requests"
        " are served first. Then the best proposal makes requests wait the fewest GPU-days. Then it uses the GPUs most"
        " likely to become free, by the point estimate of the probability. The table shows the lower end, and an"
        " unknown probability counts as zero. Then it leaves the fewest GPUs in broken blocks. No team gets GPUs beyond"
        " its quota. If work continues after its expected end, its GPUs are missing.",
        day=Date(found.last_day),
    )
    if found.without_quota:
        yield tr(
            "No quota is known for {teams}, so nothing limits their GPUs.",
            teams=plain(", ".join(found.without_quota), NAME_MOST),
        )
    if not found.serves_most:
        yield tr("The search reached its time limit. Perhaps more requests can be served.")
    elif not found.is_proven:
        yield tr(
            "It is proven that no more requests can be served. The search for shorter waits, more certain GPUs and"
            " fewer leftovers reached its time limit, so a better proposal may exist."
        )


def unserved_table(found: Reallocation | None) -> Table | None:
    """Return a row per request that gets no GPUs; None without one."""
    if found is None or not found.unserved:
        return None
    return Table(
        name="unserved",
        title=tr("Requests that get no GPUs"),
        question=tr("Which requests cannot be served, and why?"),
        headline=tr_many("{number} {request gets|requests get} no GPUs.", len(found.unserved)),
        columns=(
            *_request_columns("all"),
            column("reason", tr("reason"), "sentence", lambda each: _REASONS[each.reason](each), "reason"),
            fact("gpus_free_in_time", "count", "free"),
            fact("by", "words"),
        ),
        rows=found.unserved,
        shown=_LISTED,
        rest=_rest(found.unserved),
        wide=True,
    )


_REASONS: dict[Reason, Callable[[UnservedRequest], str]] = {
    "over": lambda each: tr("The last day of the request, {day}, is over.", day=Date(each.request.last)),
    "no_card": lambda each: tr("No GPU of the fleet matches the request: {card}.", card=_requested_card(each.request)),
    "too_few": lambda each: (
        tr_many("Only {number} matching {GPU is|GPUs are} available by {day}.", each.free, day=Date(each.by))
        if each.free
        else tr("No matching GPU is available by {day}.", day=Date(each.by))
    ),
    "no_block": lambda each: tr(
        "{number} matching GPUs are available by {day}, but they are scattered: there is no block of {gpus}.",
        number=each.free,
        day=Date(each.by),
        gpus=each.request.gpus,
    ),
    "quota": lambda each: tr(
        "The quota of {team} does not allow the request.", team=plain(each.request.team, NAME_MOST)
    ),
    "others": lambda _: tr("Requests of the same or a higher priority take the GPUs."),
}


def _requested_card(request: GpuRequest) -> str:
    if request.memory_gib is None:
        return plain(request.card or "", NAME_MOST)
    memory = tr("{number} GiB per GPU", number=Number(request.memory_gib))
    return (
        memory if request.card is None else tr("{card}, {memory}", card=plain(request.card, NAME_MOST), memory=memory)
    )


def balance_table(found: Reallocation | None) -> Table | None:
    """Return a row per team that gains or loses; None for a reader of one team, and if no GPU is reallocated."""
    if found is None or found.of_one_team or not found.served:
        return None
    balances = found.balances
    gained, lost = sum(each.gains for each in balances), sum(each.loses for each in balances)
    return Table(
        name="balance",
        title=tr("Who gains and who loses"),
        question=tr("How many GPUs does each team gain and lose by the proposal?"),
        headline=tr_many(
            "{number} {GPU changes|GPUs change} hands: {lost} from known teams, {free} without a known team.",
            gained,
            lost=lost,
            free=gained - lost,
        ),
        columns=(
            TEAM,
            column("gains", tr("gains"), "count"),
            column("loses", tr("loses"), "count"),
            column("keeps", tr("keeps its own"), "count"),
        ),
        rows=balances,
        shown=_LISTED,
        rest=_rest(balances),
        notes=(
            tr(
                "A team loses only GPUs that become free anyway: their work ends, or they are idle. GPUs without a"
                " known team are no team's loss."
            ),
        ),
    )


def left_table(found: Reallocation | None) -> Table | None:
    """Return the GPUs that go to no request; None for a reader of one team, and if no GPU is left."""
    if found is None or not found.left:
        return None
    return Table(
        name="left_over",
        title=tr("GPUs left over"),
        question=tr("Which GPUs are releasable, or become free, and go to no request?"),
        headline=tr_many(
            "{number} {GPU is|GPUs are} releasable, or {becomes|become} free, and {goes|go} to no request.",
            sum(len(each.gpus) for each in found.left),
        ),
        columns=(
            column("free_from", tr("free from"), "number", "supply.free_from", json_type="string"),
            *_supply_columns(found),
        ),
        rows=tuple(map(_Freed, found.left)),
        shown=_LISTED,
        rest=_rest(found.left),
        wide=True,
    )


def proposal_facts(found: Reallocation | None) -> Table | None:
    """Return for programs how far the proposal looks ahead, and what is proven; None without requests."""
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
