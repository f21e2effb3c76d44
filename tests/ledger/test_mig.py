"""MIG: instances count their slices, the GPU itself what no instance has, and together never more than one GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ledger.fleets import lake_of
from tests.ledger.rows import claim, device, fill, load, ms, processes, samples

if TYPE_CHECKING:
    from fallow.lake import Lake
    from tests.ledger.rows import Row

BUSY: dict[str, Any] = {"gpu_util_pct": 90.0, "process_count": 1}
PARENT: dict[str, Any] = {"gpu_util_pct": None, "process_count": 1}
"""A split GPU: its utilization is null, its processes are those of its instances."""


def instance(name: str, slices: int | None, parent: str | None = "GPU-p", **values: object) -> Row:
    return device(f"MIG-{name}", parent_gpu=parent, mig_gpu_slices=slices, model=None) | values


def pieces(lake: Lake) -> list[tuple[str, str, float, float, float]]:
    """(gpu, state, first second, last second, slices of seven) by GPU and time."""
    rows = load(lake).stretches.sort("gpu", "time").select("gpu", "state", "time", "end", "gpu_share").rows()
    return [
        (gpu, state, (start - ms(0)) / 1000, (end - ms(0)) / 1000, round(share * 7, 9))
        for gpu, state, start, end, share in rows
    ]


def test_instances_count_their_slices_and_the_gpu_what_is_left(lake: Lake) -> None:
    rows = samples("GPU-p", 0, 600, **PARENT) + samples("MIG-1", 0, 600, **BUSY) + samples("MIG-2", 0, 600)
    fill(lake, rows, devices=[device("GPU-p"), instance("1", 3), instance("2", 2)])
    assert pieces(lake) == [
        ("GPU-p", "free", 0, 600, 2), ("MIG-1", "active", 0, 600, 3), ("MIG-2", "free", 0, 600, 2),
    ]  # fmt: skip


def test_a_gpu_whose_slices_are_all_given_away_has_no_row(lake: Lake) -> None:
    rows = samples("GPU-p", 0, 600, **PARENT) + samples("MIG-1", 0, 600, **BUSY) + samples("MIG-2", 0, 600)
    fill(lake, rows, devices=[device("GPU-p"), instance("1", 4), instance("2", 3)])
    assert [each[0] for each in pieces(lake)] == ["MIG-1", "MIG-2"]


def test_an_instance_none_of_whose_rows_can_be_takes_nothing_from_its_gpu(lake: Lake) -> None:
    never = samples("MIG-1", 0, 600, interval_ms=0, **BUSY)
    fill(lake, samples("GPU-p", 0, 600) + never, devices=[device("GPU-p"), instance("1", 3)])
    assert pieces(lake) == [("GPU-p", "free", 0, 600, 7)]


@pytest.mark.parametrize("model", ["NVIDIA A30", "NVIDIA RTX PRO 6000 Blackwell Server Edition"])
def test_some_models_have_four_slices(lake: Lake, model: str) -> None:
    fill(
        lake,
        samples("GPU-p", 0, 600, **PARENT) + samples("MIG-1", 0, 600, **BUSY),
        devices=[device("GPU-p", model=model), instance("1", 1)],
    )
    assert load(lake).stretches.sort("gpu")["gpu_share"].to_list() == [0.75, 0.25]


def test_a_gpu_is_split_only_while_it_has_instances(lake: Lake) -> None:
    rows = samples("GPU-p", 0, 300, **BUSY) + samples("GPU-p", 300, 600, **PARENT) + samples("GPU-p", 600, 900, **BUSY)
    fill(lake, rows + samples("MIG-1", 300, 600, **BUSY), devices=[device("GPU-p"), instance("1", 2)])
    assert pieces(lake) == [
        ("GPU-p", "active", 0, 300, 7), ("GPU-p", "free", 300, 600, 5), ("GPU-p", "active", 600, 900, 7),
        ("MIG-1", "active", 300, 600, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(("slices", "parent"), [(None, "GPU-p"), (2, None), (2, "GPU-elsewhere")])
def test_an_instance_of_unknown_size_or_gpu_is_part_of_its_gpu(
    lake: Lake, slices: int | None, parent: str | None
) -> None:
    rows = samples("GPU-p", 0, 600) + samples("MIG-1", 0, 600, **BUSY)
    fill(lake, rows, devices=[device("GPU-p"), instance("1", slices, parent)])
    assert pieces(lake) == [("GPU-p", "free", 0, 600, 7)]


@pytest.mark.parametrize(
    ("health", "state"), [("lost", "unavailable"), ("released", "unknown"), ("unknown", "unknown")]
)
def test_what_is_left_of_a_gpu_out_of_order_is_out_of_order_too(lake: Lake, health: str, state: str) -> None:
    values = PARENT | {"health": health, "process_count": None}
    rows = samples("GPU-p", 0, 600, **values) + samples("MIG-1", 0, 600, **BUSY)
    fill(lake, rows, devices=[device("GPU-p"), instance("1", 2)])
    assert pieces(lake) == [("GPU-p", state, 0, 600, 5), ("MIG-1", "active", 0, 600, 2)]


def test_holders_and_claims_are_the_instances_own(lake: Lake) -> None:
    rows = samples("GPU-p", 0, 300, **PARENT) + samples("MIG-1", 0, 300, **BUSY) + samples("MIG-2", 0, 300)
    lists = processes("MIG-1", *range(0, 300, 30)) + processes("GPU-p", *range(0, 300, 30))
    fill(lake, rows, lists, [claim("MIG-2", 0, 300)], devices=[device("GPU-p"), instance("1", 1), instance("2", 1)])
    found = load(lake).stretches.sort("gpu").select("gpu", "state", "holder", "holder_source").rows()
    assert found == [
        ("GPU-p", "free", None, None), ("MIG-1", "active", "ann", "process"), ("MIG-2", "reserved", "bob", "claim"),
    ]  # fmt: skip


def capacity_ms(lake: Lake) -> float:
    span = (pl.col("end") - pl.col("time")) * pl.col("gpu_share")
    return float(load(lake).stretches.select(span.sum()).item())


def test_an_instance_that_went_and_came_back_days_later_was_not_there_in_between(lake: Lake) -> None:
    """The GPU was whole again: its time and the instance's never add up to more than the GPU's."""
    day = 86_400
    rows = samples("GPU-p", 0, 4 * day, every_s=3600)
    rows += samples("MIG-1", 0, day, every_s=3600, **BUSY) + samples("MIG-1", 3 * day, 4 * day, every_s=3600, **BUSY)
    fill(lake, rows, devices=[device("GPU-p"), instance("1", 7)])
    assert capacity_ms(lake) == pytest.approx(4 * day * 1000)


@settings(max_examples=12)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30), st.integers(1, 7)), max_size=4), st.booleans())
def test_a_gpu_and_its_instances_are_one_gpu_in_all(spans: list[tuple[int, int, int]], at_midnight: bool) -> None:  # noqa: FBT001
    """Whatever instances come and go, as long as there are never more than seven slices: the capacity is the GPU's."""
    base = -300 if at_midnight else 3600
    used = [0] * 60
    rows, devices = samples("GPU-p", base, base + 600, **PARENT), [device("GPU-p")]
    for number, (first, length, slices) in enumerate(spans):
        inside = range(first, min(first + length, 60))
        if inside and max(used[at] for at in inside) + slices <= 7:
            for at in inside:
                used[at] += slices
            rows += samples(f"MIG-{number}", base + 10 * inside[0], base + 10 * inside[-1] + 10, **BUSY)
            devices.append(instance(str(number), slices))
    with lake_of(([], [], [])) as lake:
        fill(lake, rows, devices=devices)
        assert capacity_ms(lake) == pytest.approx(600_000)
