"""GPUs that several hosts report, that move and that are split: their time counts once, and the past is stable."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.intervals import SPAN_MS
from analytics.ledger.summary import summarise
from fallow.clock import HOUR_MS
from tests.lakes import made_lake
from tests.ledger.fleets import lake_of
from tests.ledger.rows import T0, allocation, device, fill, load, ms, processes, samples

if TYPE_CHECKING:
    from analytics.ledger.build import Ledger
    from fallow.lake import Lake
    from tests.ledger.rows import Row

HOUR, DAY = 3600, 86_400
LOOKS: dict[str, dict[str, Any]] = {
    "idle": {},
    "busy": {"gpu_util_pct": 90.0, "process_count": 1},
    "split": {"gpu_util_pct": None, "process_count": 1},
    "missing": {"gpu_util_pct": None, "health": "missing"},
    "never": {"gpu_util_pct": 90.0, "process_count": 1, "interval_ms": 0},
}
"""What rows say; a split GPU has no utilization, and the processes of its instances."""
for health in ("lost", "released", "unknown"):
    LOOKS[health] = {"gpu_util_pct": None, "process_count": None, "health": health}


def rows_of(text: str, case: str) -> dict[str, list[Row]]:
    """`h1/p busy 0 600`: rows by host, of GPU p of the case; a GPU whose name is a number is a MIG instance."""
    found: dict[str, list[Row]] = {}
    for part in text.split(","):
        place, look, first, last = part.split()
        host, name = place.split("/")
        found.setdefault(f"{host} {case}", []).extend(samples(gpu_of(name, case), int(first), int(last), **LOOKS[look]))
    return found


def gpu_of(name: str, case: str) -> str:
    return f"MIG-{name} {case}" if name.isdigit() else f"GPU-{name} {case}"


def found_of(ledger: Ledger, case: str) -> str:
    """`h1/p active 0 600 7`: the rows of a case by GPU and time, with their slices of seven."""
    rows = ledger.segments.filter(pl.col("gpu").str.ends_with(f" {case}")).sort("gpu", "time")
    return ", ".join(
        f"{host.split()[0]}/{gpu.split()[0][4:]} {state} {(start - T0) / 1000:g} {(end - T0) / 1000:g} {7 * share:.9g}"
        for host, gpu, state, start, end, share in rows.select(
            "host", "gpu", "state", "time", "end", "gpu_share"
        ).iter_rows()
    )


SEVERAL: dict[str, tuple[str, str]] = {
    "a GPU that moved has its time on each host": (
        "h1/a busy 0 600, h0/a idle 900 1200",
        "h1/a active 0 600 7, h0/a free 900 1200 7",
    ),
    "time on two hosts at once counts for the one that saw it last": (
        "h1/a busy 0 600, h2/a idle 300 900",
        "h1/a active 0 300 7, h2/a free 300 900 7",
    ),
    "what one host knows goes before what another does not": (
        "h1/a busy 0 600, h2/a idle 0 60, h2/a idle 840 900",
        "h2/a free 0 80 7, h1/a active 80 600 7, h2/a unknown 600 840 7, h2/a free 840 900 7",
    ),
    "a host that misses a GPU hides nothing of the one that has it": (
        "h1/a busy 0 600, h1/a missing 600 1800, h2/a busy 900 1500",
        "h1/a active 0 600 7, h1/a unavailable 600 900 7, h2/a active 900 1500 7, h1/a unavailable 1500 1800 7",
    ),
    "two hosts that see the same all the time": ("h1/a idle 0 3600, h2/a idle 0 3600", "h1/a free 0 3600 7"),
}


class Split(NamedTuple):
    """Rows, the slices and the parent of each instance, what is found, and the model of the GPU."""

    rows: str
    instances: tuple[tuple[int | None, str | None], ...]
    found: str
    model: str = "NVIDIA H100 80GB HBM3"


TWO = "h1/p split 0 600, h1/1 busy 0 600, h1/2 idle 0 600"
SPLIT: dict[str, Split] = {
    "instances count their slices and the GPU what is left": Split(
        TWO, ((3, "p"), (2, "p")), "h1/p free 0 600 2, h1/1 active 0 600 3, h1/2 free 0 600 2"
    ),
    "a GPU whose slices are all given away has no row": Split(
        TWO, ((4, "p"), (3, "p")), "h1/1 active 0 600 4, h1/2 free 0 600 3"
    ),
    "an instance none of whose rows can be takes nothing": Split(
        "h1/p idle 0 600, h1/1 never 0 600", ((3, "p"),), "h1/p free 0 600 7"
    ),
    "a GPU is split only while it has instances": Split(
        "h1/p busy 0 300, h1/p split 300 600, h1/p busy 600 900, h1/1 busy 300 600",
        ((2, "p"),),
        "h1/p active 0 300 7, h1/p free 300 600 5, h1/p active 600 900 7, h1/1 active 300 600 2",
    ),
}
for model in ("NVIDIA A30", "NVIDIA RTX PRO 6000 Blackwell Server Edition"):
    SPLIT[f"{model} has four slices"] = Split(
        "h1/p split 0 600, h1/1 busy 0 600", ((1, "p"),), "h1/p free 0 600 5.25, h1/1 active 0 600 1.75", model
    )
for slices, parent in ((None, "p"), (2, None), (2, "elsewhere")):
    SPLIT[f"an instance of {slices} slices of {parent} is part of its GPU"] = Split(
        "h1/p idle 0 600, h1/1 busy 0 600", ((slices, parent),), "h1/p free 0 600 7"
    )
for health, state in (("lost", "unavailable"), ("released", "unknown"), ("unknown", "unknown")):
    SPLIT[f"what is left of a GPU that is {health} is {state}"] = Split(
        f"h1/p {health} 0 600, h1/1 busy 0 600", ((2, "p"),), f"h1/p {state} 0 600 5, h1/1 active 0 600 2"
    )


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Each case on hosts of its own, all at the same time."""
    lake = made_lake(tmp_path_factory.mktemp("hosts"))
    for case, (rows, _) in SEVERAL.items():
        for host, own in rows_of(rows, case).items():
            fill(lake, own, host=host)
    for case, each in SPLIT.items():
        devices = [device(gpu_of("p", case), model=each.model)]
        for number, (slices, parent) in enumerate(each.instances, 1):
            whole = None if parent is None else gpu_of(parent, case)
            devices.append(device(gpu_of(str(number), case), parent_gpu=whole, mig_gpu_slices=slices) | {"model": None})
        ((host, own),) = rows_of(each.rows, case).items()
        fill(lake, own, devices=devices, host=host)
    return load(lake)


