"""Waits: which count, and why each lasted, moment by moment; the hours of a planted fault are found again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from analytics.capacity.causes import CAUSES
from analytics.capacity.jobs import JOB_SCHEMA, WITHHELD_SCHEMA, QueueOrder
from analytics.language.sentences import Share
from analytics.plan.queue_waits import QueueWaits, all_waits, find_waits, goodput, halves, wait_groups
from analytics.tables.plan_queue import idle_while_waiting, wait_causes, waits_in_report
from fallow.clock import HOUR_MS
from tests.core import pages
from tests.plan.scheduler import Planted, planted, worst

MODELS = {"A": "H100", "B": "H100", "C": "L40S"}
MEMORY_GIB = {"H100": 80, "L40S": 48, "A100": 80}
UNTIL = 24
BY_LIMITS, IN_ORDER = QueueOrder(), QueueOrder(in_order=True)


def job(
    name: str, asked: float | None, start: float | None, end: float | None, gpus: int | None = 1, **more: Any
) -> dict[str, Any]:
    hours = {"submitted": asked, "start": start, "end": end, "time_limit_ms": more.pop("limit", None)}
    hours["withdrawn"] = more.pop("withdrawn", None)
    times = {name: None if value is None else round(value * HOUR_MS) for name, value in hours.items()}
    hosts = [] if start is None else [more.pop("host", "a1")]
    who = {"scheduler": "slurm", "job": name, "user": name, "partition": "p", "gpus": gpus}
    return who | {"host_count": len(hosts) or None, "hosts": hosts} | times | more


def ledger(**hosts: list[tuple[float, str]]) -> pl.DataFrame:
    """Of each host one GPU per list: what it was up to each hour."""
    rows = []
    for name, spans in hosts.items():
        host, at = name.rsplit("_", 1)[0], 0.0
        for end, state in spans:
            rows.append((host[0].upper(), MODELS[host[0].upper()], host, name, state, at * HOUR_MS, end * HOUR_MS))
            at = end
    names = ["pool", "model", "host", "gpu", "state", "time", "end"]
    found = pl.DataFrame(rows, schema=names, orient="row").with_columns(pl.col("time", "end").cast(pl.Int64))
    nobody = dict.fromkeys(("job", "user"), pl.lit(None, pl.String))
    return found.with_columns(gpu_share=pl.lit(1.0), segment_start="time", segment_end="end", **nobody)


def waits(
    jobs: list[dict[str, Any]],
    rows: pl.DataFrame,
    order: QueueOrder = BY_LIMITS,
    withheld: Sequence[tuple[str, int, int | None, str, int | None]] = (),
) -> QueueWaits:
    frame = pl.DataFrame(jobs, schema=JOB_SCHEMA)
    nothing = pl.DataFrame(withheld, schema=WITHHELD_SCHEMA, orient="row")
    window = (0, UNTIL * HOUR_MS)
    return find_waits(frame, rows, MEMORY_GIB, window, held_min_ms=HOUR_MS, order=order, withheld=nothing)


def hours(found: QueueWaits) -> dict[str, float]:
    return {cause: spent / HOUR_MS for cause, spent in all_waits(found).cause_ms.items() if spent}


BUSY = [(UNTIL, "active")]


def test_waits_are_cut_to_the_window_and_what_nobody_told_is_left_out() -> None:
    jobs = [
        job("before", -5, 2, 9),
        job("runs already", -5, -4, 9),
        job("at once", 3, 3, 4),
        job("waits", 20, None, None, hosts=[]),
        job("gave up", 1, None, None, withdrawn=4),
        job("over before", -9, -8, -1),
        job("no time", None, 5, 6),
        job("no count", 1, 5, 6, gpus=None),
        job("wants another first", 1, None, None, hosts=[], reason="Dependency"),
    ]
    found = waits(jobs, ledger(a1_0=BUSY))
    spans = found.rows.select("job", pl.col("begin", "until") // HOUR_MS, "is_open").sort("job").rows()
    assert spans == [
        ("at once", 3, 3, False),
        ("before", 0, 2, False),
        ("gave up", 1, 4, False),
        ("waits", 20, 24, True),
    ]
    assert found.left_out["lacks_submission_time"].to_list().count(True) == 2
    assert found.left_out.height == 3
    # what ran counts, whenever it asked
    assert sorted(found.ran["user"]) == ["at once", "before", "no count", "no time", "runs already"]
    assert hours(found) == {"shortage": 9}


def test_an_idle_gpu_serves_one_job_at_a_time() -> None:
    jobs = [job("first", 0, 10, 12), job("second", 0, 12, 14)]
    own = [(10, "active"), (14, "active"), (UNTIL, "free")]
    alone = hours(waits(jobs, ledger(a1_0=own, b1_0=[(24, "free")])))
    assert alone == {"pool": 20, "shortage": 2}  # the second begins when the first has run its two hours
    assert hours(waits(jobs, ledger(a1_0=own, b1_0=[(24, "free")], b2_0=[(24, "free")]))) == {"pool": 22}
    assert hours(waits(jobs, ledger(a1_0=own, c1_0=[(24, "free")]))) == {"shortage": 22}  # too little memory


def test_a_gap_that_is_too_short_for_the_limit_only() -> None:
    jobs = [job("short", 1, 10, 12, limit=20), job("other", -1, 4, 10, host="a1")]
    rows = ledger(a1_0=[(1, "active"), (4, "free"), (UNTIL, "active")])
    assert hours(waits(jobs[:1], rows)) == {"limits": 9}
    assert hours(waits([job("short", 1, 10, 12, limit=2)], rows)) == {"order": 9}
    assert hours(waits([job("long", 1, 10, 14, limit=20)], rows)) == {"shortage": 9}


def test_a_model_that_was_asked_for_is_no_other_one() -> None:
    mixed = ledger(a1_0=[(UNTIL, "free")], a2_0=BUSY)
    mixed = mixed.with_columns(model=pl.when(pl.col("host") == "a1").then(pl.lit("A100")).otherwise("model"))
    ran = [job("on the first", -3, -2, -1), job("on the second", -3, -2, None, host="a2")]
    wants = job("wants", 3, None, None, limit=2, withdrawn=10, gpu_model="h100")
    assert hours(waits([*ran, wants], mixed)) == {"shortage": 7}
    assert hours(waits([*ran, wants | {"gpu_model": "a100"}], mixed)) == {"order": 7}
    assert hours(waits([*ran, wants | {"gpu_model": None}], mixed)) == {"order": 7}
    assert hours(waits([*ran, wants | {"gpu_model": "tpu"}], mixed)) == {"unknown": 7}  # nobody knows where that is
    named = job("calls it gold", -3, -2, -1, gpu_model="gold")
    assert hours(waits([*ran, named, wants | {"gpu_model": "gold"}], mixed)) == {"order": 7}
    elsewhere = ledger(a1_0=BUSY, b1_0=[(UNTIL, "free")])
    other = elsewhere.with_columns(model=pl.when(pl.col("host") == "b1").then(pl.lit("A100")).otherwise("model"))
    assert hours(waits([*ran[:1], wants], elsewhere)) == {"pool": 7}
    assert hours(waits([*ran[:1], wants], other)) == {"shortage": 7}
    assert hours(waits([*ran[:1], wants | {"gpu_model": None}], other)) == {"pool": 7}


def test_the_only_pool_is_that_of_a_job_whose_partition_nobody_knows() -> None:
    wants = job("wants", 3, None, None, limit=2, withdrawn=10, partition=None)
    assert hours(waits([wants], ledger(a1_0=[(UNTIL, "free")]))) == {"order": 7}
    assert hours(waits([wants], ledger(a1_0=[(UNTIL, "free")], b1_0=BUSY))) == {"unknown": 7}


def test_a_job_that_began_after_the_window_counts_as_one_that_never_did() -> None:
    rows = ledger(a1_0=[(10, "active"), (16, "free"), (UNTIL, "active")])
    assert hours(waits([job("no limit", 5, 30, None)], rows)) == {"shortage": 19}
    assert hours(waits([job("short limit", 5, 30, None, limit=6)], rows)) == {"shortage": 5, "order": 14}
    assert hours(waits([job("it ended", 5, 30, 36)], rows)) == {"shortage": 5, "order": 14}
    assert hours(waits([job("runs, long limit", 5, 20, None, limit=8)], rows)) == {"shortage": 15}
    assert hours(waits([job("no length", 5, 20, 20)], rows)) == {"shortage": 5, "order": 10}


def test_a_block_that_its_partition_never_uses_and_gpus_held_without_use() -> None:
    jobs = [job("x", 0, 6, 8), job("y", 1, 1, 2, host="a2", partition="q")]
    other = [(1, "free"), (2, "active"), (UNTIL, "free")]
    free_block = ledger(a1_0=[(8, "active"), (UNTIL, "free")], a2_0=other)
    assert hours(waits(jobs, free_block)) == {"block": 4, "shortage": 2}  # until y has run
    held = ledger(a1_0=[(8, "active"), (UNTIL, "free")], a1_1=[(3, "held"), (UNTIL, "active")])
    assert hours(waits(jobs[:1], held)) == {"unused": 6}
    unseen = ledger(a1_0=[(8, "active"), (UNTIL, "free")], a1_1=[(3, "unknown"), (UNTIL, "active")])
    assert hours(waits(jobs[:1], unseen)) == {"unknown": 6}


def belonging(rows: pl.DataFrame, **jobs: str) -> pl.DataFrame:
    """With the jobs of held GPUs, by the GPU's name."""
    of_gpu = pl.col("gpu").replace_strict({gpu: f"slurm:{name}" for gpu, name in jobs.items()}, default=None)
    return rows.with_columns(job=pl.when(pl.col("state") == "held").then(of_gpu))


