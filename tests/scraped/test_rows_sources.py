"""One GPU in several series: replicas, two exporters, pods that share or follow one another, hosts with two names."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from analytics.scraped.rows.model import RowSettings
from analytics.scraped.rows.scraped_rows import host_rows
from fallow.errors import InputError
from tests.ledger.rows import T0
from tests.scraped.scraped_series import (
    EXPORTERS,
    MEMORY,
    POWER,
    UTIL,
    Series,
    columns,
    counts,
    dcgm,
    one_host,
    rows_of,
    samples_of,
    uuid,
    without,
)

OTHER = "another source has the GPU at that time"
USERS = ("namespace", "pod", "container", "slurm_job", "user")


def smi(metric: str, values: list[float], *, start_s: float = 0, instance: str = "gn01:9835") -> Series:
    """A series of nvidia_gpu_exporter, whose UUIDs lack their prefix."""
    labels = {
        "__name__": f"nvidia_smi_{metric}",
        "uuid": uuid(0).removeprefix("GPU-"),
        "instance": instance,
        "job": "smi",
    }
    return labels, [(T0 + round((start_s + 30 * number) * 1000), value) for number, value in enumerate(values)]


def test_of_two_replicas_one_counts_and_the_other_where_the_first_is_silent() -> None:
    first = without(dcgm(UTIL, [10] * 10, replica="a"), 90, 210)
    second = dcgm(UTIL, [90] * 10, start_s=12, replica="b")
    found = one_host(first, second)
    assert columns(found) == [
        (0, 10), (30, 10), (60, 10), (102, 90), (132, 90), (162, 90), (192, 90), (210, 10), (240, 10), (270, 10),
    ]  # fmt: skip
    assert counts(found) == {(OTHER, ""): 6}


def test_the_other_exporters_rows_do_not_depend_on_what_comes_after_them() -> None:
    """A window cut between the second one's last row and the next of the first one, which is scraped less often."""
    seldom, often = dcgm(UTIL, [10] * 2, every_s=60), smi("utilization_gpu_ratio", [0.9] * 4, start_s=2)
    cut = one_host(without(seldom, 44, 600), without(often, 44, 600))
    assert columns(cut) == [(0, 10)]
    assert columns(one_host(seldom, often)) == [(0, 10), (60, 10)]


def test_the_end_of_one_replica_is_no_end_where_the_other_goes_on() -> None:
    found = one_host(dcgm(UTIL, [10, 10, None], replica="a"), dcgm(UTIL, [10] * 5, start_s=12, replica="b"))
    assert columns(found, "gpu_util_pct", "health") == [(0, 10, None), (30, 10, None), (72, 10, None), (102, 10, None),
                                                        (132, 10, None)]  # fmt: skip


def test_a_second_exporter_fills_the_columns_that_the_first_lacks_and_no_other() -> None:
    found = one_host(
        dcgm(UTIL, [10, 20], Hostname="gn01"),
        smi("utilization_gpu_ratio", [0.9, 0.9], start_s=7),
        smi("power_draw_watts", [71, 72], start_s=7),
    )
    assert columns(found, "gpu_util_pct", "power_w") == [(0, 10, 71), (30, 20, 72)]
    assert counts(found) == {(OTHER, ""): 2}


def test_a_gpu_under_two_hosts_at_once_is_of_the_first_exporters_host() -> None:
    hosts = rows_of(dcgm(UTIL, [10, 20]), smi("power_draw_watts", [71, 72], start_s=7, instance="10.0.0.1:9835"))
    assert columns(hosts["gn01"], "gpu_util_pct", "power_w") == [(0, 10, 71), (30, 20, 72)]
    assert hosts["10.0.0.1"].gpu.is_empty()
    assert hosts["gn01"].notes == ("10.0.0.1 is gn01 by another name: they have the same GPUs at once",)


def test_a_gpu_under_one_host_after_the_other_was_moved_and_keeps_both_times() -> None:
    hosts = rows_of(dcgm(UTIL, [10] * 3), dcgm(UTIL, [20] * 3, start_s=300, Hostname="gn02", instance="10.0.0.2:9400"))
    assert columns(hosts["gn01"]) == [(0, 10), (30, 10), (60, 10)]
    assert columns(hosts["gn02"]) == [(300, 20), (330, 20), (360, 20)]
    assert hosts["gn02"].notes == ("GPUs that gn01 had before (1): they were moved, or the host has another name now",)


