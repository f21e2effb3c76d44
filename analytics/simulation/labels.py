"""What a simulated fleet really did, as labels for `fallow evaluate`: from the plan of the fleet, not from its rows.

The plan knows the future: whether whoever left a GPU comes back to it within the horizon decides whether it could be taken back.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from analytics.simulation.activity import idle_time
from analytics.simulation.placement import HostPlan, SimulatedFleet
from analytics.simulation.plan import plan_fleet
from analytics.simulation.stays import Stay
from fallow.clock import MINUTE_MS, WEEK_MS, format_ms

HELD_MS = 5 * MINUTE_MS
"""A pause from which on work is labelled as held, as long as the ledger's own default."""
COLUMNS = ("gpu", "since", "until", "state", "takeable", "rules")
_FOUND_BY = {"held_notebook": "held", "reserved_block": "reserved_unused", "never_used": "never_used"}
"""The rule that each planted situation is for."""


@dataclass(frozen=True)
class TrueSpan:
    """What one GPU did in [start_ms, end_ms), and whose it was; `user` is None where it was nobody's."""

    start_ms: int
    end_ms: int
    state: str
    user: str | None


def labels_csv(fleet: SimulatedFleet, horizon_ms: int = WEEK_MS) -> str:
    """The labels of every GPU over the whole period, and of the situations that were planted.

    An unused GPU could be taken back where its user does not compute on it again within the horizon; one without a user where
    nobody does. Of the last moments, whose horizon reaches beyond the period, that is not known.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    plan = plan_fleet(fleet)
    for host in plan.hosts:
        for gpu in host.host.gpus:
            spans = list(true_spans(fleet, host, gpu.index))
            for span in spans:
                for start_ms, end_ms, takeable in _takeable(span, spans, fleet.until_ms, horizon_ms):
                    said = "" if takeable is None else str(takeable).lower()
                    writer.writerow((gpu.uuid, format_ms(start_ms), format_ms(end_ms), span.state, said, ""))
    for each in plan.planted:
        if each.kind in _FOUND_BY:
            window = (format_ms(each.start_ms), format_ms(each.end_ms))
            writer.writerows((gpu, *window, "", "", _FOUND_BY[each.kind]) for gpu in each.gpus)
    return text.getvalue()


def true_spans(fleet: SimulatedFleet, host: HostPlan, position: int) -> Iterator[TrueSpan]:
    """What a GPU did from its first row to the end of the period, in order and without gaps."""
    at_ms, end_ms = max(fleet.since_ms, host.added_ms), host.lost_ms.get(position, fleet.until_ms)
    stays = sorted((stay for stay in host.stays if position in stay.gpus), key=lambda stay: stay.start_ms)
    for stay in stays:
        begins, ends = max(stay.start_ms, at_ms), min(stay.end_ms, end_ms)
        if begins >= ends:
            continue
        yield from _without_work(host, position, at_ms, begins)
        for start, stop, state in _work(stay, position):
            if min(stop, ends) > max(start, begins):
                yield TrueSpan(max(start, begins), min(stop, ends), state, stay.user)
        at_ms = ends
    yield from _without_work(host, position, at_ms, end_ms)
    if end_ms < fleet.until_ms:
        yield TrueSpan(end_ms, fleet.until_ms, "unavailable", None)


def _without_work(host: HostPlan, position: int, start_ms: int, end_ms: int) -> Iterator[TrueSpan]:
    """Time without a stay: free, and reserved from where a reservation begins."""
    reserved = next((each for each in host.reservations if position in each.gpus), None)
    from_ms = end_ms if reserved is None else min(max(reserved.start_ms, start_ms), end_ms)
    if start_ms < from_ms:
        yield TrueSpan(start_ms, from_ms, "free", None)
    if reserved is not None and from_ms < end_ms:
        yield TrueSpan(from_ms, end_ms, "reserved", reserved.user)


def _work(stay: Stay, position: int) -> Iterator[tuple[int, int, str]]:
    """The stay on one GPU: held where nothing ran for HELD_MS, else used."""
    if position in stay.unused:
        yield stay.start_ms, stay.end_ms, "held"
        return
    known = idle_time(stay)
    at_ms, used_from = stay.start_ms, stay.start_ms
    for turn, idle in zip(known.at_ms[1:], known.idle_ms[1:] - known.idle_ms[:-1], strict=True):
        # a last spell of work may reach beyond the stay, and what ends a held spell is the next one
        end_ms = min(int(turn), stay.end_ms)
        if idle > 0 and end_ms - at_ms >= HELD_MS:
            if used_from < at_ms:
                yield used_from, at_ms, "used"
            yield at_ms, end_ms, "held"
            used_from = end_ms
        at_ms = end_ms
    if used_from < stay.end_ms:
        yield used_from, stay.end_ms, "used"


def _takeable(
    span: TrueSpan, spans: Iterable[TrueSpan], until_ms: int, horizon_ms: int
) -> Iterator[tuple[int, int, bool | None]]:
    """The span cut where it stops being true, and known, that the GPU could be taken back."""
    if span.state in ("used", "unavailable"):
        yield span.start_ms, span.end_ms, False if span.state == "used" else None
        return
    uses = (
        each.start_ms
        for each in spans
        if each.state == "used" and each.start_ms >= span.end_ms and span.user in (None, each.user)
    )
    # after that a use could still be seen and its absence could not, which would count against every promise
    known_ms = until_ms - horizon_ms
    last_ms = next(uses, until_ms) - horizon_ms
    safe_ms = min(max(last_ms, span.start_ms), span.end_ms)
    judged_ms = min(max(known_ms, safe_ms), span.end_ms)
    edges = ((span.start_ms, safe_ms, True), (safe_ms, judged_ms, False), (judged_ms, span.end_ms, None))
    yield from (each for each in edges if each[0] < each[1])
