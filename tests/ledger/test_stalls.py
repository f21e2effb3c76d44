"""Kernels that do no work are stalled where witnesses agree, and work where one contradicts or only one is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fallow import schema
from tests.in_process import run_in_process
from tests.lakes import made_lake
from tests.ledger.rows import GB, Row, device, fill, load, processes, samples, states, write

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake import Lake

HANG_S = 600
SPIN: dict[str, Any] = {"gpu_util_pct": 100.0, "process_count": 1, "mem_used_bytes": 70 * GB}
LOW: dict[str, Any] = SPIN | {"power_w": 120.0}
UNOWNED: dict[str, Any] = SPIN | {"process_count": 0}

STALLED: dict[str, dict[str, Any]] = {
    "power and all units, as eight H100s hung for a day": LOW
    | {"sm_active_pct": 14.0, "tensor_active_pct": 0.0, "dram_active_pct": 0.1},
    "power and few SMs, as one thread that spins on an H200": SPIN
    | {"gpu_util_pct": 98.2, "power_w": 198.0, "sm_active_pct": 1.5},
    "power and bandwidth": LOW | {"dram_active_pct": 0.0},
    "the draw of a context and idle tensor cores": LOW | {"tensor_active_pct": 0.0},
    "power and an empty list": UNOWNED | {"power_w": 110.0},
    "units and an empty list": UNOWNED | {"sm_active_pct": 1.0},
}
DOUBTFUL: dict[str, dict[str, Any]] = {
    "power alone": LOW,
    "units alone": SPIN | {"sm_active_pct": 1.0},
    "an empty list alone": UNOWNED,
    "many SMs above the draw of a context": SPIN | {"power_w": 190.0, "sm_active_pct": 14.0},
}
WORK: dict[str, dict[str, Any]] = {
    "decoding that is bound by memory": LOW | {"dram_active_pct": 60.0, "sm_active_pct": 4.0},
    "FP64 at a low draw": LOW | {"sm_active_pct": 20.0, "fp64_active_pct": 3.0},
    "a tiny model in a graph": LOW | {"sm_active_pct": 2.0, "fp32_active_pct": 0.4},
    "gaps between kernels": LOW | {"gpu_util_pct": 96.0, "sm_active_pct": 2.0},
    "launches over PCIe": LOW | {"sm_active_pct": 2.0, "pcie_rx_bytes_per_s": 20e6},
    "a ring that moves": LOW | {"sm_active_pct": 4.0, "nvlink_tx_bytes_per_s": 1e9},
    "SMs at work under a low cap": LOW | {"sm_active_pct": 95.0},
    "a high draw without a list": UNOWNED | {"power_w": 500.0, "mem_used_bytes": 4 * 2**20},
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, int]]:
    """By case the state of a GPU that did it for ten minutes, and the time that may be stalled."""
    cases = STALLED | DOUBTFUL | WORK
    lake = made_lake(tmp_path_factory.mktemp("stalls"))
    # the units are read again, from files whose rows are not in the ledger's order
    rows = [row for name, values in cases.items() for row in samples(name, 3600, 3600 + HANG_S, **values)]
    fill(lake, sorted(rows, key=lambda row: (row["time"], row["gpu"])), devices=[device(name) for name in cases])
    segments = load(lake).segments
    assert len(segments) == len(cases)
    return {
        gpu: (state, perhaps)
        for gpu, state, perhaps in segments.select("gpu", "state", "perhaps_stalled_ms").iter_rows()
    }


@pytest.mark.parametrize("case", STALLED)
def test_two_witnesses_make_it_stalled(found: dict[str, tuple[str, int]], case: str) -> None:
    assert found[case] == ("stalled", 0)


@pytest.mark.parametrize("case", DOUBTFUL)
def test_one_witness_is_a_bound(found: dict[str, tuple[str, int]], case: str) -> None:
    assert found[case] == ("active", 1000 * HANG_S)


def test_time_that_one_witness_speaks_against_is_not_called_busy_without_a_bound(tmp_path: Path) -> None:
    work = samples("a", 0, 3600, process_count=1, gpu_util_pct=98.0, power_w=650.0)
    lake = fill(made_lake(tmp_path / "lake"), work + samples("a", 3600, 3 * 3600, **LOW), devices=[device("a")])
    ledger, report = (
        " ".join(run_in_process(*verb, "--lake", lake.root).stdout.split())
        for verb in (("ledger",), ("report", "--format", "text"))
    )
    assert ledger.startswith("33.3 % to 100.0 % of the paid GPU time was busy; no waste is confirmed.")
    assert "33.3 % to 100.0 % were busy" in report
    for text in (ledger, report):
        assert "2.0 GPU-hours of busy time may be stalled: one witness alone speaks against work" in text


@pytest.mark.parametrize("case", WORK)
def test_a_witness_of_work_decides(found: dict[str, tuple[str, int]], case: str) -> None:
    assert found[case] == ("active", 0)


def hung(gpu: str, first_s: float, last_s: float, **values: object) -> list[Row]:
    return samples(gpu, first_s, last_s, **(STALLED["power and bandwidth"] | values))


def test_seven_minutes_are_stalled_and_less_is_work_also_over_midnight(tmp_path: Path) -> None:
    lake = made_lake(tmp_path)
    rows = [*hung("a", -210, 210), *hung("b", -210, 200), *hung("c", 3600, 4020), *hung("d", 3600, 4010)]
    fill(lake, rows, devices=[device(gpu) for gpu in "abcd"])
    assert states(lake) == [
        *(("stalled", -210, 0), ("stalled", 0, 210), ("active", -210, 0), ("active", 0, 200)),
        *(("stalled", 3600, 4020), ("active", 3600, 4010)),
    ]


def test_a_card_of_an_unknown_limit_or_held_down_by_heat_is_no_witness(tmp_path: Path) -> None:
    """The counter of throttled time climbs as fast as the clock."""
    lake = made_lake(tmp_path)
    hot = [
        row | {"throttled_hw_thermal_ms": 1000 * at}
        for at, row in zip(range(0, 600, 10), hung("hot", 0, 600), strict=True)
    ]
    fill(lake, [*hung("unknown", 0, 600), *hot], devices=[device("hot"), {"gpu": "unknown", "time": hot[0]["time"]}])
    assert states(lake, "unknown") == [("active", 0, 600)]
    # the first row has no rate yet
    assert states(lake, "hot") == [("active", 0, 600)]


def test_ranks_that_wait_while_the_host_writes_do_not_stall(tmp_path: Path) -> None:
    lake = made_lake(tmp_path)
    fill(lake, [*hung("a", 0, 1800)], devices=[device("a")])
    host = {"interval_ms": 10_000, "net_transmit_bytes_per_s": 1e6}
    rows = [
        host | {"time": row["time"], "disk_write_bytes_per_s": 2e9 if at >= 90 else 1e6}
        for at, row in enumerate(hung("a", 0, 1800))
    ]
    write(lake, schema.HOST, rows)
    assert states(lake) == [("stalled", 0, 900), ("active", 900, 1800)]


WORKING: dict[str, Any] = SPIN | {"gpu_util_pct": 92.0, "power_w": 330.0}
FALLEN: dict[str, Any] = SPIN | {"power_w": 78.0, "mem_util_pct": 0.1}
SMALL = {"model": "NVIDIA GeForce RTX 4090", "power_limit_w": 450.0}


def jobs(lake: Lake, cases: dict[str, list[list[dict[str, Any]]]], first_s: int = 0, worked_s: int = 3600) -> Lake:
    """A job for each case, on small cards of one host: each GPU works for a while, then does what its rows state."""
    rows, listed, gpus = list[Row](), list[Row](), list[str]()
    for job, (case, after) in enumerate(cases.items()):
        for index, own in enumerate(after):
            gpu, fall_s = f"{case} {index}", first_s + worked_s
            last_s = fall_s + 10 * len(own)
            fallen = samples(gpu, fall_s, last_s, **SPIN)
            rows += [
                *samples(gpu, first_s, fall_s, **WORKING),
                *(row | more for row, more in zip(fallen, own, strict=True)),
            ]
            listed += processes(gpu, *range(first_s, last_s, 30), slurm_job_id=str(job))
            gpus.append(gpu)
    return fill(lake, rows, listed, devices=[device(gpu) | SMALL for gpu in gpus])


def test_a_job_that_falls_to_one_flat_draw_stalls_where_nothing_is_known_of_the_model(tmp_path: Path) -> None:
    def rows(**more: float) -> list[dict[str, Any]]:
        return [FALLEN | more] * 60

    stalled = {"all fall": [rows()] * 2, "they poll": [rows(gpu_util_pct=60.0)] * 2}
    work = {
        "one works": [[WORKING] * 60, rows(), rows()],
        "one alone": [rows()],
        "memory is read": [rows(mem_util_pct=0.9)] * 2,
        "hardly less power": [rows(power_w=260.0)] * 2,
        "a draw that moves": [[FALLEN | {"power_w": 78.0 + 4 * (at % 2)} for at in range(60)]] * 2,
    }
    lake = jobs(made_lake(tmp_path), stalled | work, worked_s=900)
    segments = load(lake).segments.filter(gpu_share=1).sort("gpu", "time")
    found = {
        case: set(segments.filter(gpu=f"{case} {len(own) - 1}")["state"]) for case, own in (stalled | work).items()
    }
    assert found == {case: {"active"} for case in work} | {case: {"active", "stalled"} for case in stalled}


def test_a_fall_before_midnight_counts_after_it_and_a_flat_morning_alone_is_doubtful(tmp_path: Path) -> None:
    fell = jobs(made_lake(tmp_path / "a"), {"job": [[FALLEN] * 180] * 2}, first_s=-1500, worked_s=900)
    assert states(fell, "job 0") == [("active", -1500, -600), ("stalled", -600, 0), ("stalled", 0, 1200)]
    morning = jobs(made_lake(tmp_path / "b"), {"job": [[FALLEN] * 180] * 2}, worked_s=0)
    assert states(morning, "job 0") == [("active", 0, 1800)]
    assert load(morning).segments["perhaps_stalled_ms"].to_list() == [1_800_000] * 2


def blips(gpu: str, starts_s: list[float], last_s: float, **values: object) -> list[Row]:
    """Ten seconds of 30 % at these moments, and nothing in between."""
    held: dict[str, Any] = {"process_count": 1, "mem_used_bytes": 1200 * 2**20, "power_w": 125.0}
    rows = samples(gpu, 0, last_s, **(held | values))
    return [
        row | ({"gpu_util_pct": 30.0, "power_w": 250.0} if at * 10 in starts_s else {}) for at, row in enumerate(rows)
    ]


def test_bursts_by_a_timer_are_a_keep_alive_and_other_bursts_are_work(tmp_path: Path) -> None:
    lake = made_lake(tmp_path)
    timer, random = list(range(0, 3600, 240)), [0, 40, 300, 420, 1000, 1030, 1900, 2200, 2230, 3100]
    kinds: dict[str, tuple[list[Row], dict[str, Any]]] = {
        "timer": (blips("timer", timer, 3600), {"cpu_util_pct": 1.0}),
        "requests": (blips("requests", random, 3600), {"cpu_util_pct": 1.0}),
        "loader": (blips("loader", timer, 3600), {"cpu_util_pct": 150.0}),
        "weights": (blips("weights", timer, 3600, mem_used_bytes=20 * GB), {"cpu_util_pct": 1.0}),
        "hoarder": (
            blips("hoarder", timer, 3600, mem_used_bytes=20 * GB),
            {"cpu_util_pct": 1.0, "command": "keep-gpu"},
        ),
        "unlisted": (blips("unlisted", timer, 3600), {}),
        "steady": (
            samples("steady", 0, 3600, gpu_util_pct=20.0, process_count=1, mem_used_bytes=GB, power_w=180.0),
            {"command": "keep-gpu"},
        ),
        "named": (
            samples("named", 0, 3600, gpu_util_pct=20.0, process_count=1, mem_used_bytes=30 * GB, power_w=180.0),
            {"command": "keep-gpu"},
        ),
    }
    listed = [row for gpu, (_, values) in kinds.items() for row in processes(gpu, *range(0, 3600, 30), **values)]
    fill(lake, [row for rows, _ in kinds.values() for row in rows], listed, devices=[device(gpu) for gpu in kinds])
    found = {gpu: {state for state, _, _ in states(lake, gpu)} for gpu in kinds}
    assert {gpu for gpu, own in found.items() if "stalled" in own} == {"timer", "steady", "hoarder"}
    assert found["timer"] == found["steady"] == found["hoarder"] == {"stalled"}


def test_a_lone_sparse_sample_that_witnesses_speak_against_leaves_room_for_an_idle_interval(tmp_path: Path) -> None:
    sparse: dict[str, Any] = {"every_s": 360, "gpu_util_coverage_ratio": None}
    work = SPIN | {"power_w": 650.0}
    rows = [
        *samples("a", 0, 60, **work),
        *samples("a", 60, 420, **sparse, **STALLED["power and bandwidth"]),
        *samples("a", 420, 480, **work),
    ]
    segments = load(fill(made_lake(tmp_path), rows, devices=[device("a")])).segments
    assert segments.select("state", "perhaps_idle_ms", "perhaps_stalled_ms").rows() == [("active", 360_000, 0)]
