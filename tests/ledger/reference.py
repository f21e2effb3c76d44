"""The ledger's definition once more, as plainly as it can be said: loops over the samples of one host, no frames.

Written from the design and docs/how-a-number-is-made.md, not from the code that it checks. The sums that a stretch rests
on are the business of `duckdb_ledger`; MIG has tests of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fallow.clock import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from analytics.ledger.settings import LedgerSettings

Row = dict[str, Any]
OUT_OF_ORDER = ("lost", "missing", "reset_required", "wedged", "driver_down")
PERCENTS = ("gpu_util_pct", "gpu_util_max_pct", "sm_active_pct")
NEVER_NEGATIVE = ("mem_used_bytes", "power_w", "energy_mj")
CONTEXT_BYTES = 64 * 2**20
"""What a CUDA context takes at least: with less memory in use, nothing runs on the GPU."""
USE = (*PERCENTS, "process_count", "mem_used_bytes")


@dataclass(frozen=True)
class Use:
    """What a GPU was for, who had it, how that is known, for whom it is charged and under what name."""

    kind: str
    holder: str | None = None
    source: str | None = None
    account: str | None = None
    job: str | None = None


@dataclass(frozen=True)
class Piece:
    """Some time of one GPU in one state, and of which whole stretch it is a part."""

    gpu: str
    start: int
    end: int
    state: str
    holder: str | None = None
    source: str | None = None
    account: str | None = None
    job: str | None = None
    whole: tuple[int, int] = (0, 0)


@dataclass
class Sample:
    """A row, the time that it stands for and what it says."""

    start: int
    end: int
    use: Use
    zero: bool
    util: Fraction | None


@dataclass
class Stretch:
    """Samples that follow one another in one state."""

    gpu: str
    start: int
    end: int
    state: str
    use: Use
    samples: list[Sample]


def ledger(
    gpu_rows: Sequence[Row], process_rows: Sequence[Row], claims: Sequence[Row], settings: LedgerSettings
) -> tuple[set[Piece], set[tuple[str, int, int, int, int]]]:
    """Pieces of stretches and of spells at zero (gpu, start, end, spell start, spell end), both cut at midnight."""
    pieces: set[Piece] = set()
    spells: set[tuple[str, int, int, int, int]] = set()
    for each in stretches(gpu_rows, process_rows, claims, settings):
        use, whole = each.use, (each.start, each.end)
        for start, end in days(each.start, each.end):
            pieces.add(
                Piece(each.gpu, start, end, each.state, use.holder, use.source, use.account, use.job, whole)
            )  # fmt: skip
    for gpu, known in _by_gpu(gpu_rows, process_rows, claims, settings):
        for spell in _unbroken(known, lambda sample: sample.zero):
            if spell[0].zero:
                first, last = spell[0].start, spell[-1].end
                spells |= {(gpu, start, end, first, last) for start, end in days(first, last)}
    return pieces, spells


def stretches(
    gpu_rows: Sequence[Row], process_rows: Sequence[Row], claims: Sequence[Row], settings: LedgerSettings
) -> list[Stretch]:
    """Every stretch of every GPU."""
    found = []
    for gpu, known in _by_gpu(gpu_rows, process_rows, claims, settings):
        mine = [row for row in map(believed, gpu_rows) if row is not None and row["gpu"] == gpu]
        starts = [start_of(row) for row in mine]
        ends = [start_of(row) + row["interval_ms"] for row in mine]
        found += _stretches(gpu, known, (min(starts), max(ends)), settings)
    return found


def _by_gpu(
    gpu_rows: Sequence[Row], process_rows: Sequence[Row], claims: Sequence[Row], settings: LedgerSettings
) -> Iterable[tuple[str, list[Sample]]]:
    rows = [row for row in map(believed, gpu_rows) if row is not None]
    for gpu in sorted({row["gpu"] for row in rows}):
        mine, lists, claimed = ([row for row in side if row["gpu"] == gpu] for side in (rows, process_rows, claims))
        yield gpu, _samples(mine, lists, claimed, settings)


def believed(row: Row) -> Row | None:
    """The row without the values that cannot be; None for one that stands for no time, or for another day's."""
    if row["interval_ms"] is None or row["interval_ms"] <= 0:
        return None
    if start_of(row) // DAY_MS != row["time"] // DAY_MS:  # it begins in the next day, which its file does not hold
        return None
    kept = dict(row)
    for name, least, most in (
        *((name, 0, 100.5) for name in PERCENTS),
        *((name, 0, float("inf")) for name in NEVER_NEGATIVE),
        ("gpu_util_coverage_ratio", 0, 1.01),
    ):
        value = kept.get(name)
        if value is not None and not (least <= value <= most and value < float("inf")):
            kept[name] = None
    return kept