def test_what_a_moved_job_held_without_use_serves_one_job() -> None:
    rows = ledger(a1_0=[(2, "active"), (UNTIL, "held")], a1_1=[(UNTIL, "held")])
    user = job("z", -5, -5, None)
    moved = job("x", 0, 2, 24)
    asked = (("first", 3), ("second", 3.5))
    wants = [job(name, at, None, None, limit=16, withdrawn=at + 17) for name, at in asked]
    found = waits([moved, user, *wants], belonging(rows, a1_0="x", a1_1="z"))
    assert hours(found) == {"unused": 2 + 17 + 1.5, "shortage": 15.5}  # the second follows the first
    nameless = waits([moved, user, *wants], rows)  # only a number of GPUs is known of each
    assert hours(nameless) == hours(found)
    unseen = rows.with_columns(state=pl.col("state").replace("held", "unknown"))
    assert hours(waits([moved, user, *wants], unseen)) == {"unknown": 2 + 17 + 1.5, "shortage": 15.5}


def test_what_a_job_held_that_has_moved_before_is_not_unused_as_well() -> None:
    rows = ledger(a1_0=[(2, "active"), (UNTIL, "held")], a2_0=[(UNTIL, "free")])
    moved, other = job("x", 0, 2, 24), job("other", -3, -2, -1, host="a2")
    wants = [job(name, 3, None, None, limit=16, withdrawn=19) for name in ("first", "second")]
    for known in (rows, belonging(rows, a1_0="x")):
        assert hours(waits([moved, other, *wants], known)) == {"order": 2 + 16, "shortage": 16}


