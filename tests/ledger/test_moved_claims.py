"""Claims of GPUs that move, are replaced or are split later: the past stays as it was, in whatever order it is built."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest

from analytics.inventory import load_inventory
from fallow import schema
from fallow.clock import HOUR_MS
from tests.ledger.rows import claim, device, fill, load, ms, processes, samples, write

if TYPE_CHECKING:
    from fallow.lake import Lake
    from tests.ledger.rows import Row

HOUR, DAY = 3600, 86_400
SPARSE: dict[str, Any] = {"every_s": 900}


def hours(lake: Lake) -> dict[tuple[str, str, str, str | None], float]:
    """GPU-hours by host, GPU, state and holder."""
    found: dict[tuple[str, str, str, str | None], float] = {}
    for row in load(lake).stretches.iter_rows(named=True):
        key = (row["host"], row["gpu"], row["state"], row["holder"])
        found[key] = found.get(key, 0.0) + (row["end"] - row["time"]) * row["gpu_share"] / HOUR_MS
    return found


def whole_host(first_s: float, last_s: float, claim_id: str = "j1", count: int = 2) -> Row:
    counted = {"gpu_count": count, "host_gpu_count": count, "scheduler": "slurm"}
    return claim(None, first_s, last_s, claim_id=claim_id) | counted


def test_a_claim_of_the_whole_host_stays_on_a_gpu_that_was_replaced_since(lake: Lake) -> None:
    devices = [device("GPU-a"), device("GPU-b")]
    rows = samples("GPU-a", 0, DAY, **SPARSE) + samples("GPU-b", 0, DAY, **SPARSE)
    fill(lake, rows, claims=[whole_host(0, DAY)], devices=devices)
    before = hours(lake)
    assert before == {("h1", gpu, "reserved", "bob"): 24.0 for gpu in ("GPU-a", "GPU-b")}
    later = [row for gpu in ("GPU-a", "GPU-c") for row in samples(gpu, DAY, 2 * DAY, **SPARSE)]
    write(lake, schema.GPU, later)
    write(lake, schema.DEVICE, [device(gpu) | {"time": ms(DAY)} for gpu in ("GPU-a", "GPU-c")])
    write(lake, schema.CLAIM, [whole_host(DAY, 2 * DAY, "j2")])
    assert hours(lake) == {
        ("h1", "GPU-a", "reserved", "bob"): 48.0,
        ("h1", "GPU-b", "reserved", "bob"): 24.0,
        ("h1", "GPU-c", "reserved", "bob"): 24.0,
    }


def test_a_claim_of_the_whole_host_stays_on_a_gpu_that_was_split_since(lake: Lake) -> None:
    rows = samples("GPU-a", 0, DAY, **SPARSE) + samples("GPU-b", 0, DAY, **SPARSE)
    fill(lake, rows, claims=[whole_host(0, DAY)], devices=[device("GPU-a"), device("GPU-b")])
    before = hours(lake)
    write(
        lake,
        schema.GPU,
        [row for gpu in ("GPU-a", "GPU-b", "MIG-i") for row in samples(gpu, DAY, DAY + HOUR, **SPARSE)],
    )
    split = device("MIG-i", parent_gpu="GPU-b", mig_gpu_slices=3) | {"time": ms(DAY)}
    write(lake, schema.DEVICE, [split])
    after = hours(lake)
    assert {key: spent for key, spent in after.items() if key[2] == "reserved"} == before
    assert before == {("h1", gpu, "reserved", "bob"): 24.0 for gpu in ("GPU-a", "GPU-b")}


@pytest.mark.parametrize(("count", "state"), [(2, "reserved"), (1, "free"), (3, "free")])
def test_a_split_gpu_is_given_out_by_its_instances_alone(lake: Lake, count: int, state: str) -> None:
    rows = [row for gpu in ("GPU-a", "GPU-b", "MIG-i") for row in samples(gpu, 0, HOUR, **SPARSE)]
    devices = [device("GPU-a"), device("GPU-b"), device("MIG-i", parent_gpu="GPU-b", mig_gpu_slices=7)]
    fill(lake, rows, claims=[whole_host(0, HOUR, count=count)], devices=devices)
    known = {(gpu, found) for (_, gpu, found, _), spent in hours(lake).items() if spent}
    assert known == {("GPU-a", state), ("MIG-i", state)}


def test_a_gpu_that_moves_keeps_its_claims_where_it_was(lake: Lake) -> None:
    fill(lake, samples("GPU-a", 0, DAY, **SPARSE), claims=[claim("GPU-a", 0, DAY)], devices=[device("GPU-a")])
    assert hours(lake) == {("h1", "GPU-a", "reserved", "bob"): 24.0}
    write(lake, schema.GPU, samples("GPU-a", DAY + HOUR, DAY + 2 * HOUR, **SPARSE), "h2")
    write(lake, schema.DEVICE, [device("GPU-a") | {"time": ms(DAY + HOUR)}], "h2")
    # while it was on its way nobody knows
    moved = {key: spent for key, spent in hours(lake).items() if key[2] != "unknown"}
    assert moved == {("h1", "GPU-a", "reserved", "bob"): 24.0, ("h2", "GPU-a", "free", None): 1.0}
    assert load_inventory(lake).hosts_of == {"GPU-a": ["h1", "h2"]}


def test_instances_keep_their_share_where_they_were(lake: Lake) -> None:
    rows = samples("GPU-p", 0, HOUR, **SPARSE) + samples("MIG-i", 0, HOUR, **SPARSE)
    parts = [device("GPU-p"), device("MIG-i", parent_gpu="GPU-p", mig_gpu_slices=3)]
    fill(lake, rows, devices=parts)
    before = hours(lake)
    assert before[("h1", "MIG-i", "free", None)] == pytest.approx(3 / 7)
    write(lake, schema.DEVICE, [part | {"time": ms(DAY)} for part in parts], "h2")
    assert hours(lake) == before


STEPS = (
    ("h1", samples("GPU-a", 0, 12 * HOUR, **SPARSE), [device("GPU-a")]),
    ("h2", samples("GPU-a", 12 * HOUR, 20 * HOUR, **SPARSE), [device("GPU-a") | {"time": ms(12 * HOUR)}]),
    ("h3", samples("GPU-b", 0, HOUR, **SPARSE), []),
)


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_a_gpu_of_two_hosts_is_claimed_on_both_in_whatever_order_they_are_built(
    lake: Lake, order: tuple[int, ...]
) -> None:
    write(lake, schema.CLAIM, [claim("GPU-a", 0, DAY), claim("GPU-b", 0, DAY, "eve", "j2")], "h1")
    for number in order:
        host, rows, devices = STEPS[number]
        fill(lake, rows, devices=devices, host=host)
        load(lake)
    assert hours(lake) == {
        ("h1", "GPU-a", "reserved", "bob"): 12.0,
        ("h2", "GPU-a", "reserved", "bob"): 8.0,
        ("h3", "GPU-b", "reserved", "eve"): 1.0,
    }


@pytest.mark.parametrize(("found", "holder"), [
    ({"user": "root", "unit": "vllm.service"}, "vllm.service"),
    ({"user": "ann", "unit": "vllm.service"}, "ann"),
    ({"user": None, "unit": "vllm.service"}, None),
    ({"user": "root", "unit": "vllm.service", "container": "web", "container_runtime": "lxc"}, "lxc/web"),
    ({"user": "100000", "unit": "vllm.service", "container": "web", "container_runtime": "lxc"}, "lxc/web"),
    ({"user": "100000", "unit": "vllm.service"}, "100000"),
    ({"user": "root", "unit": "ray.service", "ray_job_id": "03"}, "root"),
    ({"user": "root", "pod": "chat-0", "container": "main", "container_runtime": "containerd"}, "root"),
])  # fmt: skip
def test_a_service_or_container_of_root_holds_the_gpu_and_no_person_gives_way(
    lake: Lake, found: dict[str, str | None], holder: str | None
) -> None:
    rows = samples("a", 0, HOUR, every_s=30, gpu_util_pct=0.0, process_count=1)
    fill(lake, rows, processes("a", *range(0, HOUR, 30), **found))
    assert load(lake).stretches.row(0, named=True)["holder"] == holder
    assert set(load(lake).rollups.processes()["user"]) == {holder}


def test_a_plus_in_a_name_is_not_two_names(lake: Lake) -> None:
    """Winbind's usual names; both ways of writing one are one person."""
    rows = samples("a", 0, HOUR, every_s=30, gpu_util_pct=0.0, process_count=3)
    users = [("CORP+ann", 1), ("CORP\\ann", 2), ("bob", 3)]
    lists = [
        row
        for user, pid in users
        for row in processes("a", *range(0, HOUR, 30), user=user, pid=pid, slurm_account="r+d")
    ]
    fill(lake, rows, lists)
    held = load(lake).stretches.row(0, named=True)
    assert (held["holder"], held["account"]) == ("CORP\\ann+bob", "r\\d")
    assert held["holder_shares"] == pytest.approx([2 / 3, 1 / 3])
    assert set(load(lake).rollups.processes()["user"]) == {"CORP\\ann", "bob"}
