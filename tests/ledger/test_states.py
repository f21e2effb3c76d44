"""A GPU's state and user, and what its rows show: every case of the design by hand, to the second, in one lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.lakes import made_lake
from tests.ledger.rows import GB, T0, Row, allocation, fill, load, ms, processes, samples, states

if TYPE_CHECKING:
    from analytics.ledger.build import Ledger
    from fallow.lake import Lake

DAY = 86_400
CONTEXT = 64 * 2**20
UNLISTED = {"process_count": None}
LOOKS: dict[str, dict[str, Any]] = {
    "idle": {},
    "loaded": {"process_count": 1},
    "busy": {"gpu_util_pct": 90.0, "process_count": 1},
    "at35": {"gpu_util_pct": 35.0, "process_count": 1},
    "at80": {"gpu_util_pct": 80.0},
    "at80_unlisted": {"gpu_util_pct": 80.0} | UNLISTED,
    "at300": {"gpu_util_pct": 300.0},
    "mute": {"gpu_util_pct": None},
    "mute_loaded": {"gpu_util_pct": None, "process_count": 2, "mem_used_bytes": 9 * GB},
    "blind": {"gpu_util_pct": None} | UNLISTED,
    "blind_lost": {"gpu_util_pct": None, "health": "lost"} | UNLISTED,
    "degraded": {"health": "degraded"},
    "timeless": {"interval_ms": None},
    "no_list": UNLISTED,
    "above_held_min": UNLISTED | {"mem_used_bytes": GB + 1},
    "held_min": UNLISTED | {"mem_used_bytes": GB},
    "below_context": UNLISTED | {"mem_used_bytes": CONTEXT - 1},
    "of_context": UNLISTED | {"mem_used_bytes": CONTEXT},
    "loaded_by_nobody": {"mem_used_bytes": 40 * GB},
}
OUT_OF_ORDER = ("lost", "missing", "reset_required", "wedged", "driver_down")
LOOKS |= {health: LOOKS["busy"] | {"health": health} for health in OUT_OF_ORDER}

CASES: dict[str, tuple[str, ...]] = {
    "no process and no allocation is free": ("idle 0 600", "free 0 600 - -"),
    "the last sample stands for one interval": ("idle 0 10", "free 0 10"),
    "a lost GPU without any value is unavailable": ("blind_lost 0 60", "unavailable 0 60"),
    "work between idle intervals is judged by its mean, here 10.0": (
        "loaded 0 300, at35 300 320, loaded 320 370, busy 370 380",
        "held 0 300, active 300 380",
    ),
    "here 8.75": ("at35 0 20, loaded 20 80", "low 0 80"),
    "without a process list memory stands for a user": ("above_held_min 0 300", "held 0 300 - memory"),
    "memory of held_min_bytes does not": ("held_min 0 300", "free 0 300 - unwatched"),
    "memory that no context fits in says that nobody was there": ("below_context 0 300", "free 0 300 - -"),
    "memory of a context may be work": ("of_context 0 300", "free 0 300 - unwatched"),
    "memory that is not known says nothing": ("no_list 0 300", "free 0 300 - unwatched"),
    "memory is no user where the process list is empty": ("loaded_by_nobody 0 300", "free 0 300 - -"),
    "utilization without a process is use by nobody known": ("at80 0 60, at80_unlisted 60 120", "active 0 120 - -"),
    "a row that measured nothing belongs to the one before it for three intervals": (
        "busy 0 60, mute_loaded 60 120, busy 120 180",
        "active 0 80, unknown 80 120, active 120 180",
    ),
    "nobody on a GPU without utilization is free": ("mute 0 60", "free 0 60"),
    "a GPU that never gave a utilization is unknown": ("blind 0 60", "unknown 0 60"),
    "nor is it with processes": ("mute_loaded 0 60", "unknown 0 60"),
    "unmeasured rows at both ends are unknown": (
        "blind 0 30, idle 30 60, blind 60 90",
        "unknown 0 30, free 30 60, unknown 60 90",
    ),
    "a row without an interval stands for no time": ("idle 0 60, timeless 60 90", "free 0 60"),
    "the last row reaches over midnight, and days without rows are unknown and cut": (
        "idle 86340 86400, idle 345600 345660",
        (
            "free 86340 86400, free 86400 86420, unknown 86420 172800, unknown 172800 259200, unknown 259200 345600, "
            "free 345600 345660"
        ),
    ),
    "of two idle rows for a moment the one with processes counts": ("idle 0 600, loaded 0 600", "held 0 600"),
    "processes without any list have an unknown user": ("loaded 0 300", "held 0 300 - process"),
    "a list before a row names the user up to three of its intervals, else the one after": (
        "busy 0 300",
        "active 0 100 ann process, active 100 110 - process, active 110 300 bob process",
        "ann 0, bob 200",
    ),
    "a row goes by the lists of its own day": (
        "busy -60 60",
        "active -60 0 ann, active 0 60 bob",
        "ann -30, bob 30",
    ),
    "an allocation reserves and its owner is the user, and one of no GPU reserves none": (
        "idle 0 120",
        "free 0 30 - -, reserved 30 60 bob allocation, free 60 120 - -",
        "",
        "bob 30 60, - 60 90",
    ),
    "allocations that overlap name everybody": (
        "idle 0 90",
        "reserved 0 30 eve, reserved 30 60 bob+eve, reserved 60 90 bob",
        "",
        "eve 0 60, bob 30 -",
    ),
    "an allocation that was written again when it ended has ended": (
        "idle 0 60",
        "reserved 0 30, free 30 60",
        "",
        "bob 0 -, bob 0 30",
    ),
    "an allocation without a user reserves for nobody known": (
        "idle 0 30",
        "reserved 0 30 - allocation",
        "",
        "None 0 60",
    ),
    "an allocation names the user of memory": ("above_held_min 0 300", "held 0 300 bob allocation", "", "bob 0 900"),
    "an allocation names the user of processes that nobody listed": (
        "loaded 0 300",
        "held 0 300 bob allocation",
        "",
        "bob 0 900",
    ),
}
for each in OUT_OF_ORDER:
    CASES[f"a GPU that is {each} is unavailable whatever else the row says"] = (
        f"{each} 0 60, degraded 60 90",
        "unavailable 0 60, reserved 60 90",
        "",
        "bob 0 300",
    )
for each in ("loaded", "blind", "at300", "idle"):
    for order in (f"busy 0 600, {each} 0 600", f"{each} 0 600, busy 0 600"):
        CASES[f"of {order} the row with the most use counts"] = (order, "active 0 600")

NAMES: dict[str, tuple[str | None, list[dict[str, object]]]] = {
    "one list every 30 s serves rows every 10 s": ("ann", [{"user": "ann"}]),
    "a process of nobody known leaves the user unknown": (None, [{"user": None}]),
    "two users are one user in a fixed order": ("ann+zoe", [{"user": "zoe"}, {"user": "ann", "pid": 2}]),
    "a service of root": ("vllm.service", [{"user": "root", "unit": "vllm.service"}]),
    "no person gives way to it": ("ann", [{"user": "ann", "unit": "vllm.service"}]),
    "nor somebody unknown": (None, [{"user": None, "unit": "vllm.service"}]),
    "a number may be a person": ("100000", [{"user": "100000", "unit": "vllm.service"}]),
    "root who runs a job": ("root", [{"user": "root", "unit": "ray.service", "ray_job_id": "03"}]),
    "root in a pod": ("root", [{"user": "root", "pod": "chat-0", "container": "main", "container_runtime": "cri"}]),
    # winbind's usual names; both ways of writing one are one person
    "a plus in a name is not two names": (
        "CORP\\ann+bob",
        [{"user": "CORP+ann"}, {"user": "CORP\\ann", "pid": 2}, {"user": "bob", "pid": 3}],
    ),
    "published twice is one process": ("ann+bob", [{"user": "ann"}, *2 * [{"user": "bob", "pid": 2}]]),
}
for each in ("root", "100000"):
    container: dict[str, object] = {"unit": "vllm.service", "container": "web", "container_runtime": "lxc"}
    NAMES[f"{each} in a container is the container"] = ("lxc/web", [{"user": each} | container])


def parsed(text: str) -> list[list[str]]:
    return [part.split() for part in text.split(",") if part.strip()]


def rows_of(text: str, gpu: str) -> list[Row]:
    return [row for look, first, last in parsed(text) for row in samples(gpu, int(first), int(last), **LOOKS[look])]


def allocations_of(text: str, gpu: str) -> list[Row]:
    """`bob 0 60`, `bob 0 -` without an end, `None 0 60` without a user, `- 0 60` without a GPU."""
    return [
        allocation(
            None if who == "-" else gpu,
            int(first),
            None if last == "-" else int(last),
            None if who == "None" else who,
            f"j-{who}",
        )
        for who, first, last in parsed(text)
    ]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Each case is a GPU on a host of its own, all at the same time."""
    lake = made_lake(tmp_path_factory.mktemp("states"))
    for number, (gpu, (rows, _, *rest)) in enumerate(CASES.items()):
        lists, allocations = (*rest, "", "")[:2]
        listed = [row for user, at in parsed(lists) for row in processes(gpu, int(at), user=user)]
        fill(lake, rows_of(rows, gpu), listed, allocations_of(allocations, gpu), host=f"h{number}")
    for gpu, (_, whose) in NAMES.items():
        listed = [row for each in whose for row in processes(gpu, *range(0, 300, 30), **each)]  # type: ignore[arg-type]
        fill(lake, rows_of("loaded 0 300", gpu), listed, host="named")
    fill(lake, rows_of("loaded -400 200", "midnight"), processes("midnight", *range(-400, 200, 20)), host="midnight")
    return load(lake)


