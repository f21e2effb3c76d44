"""Allocations that nobody measured, and work that nobody allocated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from analytics.allocations.measured import allocations_without_telemetry, telemetry_without_allocations
from fallow import schema
from tests.allocations.conftest import allocation, frame
from tests.ledger.rows import allocation as lake_allocation
from tests.ledger.rows import fill, processes, samples, write

if TYPE_CHECKING:
    from fallow.lake import Lake
    from tests.allocations.conftest import Allocations

HOUR_S = 3600


def segment(gpu: str, start: int, end: int, state: str = "active", **more: object) -> dict[str, Any]:
    own = {"host": "h1", "gpu": gpu, "time": start, "end": end, "state": state}
    return {**own, "gpu_share": 1.0, "user": "ann", **more}


def unallocated(segments: list[dict[str, Any]], *allocations: dict[str, Any]) -> list[tuple[Any, ...]]:
    found = telemetry_without_allocations(frame(*allocations), pl.DataFrame(segments))
    return found.select("gpu", "time", "unallocated_ms").rows()


def unseen(*allocations: dict[str, Any]) -> list[tuple[Any, ...]]:
    found = allocations_without_telemetry(frame(*allocations), ("a",), ("h1",), since_ms=100, until_ms=1000)
    return found.select("host", "gpu", "gpu_count", "gpu_ms", "why").rows()


def test_allocations_on_what_never_reported_with_their_time_inside_the_window() -> None:
    gpu, host = "the GPU never reported", "the host never reported"
    assert unseen(allocation("a", 0, 500)) == []
    assert unseen(allocation("b", 0, 500)) == [("h1", "b", 1, 400, gpu)]
    assert unseen(allocation("b", 900, None)) == [("h1", "b", 1, 100, gpu)]
    assert unseen(allocation(None, 0, 500, host_gpu_count=4, host="h2")) == [("h2", None, 4, 1600, host)]
    assert unseen(allocation(None, 0, 500, host="h2")) == [("h2", None, None, None, host)]
    assert unseen(allocation(None, 0, 500, host_gpu_count=4)) == []
    assert unseen(allocation("b", 0, 50), allocation("b", 1000, 2000, "2")) == []


def test_work_beside_allocations_is_unallocated_for_as_long_as_it_is() -> None:
    covering = [
        allocation("a", 0, 50),
        allocation("a", 40, 100, "2"),
        allocation("a", 150, 160, "3"),
        allocation("z", 0, 1000, "4"),
    ]
    assert unallocated([segment("a", 20, 90)], *covering) == []
    assert unallocated([segment("a", 20, 200)], *covering) == [("a", 20, 90)]
    assert unallocated([segment("b", 20, 200)], *covering) == [("b", 20, 180)]
    assert unallocated([segment("b", 20, 200, gpu_share=0.5)], *covering) == [("b", 20, 90)]
    several = [segment("a", 300, 310), segment("b", 0, 5, "held"), segment("a", 155, 165, "low")]
    assert unallocated(several, *covering) == [("a", 300, 10), ("b", 0, 5), ("a", 155, 5)]
    for state in ("free", "reserved", "unknown", "unavailable"):  # nobody has the GPU
        assert unallocated([segment("b", 20, 200, state)], allocation("a", 0, 1000)) == []


def test_only_hosts_and_times_that_allocations_are_known_of_count() -> None:
    assert unallocated([segment("a", 20, 200)]) == []
    assert unallocated([segment("a", 20, 200, host="h2")], allocation("b", 0, 1000)) == []
    assert unallocated([segment("a", 0, 500)], allocation("b", 100, 200)) == [("a", 0, 100)]
    assert unallocated([segment("a", 300, 500)], allocation("b", 100, 200)) == []
    # an allocation that nobody can place may be on any GPU of its host
    both, counted = [segment("a", 0, 100), segment("b", 0, 100)], allocation(None, 0, 80, "2", host_gpu_count=1)
    assert unallocated(both, allocation("z", 0, 100), counted) == [("a", 0, 20), ("b", 0, 20)]


def test_the_check_of_a_lake_in_words_and_as_json(allocations: Allocations, lake: Lake) -> None:
    busy = {"gpu_util_pct": 90.0, "process_count": 1, "mem_used_bytes": 10**9}
    lists = processes("a", *range(0, 2 * HOUR_S, 30), user="ann", slurm_job_id="j1")
    rows = samples("a", 0, 2 * HOUR_S, **busy) + samples("b", 0, 2 * HOUR_S, **busy)
    counted = lake_allocation(None, 0, HOUR_S, "ann", "j1") | {"scheduler": "slurm", "host_gpu_count": 1}
    loose = lake_allocation(None, 0, HOUR_S, "eve", "j4") | {"scheduler": "slurm", "host_gpu_count": 1}
    never = lake_allocation("gone", 0, 2 * HOUR_S, "bob", "j2")
    fill(lake, rows, lists, [counted, never, loose, lake_allocation("b", 0, HOUR_S, "ann", "j3")])
    found = allocations("list", "--check")
    assert [(each["allocation_id"], each["gpu_hours"]) for each in found.rows("without_telemetry")] == [("j2", 2.0)]
    assert [each["allocation_id"] for each in found.rows("unmeasured")] == ["j2"]
    [counts] = found.rows("allocation_check")
    assert counts.keys() == {"unplaced_gpu_hours", "running_allocations", "as_of"}
    assert counts["unplaced_gpu_hours"] == 1.0  # j4, of a count alone
    without = found.rows("without_allocation")
    assert sum(each["gpu_hours"] for each in without) == sum(each["active_gpu_hours"] for each in without) == 2.0
    assert found.rows("overlapping") == []
    text = " ".join(allocations("list", "--check", as_json=False).out.split())
    assert "ALLOCATED BUT NEVER MEASURED 2.0 GPU-hours in 1 allocation." in text
    assert "2.0 j2 bob - h1 the GPU never reported" in text
    assert "USED WITHOUT AN ALLOCATION 2.0 GPU-hours on hosts that have allocations." in text
    assert "host user GPU-hours Held idle Stalled Low use Busy" in text
    assert "h1 ann 1.0 0.0 0.0 0.0 1.0" in text
    # j4: nothing shows where it was
    assert "1.0 GPU-hours are allocated by number only: the GPUs are not known." in text


def test_two_allocations_on_one_gpu_are_in_the_check(allocations: Allocations, lake: Lake) -> None:
    fill(
        lake,
        samples("a", 0, HOUR_S),
        allocations=[lake_allocation("a", 0, 600), lake_allocation("a", 300, 900, allocation_id="j2")],
    )
    (found,) = allocations("list", "--check").rows("overlapping")
    assert (found["gpu"], found["allocations"]) == ("a", "allocation:j1+allocation:j2")
    said = "1 GPU has several allocations at once: it is shared, or a record is wrong."
    assert said in allocations("list", "--check", as_json=False).out


def test_allocations_that_cannot_be_so_are_named(allocations: Allocations, lake: Lake) -> None:
    fill(lake, samples("a", 0, HOUR_S))
    for number, (host, gpus) in enumerate((("h1", 64), ("h01", 1), ("h2", 1))):
        row = lake_allocation(None, 0, HOUR_S, "bob", f"j{number}") | {"host_gpu_count": gpus}
        write(lake, schema.ALLOCATION, [row], host)
    found = allocations("list", "--check")
    oversized = [(each["allocation_id"], each["allocated"], each["present"]) for each in found.rows("oversized")]
    assert oversized == [("j0", 64, 1)]
    meant = {each["host"]: each["meant"] for each in found.rows("without_telemetry")}
    assert meant == {"h01": "h1", "h2": None}, "h2 is another host"
    text = " ".join(allocations("list", "--check", as_json=False).out.split())
    assert "1 allocation of more GPUs than its host has." in text
    assert "j0 bob - h1 64 1" in text
    assert "j1 bob - h01 the host never reported h1" in text