def test_gpu_instances_are_no_whole_gpus() -> None:
    whole = ledger(a1_0=[(UNTIL, "free")], a1_1=BUSY)
    parts = ledger(**{f"a1_m{number}": BUSY for number in range(7)}).with_columns(gpu_share=pl.lit(1 / 7))
    named = parts.with_columns(job="slurm:" + pl.col("gpu").str.tail(2))
    busy, wants = job("busy", -3, -2, None), job("wants", 3, None, None, limit=2, withdrawn=10)
    small = [job(f"m{number}", -3, -2, None) for number in range(7)]
    for instances in (parts, named):
        assert hours(waits([busy, *small, wants], pl.concat([whole, instances]))) == {"order": 7}
    late = job("m0", 1, 4, None)  # leaves no whole GPU when it goes to one
    pair = job("pair", 3, None, None, gpus=2, limit=2, withdrawn=10)
    assert hours(waits([busy, late, *small[1:], pair], pl.concat([whole, named]))) == {"order": 3, "shortage": 7}


def test_a_job_of_which_a_number_is_known_is_not_on_gpus_that_others_use() -> None:
    rows = ledger(a1_0=BUSY, a1_1=[(UNTIL, "free")])
    jobs = [job("x", 0, 2, 22, limit=20), job("y", 3, None, None, limit=2, withdrawn=20)]
    assert hours(waits(jobs, rows)) == {"order": 19}  # x is the one that uses a GPU
    own = rows.with_columns(user=pl.when(pl.col("state") == "active").then(pl.lit("somebody")))
    assert hours(waits(jobs, own)) == {"order": 2, "shortage": 17}
    assert hours(waits([job("x", None, 2, 22), *jobs[1:]], own)) == {"unused": 17}