def test_a_mean_since_the_scrape_before_covers_its_row_unless_two_servers_begin_it_anew() -> None:
    labels = {"__name__": "nvidia_gpu_graphics_util_percent", "uuid": uuid(0), "instance": "gn01:9445", "job": "gpu"}
    told = [(T0 + 30_000 * number, 0.25) for number in range(3)]
    alone, beside = (labels, told), (labels | {"replica": "b"}, [(at + 12_000, value) for at, value in told])
    assert one_host(alone).gpu["gpu_util_coverage_ratio"].to_list() == [1, 1, 1]
    assert one_host(alone, beside).gpu["gpu_util_coverage_ratio"].null_count() == 3


def slurm(value: float, **labels: str) -> Series:
    """A series of an exporter that names GPUs by their index alone."""
    return {"__name__": "slurm_job_utilization_gpu", "gpu": "0", "instance": "gn01:9798", "job": "s", **labels}, [
        (T0 + 30_000 * number, value) for number in range(3)
    ]


TWO_CLUSTERS = {
    "cluster": (dcgm(UTIL, [90] * 3, cluster="a"), dcgm(UTIL, [0] * 3, UUID=uuid(7), cluster="b")),
    "k8s_cluster_name": (
        dcgm(UTIL, [90] * 3, k8s_cluster_name="a"),
        dcgm(UTIL, [0] * 3, start_s=7, UUID=uuid(7), k8s_cluster_name="b"),
    ),
    "datacenter": (
        dcgm(UTIL, [9] * 3, datacenter="a", job="x"),
        dcgm(UTIL, [0] * 3, UUID=uuid(7), datacenter="b", job="y"),
    ),
    "region": (slurm(90, region="a"), slurm(0, region="b")),
}


@pytest.mark.parametrize("index", ["1", ""])
def test_gpus_of_two_clusters_are_not_of_one_host_although_their_positions_differ(index: str) -> None:
    mine, theirs = dcgm(UTIL, [90] * 3, cluster="a"), dcgm(UTIL, [0] * 3, UUID=uuid(7), gpu=index, cluster="b")
    with pytest.raises(InputError, match=r"host gn01 has GPUs of two clusters at one time .* cluster differs"):
        rows_of(mine, theirs)
    assert list(rows_of(mine, dcgm(UTIL, [90] * 3, cluster="b"))) == ["gn01"]  # two servers that see one GPU


@pytest.mark.parametrize("label", TWO_CLUSTERS)
def test_hosts_of_one_name_in_two_clusters_are_refused_by_the_label_that_differs(label: str) -> None:
    with pytest.raises(InputError) as raised:
        rows_of(*TWO_CLUSTERS[label])
    assert "host gn01 has two GPUs of index 0 at one time" in raised.value.message
    assert f"label {label} differs ('a', 'b')" in raised.value.message
    assert f"""--match '{label}="a"'""" in str(raised.value)


def test_hosts_of_one_name_are_two_where_a_setting_names_the_label_of_the_cluster() -> None:
    named = [replace(each, cluster="cluster") for each in EXPORTERS]
    found = host_rows(samples_of(TWO_CLUSTERS["cluster"]), named, RowSettings(T0, T0 + 3_600_000))
    assert [(each.host, each.gpu["gpu"].unique().to_list()) for each in found] == [
        ("gn01@a", [uuid(0)]),
        ("gn01@b", [uuid(7)]),
    ]


def test_two_gpus_at_one_position_without_a_cluster_are_a_question() -> None:
    (odd,) = one_host(dcgm(UTIL, [90] * 3, job="x"), dcgm(UTIL, [0] * 3, UUID=uuid(7), job="y")).odd
    assert odd.startswith("host gn01 has two GPUs of index 0 at one time")
    assert """label job differs ('x', 'y'); read one of them with --match 'job="x"'""" in odd


ONE_GPU = {
    "one GPU that two clusters' servers scrape": (dcgm(UTIL, [9] * 3, cluster="a"), dcgm(UTIL, [9] * 3, cluster="b")),
    "a GPU in the place of another": (dcgm(UTIL, [9] * 3), dcgm(UTIL, [9] * 3, start_s=300, UUID=uuid(7))),
    "instances of one GPU": (dcgm(UTIL, [9] * 3, GPU_I_ID="1"), dcgm(UTIL, [9] * 3, GPU_I_ID="2")),
    "exporters that number otherwise": (dcgm(UTIL, [9] * 3), slurm(9)),
}


@pytest.mark.parametrize("series", ONE_GPU)
def test_what_is_no_second_gpu_is_no_question(series: str) -> None:
    assert not [each.odd for each in rows_of(*ONE_GPU[series]).values() if each.odd]