@pytest.mark.parametrize("case", CASES)
def test_states_and_users(ledger: Ledger, case: str) -> None:
    expected = parsed(CASES[case][1])
    rows = ledger.segments.filter(gpu=case).sort("time")
    found = [
        [state, f"{(start - T0) / 1000:g}", f"{(end - T0) / 1000:g}", who or "-", source or "-"]
        for state, start, end, who, source in rows.select("state", "time", "end", "user", "user_source").iter_rows()
    ]
    assert [row[: len(expected[0])] for row in found] == expected


@pytest.mark.parametrize("case", NAMES)
def test_who_a_process_is_of(ledger: Ledger, case: str) -> None:
    rows = ledger.segments.filter(gpu=case).select("state", "user", "user_source").rows()
    assert rows == [("held", NAMES[case][0], "process")]
    listed = ledger.rollups.processes().filter(gpu=case)["user"].unique().sort().to_list()
    assert listed == (NAMES[case][0].split("+") if NAMES[case][0] else [None])  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("case", "expected"),
    [("a plus in a name is not two names", [2 / 3, 1 / 3]), ("published twice is one process", [1 / 2, 1 / 2])],
)
def test_several_users_share_by_their_processes(ledger: Ledger, case: str, expected: list[float]) -> None:
    assert list(ledger.segments.filter(gpu=case)["user_shares"].item()) == pytest.approx(expected)


