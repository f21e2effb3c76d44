"""The figures of judged fleets, from tables of fallow's answers and the truth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import polars as pl

from analytics.proportions import wilson

GRADES = ("high", "medium", "low")
EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1.0)
Figures = dict[str, Any]

_KEPT = pl.col("unused_7d")


def share(frame: pl.DataFrame, right: pl.Expr) -> Figures:
    """Return how many rows are right, with Wilson's 90 % interval."""
    cases = frame.select(right=right.fill_null(value=False))["right"]
    right_count, count = int(cases.sum()), len(cases)
    if not count:
        return {"right": 0, "of": 0, "ratio": None, "interval_90": None}
    ratio = right_count / count
    interval = [round(bound, 3) for bound in wilson(ratio, count)]
    return {"right": right_count, "of": count, "ratio": round(ratio, 3), "interval_90": interval}


def summed(fleets: Sequence[Mapping[str, pl.DataFrame]]) -> Figures:
    """Return every figure of some fleets together."""
    tables = {name: pl.concat([fleet[name] for fleet in fleets]) for name in fleets[0]}
    gpus, recommended = tables["gpus"], tables["recommended"]
    promised = recommended.with_columns(promise=1 - pl.col("used_again"))
    return {
        "fleets": len(fleets),
        "gpu_weeks": len(gpus),
        "grades": _grades(gpus),
        "promises": _promises(gpus),
        "promises of 1 d": _promises(gpus, "promise_1d", "unused_1d"),
        "recall of 1 d promised at 95 %": share(
            gpus.filter(pl.col("idle"), "unused_1d"), pl.col("promise_1d") >= EDGES[-2]
        ),
        "promises of recommendations": _promises(promised),
        "recommended": {
            f"{action}, {grade}": share(recommended.filter(action=action, grade=grade), _KEPT)
            for action in ("release", "reclaim")
            for grade in GRADES[:2]
        },
        "days": _days(tables["idle_intervals"]),
        "pools": _pools(tables["pools"]),
        "rules": _rules(gpus, tables["named"]),
        "uses": _uses(gpus),
    }


def _grades(gpus: pl.DataFrame) -> Figures:
    """Return per grade the share that stayed unused, and the share of all unused GPUs with this grade or better."""
    idle = gpus.filter("idle")
    worth, found = idle.filter(_KEPT), Figures()
    for count, grade in enumerate(GRADES, 1):
        own, better = gpus.filter(grade=grade), pl.col("grade").is_in(GRADES[:count])
        found[grade] = {
            "kept 7 d": share(own, _KEPT),
            "kept 1 d": share(own, pl.col("unused_1d")),
            "kept 7 d, this or better": share(gpus.filter(better), _KEPT),
            "recall": share(worth, better),
            **{f"recall, {state}": share(worth.filter(state=state), better) for state in ("held", "reserved", "free")},
        }
    return found | {"any idle": {"kept 7 d": share(idle, _KEPT), "kept 1 d": share(idle, pl.col("unused_1d"))}}


def _promises(cases: pl.DataFrame, promise: str = "promise", kept: str = "unused_7d") -> Figures:
    """Return by class of probability the promised and the kept share."""
    found = Figures()
    for low, high in pairwise(EDGES):
        own = cases.filter(pl.col(promise).is_between(low, high, closed="both" if high == 1 else "left"))
        promised = own[promise].mean()
        found[f"{low:.2f} to {high:.2f}"] = {"promised": promised and round(float(str(promised)), 3)} | share(
            own, pl.col(kept)
        )
    return found


def _days(idle_intervals: pl.DataFrame) -> Figures:
    """Return after how many days half and nine of ten are named, by Kaplan and Meier: a lake may end before."""
    found: Figures = {"idle_intervals": len(idle_intervals)}
    for grade in GRADES[:2]:
        ends = idle_intervals.select(day=grade, named=f"is_{grade}").sort("day")
        left, known = 1.0, dict[float, float]()
        for day in ends.filter("named")["day"].unique().sort():
            left *= 1 - len(ends.filter("named", day=day)) / len(ends.filter(pl.col("day") >= day))
            known[day] = left
        for name, quantile in (("median", 0.5), ("9 of 10", 0.1)):
            found[f"{grade}, {name}"] = next((round(day, 1) for day, left in known.items() if left <= quantile), None)
    return found


