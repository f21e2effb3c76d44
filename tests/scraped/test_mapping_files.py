"""Mapping files: fallow's are complete, a site's own overrides them, and each mistake in one gives one sentence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from agent.metrics.catalogue import DEVICE, GPU, HOST
from analytics.mapping.mapping_file import built_in, load_exporters, metric_names
from analytics.scraped.recognition import Recognised, check_json, check_text, recognised
from analytics.scraped.series_labels import gpu_of, host_of, mapped_series, renaming_targets, user_of
from analytics.scraped.who.kube_metrics import KUBE_METRICS
from fallow.errors import ConfigError
from tests.core import pages
from tests.scraped import mapping_page
from tests.scraped.exposed import RECORDED, parsed, recorded_labels

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.metrics.catalogue import Family
    from analytics.mapping.model import Exporter


@pytest.fixture
def site(tmp_path: Path) -> Callable[..., tuple[Exporter, ...]]:
    def load(content: str) -> tuple[Exporter, ...]:
        path = tmp_path / "ours.toml"
        path.write_text(content, encoding="utf-8")
        return load_exporters([path])

    return load


def exporter(name: str) -> Exporter:
    return next(each for each in built_in() if each.name == name)


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


FACTORS = {
    "dcgm-exporter": {"DCGM_FI_PROF_SM_ACTIVE": 100, "DCGM_FI_DEV_FB_USED": 2**20},
    "nvidia_gpu_exporter": {
        "nvidia_smi_clocks_current_sm_clock_hz": 1e-6,
        "nvidia_smi_energy_joules_total": 1e3,
        "nvidia_smi_clocks_event_reasons_counters_sw_power_cap_seconds": 1e3,
    },
    "nvidia_gpu_prometheus_exporter": {"nvidia_gpu_power_usage_milliwatts": 1e-3, "nvidia_gpu_sm_util_percent": 100},
    "amd-device-metrics-exporter": {"gpu_energy_consumed": 1e-3},
    "node-exporter": {"node_cpu_seconds_total": 100},
    "nvitop-exporter": {"host_disk_io_read_data_MiB": 2**20},
}


@pytest.mark.parametrize("name", FACTORS)
def test_units_become_those_of_the_columns(name: str) -> None:
    by_metric = exporter(name).by_metric
    assert {metric: by_metric[metric][0].factor for metric in FACTORS[name]} == pytest.approx(FACTORS[name])


def test_the_metrics_that_are_wanted() -> None:
    names = metric_names(built_in())
    assert {"DCGM_FI_DEV_GPU_UTIL", "fallow_up", "kube_pod_owner", "node_memory_SwapFree_bytes"} <= names
    assert metric_names([exporter("kube-state-metrics"), exporter("kueue")]) == set(KUBE_METRICS)


BY_ITSELF = {"gpu_util_coverage_ratio", "gpu_util_unsampled_ratio", "counters_since"}
"""What the reader of the samples finds out, and what an agent alone can tell."""


FAMILIES = [each for each in (*GPU, *DEVICE, *HOST) if each.column not in BY_ITSELF]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.column)
def test_what_the_agent_shows_is_read_back_in_the_columns_unit(family: Family) -> None:
    named = exporter("fallow").by_metric[family.name]
    (read,) = (each for each in named if family.label is None or each.only == (family.label,))
    assert f"{read.table}.{read.column}" == family.source
    assert read.factor == pytest.approx(1 / family.factor)


def test_a_file_that_extends_takes_the_place_of_its_base(site: Callable[..., tuple[Exporter, ...]]) -> None:
    exporters = site(
        'extend = "dcgm-exporter"\ncollect_interval_s = 1\n[labels]\nhost = ["machine"]\n[labels.user]\n'
        'slurm_job = ["jobid"]\n[[metrics]]\nname = "site_gpu_util"\nto = "gpu.gpu_util_pct"\nunit = "ratio"\n'
        'kind = "average"\ncovers_s = 60\n'
    )
    ours = exporters[0]
    assert [each.name for each in exporters].count("dcgm-exporter") == 0
    assert (ours.name, ours.host, ours.gpu) == ("ours", ("machine",), ("UUID", "uuid", "gpu_uuid"))
    assert (dict(ours.user)["slurm_job"], dict(ours.user)["pod"][0]) == (("jobid",), "exported_pod")
    assert ours.metrics[0].metric == "site_gpu_util"
    assert (ours.metrics[0].covers_s, ours.by_metric["DCGM_FI_PROF_SM_ACTIVE"][0].covers_s) == (60, 1)


def test_a_prefix_stands_before_every_name(site: Callable[..., tuple[Exporter, ...]]) -> None:
    ours = site('extend = "node-exporter"\nprefix = "site_"\n')[0]
    assert set(metric_names([ours])) == {f"site_{name}" for name in metric_names([exporter("node-exporter")])}
    assert ours.combined[0].subtract == ("site_node_memory_MemAvailable_bytes",)


UTIL = 'metrics = [{ name = "a", to = "gpu.gpu_util_pct", unit = "%", kind = "reading" }]'


IN_PERCENT = "cannot be converted to gpu.gpu_util_pct, which is in %; give it the unit % or ratio"
BAD_METRICS = {
    ("gpu.gpu_util_pct", "gpu.gpu_utl_pct"): "ours.toml, metric a: there is no column 'gpu.gpu_utl_pct'; did you mean ",
    ('"%"', '"MiB"'): f"metric a: MiB {IN_PERCENT}",
    (', unit = "%"', ""): f"metric a: no unit {IN_PERCENT}",
    ('"%"', '"percent"'): "there is no unit 'percent'; ",
    ("reading", "gauge"): "there is no kind 'gauge'; use reading, average, counter, info or count",
    ("}", '}, { name = "a", to = "gpu.sm_active_pct", unit = "%", kind = "reading" }'): (
        "ours.toml: the metric a occurs twice; delete one of the two lines"
    ),
    (" }", ", covers = 3 }"): "there is no key 'covers'; did you mean 'covers_s'?",
    (" }", ", covers_s = -3 }"): "covers_s is -3; write the number of seconds that a value describes",
    (" }", ', only = { x = "(" } }'): "only.x is no regular expression: ",
    ("gpu.gpu_util_pct", "gpu.health"): "gpu.health is not filled from a metric's value; delete ",
    ("gpu.gpu_util_pct", "gpu.interval_ms"): "gpu.interval_ms is not filled from a metric's value",
}
"""What is put in place of what in UTIL."""

BAD_FILES = {
    "metrics = [": "is not TOML: ",
    'metric = "a"': "ours.toml: there is no key 'metric'; did you mean 'metrics'?",
    'extend = "dcgm"': "there is no exporter 'dcgm' to extend; use all-smi, amd-device-metrics-exporter, ",
    "metrics = [{ to = 'gpu.power_w' }]": "give each metric a name, ",
    "[labels]\nuuid = ['a']": "ours.toml, labels: there is no key 'uuid'; ",
    "[labels.user]\njob = ['a']": "labels.user: there is no column 'job'; use namespace, pod, container, ",
    "labels = { gpu = 'uuid' }": "gpu is 'uuid'; write a list",
    "unknown = [1]": "unknown has 1; write pairs of numbers",
    "combined = [{ to = 'gpu.mem_used_bytes', unit = 'MiB', add = ['b'] }]": (
        'b is not among the metrics; add { name = "b" } to them'
    ),
    "collect_interval_s = 'often'": "collect_interval_s is 'often'; write the number of seconds between two values",
} | {UTIL.replace(*change): sentence for change, sentence in BAD_METRICS.items()}


@pytest.mark.parametrize("content", BAD_FILES)
def test_what_is_wrong_in_a_file_is_one_sentence(site: Callable[..., tuple[Exporter, ...]], content: str) -> None:
    with pytest.raises(ConfigError) as raised:
        site(content)
    assert BAD_FILES[content] in str(raised.value)
    assert "\n" not in raised.value.message.partition("TOML")[0]


def test_files_that_cannot_be_taken(tmp_path: Path) -> None:
    missing = r"cannot read the mapping .*none.toml: No such file or directory; check the path"
    with pytest.raises(ConfigError, match=missing):
        load_exporters([tmp_path / "none.toml"])
    for name in ("a", "b"):
        (tmp_path / f"{name}.toml").write_text('extend = "node-exporter"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="two mappings extend node-exporter; put both into one file"):
        load_exporters([tmp_path / "a.toml", tmp_path / "b.toml"])


EXPORTERS = load_exporters()
PAGES = sorted(path.stem for path in RECORDED.glob("*.prom"))
DCGM = next(each for each in EXPORTERS if each.name == "dcgm-exporter")


def looked_at(*pages: str) -> Recognised:
    return recognised([labels for page in pages for labels in recorded_labels(page)], EXPORTERS)


@pytest.mark.parametrize("page", PAGES)
def test_a_recorded_page_is_understood_wholly(page: str) -> None:
    found = looked_at(page)
    assert [each.exporter.name for each in found.exporters] == [page.removesuffix("-slurm")]
    assert not found.not_understood


def test_every_exporter_has_a_page() -> None:
    of_pages = {each.name for each in built_in()} - {"fallow"}  # ours is of the agent's tests
    assert of_pages == {page.removesuffix("-slurm") for page in PAGES}


@pytest.mark.parametrize(
    ("page", "gpus", "missing"),
    [
        # a card in instances counts by them, and they have its power
        ("dcgm-exporter", 5, ["reasons of throttling", "hosts", "Kubernetes objects"]),
        ("dcgm-exporter-slurm", 4, ["reasons of throttling", "hosts", "Kubernetes objects"]),
        ("nvitop-exporter", 2, ["energy counter", "SM activity", "reasons of throttling", "Kubernetes objects"]),
        ("gke-system-metrics", 1, ["power", "SM activity", "reasons of throttling", "hosts", "Kubernetes objects"]),
        ("node-exporter", 0, ["Kubernetes objects"]),
        ("kube-state-metrics", 0, ["hosts"]),
        ("kueue", 0, ["hosts", "Kubernetes objects"]),
    ],
)
def test_what_is_missing(page: str, gpus: int, missing: list[str]) -> None:
    found = looked_at(page)
    assert (found.gpus, [each.absence.name for each in found.missing]) == (gpus, missing)


def test_what_some_gpus_lack_says_how_many_and_which_metric_would_tell() -> None:
    every = recorded_labels("dcgm-exporter")
    labels = [each for each in every if not ("FB_" in each["__name__"] and each["gpu"] == "0")]
    lacking = next(each for each in recognised(labels, EXPORTERS).missing if each.absence.name == "memory in use")
    assert (lacking.gpus, lacking.would_tell) == (1, ("DCGM_FI_DEV_FB_USED",))


def test_a_gpu_without_utilization_is_said_first() -> None:
    found = recognised([{"__name__": "DCGM_FI_DEV_GPU_TEMP", "UUID": "GPU-1", "gpu": "0"}], EXPORTERS)
    said = "utilization: no state is known: all of the time is unknown."
    assert said in " ".join(check_text(found).split())
    lacking = [each.absence.name for each in found.missing]
    assert lacking[:4] == ["utilization", "memory in use", "user", "power"]


def test_what_no_exporter_has_is_not_understood() -> None:
    strange = [{"__name__": "site_gpu_busy", "instance": f"gn{number}"} for number in range(3)]
    found = recognised([*recorded_labels("dcgm-exporter"), *strange], EXPORTERS)
    assert found.not_understood == (("site_gpu_busy", 3),)
    assert "site_gpu_busy" in check_text(found).partition("--mapping FILE")[2]


@pytest.mark.parametrize("width", [80, 100])
def test_the_page_fits_and_names_stay_whole(width: int) -> None:
    lines = check_text(looked_at("dcgm-exporter", "node-exporter"), width).splitlines()
    assert max(map(len, lines)) <= width
    assert any(line.split()[:2] == ["else", "DCGM_FI_DEV_GPU_UTIL"] for line in lines)
    assert any("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" in line for line in lines)


A10 = {"gpu_util_pct": 80, "mem_used_bytes": 9_437_184_000, "power_w": 120.5}
OF_TWO_CARDS = {
    "telegraf": A10,
    "hami": A10,
    "all-smi": A10 | {"temperature_c": 60},
    "otel": A10 | {"energy_mj": 5e6, "temperature_c": 60},
    "slurm-job-exporter": A10 | {"pcie_tx_bytes_per_s": 1200, "pcie_rx_bytes_per_s": 3400},
    "fleet-intelligence-agent": A10 | {"sm_active_pct": 60},
    "dstack": {"gpu_util_pct": 80, "mem_used_bytes": 9_437_184_000},
}
"""Pages made by hand after the exporters' sources: of two cards the one that works."""


