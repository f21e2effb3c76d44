"""`python -m benchmarks strangers`: fallow's findings on independent fleets, against the later use of every GPU.

Fleets and their truth were written without a look at any rule (`strangers_fleet.py`). The lake grows week by week. At
the end of each week fallow's command line runs, so that it knows nothing later. The generator knows whether a GPU runs
a kernel again. Fleets of SEEN may be read while the product is tuned, those of UNSEEN may not.
`python -m benchmarks.strangers SEED...` judges single fleets and stores nothing. FALLOW_BENCH_WORKERS fleets are judged
at once (default 1).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.calibration_page import write_page
from benchmarks.measure import Figure
from benchmarks.strangers_figures import GRADES, as_lines, summed
from benchmarks.strangers_fleet import LEAD, World, made_world, time_ms, write_week
from benchmarks.strangers_people import DAY, HOUR, WEEK, recorded
from fallow.cli import main
from fallow.clock import utc_day
from tests.lakes import made_lake

Said = Mapping[str, Any]
Tables = dict[str, pl.DataFrame]
SEEN, UNSEEN = (1, 2, 3, 4), (101, 102, 103, 104)
STORED = Path(__file__).parent / "strangers.json"
POOL_RULE = "releasable_pool"
"""The rule about a pool's number of GPUs, which is judged per pool."""
QUANTILE = 0.95
"""The share of a week's hours that a pool's peak demand covers."""
PROMISES = ("stays_unused_probability", "stays_unused_1d_probability")
"""The evidence with a promise for seven days, and for one day."""
NAMED = dict.fromkeys(("rule", "finding", "gpu", "grade"), pl.String) | dict.fromkeys(
    ("promise", "promise_1d"), pl.Float64
)


def asked(lake: str, slot: int, verb: str, *flags: str) -> Said:
    """Return a verb's answer for the week that ends at the slot."""
    since, until = (utc_day(int(time_ms(day))) for day in (slot - WEEK, slot - DAY))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        code = main([verb, "--lake", lake, "--since", since, "--until", until, "--json", *flags])
    if code:
        raise SystemExit(code)
    found: Said = json.loads(printed.getvalue())
    return found


def judged_fleet(seed: int) -> Tables:
    """Return fallow's answers about a fleet, with its truth.

    `gpus` has each GPU at each moment, and `pools` each pool and model at each moment. `named` has each GPU of each
    finding that would reclaim it, `recommended` each GPU of ranked recommendations. `idle_intervals` has each GPU that
    stays unused to the end.
    """
    os.environ["FALLOW_LEDGER_WORKERS"] = "1"
    world, parts = made_world(seed), list[Tables]()
    with tempfile.TemporaryDirectory() as folder:
        lake = made_lake(folder)
        for slot in range(LEAD + WEEK, LEAD + world.days * DAY + 1, WEEK):
            write_week(world, lake, slot)
            if slot in world.moments:
                parts.append(
                    _moment(
                        world, slot, asked(folder, slot, "findings", "--all"), asked(folder, slot, "recommendations")
                    )
                )
    tables = {name: pl.concat([part[name] for part in parts]) for name in parts[0]}
    tables["idle_intervals"] = _idle_intervals(world, tables["gpus"])
    print(f"fleet {seed} of {world.days} days is judged", file=sys.stderr, flush=True)
    return {name: table.with_columns(seed=pl.lit(seed)) for name, table in tables.items()}


def _moment(world: World, slot: int, findings: Said, recommendations: Said) -> Tables:
    truth = truth_at(world, slot)
    rows = [
        (each["rule"], each["finding_id"], gpu, each["confidence"], *map(each["evidence"].get, PROMISES))
        for each in findings["findings"]
        for gpu in each["reclaimable_gpus"]
    ]
    named = pl.DataFrame(rows, NAMED, orient="row").with_columns(pl.col("grade").cast(pl.Enum(GRADES)))
    best = (
        named.filter(pl.col("rule") != POOL_RULE)
        .sort("grade", "promise", descending=[False, True], nulls_last=True)
        .group_by("gpu", maintain_order=True)
        .agg(pl.col("grade", "promise", "promise_1d").first(), rules=pl.col("rule").unique().sort())
    )
    recommended = [
        (each["action"], gpu, each["confidence"], (each["risk"] or {}).get("probability"))
        for each in recommendations["recommendations"]
        if each["ranked"] and each["action"] in ("release", "reclaim")
        for gpu in each["gpus_now"]
    ]
    schema = {"action": pl.String, "gpu": pl.String, "grade": pl.String, "used_again": pl.Float64}
    pools = [pool_said(each) for each in recommendations["pool_demand"]["pools"]]
    return {
        "gpus": truth.join(best, on="gpu", how="left"),
        "named": named.join(truth, on="gpu", how="left"),
        "recommended": pl.DataFrame(recommended, schema, orient="row").join(truth, on="gpu", how="left"),
        "pools": _pools(world, slot, pools, truth),
    }