@pytest.mark.parametrize("case", SEVERAL)
def test_time_on_several_hosts_counts_once(ledger: Ledger, case: str) -> None:
    found = sorted(found_of(ledger, case).split(", "), key=lambda row: int(row.split()[2]))
    assert ", ".join(found) == SEVERAL[case][1]


def test_zeros_on_several_hosts_are_never_more_than_the_time(ledger: Ledger) -> None:
    for case, total_ms, zero_ms in (
        ("time on two hosts", 900_000, 600_000),
        ("two hosts that see", 3_600_000, 3_600_000),
    ):
        mine = pl.col("gpu").str.contains(f"GPU-a {case}")
        part = replace(ledger, segments=ledger.segments.filter(mine), idle_intervals=ledger.idle_intervals.filter(mine))
        summary = summarise(part)
        assert (summary.totals.gpus, summary.totals.total_ms, summary.idle.zero_ms) == (1, total_ms, zero_ms)
    assert summary.idle.idle_interval_ms["60m"] == 3_600_000


@pytest.mark.parametrize("case", SPLIT)
def test_a_split_gpu_and_its_instances_are_one_gpu(ledger: Ledger, case: str) -> None:
    assert sorted(found_of(ledger, case).split(", ")) == sorted(SPLIT[case].found.split(", "))