@pytest.mark.parametrize("page", OF_TWO_CARDS)
def test_the_values_of_a_page_reach_their_columns(page: str) -> None:
    assert looked_at(page).gpus == 2
    found: dict[str, float] = {}
    for sample in parsed((RECORDED / f"{page}.prom").read_text(encoding="utf-8")):
        labels = {"__name__": sample.name, **dict(sample.labels)}
        gpu = gpu_of(labels, exporter(page))
        of_first = gpu.index == "0" or gpu.uuid.endswith("0")
        for mapped in exporter(page).by_metric.get(sample.name, ()) if of_first and sample.value is not None else ():
            if mapped.table == "gpu" and mapped.takes(labels):
                found[mapped.column] = sample.value * mapped.factor
    assert {name: found.get(name) for name in OF_TWO_CARDS[page]} == pytest.approx(OF_TWO_CARDS[page])


def test_the_model_of_an_amd_card_is_its_series_and_not_the_part_number_of_the_board() -> None:
    amd = exporter("amd-device-metrics-exporter")
    labels = {"card_model": "102-G30213-0C", "card_series": "AMD Instinct MI300X OAM"}
    assert [labels[name] for name in dict(amd.device)["model"]] == ["AMD Instinct MI300X OAM"]


NVIDIA = {"hw_id": "GPU-1", "hw_type": "gpu", "hw_vendor": "NVIDIA", "hw_gpu_task": "general", "host_name": "n1"}
SHARED_NAMES = {
    "one name of Telegraf and another exporter": ([{"__name__": "nvidia_smi_temperature_gpu", "uuid": "GPU-1"}], None),
    "a name of AMD's page that any page may have": ([{"__name__": "gpu_power_usage", "serial_number": "7"}], None),
    "a name of Princeton's page that another exporter has": (
        [{"__name__": "nvidia_gpu_power_usage_milliwatts", "uuid": "GPU-1"}],
        None,
    ),
    "the conventions' names for a card that is not Intel's": (
        [{"__name__": "hw_gpu_info", **NVIDIA}, {"__name__": "hw_gpu_utilization_ratio", **NVIDIA}],
        "otel",
    ),
    "the same with dots": ([{"__name__": "hw.gpu.utilization", "hw.id": "GPU-1", "hw.vendor": "AMD"}], "otel"),
    "Telegraf's names beside a shared one": (
        [{"__name__": name, "uuid": "GPU-1"} for name in ("nvidia_smi_temperature_gpu", "nvidia_smi_memory_used")],
        "telegraf",
    ),
}