def start_of(row: Row) -> int:
    """When the row's time really began."""
    return max(int(row["time"]) + int(row["offset_ms"]), int(row["time"]) // DAY_MS * DAY_MS)


def _samples(rows: Iterable[Row], lists: list[Row], claims: list[Row], settings: LedgerSettings) -> list[Sample]:
    by_start: dict[int, Row] = {}
    for row in rows:
        start = start_of(row)
        if start not in by_start or _most_used_first(row) < _most_used_first(by_start[start]):
            by_start[start] = row
    released = {start for start, row in by_start.items() if row["health"] == "released"}
    by_start = {start: row for start, row in by_start.items() if _tells(row)}
    found = []
    for start, row in sorted(by_start.items()):
        later = [each for each in by_start.keys() | released if each > start]
        end = min(*later, start + 3 * row["interval_ms"]) if later else start + row["interval_ms"]
        out = row["health"] in OUT_OF_ORDER
        util, highest = row["gpu_util_pct"], row.get("gpu_util_max_pct")
        sampled_zero = util is not None and highest == 0 and util < 0.5
        zero = not out and ((util == 0 and highest is None) or sampled_zero)
        named = nearest_list(row["time"], lists)
        use = _use(start, row, named, claims, settings, out=out, busy=util is not None and not zero)
        found.append(Sample(start, end, use, zero, None if util is None else Fraction(util)))
    return found


def _most_used_first(row: Row) -> tuple[list[float], str]:
    """What makes a row count before another one of the same moment; where both saw the same use, the name of its health."""
    return [1 if row.get(name) is None else -row[name] for name in USE], row["health"] or ""


def _tells(row: Row) -> bool:
    """Whether the row says anything about the state."""
    out = row["health"] in (*OUT_OF_ORDER, "asleep")
    return out or row["gpu_util_pct"] is not None or row["process_count"] == 0


def _use(
    start: int, row: Row, named: list[Row], claims: list[Row], settings: LedgerSettings, *, out: bool, busy: bool
) -> Use:
    """What the GPU was for, who had it and how that is known."""
    claiming = [each for each in claims if each["time"] <= start < _end_of(each, claims)]
    users = joined(single(holder_of(each)) for each in named)
    listed = row["process_count"] is not None and row["process_count"] > 0
    memory = row["process_count"] is None and (row.get("mem_used_bytes") or 0) > settings.held_min_bytes
    if out:
        return Use("unavailable")
    if not (listed or memory or busy):
        used_bytes = row.get("mem_used_bytes")
        is_empty = used_bytes is not None and used_bytes < CONTEXT_BYTES
        is_unwatched = row["process_count"] is None and not is_empty and row["health"] != "asleep"
        if claiming:
            return _claimed("reserved", claiming, "claim_unwatched" if is_unwatched else "claim")
        return Use("free", source="unwatched" if is_unwatched else None)
    if claiming and not (listed and users is not None):
        return _claimed("use", claiming)
    if not listed:
        return Use("use", source="memory" if memory else None)
    accounts = joined(
        single(each.get("namespace") if each.get("slurm_account") is None else each["slurm_account"]) for each in named
    )
    return Use("use", users, "process", accounts, joined(map(job_of, named)))


def _end_of(claim: Row, claims: list[Row]) -> float:
    """When a claim ended: a row that says so counts before one that does not, else the latest that it can have."""
    same = [each for each in claims if (each["claim_id"], each["time"]) == (claim["claim_id"], claim["time"])]
    ends = [each["end"] for each in same if each["end"] is not None]
    return (
        max(ends) if ends else min([each["planned_end"] for each in same if each.get("planned_end")] or [float("inf")])
    )


def _claimed(kind: str, claims: list[Row], source: str = "claim") -> Use:
    word = {"slurm": "slurm", "kubernetes": "pod"}
    jobs = joined(f"{word.get(str(each.get('scheduler')), 'claim')}:{each['claim_id']}" for each in claims)
    holder, account = (joined(single(each.get(name)) for each in claims) for name in ("user", "account"))
    return Use(kind, holder, source, account, jobs)


def job_of(row: Row) -> str | None:
    """What a process's work is called."""
    if row.get("slurm_job_id") is not None:
        return f"slurm:{row['slurm_job_id']}"
    if row.get("pod") is not None:
        return f"pod:{row.get('namespace') or 'default'}/{row['pod']}"
    return None if row.get("ray_job_id") is None else f"ray:{row['ray_job_id']}"


def holder_of(row: Row) -> str | None:
    """Whose a process is: root and numbers inside a container are no names of people."""
    user, container = row.get("user"), row.get("container")
    if user is None or job_of(row) is not None:
        return user
    if container is not None and (user == "root" or user.isdigit()):
        return f"{row['container_runtime']}/{container}"
    return row["unit"] if row.get("unit") is not None and user == "root" else user


def single(name: str | None) -> str | None:
    """One person's or account's name, in which a `+` would look like two."""
    return None if name is None else name.replace("+", "\\")


def joined(names: Iterable[str | None]) -> str | None:
    """The names that are known, each once, in order."""
    return "+".join(sorted({name for name in names if name is not None})) or None


def nearest_list(time: int, lists: list[Row]) -> list[Row]:
    """The processes of the list before the row, else of the one after it, on its day, each good for three of its intervals."""
    today = [each for each in lists if each["time"] // DAY_MS == time // DAY_MS]
    before = [each for each in today if each["time"] <= time]
    after = [each for each in today if each["time"] >= time]
    for side, pick in ((before, max), (after, min)):
        if side:
            moment = pick(each["time"] for each in side)
            there = [each for each in side if each["time"] == moment]
            if abs(time - moment) <= 3 * max(each["interval_ms"] for each in there):
                return there
    return []


def _unbroken(known: list[Sample], alike: Callable[[Sample], object]) -> list[list[Sample]]:
    """Samples that are alike and follow each other without a gap."""
    groups: list[list[Sample]] = []
    for sample in known:
        if groups and groups[-1][-1].end == sample.start and alike(groups[-1][-1]) == alike(sample):
            groups[-1].append(sample)
        else:
            groups.append([sample])
    return groups


def _stretches(gpu: str, known: list[Sample], seen: tuple[int, int], settings: LedgerSettings) -> list[Stretch]:
    labels: dict[int, str] = {}
    for spell in _unbroken(known, lambda each: (each.use, each.zero)):
        long = spell[-1].end - spell[0].start >= settings.idle_after_ms
        held = spell[0].use.kind == "use" and spell[0].zero and long
        for each in spell:
            labels[id(each)] = "held" if held else "busy" if each.use.kind == "use" else each.use.kind
    found = []
    for group in _unbroken(known, lambda each: (labels[id(each)], each.use)):
        first, start, end = group[0], group[0].start, group[-1].end
        state = labels[id(first)]
        if state == "busy":
            state = _worked(group, settings)
        found.append(Stretch(gpu, start, end, state, first.use, group))
    edges = [(seen[0], seen[0]), *((each.start, each.end) for each in found), (seen[1], seen[1])]
    gaps = [(one[1], two[0]) for one, two in pairwise(edges) if one[1] < two[0]]
    return found + [Stretch(gpu, start, end, "unknown", Use("unknown"), []) for start, end in gaps]


def _worked(group: list[Sample], settings: LedgerSettings) -> str:
    """Low or active, by the mean over the time for which a utilization was measured; without any nobody can call it low."""
    known = [(each.util, each.end - each.start) for each in group if each.util is not None]
    mean = sum((util * weight for util, weight in known), Fraction(0)) / max(1, sum(weight for _, weight in known))
    return "low" if known and mean < Fraction(settings.low_below_pct) else "active"


def days(start: int, end: int) -> list[tuple[int, int]]:
    """The span cut at every UTC midnight."""
    cuts = [start, *range((start // DAY_MS + 1) * DAY_MS, end, DAY_MS), end]
    return list(pairwise(cuts))
