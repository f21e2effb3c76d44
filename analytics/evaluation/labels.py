"""Labels from others: what GPUs did, whether they could be reclaimed, and which rules should find them.

An empty cell is unknown, and nothing is judged by it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import polars as pl
import pyarrow as pa

from analytics.allocations.times import Moments, read_moments
from analytics.importers.records import HandTable, check_header, named_lines, read_lines
from analytics.importers.source import InputLimits, open_source, read_parquet
from analytics.intervals import merge
from analytics.inventory import Inventory
from analytics.names import JOINER
from analytics.rules import RULES
from analytics.states import IN_USE, OBSERVED, UNUSED
from fallow.errors import InputError

COLUMNS = {
    "gpu": "UUID of the GPU or MIG instance as the lake has it, or `host/index`",
    "since": "start of the time of the label",
    "until": "end of that time, exclusive",
    "state": "what the GPU did: a state of the ledger, or `used` or `unused`",
    "takeable": "true or false: whether the GPU could have been reclaimed without being missed",
    "rules": "rules that should find the GPU in that time, joined by `+`",
    "not_rules": "rules that should not find it, joined by `+`; `others`: every rule that `rules` does not name",
    "note": "any text; it is not evaluated",
}
"""The columns that a file of labels may have, and their meaning."""

STATES_MEANT: Mapping[str, tuple[str, ...]] = {
    **{state: (state,) for state in OBSERVED},
    "unused": UNUSED,
    "used": IN_USE,
}
"""Values of `state`, and the ledger's states that agree with each."""

OTHERS = "others"
_TABLE = HandTable("a label", COLUMNS, (frozenset({"gpu", "since", "until"}),), "gpu, since and until")
_YES, _NO = ("true", "yes", "1"), ("false", "no", "0")
_FACT_COLUMNS = ("state", "takeable", "rules", "not_rules")


@dataclass(frozen=True)
class Labels:
    """The labels as spans `gpu`, `time`, `end`, without overlaps or contradictions."""

    lines: int
    states: pl.DataFrame
    """Spans with `state`."""
    takeable: pl.DataFrame
    """Spans with `takeable`."""
    rules: pl.DataFrame
    """Spans with `rule` and `ought`: whether the rule should fire."""
    strangers: tuple[str, ...]
    """GPUs that the lake does not know, by their names in the file. Their lines judge nothing."""

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of the lake that have a label."""
        return pl.concat([each["gpu"] for each in (self.states, self.takeable, self.rules)]).n_unique()


def read_labels(path: str, zone: str, known: Mapping[str, Sequence[str]], limits: InputLimits) -> Labels:
    """Return the labels of a file; times without an offset are in the zone. Raises InputError that names the lines.

    `known` has the GPUs of the lake by each name that a line may use (`gpu_names`).
    """
    lines, unit = _read(path, limits)
    moments = {name: read_moments(lines[name], zone) for name in ("since", "until")}
    rows = lines.with_columns(
        time=moments["since"].first,
        end=moments["until"].first,
        state=pl.col("state").str.to_lowercase(),
        takeable=pl.col("takeable").str.to_lowercase(),
    )
    _refuse(path, rows, moments, known, unit)
    strangers = rows.filter(~pl.col("gpu").is_in(list(known)))["gpu"].unique(maintain_order=True).to_list()
    if len(rows) and len(strangers) == rows["gpu"].n_unique():
        near = get_close_matches(strangers[0], list(known), n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InputError(
            f"{path}: the lake knows none of its GPUs, such as {strangers[0]}",
            f"{hint}write UUIDs as `fallow findings --json` has them, or host/index",
        )
    one = {name: gpus[0] for name, gpus in known.items()}
    rows = rows.filter(~pl.col("gpu").is_in(strangers)).with_columns(pl.col("gpu").replace(one))
    facts = (
        rows.filter(pl.col("state").is_not_null()).select("gpu", "time", "end", "line", value="state"),
        rows.filter(pl.col("takeable").is_not_null()).select(
            "gpu", "time", "end", "line", value=pl.col("takeable").is_in(_YES)
        ),
        _rules(rows),
    )
    for each in facts:
        _refuse_contradictions(path, each, unit)
    states, takeable, rules = (
        merge(each, [name for name in each.columns if name not in ("time", "end", "line")]) for each in facts
    )
    return Labels(
        len(lines),
        states.rename({"value": "state"}),
        takeable.rename({"value": "takeable"}),
        rules.rename({"value": "ought"}),
        tuple(strangers),
    )


def gpu_names(gpus: Iterable[str], inventory: Inventory) -> dict[str, tuple[str, ...]]:
    """Return the lake's GPUs by UUID and by `host/index`; several if an index had different cards over time."""
    found: dict[str, list[str]] = defaultdict(list)
    for gpu in gpus:
        found[gpu].append(gpu)
        device = inventory.devices.get(gpu)
        if device is not None and device.gpu_index is not None and device.parent_gpu is None:
            for host in inventory.hosts_of.get(gpu, (device.host,)):
                found[f"{host}/{device.gpu_index}"].append(gpu)
    return {name: tuple(sorted(set(own))) for name, own in found.items()}


def _read(path: str, limits: InputLimits) -> tuple[pl.DataFrame, str]:
    """Return the lines as text with `line`, and the word for a line of the file."""
    source = open_source(path, limits)
    if source.text is not None:
        return read_lines(path, _TABLE, limits), "line"
    try:
        frame = read_parquet(source, None, limits)
        names = frame.columns
        check_header(path, names, _TABLE)
    except (pa.ArrowException, OSError) as error:
        reason = (str(error).splitlines() or ["damaged"])[0].rstrip(".")
        raise InputError(f"{path} is not a readable Parquet file ({reason})", "check or write it again") from error
    cells = [_as_text(frame[name]) for name in names]
    missing = [pl.Series(name, [None] * len(frame), pl.String) for name in COLUMNS if name not in names]
    return pl.DataFrame([*cells, *missing]).with_row_index("line", 1).cast({"line": pl.Int64}), "row"