def test_what_is_allocated_twice_is_given_back_once() -> None:
    both = [job(name, 0, 2, 22, limit=20) for name in ("x", "y")]
    wants = [job(name, 3, None, None, limit=16, withdrawn=20) for name in ("first", "second")]
    other = job("other", -3, -2, -1, host="a2")
    free = [(UNTIL, "free")]
    rows = ledger(a1_0=[(2, "free"), (22, "active"), (UNTIL, "free")], a2_0=free, a2_1=free)
    assert hours(waits([*both, other, *wants], rows)) == {"order": 2 + 2 + 17 + 1, "shortage": 16}


def test_strictly_in_order_time_limits_are_no_cause_and_a_job_before_it_is() -> None:
    """`first` lacks room for its two GPUs until 6 and has it until 8; `behind` fits at once, and again from 8 on."""
    rows = ledger(a1_0=[(6, "active"), (UNTIL, "free")], a1_1=[(UNTIL, "free")])
    first = job("first", 0, 6, 8, gpus=2, limit=4)
    behind = job("behind", 1, 10, 12, limit=20)
    other = job("other", -9, -8, 6)
    blamed = {"shortage": 6, "head_of_line": 7, "order": 2}
    assert hours(waits([first, behind, other], rows, IN_ORDER)) == blamed
    assert hours(waits([first, behind, other], rows)) == {"shortage": 6, "order": 2, "limits": 7}
    assert hours(waits([behind, other], rows, IN_ORDER)) == {"order": 9}
    urgent = [first | {"priority": 1}, behind | {"priority": 9}]
    ranked = QueueOrder(in_order=True, by_priority=True)
    assert hours(waits([*urgent, other], rows, ranked)) == {"shortage": 6, "order": 9}


def test_what_the_scheduler_says_holds_a_job_comes_first() -> None:
    """More GPUs would not have let it start; what is left of its wait is judged as any other."""
    free, busy = ledger(a1_0=[(UNTIL, "free")]), ledger(a1_0=BUSY)
    spans = [(2, 5, "account_limit"), (7, 8, "never")]
    told = [{"time": since * HOUR_MS, "end": until * HOUR_MS, "cause": cause} for since, until, cause in spans]
    wants = job("wants", 1, 9, 10, held=told)
    found = waits([wants, job("other", -3, -2, -1)], busy)
    assert hours(found) == {"never": 1, "account_limit": 3, "shortage": 4}
    assert hours(waits([wants], free)) == {"never": 1, "account_limit": 3, "order": 4}
    first, second = halves(found)
    assert first.cause_ms == all_waits(found).cause_ms
    assert second.wait_ms == 0


