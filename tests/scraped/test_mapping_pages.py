"""Recorded pages of every exporter: all of their series are understood, and what `--check` says of them."""

from __future__ import annotations

import json

import pytest

from analytics.mapping.mapping_file import built_in, load_exporters
from analytics.scraped.recognition import Recognised, check_json, check_text, recognised
from analytics.scraped.series_labels import gpu_of, holder_of, host_of, mapped_series, renaming_targets
from tests.core import pages
from tests.scraped import mapping_page
from tests.scraped.recorded_labels import RECORDED, recorded_labels

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
    of_pages = {each.name for each in built_in()} - {
        "fallow",
        "otel",
    }  # ours is of the agent's tests, the other is no page
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
    labels = [
        each for each in recorded_labels("dcgm-exporter") if not ("FB_" in each["__name__"] and each["gpu"] == "0")
    ]
    lacking = next(each for each in recognised(labels, EXPORTERS).missing if each.absence.name == "memory in use")
    assert (lacking.gpus, lacking.would_tell) == (1, ("DCGM_FI_DEV_FB_USED",))


def test_a_gpu_without_utilization_is_said_first() -> None:
    labels = [{"__name__": "DCGM_FI_DEV_GPU_TEMP", "UUID": "GPU-1", "gpu": "0"}]
    text = check_text(recognised(labels, EXPORTERS))
    assert "utilization: nothing can be called busy or idle: all of the time is unknown." in " ".join(text.split())
    assert [each.absence.name for each in recognised(labels, EXPORTERS).missing][:4] == [
        "utilization", "memory in use", "who holds it", "power",
    ]  # fmt: skip


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


def test_the_same_for_machines() -> None:
    content = json.loads(check_json(looked_at("nvidia_gpu_prometheus_exporter")))
    (found,) = content["exporters"]
    column = next(each for each in found["columns"] if each["column"] == "gpu.gpu_util_pct")
    assert (found["gpus"], found["hosts"]) == (5, 1)
    assert column == {
        "column": "gpu.gpu_util_pct",
        "metrics": ["nvidia_gpu_graphics_util_percent"],
        "unit": "ratio",
        "kind": "average",
        "covers_s": "since the scrape before",
        "series": 1,
    }


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
    assert holder_of(held, DCGM, renaming) == {"namespace": "nlp", "pod": "train-0"}
    assert holder_of(free, DCGM, renaming) == {}


@pytest.mark.parametrize("pod", ["nvidia-dcgm-exporter-x8k2p", "dcgm-exporter-1634736248-7c6vs"])
def test_the_exporters_own_pod_holds_nothing_and_is_no_host(pod: str) -> None:
    labels = {"pod": pod, "namespace": "gpu-operator", "Hostname": pod, "instance": "10.1.2.3:9400"}
    assert holder_of(labels, DCGM, frozenset()) == {}
    assert host_of(labels, DCGM) == "10.1.2.3"
    assert host_of({**labels, "node": "gn007"}, DCGM) == "gn007"


def test_gpus_and_instances_by_their_labels() -> None:
    by_name = {each.name: each for each in EXPORTERS}
    whole = gpu_of({"uuid": "3f1d"}, by_name["nvidia_gpu_exporter"])
    part = gpu_of({"UUID": "GPU-1", "GPU_I_ID": "9", "gpu": "3"}, DCGM)
    own = gpu_of({"UUID": "GPU-1", "GPU_I_ID": "9", "MIG_UUID": "MIG-7"}, by_name["fallow"])
    assert (whole.uuid, whole.parent) == ("GPU-3f1d", "")
    assert (part.uuid, part.parent, part.mig_instance, part.index) == ("GPU-1", "GPU-1", "9", "3")
    assert (own.uuid, own.parent) == ("MIG-7", "GPU-1")


@pytest.mark.parametrize(
    ("instance", "host"),
    [
        ("gn007:9400", "gn007"),
        ("10.0.0.7:9400", "10.0.0.7"),
        ("[fd00::7]:9400", "fd00::7"),
        ("gke-ml-h100-1a2b:metrics", "gke-ml-h100-1a2b"),
        ("gn007", "gn007"),
        ("fd00::7", "fd00::7"),
        ("", ""),
    ],
)
def test_a_host_without_a_label_is_its_address_without_the_port(instance: str, host: str) -> None:
    assert host_of({"instance": instance}, DCGM) == host


def test_the_docs_are_current() -> None:
    summary = (pages.DOCS / "prometheus.md").read_text(encoding="utf-8")
    assert (pages.DOCS / "mappings.md").read_text(encoding="utf-8") == mapping_page.mappings_page(), "run `make docs`"
    assert summary == mapping_page.with_summary(summary), "run `make docs`"