def given(found: Any) -> list[tuple[object, ...]]:
    """Seconds after T0, pod, user and job of each segment."""
    at = [(found.given[name] - T0) / 1000 for name in ("start_ms", "end_ms")]
    return sorted(zip(*at, found.given["pod"], found.given["user"], found.given["slurm_job"], strict=True))


def test_pods_that_share_a_card_are_its_users_and_its_values_count_once() -> None:
    """As dcgm-exporter copies a value to each pod, and beside the card's own utilization tells that of each."""
    pods = [{"namespace": "nlp", "pod": name, "container": "main"} for name in ("a", "b")]
    series = [dcgm(POWER, [300, 301], **pod) for pod in pods] + [
        dcgm(UTIL, [80, 81]),
        dcgm(UTIL, [30, 31], **pods[0]),
        dcgm(UTIL, [95, 96], **pods[1]),
    ]
    found = one_host(*series)
    assert columns(found, "gpu_util_pct", "power_w") == [(0, 80, 300), (30, 81, 301)]
    assert given(found) == [(0, 30, "a", None, None), (0, 30, "b", None, None)]
    assert not counts(found)


def test_pods_that_follow_one_another_have_a_segment_each_and_a_gap_breaks_one() -> None:
    """A pod that comes back after its series ended, or after more than three intervals, was not seen to stay."""
    first, second = ({"namespace": "nlp", "pod": name} for name in ("a", "b"))
    found = one_host(
        dcgm(UTIL, [5, 5, None], **first),
        dcgm(UTIL, [5, 5], start_s=60, **second),
        without(dcgm(UTIL, [5, None, 5, 5, 5, 5, 5, 5], start_s=300, **first), 420, 510),
        without(dcgm(UTIL, [5] * 8, start_s=900, **second), 930, 1080),
        dcgm(UTIL, [5] * 9, start_s=1200),
    )
    assert given(found) == [
        (0, 30, "a", None, None),
        (60, 90, "b", None, None),
        (300, 300, "a", None, None),
        (360, 390, "a", None, None),
        (510, 510, "a", None, None),
        (900, 900, "b", None, None),
        (1080, 1110, "b", None, None),
    ]
    assert len(columns(found)) == 4 + 5 + 3 + 9


def test_a_metric_whose_value_is_the_job_names_the_user_and_0_nobody() -> None:
    labels = {"uuid": uuid(0), "minor_number": "0", "instance": "gn01:9445", "job": "gpu"}
    told = [(T0 + 30_000 * number, value) for number, value in enumerate([0.0, 4711, 4711, 4712, 0])]
    duty = [(at, 50.0) for at, _ in told]
    found = one_host(
        (labels | {"__name__": "nvidia_gpu_duty_cycle"}, duty),
        (labels | {"__name__": "nvidia_gpu_jobId"}, told),
        (labels | {"__name__": "nvidia_gpu_jobUid"}, [(at, 1000 * (value > 0)) for at, value in told]),
    )
    assert given(found) == [(30, 60, None, "1000", "4711"), (90, 90, None, "1000", "4712")]


def test_two_values_of_one_gpu_and_scrape_that_differ_are_counted_and_the_larger_counts() -> None:
    found = one_host(dcgm(MEMORY, [1024, 1024], device="nvidia0"), dcgm(MEMORY, [1024, 2048], device="nvidia9"))
    assert columns(found, "mem_used_bytes") == [(0, 2**30), (30, 2**31)]
    assert counts(found) == {("another value of one GPU and scrape: the larger one counts", "mem_used_bytes"): 1}


def test_gpus_without_a_uuid_are_their_hosts_by_position_or_another_exporters_by_it() -> None:
    hosts = rows_of(
        dcgm(UTIL, [5, 6]),
        dcgm(POWER, [70, 71], start_s=5, UUID="", instance="10.0.0.1:9999"),
        dcgm(POWER, [80, 81], UUID="", gpu=3),
    )
    assert columns(hosts["gn01"], "gpu_util_pct", "power_w") == [(0, 5, 70), (30, 6, 71)]
    assert columns(hosts["gn01"], "power_w", gpu="gn01/3") == [(0, 80), (30, 81)]


def unnamed(series: Series) -> Series:
    """The series without the labels that say which GPU it is of."""
    labels, told = series
    return {name: value for name, value in labels.items() if name not in ("UUID", "gpu")}, told