def test_idle_intervals_are_of_measured_zeros_and_go_on_over_midnight(ledger: Ledger) -> None:
    idle_intervals = ledger.idle_intervals.select(
        "gpu", "time", "end", "idle_interval_start", "idle_interval_end"
    ).sort("time")
    of = {gpu: [row[1:] for row in idle_intervals.filter(gpu=gpu).rows()] for gpu in idle_intervals["gpu"].unique()}
    assert of["midnight"] == [(ms(-400), T0, ms(-400), ms(200)), (T0, ms(200), ms(-400), ms(200))]
    assert of["a GPU that is lost is unavailable whatever else the row says"] == [(ms(60), ms(90), ms(60), ms(90))]
    assert not {"nobody on a GPU without utilization is free", "a GPU that never gave a utilization is unknown"} & set(
        of
    )


def test_memory_that_stands_for_a_user_is_a_setting(lake: Lake) -> None:
    assert states(fill(lake, rows_of("above_held_min 0 600", "a")), held_min_bytes=2 * GB) == [("free", 0, 600)]


EVIDENCE: dict[str, tuple[list[Row], dict[str, list[object]]]] = {
    "means, samples and energy of a day are that day's own": (
        samples("a", -600, 0, gpu_util_pct=20.0, process_count=1, power_w=100.0)
        + samples("a", 0, 1200, gpu_util_pct=80.0, process_count=1, power_w=300.0, mem_used_bytes=5 * GB),
        {
            "state": ["active", "active"],
            "gpu_util_mean_pct": [20.0, 80.0],
            "power_mean_w": [100.0, 300.0],
            "energy_mj": [100.0 * 600_000, 300.0 * 1_200_000],
            "sample_count": [60, 120],
            "mem_used_max_bytes": [None, 5 * GB],
        },
    ),
    "means weigh by time, of what is known": (
        samples("a", 0, 20, gpu_util_pct=40.0, process_count=1, power_w=200.0, gpu_util_coverage_ratio=1.0)
        + samples("a", 20, 40, gpu_util_pct=80.0, process_count=1, gpu_util_max_pct=99.0),
        {
            "gpu_util_mean_pct": [60.0],
            "gpu_util_max_pct": [99.0],
            "power_mean_w": [200.0],
            "energy_mj": [200.0 * 20_000],
            "coverage_ratio": [1.0],
            "zero_ms": [0],
            "util_ms": [40_000],
        },
    ),
    "the highest utilization is of the means where there are no peaks": (
        rows_of("busy 0 60", "a"),
        {"gpu_util_max_pct": [90.0]},
    ),
    "energy from power is not by counter": (
        samples("a", 0, 600, gpu_util_pct=80.0, power_w=500.0),
        {"energy_mj": [3e8], "energy_ms": [600_000], "counter_ms": [0]},
    ),
    "clock jitter moves the edges and nothing is lost": (
        [row | {"offset_ms": (3, -4, 250, 0, -120, 7)[at % 6]} for at, row in enumerate(rows_of("busy 0 600", "a"))],
        {"time": [T0 + 3], "end": [ms(600) + 7], "util_ms": [600_004]},
    ),
}