def test_the_idle_time_while_jobs_waited_is_not_that_of_the_whole_window() -> None:
    rows = ledger(a1_0=[(UNTIL, "free")], b1_0=[(UNTIL, "free")])
    found = waits([job("wants", 1, 9, 10), job("other", -3, -2, -1)], rows)
    said = str(idle_while_waiting(found, 0).headline)
    assert said.startswith("16.0 of 48.0 GPU-hours ")
    assert said.endswith("passed while a job waited.")


def test_free_gpus_that_the_scheduler_may_not_give_out_are_apart() -> None:
    rows = ledger(a1_0=[(UNTIL, "free")], a1_1=[(UNTIL, "free")], a2_0=BUSY)
    wants, other = job("wants", 1, 9, 10, host="a2", gpus=1), job("other", -3, -2, -1)
    both = [("a1", 0, 4 * HOUR_MS, "drained", None), ("a1", 3 * HOUR_MS, None, "reservation", None)]
    found = waits([wants, other], rows, withheld=both)
    assert hours(found) == {"reservation": 5, "drained": 3}  # in the hour in which it is both, as drained
    idle = {kind: spent / HOUR_MS for kind, spent in found.idle.select("kind", "gpu_ms").iter_rows()}
    assert idle == {"drained": 8, "reservation": 40}
    some = waits([wants, other], rows, withheld=[("a1", 0, None, "reservation", 1)])
    assert hours(some) == {"order": 8}  # of some of a host's GPUs nobody knows which
    assert set(some.idle["kind"]) == {"free"}
    later = [("a1", 6 * HOUR_MS, None, "drained", None)]
    assert hours(waits([wants | {"time_limit_ms": 4 * HOUR_MS}, other], rows, withheld=later)) == {"order": 5 + 3}


def test_a_busy_gpu_of_a_drained_host_serves_nobody_when_its_job_moves() -> None:
    """The first could have run on the other host; what it leaves on the draining one is no room for the second."""
    rows = ledger(a1_0=[(2, "free"), (22, "active"), (UNTIL, "free")], a2_0=[(UNTIL, "free")])
    first, other = job("first", 0, 2, 22, limit=20), job("other", -3, -2, -1, host="a2")
    second = job("second", 3, None, None, limit=2, withdrawn=9)
    assert hours(waits([first, other, second], rows)) == {"order": 2 + 6}
    drained = [("a1", 0, None, "drained", None)]
    assert hours(waits([first, other, second], rows, withheld=drained)) == {"order": 2, "drained": 6}


def test_gpus_on_two_hosts_do_not_make_a_pair() -> None:
    pair = job("pair", 0, 6, 8, gpus=2)
    rows = ledger(a1_0=[(8, "active"), (UNTIL, "free")], a1_1=[(3, "free"), (UNTIL, "active")], a2_0=[(UNTIL, "free")])
    other = job("other", 9, 9, 10, host="a2")
    assert hours(waits([pair, other], rows)) == {"scattered": 6}


def test_groups_and_halves_add_up() -> None:
    jobs = [job("first", 0, 10, 12), job("second", 8, 18, 20, gpus=2), job("third", 1, 1, 2)]
    found = waits(jobs, ledger(a1_0=BUSY, a1_1=BUSY))
    for by in ("pool", "size", "partition", "rank", "team"):
        assert sum(each.wait_ms for each in wait_groups(found, by)) == all_waits(found).wait_ms
    sizes = {each.name: (each.jobs, each.median_ms, each.gpu_ms) for each in wait_groups(found, "size")}
    assert sizes == {"1": (2, 5 * HOUR_MS, 10 * HOUR_MS), "2-3": (1, 10 * HOUR_MS, 20 * HOUR_MS)}
    first, second = halves(found)
    assert (first.wait_ms, second.wait_ms) == (14 * HOUR_MS, 6 * HOUR_MS)
    assert all(sum(each.cause_ms.values()) == each.wait_ms for each in (first, second))