def test_series_that_name_no_host_or_gpu_and_times_that_cannot_be_are_left_out_and_told() -> None:
    """A clock that is years ahead would segment the last gap over years."""
    ahead = 20 * 365 * 86_400
    found = one_host(
        dcgm(UTIL, [5], Hostname="a/b"),
        unnamed(dcgm(UTIL, [5])),
        dcgm(UTIL, [5, 6]),
        dcgm(UTIL, [7], start_s=ahead),
        hours=24 * 365 * 30,
    )
    assert columns(found) == [(0, 5), (30, 6)]
    assert counts(found) == {("time in the future", ""): 1}
    assert found.notes == (
        "1 series of NVIDIA dcgm-exporter name no host that a lake can have: they are left out",
        "1 series of NVIDIA dcgm-exporter name no GPU: they are left out",
    )


def test_the_inventory_has_a_row_for_each_gpu_and_day_with_what_the_labels_said_then() -> None:
    days = [
        {"DCGM_FI_DRIVER_VERSION": version, "start_s": start}
        for version, start in (("570.1", 43_200), ("580.2", 100_000))
    ]
    found = one_host(*(dcgm(UTIL, [5] * 3, **day) for day in days), hours=48)  # type: ignore[arg-type]  # labels, start
    rows = found.device.select("time", "gpu", "model", "gpu_index", "driver_version", "source").rows()
    assert rows == [
        (datetime.fromtimestamp(T0 / 1000 + start, UTC), uuid(0), "NVIDIA H100 80GB HBM3", 0, version, "scraped")
        for version, start in (("570.1", 43_200), ("580.2", 100_000))
    ]


def test_what_only_an_info_series_says_of_a_gpu_is_in_its_inventory() -> None:
    labels, told = smi("gpu_info", [1.0] * 3)
    info = (labels | {"name": "NVIDIA L4", "driver_version": "570.86", "index": "3"}, told)
    found = one_host(smi("utilization_gpu_ratio", [0.5] * 3), info)
    assert found.device.select("gpu", "model", "driver_version", "gpu_index").rows() == [
        (uuid(0), "NVIDIA L4", "570.86", 3)
    ]


def test_a_hosts_own_figures_are_one_row_for_each_moment_whoever_tells_them() -> None:
    """Of two exporters the first by name counts, its counters as rates; the other one fills what the first lacks."""
    node = {"instance": "gn01:9100", "job": "node"}
    at = [T0 + 15_000 * number for number in range(4)]
    series: list[Series] = [
        (node | {"__name__": "node_memory_MemTotal_bytes"}, [(time, 2.0**40) for time in at]),
        (node | {"__name__": "node_memory_MemAvailable_bytes"}, [(time, 2.0**39) for time in at]),
        *((node | {"__name__": "node_cpu_seconds_total", "cpu": cpu, "mode": mode},
           [(time, rate * (time - T0) / 1000) for time in at])
          for cpu in ("0", "1") for mode, rate in (("idle", 0.75), ("user", 0.25))),
        ({"__name__": "host_cpu_percent_Percentage", "hostname": "gn01", "instance": "gn01:5050", "job": "nvitop"},
         [(time + 5_000, 90.0) for time in at]),
        ({"__name__": "nvitop_info", "hostname": "gn01", "instance": "gn01:5050", "job": "nvitop"},
         [(time + 5_000, 1.0) for time in at]),
    ]  # fmt: skip
    found = one_host(*series)
    rows = found.hosts.select((found.hosts["time"].dt.epoch("ms") - T0) / 1000, "mem_total_bytes", "mem_used_bytes",
                              "cpu_util_pct", "cpu_count").rows()  # fmt: skip
    assert rows == [(0, 2**40, 2**39, None, 2), *((time, 2**40, 2**39, 25, 2) for time in (15, 30, 45))]


def test_two_scrapes_of_a_host_in_one_slot_are_one_row_with_what_each_of_them_says() -> None:
    """Whether a window is cut between them or not; the second one of them came early."""
    labels = {"hostname": "gn01", "instance": "gn01:5050", "job": "nvitop"}
    said = {
        "nvitop_info": (0, 15, 29, 45),
        "host_cpu_percent_Percentage": (0, 15, 45),
        "host_virtual_memory_used_MiB": (0, 15, 29, 45),
    }
    found = one_host(
        *((labels | {"__name__": name}, [(T0 + at * 1000, float(at)) for at in times]) for name, times in said.items())
    )
    rows = found.hosts.select((found.hosts["time"].dt.epoch("ms") - T0) / 1000, "cpu_util_pct", "mem_used_bytes").rows()
    assert rows == [(0, 0, 0), (15, 15, 29 * 2**20), (45, 45, 45 * 2**20)]
