"""The ledger's definition once more, as plainly as it can be said: loops over the samples of one GPU, no frames.

Written from the design and docs/how-a-number-is-made.md, not from the code that it checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fallow.clock import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from analytics.ledger.settings import LedgerSettings

Row = dict[str, Any]
OUT_OF_ORDER = ("lost", "reset_required", "wedged", "driver_down")


@dataclass(frozen=True)
class Piece:
    """Some time of one GPU in one state, and of which whole stretch it is a part."""

    gpu: str
    start: int
    end: int
    state: str
    holder: str | None = None
    source: str | None = None
    whole: tuple[int, int] = (0, 0)


@dataclass
class Sample:
    """A row and the time that it stands for."""

    start: int
    end: int
    kind: str
    holder: str | None
    source: str | None
    zero: bool
    util: Fraction


def ledger(
    gpu_rows: Sequence[Row], process_rows: Sequence[Row], claims: Sequence[Row], settings: LedgerSettings
) -> tuple[set[Piece], set[tuple[str, int, int, int, int]]]:
    """Pieces of stretches and of spells at zero (gpu, start, end, spell start, spell end), both cut at midnight."""
    pieces: set[Piece] = set()
    spells: set[tuple[str, int, int, int, int]] = set()
    for gpu in {row["gpu"] for row in gpu_rows if not row["gpu"].startswith("MIG-")}:
        mine, lists, claimed = ([row for row in rows if row["gpu"] == gpu] for rows in (gpu_rows, process_rows, claims))
        known = _samples(mine, lists, claimed, settings)
        starts = [row["time"] + row["offset_ms"] for row in mine]
        ends = [row["time"] + row["offset_ms"] + row["interval_ms"] for row in mine]
        for piece in _stretches(gpu, known, (min(starts), max(ends)), settings):
            for start, end in _days(piece.start, piece.end):
                whole = (piece.start, piece.end)
                pieces.add(Piece(gpu, start, end, piece.state, piece.holder, piece.source, whole))
        for spell in _unbroken(known, lambda sample: (sample.zero,)):
            if spell[0].zero:
                first, last = spell[0].start, spell[-1].end
                spells |= {(gpu, start, end, first, last) for start, end in _days(first, last)}
    return pieces, spells


def _samples(rows: Iterable[Row], lists: list[Row], claims: list[Row], settings: LedgerSettings) -> list[Sample]:
    by_start = {}
    for row in rows:
        out = row["health"] in OUT_OF_ORDER
        if out or row["health"] == "asleep" or row["gpu_util_pct"] is not None or row["process_count"] == 0:
            by_start[row["time"] + row["offset_ms"]] = row
    found = []
    for start, row in sorted(by_start.items()):
        later = [each for each in by_start if each > start]
        end = min(*later, start + 3 * row["interval_ms"]) if later else start + row["interval_ms"]
        out = row["health"] in OUT_OF_ORDER
        util, highest = row["gpu_util_pct"], row.get("gpu_util_max_pct")
        sampled_zero = util is not None and highest == 0 and util < 0.5
        zero = not out and ((util == 0 and highest is None) or sampled_zero)
        kind, holder, source = _use(start, row, lists, claims, settings, out=out, busy=util is not None and not zero)
        found.append(Sample(start, end, kind, holder, source, zero, Fraction(util or 0)))
    return found


def _use(
    start: int, row: Row, lists: list[Row], claims: list[Row], settings: LedgerSettings, *, out: bool, busy: bool
) -> tuple[str, str | None, str | None]:
    """What the GPU was for, who had it and how that is known."""
    claiming = [each for each in claims if each["time"] <= start and (each["end"] is None or start < each["end"])]
    claimer = "+".join(sorted({each["user"] for each in claiming if each["user"] is not None})) or None
    users = _users(row["time"], lists)
    listed = row["process_count"] is not None and row["process_count"] > 0
    memory = row["process_count"] is None and (row.get("mem_used_bytes") or 0) > settings.held_min_bytes
    if out:
        return "unavailable", None, None
    if not (listed or memory or busy):
        if claiming:
            return "reserved", claimer, "claim"
        nothing_read = row["process_count"] is None and row.get("mem_used_bytes") is None
        return "free", None, "unwatched" if nothing_read and row["health"] != "asleep" else None
    if listed and users is not None:
        return "use", users, "process"
    if claiming:
        return "use", claimer, "claim"
    return "use", None, "process" if listed else "memory" if memory else None


def _users(time: int, lists: list[Row]) -> str | None:
    """The users that the list before the row names, or the one after it, each good for three of its intervals."""
    before = [each for each in lists if each["time"] <= time]
    after = [each for each in lists if each["time"] >= time]
    for side, pick in ((before, max), (after, min)):
        if side:
            moment = pick(each["time"] for each in side)
            there = [each for each in side if each["time"] == moment]
            if abs(time - moment) <= 3 * max(each["interval_ms"] for each in there):
                return "+".join(sorted({each["user"] for each in there if each["user"] is not None})) or None
    return None


def _unbroken(known: list[Sample], alike: Any) -> list[list[Sample]]:
    """Samples that are alike and follow each other without a gap."""
    groups: list[list[Sample]] = []
    for sample in known:
        if groups and groups[-1][-1].end == sample.start and alike(groups[-1][-1]) == alike(sample):
            groups[-1].append(sample)
        else:
            groups.append([sample])
    return groups


def _stretches(gpu: str, known: list[Sample], seen: tuple[int, int], settings: LedgerSettings) -> list[Piece]:
    labelled: list[tuple[str, Sample]] = []
    for spell in _unbroken(known, lambda each: (each.kind, each.holder, each.source, each.zero)):
        long = spell[-1].end - spell[0].start >= settings.idle_after_ms
        held = spell[0].kind == "use" and spell[0].zero and long
        labelled += [("held" if held else "busy" if each.kind == "use" else each.kind, each) for each in spell]
    labels = {id(each): label for label, each in labelled}
    pieces = []
    for group in _unbroken(known, lambda each: (labels[id(each)], each.holder, each.source)):
        first, start, end = group[0], group[0].start, group[-1].end
        state = labels[id(first)]
        if state == "busy":
            mean = sum(each.util * (each.end - each.start) for each in group) / (end - start)
            state = "low" if mean < Fraction(settings.low_below_pct) else "active"
        pieces.append(Piece(gpu, start, end, state, first.holder, first.source))
    edges = [(seen[0], seen[0]), *((each.start, each.end) for each in pieces), (seen[1], seen[1])]
    gaps = [(one[1], two[0]) for one, two in pairwise(edges) if one[1] < two[0]]
    return pieces + [Piece(gpu, start, end, "unknown") for start, end in gaps]


def _days(start: int, end: int) -> list[tuple[int, int]]:
    cuts = [start, *range((start // DAY_MS + 1) * DAY_MS, end, DAY_MS), end]
    return list(pairwise(cuts))
