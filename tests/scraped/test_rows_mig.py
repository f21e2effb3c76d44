"""MIG instances as dcgm-exporter tells of them: without UUIDs of their own, and each with its whole GPU's power."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ledger.rows import load
from tests.scraped.scraped_series import ENGINE, MEMORY, POWER, Series, columns, dcgm, lake_with, one_host, uuid

if TYPE_CHECKING:
    from fallow.lake import Lake

LARGE, SMALL = (
    {"GPU_I_ID": "1", "GPU_I_PROFILE": "3g.40gb", "pod": "serve", "namespace": "nlp"},
    {"GPU_I_ID": "9", "GPU_I_PROFILE": "1g.10gb"},
)


def instance(number: int) -> str:
    return f"MIG-{uuid(0)}/{number}"


def split_card(scrapes: int) -> list[Series]:
    return [
        dcgm(ENGINE, [0.5] * scrapes, **LARGE), dcgm(ENGINE, [0] * scrapes, **SMALL),
        dcgm(MEMORY, [20_000] * scrapes, **LARGE), dcgm(MEMORY, [10] * scrapes, **SMALL),
        dcgm(POWER, [300] * scrapes, **LARGE), dcgm(POWER, [300] * scrapes, **SMALL),
    ]  # fmt: skip


def test_an_instance_is_named_by_its_gpu_and_its_number_and_power_stays_with_the_gpu() -> None:
    found = one_host(*split_card(2))
    assert columns(found, "gpu_util_pct", "mem_used_bytes", "power_w", gpu=instance(1)) == [
        (0, 50, 20_000 * 2**20, None), (30, 50, 20_000 * 2**20, None),
    ]  # fmt: skip
    assert columns(found, "gpu_util_pct", "mem_used_bytes", "power_w") == [(0, None, None, 300), (30, None, None, 300)]
    assert found.device.select("gpu", "parent_gpu", "mig_profile", "mig_gpu_slices", "gpu_instance_id", "mig_enabled", "gpu_index").rows() == [
        (uuid(0), None, None, None, None, True, 0), (instance(1), uuid(0), "3g.40gb", 3, 1, None, None), (instance(9), uuid(0), "1g.10gb", 1, 9, None, None),
    ]  # fmt: skip
    assert found.given.select("gpu", "pod").rows() == [(instance(1), "serve")]


@pytest.mark.parametrize("parent_told", [True, False], ids=["with power", "without a series of the GPU"])
def test_the_ledger_has_each_instance_by_its_share_and_the_rest_as_free(lake: Lake, *, parent_told: bool) -> None:
    found = one_host(*split_card(20)[: 6 if parent_told else 4])
    stretches = load(lake_with(lake, found)).stretches.sort("gpu")
    assert [(row["gpu"], row["state"], round(row["gpu_share"] * 7), (row["end"] - row["time"]) / 1000, row["holder_source"])
            for row in stretches.iter_rows(named=True)] == [
        (uuid(0), "free", 3, 600, None), (instance(1), "active", 3, 600, "memory"), (instance(9), "free", 1, 600, None),
    ]  # fmt: skip