def test_users_and_allocations_are_the_instances_own(lake: Lake) -> None:
    rows = samples("GPU-p", 0, 300, **LOOKS["split"]) + samples("MIG-1", 0, 300, **LOOKS["busy"])
    lists = processes("MIG-1", *range(0, 300, 30)) + processes("GPU-p", *range(0, 300, 30))
    instances = [device(f"MIG-{number}", parent_gpu="GPU-p", mig_gpu_slices=1) for number in (1, 2)]
    fill(
        lake,
        rows + samples("MIG-2", 0, 300),
        lists,
        [allocation("MIG-2", 0, 300)],
        devices=[device("GPU-p"), *instances],
    )
    assert load(lake).segments.sort("gpu").select("gpu", "state", "user", "user_source").rows() == [
        ("GPU-p", "free", None, None),
        ("MIG-1", "active", "ann", "process"),
        ("MIG-2", "reserved", "bob", "allocation"),
    ]


def capacity_ms(lake: Lake) -> float:
    return float(load(lake).segments.select((SPAN_MS * pl.col("gpu_share")).sum()).item())


def test_an_instance_that_came_back_days_later_was_not_there_in_between(lake: Lake) -> None:
    """The GPU was whole again: its time and the instance's never add up to more than the GPU's."""
    spans = {"GPU-p": [(0, 4)], "MIG-1": [(0, 1), (3, 4)]}
    rows = [
        row
        for gpu, own in spans.items()
        for first, last in own
        for row in samples(gpu, first * DAY, last * DAY, every_s=HOUR)
    ]
    fill(lake, rows, devices=[device("GPU-p"), device("MIG-1", parent_gpu="GPU-p", mig_gpu_slices=7)])
    assert capacity_ms(lake) == pytest.approx(4 * DAY * 1000)


@settings(max_examples=12)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30), st.integers(1, 7)), max_size=4), st.booleans())
def test_a_gpu_and_its_instances_are_one_gpu_in_all(
    spans: list[tuple[int, int, int]],
    at_midnight: bool,  # noqa: FBT001
) -> None:
    """Whatever instances come and go, as long as there are never more than seven slices: the capacity is the GPU's."""
    base = -300 if at_midnight else 3600
    used = [0] * 60
    rows, devices = samples("GPU-p", base, base + 600, **LOOKS["split"]), [device("GPU-p")]
    for number, (first, length, slices) in enumerate(spans):
        inside = range(first, min(first + length, 60))
        if inside and max(used[at] for at in inside) + slices <= 7:
            for at in inside:
                used[at] += slices
            rows += samples(f"MIG-{number}", base + 10 * inside[0], base + 10 * inside[-1] + 10, **LOOKS["busy"])
            devices.append(device(f"MIG-{number}", parent_gpu="GPU-p", mig_gpu_slices=slices))
    with lake_of(([], [], [])) as lake:
        fill(lake, rows, devices=devices)
        assert capacity_ms(lake) == pytest.approx(600_000)


class Stage(NamedTuple):
    """What a stage adds: a host's idle GPUs in some hours, inventory, allocations, and the GPU-hours known so far."""

    host: str
    gpus: str
    first_h: int
    last_h: int
    devices: str = ""
    """`a 1<a/3`: a GPU and an instance with three slices of it."""
    allocations: tuple[tuple[str | int, int, int, str], ...] = ()
    """Of a GPU, or of a number of all of the host's."""
    found: dict[str, float] | None = None