@pytest.mark.parametrize("names", SHARED_NAMES)
def test_an_exporter_is_not_recognised_by_a_name_that_others_share(names: str) -> None:
    labels, expected = SHARED_NAMES[names]
    assert {each and each.exporter.name for each in mapped_series(labels[-1:] + labels[:-1], EXPORTERS)[:1]} == {
        expected
    }


def test_an_exporter_whose_series_name_no_gpu_is_refused_for_that_reason() -> None:
    labels = recorded_labels("gcm", instance="gn1", job="gcm")
    found = recognised(labels, EXPORTERS)
    assert (found.gpus, found.not_understood) == (0, ())
    said = "Not read: it sends one value per host for all of its GPUs, without a label that names the GPU"
    assert said in " ".join(check_text(found).split())
    # the names that another page may have are gcm's only on a page of gcm
    other = recognised([{"__name__": "gpu_util", "instance": "gn2"}], EXPORTERS)
    assert (other.exporters, other.not_understood) == ((), (("gpu_util", 1),))


def test_the_same_for_machines() -> None:
    content = json.loads(check_json(looked_at("nvidia_gpu_prometheus_exporter")))
    (found,) = content["exporters"]
    column = next(each for each in found["columns"] if each["column"] == "gpu.gpu_util_pct")
    assert (found["gpus"], found["hosts"]) == (5, 1)
    read = {"column": "gpu.gpu_util_pct", "metrics": ["nvidia_gpu_graphics_util_percent"], "unit": "ratio"}
    assert column == read | {"kind": "average", "covers_s": "since the scrape before", "series": 1}


