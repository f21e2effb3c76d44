"""Mapping files: what comes with fallow is whole, and a site's own over it, with one sentence for each way to get it wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.metrics.catalogue import DEVICE, GPU, HOST
from analytics.mapping.mapping_file import built_in, load_exporters, metric_names
from analytics.scraped.who.kube_metrics import KUBE_METRICS
from fallow.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.metrics.catalogue import Family
    from analytics.mapping.model import Exporter, MappedMetric


@pytest.fixture
def site(tmp_path: Path) -> Callable[..., tuple[Exporter, ...]]:
    def load(content: str, name: str = "ours.toml") -> tuple[Exporter, ...]:
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return load_exporters([path])

    return load


def exporter(name: str, exporters: tuple[Exporter, ...] = ()) -> Exporter:
    return next(each for each in exporters or built_in() if each.name == name)


def metric(name: str, of: str) -> MappedMetric:
    return exporter(of).by_metric[name][0]


@pytest.mark.parametrize("one", built_in(), ids=lambda one: one.name)
def test_what_comes_with_fallow_says_where_it_was_looked_up_and_what_its_values_describe(one: Exporter) -> None:
    assert one.title
    assert one.source_url
    assert one.readings.endswith(".")
    assert one.ignored
    for mapped in one.metrics:
        assert mapped.kind != "average" or mapped.covers_s, mapped.metric
        assert mapped.kind != "count" or mapped.per, mapped.metric
        if mapped.column == "gpu_util_pct":
            assert mapped.covers_s, mapped.metric


@pytest.mark.parametrize(
    ("of", "name", "factor"),
    [
        ("dcgm-exporter", "DCGM_FI_PROF_SM_ACTIVE", 100),
        ("dcgm-exporter", "DCGM_FI_DEV_FB_USED", 2**20),
        ("nvidia_gpu_exporter", "nvidia_smi_clocks_current_sm_clock_hz", 1e-6),
        ("nvidia_gpu_exporter", "nvidia_smi_energy_joules_total", 1e3),
        ("nvidia_gpu_exporter", "nvidia_smi_clocks_event_reasons_counters_sw_power_cap_seconds", 1e3),
        ("nvidia_gpu_prometheus_exporter", "nvidia_gpu_power_usage_milliwatts", 1e-3),
        ("nvidia_gpu_prometheus_exporter", "nvidia_gpu_sm_util_percent", 100),
        ("amd-device-metrics-exporter", "gpu_energy_consumed", 1e-3),
        ("node-exporter", "node_cpu_seconds_total", 100),
        ("nvitop-exporter", "host_disk_io_read_data_MiB", 2**20),
    ],
)
def test_units_become_those_of_the_columns(of: str, name: str, factor: float) -> None:
    assert metric(name, of).factor == pytest.approx(factor)


def test_every_metric_that_is_wanted_has_one_name() -> None:
    names = metric_names(built_in())
    assert {"DCGM_FI_DEV_GPU_UTIL", "fallow_up", "kube_pod_owner", "node_memory_SwapFree_bytes"} <= names


def test_what_is_said_of_kubernetes_is_what_allocations_are_made_of() -> None:
    assert metric_names([exporter("kube-state-metrics"), exporter("kueue")]) == set(KUBE_METRICS)


BY_ITSELF = {"gpu_util_coverage_ratio", "gpu_util_unsampled_ratio", "counters_since"}
"""What the reader of the samples finds out, and what an agent alone can tell."""


@pytest.mark.parametrize(
    "family",
    [each for each in (*GPU, *DEVICE, *HOST) if each.column not in BY_ITSELF],
    ids=lambda family: family.column,
)
def test_what_the_agent_shows_is_read_back_in_the_columns_unit(family: Family) -> None:
    (read,) = (
        mapped
        for mapped in exporter("fallow").by_metric[family.name]
        if family.label is None or mapped.only == (family.label,)
    )
    assert f"{read.table}.{read.column}" == family.source
    assert read.factor == pytest.approx(1 / family.factor)


def test_a_file_that_extends_takes_the_place_of_its_base(site: Callable[..., tuple[Exporter, ...]]) -> None:
    exporters = site(
        """
        extend = "dcgm-exporter"
        collect_interval_s = 1
        metrics = [{ name = "site_gpu_util", to = "gpu.gpu_util_pct", unit = "ratio", kind = "average", covers_s = 60 }]
        [labels]
        host = ["machine"]
        [labels.holder]
        slurm_job = ["jobid"]
        """
    )
    ours = exporters[0]
    assert [each.name for each in exporters].count("dcgm-exporter") == 0
    assert (ours.name, ours.host, ours.gpu) == ("ours", ("machine",), ("UUID", "uuid", "gpu_uuid"))
    assert dict(ours.holder)["slurm_job"] == ("jobid",)
    assert dict(ours.holder)["pod"][0] == "exported_pod"
    assert ours.metrics[0].metric == "site_gpu_util"
    assert (ours.metrics[0].covers_s, ours.by_metric["DCGM_FI_PROF_SM_ACTIVE"][0].covers_s) == (60, 1)


def test_a_prefix_stands_before_every_name(site: Callable[..., tuple[Exporter, ...]]) -> None:
    ours = site('extend = "node-exporter"\nprefix = "site_"\n')[0]
    assert set(metric_names([ours])) == {f"site_{name}" for name in metric_names([exporter("node-exporter")])}
    assert ours.combined[0].subtract == ("site_node_memory_MemAvailable_bytes",)


UTIL = 'metrics = [{ name = "a", to = "gpu.gpu_util_pct", unit = "%", kind = "reading" }'


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("metrics = [", "is not TOML: "),
        ('metric = "a"', "ours.toml: there is no key 'metric'; did you mean 'metrics'?"),
        ('extend = "dcgm"', "there is no exporter 'dcgm' to extend; use amd-device-metrics-exporter, dcgm-exporter, "),
        (
            UTIL.replace("gpu.gpu_util_pct", "gpu.gpu_utl_pct") + "]",
            "ours.toml, metric a: there is no column 'gpu.gpu_utl_pct'; did you mean 'gpu.gpu_util_pct'?",
        ),
        (
            UTIL.replace('"%"', '"MiB"') + "]",
            "metric a: MiB cannot be converted to gpu.gpu_util_pct, which is in %; give it the unit % or ratio",
        ),
        (
            UTIL.replace(', unit = "%"', "") + "]",
            "metric a: no unit cannot be converted to gpu.gpu_util_pct, which is in %; give it the unit % or ratio",
        ),
        (UTIL.replace('"%"', '"percent"') + "]", "there is no unit 'percent'; "),
        (
            UTIL.replace("reading", "gauge") + "]",
            "there is no kind 'gauge'; use reading, average, counter, info or count",
        ),
        (
            UTIL + ', { name = "a", to = "gpu.sm_active_pct", unit = "%", kind = "reading" }]',
            "ours.toml: the metric a is there twice; keep one of the two lines",
        ),
        (UTIL.replace(" }", ", covers = 3 }") + "]", "there is no key 'covers'; did you mean 'covers_s'?"),
        (UTIL.replace(" }", ", covers_s = -3 }") + "]", "covers_s is -3; write how many seconds a value describes"),
        (UTIL.replace(" }", ', only = { x = "(" } }') + "]", "only.x is no regular expression: "),
        (
            UTIL.replace("gpu.gpu_util_pct", "gpu.health") + "]",
            "gpu.health is not filled from a metric's value; leave ",
        ),
        (
            UTIL.replace("gpu.gpu_util_pct", "gpu.interval_ms") + "]",
            "gpu.interval_ms is not filled from a metric's value",
        ),
        ("metrics = [{ to = 'gpu.power_w' }]", "give each metric a name, "),
        ("[labels]\nuuid = ['a']", "ours.toml, labels: there is no key 'uuid'; "),
        ("[labels.holder]\njob = ['a']", "labels.holder: there is no column 'job'; use namespace, pod, container, "),
        ("labels = { gpu = 'uuid' }", "gpu is 'uuid'; write a list"),
        ("unknown = [1]", "unknown has 1; write pairs of numbers"),
        (
            "combined = [{ to = 'gpu.mem_used_bytes', unit = 'MiB', add = ['b'] }]",
            'b is not among the metrics; add { name = "b" } to them',
        ),
        (
            "collect_interval_s = 'often'",
            "collect_interval_s is 'often'; write how many seconds lie between two values",
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_one_sentence(
    site: Callable[..., tuple[Exporter, ...]], content: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        site(content)
    assert sentence in str(raised.value)
    assert "\n" not in raised.value.message.partition("TOML")[0]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"cannot read the mapping .*none.toml: No such file or directory; check the path"
    ):
        load_exporters([tmp_path / "none.toml"])


def test_two_files_over_the_same_exporter(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.toml").write_text('extend = "node-exporter"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="two mappings extend node-exporter; put both into one file"):
        load_exporters([tmp_path / "a.toml", tmp_path / "b.toml"])