def _pools(pools: pl.DataFrame) -> Figures:
    """Return the accuracy of the pools' numbers, and of the GPUs and hosts that they name."""
    numbered, known = pools.filter(pl.col("point") > 0), pools.drop_nulls(["low", "high"])
    promised = pools.filter(pl.col("named") > 0).drop_nulls("promise")
    named = pools.select(kept=pl.lit(value=True).repeat_by("kept")).explode("kept").drop_nulls()
    lost = (
        pools.select(kept=pl.lit(value=False).repeat_by(pl.col("named") - pl.col("kept"))).explode("kept").drop_nulls()
    )
    found: Figures = {
        "pool-weeks": len(pools),
        "pool-weeks with a number": len(numbered),
        "GPUs to release": int(pools["point"].sum()),
        "named GPUs kept 7 d": share(pl.concat([named, lost]), pl.col("kept")),
        "promised of them": _ratio(promised.select(pl.col("promise") * pl.col("named")), promised.select("named")),
        "whole hosts": int(pools["hosts"].sum()),
        "whole hosts with a live process": int(pools["hosts_with_process"].sum()),
        "whole hosts used within 7 d": int(pools["hosts_used"].sum()),
        "interval width of the pool": _ratio(known.select((pl.col("high") - pl.col("low")) / pl.col("gpus"))),
        "lower edge is the point": share(known, pl.col("low") == pl.col("point")),
    }
    for need in ("worked", "needed", "taken"):
        found[f"number held, {need}"] = share(numbered, pl.col(f"short_hours_{need}") == 0)
        found[f"number short by at most 5 % of hours, {need}"] = share(numbered, pl.col(f"short_hours_{need}") <= 8)
        found[f"GPUs short at most, {need}"] = numbered[f"short_gpus_{need}"].max()
        found[f"interval covers, {need}"] = share(known, pl.col(f"left_{need}").is_between("low", "high"))
    return found


def _ratio(parts: pl.DataFrame, of: pl.DataFrame | None = None) -> float | None:
    """Return the sum of the one column over that of the other, or over the number of rows; None without any."""
    whole = len(parts) if of is None else float(of.sum().item() or 0)
    return round(float(parts.sum().item()) / whole, 3) if whole else None


def _rules(gpus: pl.DataFrame, named: pl.DataFrame) -> Figures:
    """Return per rule the share of its GPUs that stayed unused, and its accuracy on labels by plain words."""
    found = Figures()
    labelled = [name.removeprefix("ought_") for name in gpus.columns if name.startswith("ought_")]
    for rule in sorted({*named["rule"], *labelled}):
        own = named.filter(rule=rule)
        found[rule] = {
            "findings": own.select("seed", "week", "finding").n_unique(),
            **{f"kept 7 d, {grade}": share(own.filter(grade=grade), _KEPT) for grade in GRADES},
        }
        if rule in labelled:
            ought = gpus.filter(f"ought_{rule}")
            found[rule] |= {
                "right by label": share(
                    own.unique(("seed", "week", "gpu")).drop_nulls(f"ought_{rule}"), pl.col(f"ought_{rule}")
                ),
                "recall": share(ought, pl.col("rules").list.contains(rule)),
                "recall by any at medium or better": share(ought, pl.col("grade").is_in(GRADES[:2])),
            }
    return found


def _uses(gpus: pl.DataFrame) -> Figures:
    """Return by the only use of a GPU the right, wrong and missed cases at medium or better."""
    sure, worth = pl.col("grade").is_in(GRADES[:2]).fill_null(value=False), pl.col("idle") & _KEPT
    counted = gpus.group_by("kind").agg(
        right=(sure & _KEPT).sum(), wrong=(sure & ~_KEPT).sum(), missed=(worth & ~sure).sum()
    )
    return {
        kind: {"right": right, "wrong": wrong, "missed": missed}
        for kind, right, wrong, missed in counted.sort("kind").iter_rows()
    }


def as_lines(found: Figures, indent: str = "") -> Iterator[str]:
    """Yield the figures as text."""
    for name, value in found.items():
        if not isinstance(value, dict):
            yield f"{indent}{name}: {'-' if value is None else value}"
        elif "of" in value:
            before = f"promised {value['promised']}, " if value.get("promised") else ""
            bounds = (
                ""
                if value["ratio"] is None
                else f" = {value['ratio']:.3f} ({value['interval_90'][0]:.3f} to {value['interval_90'][1]:.3f})"
            )
            yield f"{indent}{name}: {before}{value['right']} of {value['of']}{bounds}"
        elif value and all(isinstance(each, int) for each in value.values()):
            yield f"{indent}{name}: " + ", ".join(f"{key} {each}" for key, each in value.items())
        else:
            yield f"{indent}{name}"
            yield from as_lines(value, indent + "  ")