def truth_at(world: World, slot: int) -> pl.DataFrame:
    """Return the truth about each GPU at a moment, and its later use.

    `ought_RULE` is whether the rule, by its plain words, should find the GPU; null where the words are ambiguous.
    """
    ran, seen = world.util_pct > 0, np.arange(LEAD, slot)
    work, there, given, over, server = (
        mask[:, LEAD:slot] for mask in (ran, world.process, world.allocated, world.over, world.server)
    )
    used = work.any(axis=1)
    idle, free, empty, quiet = (
        (slot - 1 - np.where(mask, seen, LEAD - 1).max(axis=1)) / DAY
        for mask in (work, there | given, there, work | ~server)
    )
    labels = {
        # used once, and then free for fourteen days
        "left_free": (used & (free >= 14), free < 7),
        # a process exists whose work has been over for a day
        "zombie_user": (there[:, -1] & over[:, -DAY:].all(axis=1), there[:, -1] & ~over[:, -1]),
        # a server has been loaded without traffic for a week
        "loaded_no_traffic": (quiet >= 7, ~server[:, -1] | (quiet < 1)),
        # an allocation was not used for a week
        "reserved_unused": (
            given[:, -WEEK:].all(axis=1) & (empty >= 7),
            ~given[:, -1] | (empty < 1) & (idle < 1),
        ),
        "never_used": (~used, used),
    }
    columns = {
        "gpu": [gpu.name for gpu in world.gpus],
        "kind": [next(iter(kinds), "nobody") if len(kinds) < 2 else "several" for kinds in world.kinds],
        "state": np.where(there[:, -1], "held", np.where(given[:, -1], "reserved", "free")),
        "idle": idle * DAY >= HOUR // 2,
        "unused_1d": ~ran[:, slot : slot + DAY].any(axis=1),
        "unused_7d": ~ran[:, slot : slot + WEEK].any(axis=1),
    }
    ought = [
        pl.when(pl.Series(yes | no)).then(pl.Series(yes)).alias(f"ought_{rule}") for rule, (yes, no) in labels.items()
    ]
    return pl.DataFrame(columns).with_columns(*ought, week=pl.lit((slot - LEAD) // WEEK))


@dataclass(frozen=True)
class PoolSaid:
    """The answer for a pool and model: the releasable GPUs, their promises and whole hosts, and next week's range."""

    pool: str
    model: str
    point: int
    next_week: tuple[int | None, int | None]
    gpus: Sequence[str]
    promises: Mapping[str, float]
    whole_hosts: Sequence[str]


def pool_said(row: Said) -> PoolSaid:
    """Return a row of `pool_demand`."""
    return PoolSaid(
        row["pool"],
        row["model"],
        row["releasable"] or 0,
        (row["next_week_low"], row["next_week_high"]),
        row["release_now"] or (),
        row["stays_unused"] or {},
        row["whole_hosts"] or (),
    )


def _pools(world: World, slot: int, said: Sequence[PoolSaid], truth: pl.DataFrame) -> pl.DataFrame:
    """Return the answer for each pool and model, and the unused GPUs in the week after, by three definitions of demand.

    `worked`: GPUs that were active within half an hour. `needed`: also those with a user who uses them within the week.
    `taken`: all GPUs with a user.
    """
    work = world.util_pct[:, slot - 2 : slot + WEEK] > 0
    worked = work[:, 2:] | work[:, 1:-1] | work[:, :-2]
    taken = worked | (world.process | world.allocated)[:, slot : slot + WEEK]
    unused = truth["unused_7d"].to_numpy()
    rows = []
    for pool in said:
        own = np.array([(gpu.pool, gpu.card.model) == (pool.pool, pool.model) for gpu in world.gpus])
        named = truth["gpu"].is_in(list(pool.gpus)).to_numpy()
        hosts = [np.array([gpu.host == host for gpu in world.gpus]) & own for host in pool.whole_hosts]
        row: dict[str, Any] = {
            "gpus": int(own.sum()),
            "point": pool.point,
            "low": pool.next_week[0],
            "high": pool.next_week[1],
            "named": int(named.sum()),
            "kept": int((named & unused).sum()),
            "promise": sum(pool.promises.values()) / len(pool.promises) if pool.promises else None,
            "hosts": len(hosts),
            "hosts_with_process": sum(bool(world.process[host, slot - 1].any()) for host in hosts),
            "hosts_used": sum(not unused[host].all() for host in hosts),
        }
        for name, used in (("worked", worked), ("needed", worked | (taken & ~unused[:, None])), ("taken", taken)):
            hours = used[own].sum(axis=0).reshape(-1, HOUR).max(axis=1)
            row[f"left_{name}"] = row["gpus"] - int(np.sort(hours)[int(np.ceil(QUANTILE * len(hours))) - 1])
            row[f"short_hours_{name}"] = int((hours > row["gpus"] - row["point"]).sum())
            row[f"short_gpus_{name}"] = max(0, int(hours.max()) - row["gpus"] + row["point"])
        rows.append(row)
    return pl.DataFrame(rows, {name: pl.Float64 if name == "promise" else pl.Int64 for name in rows[0]})


def _idle_intervals(world: World, gpus: pl.DataFrame) -> pl.DataFrame:
    """Return, for each GPU that stays unused to the end, the days until the first finding of each grade or better.

    The days count from the last kernel, or else from the first row. Without a finding, they count to the lake's end.
    """
    last, rows = LEAD + world.days * DAY, []
    for number, gpu in enumerate(world.gpus):
        used = np.flatnonzero(world.util_pct[number])
        begins = max(LEAD, int(used[-1]) + 1 if len(used) else 0)
        if begins >= last:
            continue
        later = gpus.filter(pl.col("gpu") == gpu.name, pl.col("week") * WEEK + LEAD >= begins)
        row: dict[str, float | bool] = {}
        for count, grade in enumerate(GRADES[:2]):
            weeks = later.filter(pl.col("grade").is_in(GRADES[: count + 1]))["week"].sort()
            row[grade] = ((int(weeks[0]) * WEEK + LEAD if len(weeks) else last) - begins) / DAY
            row[f"is_{grade}"] = len(weeks) > 0
        rows.append(row)
    return pl.DataFrame(rows)


def judged(seeds: tuple[int, ...]) -> list[Tables]:
    """Return the tables of some fleets."""
    source = "published recordings" if recorded().is_real else "distributions, for ../shared/traces is not there"
    print(f"minutes of work come from {source}", file=sys.stderr)
    workers = int(os.environ.get("FALLOW_BENCH_WORKERS", "1"))
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        return list(pool.map(judged_fleet, seeds))


def measure() -> Iterator[Figure]:
    """Store and print every figure, and yield precision and recall by grade."""
    fleets = judged(SEEN + UNSEEN)
    found = {"seen": summed(fleets[: len(SEEN)]), "unseen": summed(fleets[len(SEEN) :])}
    STORED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    write_page()
    for name, own in found.items():
        print(f"\n{name}\n" + "\n".join(as_lines(own)), file=sys.stderr)
        for grade in GRADES:
            for figure, share in (
                ("kept", own["grades"][grade]["kept 7 d"]),
                ("recall", own["grades"][grade]["recall"]),
            ):
                if share["of"]:
                    low, high = share["interval_90"]
                    how = f"{share['right']} of {share['of']}, 90 % interval {low:.3f} to {high:.3f}"
                    yield Figure(f"strangers_{name}_{grade}_{figure}", share["ratio"], "ratio", how)


if __name__ == "__main__":
    print("\n".join(as_lines(summed(judged(tuple(map(int, sys.argv[1:])))))))