BOTH = {"h1/a reserved bob": 24.0, "h1/b reserved bob": 24.0}
WHOLE = Stage("h1", "a b", 0, 24, "a b", ((2, 0, 24, "bob"),), BOTH)
SHARES = {"h1/p free None": 4 / 7, "h1/1 free None": 3 / 7}
ORDERED = (
    Stage("h1", "a", 0, 12, "a"),
    Stage("h2", "a", 12, 20, "a"),
    Stage("h3", "b", 0, 1),
)
ON_BOTH = {"h1/a reserved bob": 12.0, "h2/a reserved bob": 8.0, "h3/b reserved eve": 1.0}
STAGES: dict[str, list[Stage]] = {
    "an allocation of the whole host stays on a GPU that was replaced since": [
        WHOLE,
        Stage(
            "h1",
            "a c",
            24,
            48,
            "a c",
            ((2, 24, 48, "bob"),),
            BOTH | {"h1/a reserved bob": 48.0, "h1/c reserved bob": 24.0},
        ),
    ],
    "an allocation of the whole host stays on a GPU that was split since": [
        WHOLE,
        Stage(
            "h1",
            "a b 1",
            24,
            25,
            "1<b/3",
            (),
            BOTH | {"h1/a free None": 1.0, "h1/b free None": 4 / 7, "h1/1 free None": 3 / 7},
        ),
    ],
    "a GPU that moves keeps its allocations where it was": [
        Stage("h1", "a", 0, 24, "a", (("a", 0, 24, "bob"),), {"h1/a reserved bob": 24.0}),
        Stage("h2", "a", 25, 26, "a", (), {"h1/a reserved bob": 24.0, "h2/a free None": 1.0}),
    ],
    "instances keep their share where they were": [
        Stage("h1", "p 1", 0, 1, "p 1<p/3", (), SHARES),
        Stage("h2", "", 24, 24, "p 1<p/3", (), SHARES),
    ],
}
for count, given_out in ((2, "reserved bob"), (1, "free None"), (3, "free None")):
    STAGES[f"a split GPU is given out by its instances alone, here {count}"] = [
        Stage(
            "h1",
            "a b 1",
            0,
            1,
            "a b 1<b/7",
            ((count, 0, 1, "bob"),),
            {f"h1/a {given_out}": 1.0, f"h1/1 {given_out}": 1.0},
        )
    ]
for order in permutations(range(3)):
    first, *between, last = (ORDERED[number] for number in order)
    allocated = (("a", 0, 24, "bob"), ("b", 0, 24, "eve"))
    STAGES[f"a GPU of two hosts is allocated on both, built in order {order}"] = [
        first._replace(allocations=allocated),
        *between,
        last._replace(found=ON_BOTH),
    ]


def fill_stage(lake: Lake, stage: Stage, case: str) -> None:
    host = f"{stage.host} {case}"
    rows = [
        row
        for name in stage.gpus.split()
        for row in samples(gpu_of(name, case), stage.first_h * HOUR, stage.last_h * HOUR, every_s=900)
    ]
    devices, allocations = [], []
    for entry in stage.devices.split():
        name, _, of = entry.partition("<")
        parent, _, slices = of.partition("/")
        values = {"parent_gpu": gpu_of(parent, case), "mig_gpu_slices": int(slices)} if of else {}
        devices.append(device(gpu_of(name, case), time=ms(stage.first_h * HOUR), **values))
    for of_what, from_h, to_h, user in stage.allocations:
        of_gpu = gpu_of(of_what, case) if isinstance(of_what, str) else None
        counted = {} if of_gpu else {"gpu_count": of_what, "host_gpu_count": of_what, "scheduler": "slurm"}
        allocations.append(allocation(of_gpu, from_h * HOUR, to_h * HOUR, user, f"{case} {user} {from_h}") | counted)
    fill(lake, rows, [], allocations, devices=devices, host=host)


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> list[Ledger]:
    """The ledger after each stage, of all cases in one lake."""
    lake, ledgers = made_lake(tmp_path_factory.mktemp("staged")), []
    for number in range(3):
        for case, stages in STAGES.items():
            if number < len(stages):
                fill_stage(lake, stages[number], case)
        ledgers.append(load(lake))
    return ledgers


@pytest.mark.parametrize("case", STAGES)
def test_the_past_stays_as_it_was_in_whatever_order_it_is_built(staged: list[Ledger], case: str) -> None:
    for ledger, stage in zip(staged, STAGES[case], strict=False):
        hours: dict[str, float] = {}
        rows = ledger.segments.filter(pl.col("gpu").str.ends_with(f" {case}"), pl.col("state") != "unknown")
        for host, gpu, state, user, spent_ms in rows.select(
            "host", "gpu", "state", "user", SPAN_MS * pl.col("gpu_share")
        ).iter_rows():
            key = f"{host.split()[0]}/{gpu.split()[0][4:]} {state} {user}"
            hours[key] = hours.get(key, 0.0) + spent_ms / HOUR_MS
        assert stage.found is None or hours == pytest.approx(stage.found)