def test_goodput_counts_what_ran_and_never_takes_an_unknown_end_for_a_good_one() -> None:
    ends = {"COMPLETED": 1, "CANCELLED by 7": 2, "TIMEOUT": 3, "odd": 4, None: 5}
    ran = [(1, 0, n * HOUR_MS, state) for state, n in ends.items()]
    ran += [(2, 1, None, "RUNNING"), (16, None, None, "PENDING")]
    ran.append((1, 0, 20 * HOUR_MS, "COMPLETED"))  # its end is known, though it lies after the window
    found = goodput(pl.DataFrame(ran, schema=["gpus", "start", "end", "state"], orient="row"), 0, 10 * HOUR_MS)
    spent = {state: round(time / HOUR_MS) for state, time in found.gpu_ms.items() if time}
    assert spent == {"completed": 11, "cancelled": 2, "timed out": 3, "unknown": 9, "running": 20}
    assert found.completed_share == 11 / 16


@pytest.mark.parametrize(("is_past", "ended"), [(False, "completed"), (True, "running")])
def test_what_is_known_since_counts_where_the_window_goes_up_to_the_newest_row(*, is_past: bool, ended: str) -> None:
    """A report on last month stays the same, whatever became of its jobs since."""
    ran = pl.DataFrame([job("late", 1, 2, UNTIL + 1, state="COMPLETED")], schema=JOB_SCHEMA)
    window, none = (0, UNTIL * HOUR_MS), pl.DataFrame(schema=WITHHELD_SCHEMA)
    rows = ledger(a1_0=BUSY)
    found = find_waits(ran, rows, {}, window, held_min_ms=1, order=BY_LIMITS, withheld=none, is_past=is_past)
    spent = goodput(found.ran, *window).gpu_ms
    assert {state: time for state, time in spent.items() if time} == {ended: (UNTIL - 2) * HOUR_MS}


LONG = ("a wrong pool", "a fenced block", "a wrong pool and held")
PLANTED = [
    pytest.param(each, id=each.name, marks=[pytest.mark.long] if each.name in LONG else []) for each in planted(seed=2)
]


@pytest.mark.parametrize("case", PLANTED)
def test_planted_hours_are_found(case: Planted) -> None:
    true, found = case.true_hours(), case.found_hours()
    assert sum(found.values()) == pytest.approx(sum(true.values()), abs=1e-6)
    assert worst(true, found) < 0.05
    lifted = [cause for cause, _, _ in case.lifted]
    assert all(
        found[cause.name] < 0.05 * sum(true.values()) for cause in CAUSES if cause.name not in (*lifted, "shortage")
    )


def test_every_cause_of_a_wait_is_shown_in_its_place() -> None:
    """Command, report and page show one table; its headline and its chart count each cause once."""
    each = len(CAUSES)
    found = waits([job("wants", 0, each, None, gpus=2)], ledger(a1_0=BUSY, a1_1=BUSY))
    spans = [(0, cause.name, at * HOUR_MS, (at + 1) * HOUR_MS) for at, cause in enumerate(CAUSES)]
    number = found.rows["number"].item()
    told = replace(
        found, spans=pl.DataFrame(spans, schema=found.spans.schema, orient="row").with_columns(number=number)
    )
    for table in (wait_causes(told), waits_in_report(told)):
        assert table is not None
        records = table.records()
        assert [(row["cause"], row["hours"], row["gpu_hours"]) for row in records] == [
            (cause.name, 1, 2) for cause in CAUSES
        ]
        assert sum(row["share"] for row in records) == pytest.approx(1)
        # shortage; kept back by the scheduler; nobody knows; the rest beside idle GPUs
        shares = [Share(part / each) for part in (1, 8, 1, each - 10)]
        assert [str(share) in table.headline for share in shares] == [True] * 4
    chart = wait_causes(told).chart
    assert chart is not None
    places = [place.name for panel in chart.panels for place in panel.places]
    assert sorted(places) == sorted(cause.title for cause in CAUSES)


def test_the_docs_name_every_cause() -> None:
    text = (pages.DOCS / "planning.md").read_text(encoding="utf-8")
    assert pages.planning_page(text) == text, "run `make docs`"
    assert [cause.name for cause in CAUSES if f"(`{cause.name}`)" not in text] == []