@pytest.mark.parametrize("case", EVIDENCE)
def test_evidence(lake: Lake, case: str) -> None:
    rows, expected = EVIDENCE[case]
    assert load(fill(lake, rows)).segments.sort("time").select(*expected).to_dict(as_series=False) == expected


@pytest.mark.parametrize("every_s", [10, 60])
def test_the_energy_of_a_counter_is_never_more_than_it_rose(lake: Lake, every_s: int) -> None:
    """Rows whose true starts jitter and that sometimes are missing, over midnight, at a power that swings."""
    rng = np.random.default_rng(7)
    rows = samples("a", DAY - 6 * 3600, DAY + 6 * 3600, every_s=every_s, gpu_util_pct=80.0, process_count=1)
    counter = 10**9 + np.cumsum(rng.integers(100, 700, len(rows)) * every_s * 1000)
    for row, read in zip(rows, counter, strict=True):
        row |= {"energy_mj": int(read), "power_w": 700.0, "counters_since": T0, "offset_ms": int(rng.integers(0, 900))}
    kept = [row for row, lost in zip(rows, rng.random(len(rows)) < 0.05, strict=True) if not lost]
    ledger = load(fill(lake, kept)).segments
    rise = kept[-1]["energy_mj"] - kept[0]["energy_mj"]
    assert 0.99 * rise < ledger["energy_mj"].sum() <= rise * (1 + 1e-9)
    assert ledger["counter_ms"].sum() == ledger["energy_ms"].sum() > 0