def _as_text(values: pl.Series) -> pl.Series:
    """Return the column as text, as in a CSV; empty text is null."""
    if isinstance(values.dtype, pl.List):
        values = values.cast(pl.List(pl.String)).list.join(JOINER)
    elif isinstance(values.dtype, pl.Datetime):
        zoned = values.dtype.time_zone is not None
        values = (values.dt.convert_time_zone("UTC") if zoned else values).dt.strftime(
            "%Y-%m-%dT%H:%M:%S%.3f" + ("Z" if zoned else "")
        )
    text = values.cast(pl.String).str.strip_chars()
    return text.set(text == "", None)


def _refuse(
    path: str, rows: pl.DataFrame, moments: Mapping[str, Moments], known: Mapping[str, Sequence[str]], unit: str
) -> None:
    """Raise InputError for the lines that cannot be used, each with its reason."""
    several = {name: gpus for name, gpus in known.items() if len(gpus) > 1}
    wrong = []
    for name, read in moments.items():
        for reason, where in (
            (f"no {name}", read.absent),
            (f"{name} is not a time, or one that the zone skips", read.wrong),
            (f"{name} is not in the years 2000 to 9999", read.outside),
            (f"{name} lies in the hour that the zone repeats: write an offset", read.ambiguous),
        ):
            wrong += [(line, reason) for line in rows.filter(where)["line"]]
    wrong += [(line, "it ends before it starts") for line in rows.filter(pl.col("end") <= pl.col("time"))["line"]]
    for row in rows.iter_rows(named=True):
        wrong += [(row["line"], reason) for reason in _reasons(row, several)]
    if wrong:
        raise InputError(f"{path}: {named_lines(wrong, unit)}", "correct them: nothing was judged")


def _reasons(row: Mapping[str, str | None], several: Mapping[str, Sequence[str]]) -> Iterable[str]:
    """Yield the errors in the cells of a line."""
    gpu, state, takeable = row["gpu"], row["state"], row["takeable"]
    if gpu is None:
        yield "no gpu"
    elif gpu in several:
        yield f"{gpu} was {' and '.join(several[gpu])}: name the UUID"
    if all(row[name] is None for name in _FACT_COLUMNS):
        yield f"the line has no label: give one of {', '.join(_FACT_COLUMNS)}"
    if state == "unknown":
        yield "'unknown' is not a state of a GPU: leave the cell empty"
    elif state is not None and state not in STATES_MEANT:
        yield f"state '{state}' is none of {', '.join(STATES_MEANT)}"
    if takeable is not None and takeable not in (*_YES, *_NO):
        yield f"takeable '{takeable}' is neither true nor false"
    ought, not_ought = _rule_names(row["rules"]), _rule_names(row["not_rules"])
    for name in (*ought, *(each for each in not_ought if each != OTHERS)):
        if name not in _RULES:
            near = get_close_matches(name, _RULES, n=1)
            yield f"there is no rule '{name}'{f', did you mean {near[0]}?' if near else ''}"
    if both := sorted(set(ought) & set(not_ought)):
        yield f"{both[0]} is in rules and in not_rules"


_RULES = tuple(rule.name for rule in RULES)


def _rule_names(cell: str | None) -> tuple[str, ...]:
    return () if cell is None else tuple(name.strip() for name in cell.split(JOINER))


def _rules(rows: pl.DataFrame) -> pl.DataFrame:
    """Return a row per line and rule: `gpu`, `rule`, `time`, `end`, `line` and `value` (True if it should fire)."""
    rule_rows: list[tuple[str, str, int, int, int, bool]] = []
    for row in rows.filter(pl.col("rules").is_not_null() | pl.col("not_rules").is_not_null()).iter_rows(named=True):
        ought, not_ought = _rule_names(row["rules"]), _rule_names(row["not_rules"])
        others = [name for name in _RULES if name not in ought] if OTHERS in not_ought else not_ought
        for value, names in ((True, ought), (False, others)):
            rule_rows += [(row["gpu"], name, row["time"], row["end"], row["line"], value) for name in names]
    columns = {"gpu": pl.String, "rule": pl.String, "time": pl.Int64, "end": pl.Int64, "line": pl.Int64}
    return pl.DataFrame(rule_rows, schema={**columns, "value": pl.Boolean}, orient="row")


def _refuse_contradictions(path: str, facts: pl.DataFrame, unit: str) -> None:
    """Raise InputError if two lines about one GPU, or one GPU and rule, overlap in time and contradict each other."""
    about = [name for name in ("gpu", "rule") if name in facts.columns]
    latest_ends: dict[object, tuple[int, int]] = {}  # per value: the latest end so far, and the line that has it
    key: tuple[object, ...] = ()
    for row in facts.sort(*about, "time", "line").iter_rows(named=True):
        if (now := tuple(row[name] for name in about)) != key:
            key, latest_ends = now, {}
        for value, (end, line) in latest_ends.items():
            if value != row["value"] and end > row["time"]:
                first, second = sorted((line, row["line"]))
                raise InputError(
                    f"{path}: {unit}s {first} and {second} contradict each other on {' and '.join(map(str, key))}",
                    "correct one of them, or end one before the other starts: nothing was judged",
                )
        end, line = latest_ends.get(row["value"], (0, 0))
        latest_ends[row["value"]] = max((end, line), (row["end"], row["line"]))