def test_the_agents_own_page_is_not_taken_for_dcgm_exporter() -> None:
    """The names are the same, the values are means: the target's other metrics tell which it is."""
    name, target = "DCGM_FI_DEV_GPU_UTIL", {"UUID": "GPU-1", "gpu": "0", "Hostname": "gn001"}
    labels = [
        {"__name__": name, **target, "instance": "gn001:9477"},
        {"__name__": "fallow_up", "instance": "gn001:9477"},
        {"__name__": name, **target, "instance": "gn001:9400"},
    ]
    own, up, dcgm = mapped_series(labels, EXPORTERS)
    assert own is not None
    assert (own.exporter.name, own.metrics[0].kind) == ("fallow", "average")
    assert up is None
    assert dcgm is not None
    assert (dcgm.exporter.name, dcgm.metrics[0].kind) == ("dcgm-exporter", "reading")


def test_a_part_of_a_series_that_does_not_count_is_known_all_the_same() -> None:
    labels = [each for each in recorded_labels("node-exporter") if each.get("device") == "veth12ab"]
    assert [found and found.metrics for found in mapped_series(labels, EXPORTERS)] == [(), ()]


def test_a_server_that_renames_labels_leaves_the_exporters_own_pod_beside_them() -> None:
    held = {"exported_pod": "train-0", "exported_namespace": "nlp", "pod": "dcgm-7xk2p", "namespace": "gpu-operator"}
    free = {"pod": "dcgm-7xk2p", "namespace": "gpu-operator", "container": "exporter"}
    renaming = renaming_targets([held, free])
    assert user_of(held, DCGM, renaming) == {"namespace": "nlp", "pod": "train-0"}
    assert user_of(free, DCGM, renaming) == {}


@pytest.mark.parametrize("pod", ["nvidia-dcgm-exporter-x8k2p", "dcgm-exporter-1634736248-7c6vs"])
def test_the_exporters_own_pod_holds_nothing_and_is_no_host(pod: str) -> None:
    labels = {"pod": pod, "namespace": "gpu-operator", "Hostname": pod, "instance": "10.1.2.3:9400"}
    assert user_of(labels, DCGM, frozenset()) == {}
    assert host_of(labels, DCGM) == "10.1.2.3"
    assert host_of({**labels, "node": "gn007"}, DCGM) == "gn007"


@pytest.mark.parametrize("word", ["none", "<none>", "N/A", "null", "unknown", "-"])
def test_a_label_that_states_nothing_gives_way_to_the_next(word: str) -> None:
    labels = {
        "Hostname": word,
        "instance": "gn7:9400",
        "UUID": word,
        "gpu_uuid": "GPU-1",
        "pod": word,
        "namespace": word,
    }
    assert (host_of(labels, DCGM), gpu_of(labels, DCGM).uuid, user_of(labels, DCGM, frozenset())) == (
        "gn7",
        "GPU-1",
        {},
    )


def test_a_host_is_not_localhost_where_its_address_is_another() -> None:
    assert host_of({"Hostname": "localhost", "instance": "gn7:9400"}, DCGM) == "gn7"
    assert host_of({"Hostname": "localhost", "instance": "127.0.0.1:9400"}, DCGM) == "localhost"


def test_gpus_and_instances_by_their_labels() -> None:
    by_name = {each.name: each for each in EXPORTERS}
    whole = gpu_of({"uuid": "3f1d"}, by_name["nvidia_gpu_exporter"])
    part = gpu_of({"UUID": "GPU-1", "GPU_I_ID": "9", "gpu": "3"}, DCGM)
    own = gpu_of({"UUID": "GPU-1", "GPU_I_ID": "9", "MIG_UUID": "MIG-7"}, by_name["fallow"])
    assert (whole.uuid, whole.parent) == ("GPU-3f1d", "")
    assert (part.uuid, part.parent, part.mig_instance, part.index) == ("GPU-1", "GPU-1", "9", "3")
    assert (own.uuid, own.parent) == ("MIG-7", "GPU-1")


def test_a_host_without_a_label_is_its_address_without_the_port() -> None:
    hosts = {
        "gn007:9400": "gn007",
        "10.0.0.7:9400": "10.0.0.7",
        "[fd00::7]:9400": "fd00::7",
        "gn007": "gn007",
        "gke-ml-h100-1a2b:metrics": "gke-ml-h100-1a2b",
        "fd00::7": "fd00::7",
        "": "",
    }
    assert {instance: host_of({"instance": instance}, DCGM) for instance in hosts} == hosts


def test_the_docs_are_current() -> None:
    summary = (pages.DOCS / "prometheus.md").read_text(encoding="utf-8")
    assert summary == mapping_page.with_summary(summary), "run `make docs`"
