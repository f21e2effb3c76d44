"""Scraped inference servers: what they served is in the lake to the token, on their pods' GPUs, at these GPUs' cost."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
import pytest

from analytics.frames import read_frame
from analytics.plan.fit import OUTPUT_WEIGHT, measured_tokens
from analytics.scraped.samples import SAMPLE_SCHEMA, Samples
from analytics.scraped.server.metrics_server import MetricsServer
from analytics.scraped.serving_rows import served_models
from fallow.clock import SystemClock, format_ms
from fallow.schema import SERVING
from tests.findings.conftest import context_of
from tests.findings.one_rule import only_of
from tests.in_process import run_in_process
from tests.plan.asked import answer
from tests.scraped.exposed import page_of
from tests.scraped.held_server import HeldServer
from tests.scraped.inference_servers import MODEL, PAGES, SimulatedServer
from tests.scraped.servers import PrometheusProcess, Replayer, ScrapeJob, missing
from tests.scraped.site import MODEL as SITE_MODEL
from tests.scraped.site import SiteGpu, dcgm_of_pods, site_samples

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from fallow.lake import Lake
    from tests.scraped.exposed import Exposed

SINCE_S = 1_795_651_200 - 1800  # 2026-11-25T23:30Z: the import has two days
UNTIL_S = SINCE_S + 3600
STEP_S = 15
TIMES_S = range(SINCE_S, UNTIL_S, STEP_S)
LAST_S = TIMES_S[-1]
GPUS = [
    SiteGpu(host, index, lambda _, noise: 40 + noise, 70_000, "serving", pod)
    for host, index, pod in (
        ("gn004", 0, "llm-0"),
        ("gn004", 1, "llm-1"),
        ("gn005", 0, "wide-0"),
        ("gn005", 1, "wide-0"),
    )
]
LLM = SimulatedServer("llm-0", began_s=SINCE_S - 600)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> HeldServer:
    held = HeldServer()
    monkeypatch.setattr(MetricsServer, "connect", lambda *_: held)
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: UNTIL_S * 1000)
    held.write(site_samples(dcgm_of_pods, (at_s * 1000 for at_s in TIMES_S), GPUS))
    return held


def imported(server: HeldServer, lake: Lake, servers: Sequence[SimulatedServer], *flags: str) -> str:
    for each in servers:
        server.write(each.samples(TIMES_S))
    since = format_ms(SINCE_S * 1000)
    done = run_in_process(
        "import", "prometheus", "--url", "http://held", "--since", since, "--lake", lake.root, "--yes", *flags
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def rows_of(lake: Lake) -> pl.DataFrame:
    return read_frame(lake.files(SERVING.name), SERVING)


def counted(rows: pl.DataFrame, name: str) -> float:
    """What a rate comes to, each server's rows once however many GPUs it has."""
    once = rows.unique(["endpoint", "model", "time"])
    return float((once[f"{name}_per_s"] * once["interval_ms"] / 1000).sum())


@pytest.mark.parametrize("page", PAGES)
def test_what_an_engine_served_is_in_the_lake_to_the_token(server: HeldServer, lake: Lake, page: str) -> None:
    one = replace(LLM, page=page)
    imported(server, lake, [one])
    rows = rows_of(lake)
    for column, truth in (("prompt_tokens", "prompt"), ("generated_tokens", "generated"), ("requests", "requests")):
        assert counted(rows, column) == pytest.approx(one.served(truth, LAST_S, SINCE_S), abs=0.01), column
    assert set(rows["gpu"]) == {GPUS[0].uuid}
    assert set(rows["host"]) == {"gn004"}
    assert set(rows["model"]) == ({None} if page == "tgi" else {MODEL})
    assert rows["running_requests"].max() == 6
    if page == "vllm":
        assert rows["time_to_first_token_s"].drop_nulls().len() > 200


@pytest.mark.parametrize(
    ("used", "most", "share"), [(1.0, 40.0, 0.025), (1.0, None, None), (0.0, None, None), (0.0, 0.0, None)]
)
def test_used_blocks_of_a_kv_cache_are_a_share_of_a_known_number_alone(
    used: float, most: float | None, share: float | None
) -> None:
    about = {"instance": "10.0.0.1:8002", "job": "triton", "model": "chat", "version": "1"}
    blocks = {"used": used, "max": most}
    labels = [
        {**about, "__name__": "nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type": kind}
        for kind, value in blocks.items()
        if value is not None
    ]
    labels.append({**about, "__name__": "nv_inference_request_success"})
    values = [*(value for value in blocks.values() if value is not None), 5.0]
    rows = [(number, at_ms, value) for number, value in enumerate(values) for at_ms in (0, 15_000)]
    found = served_models(Samples(tuple(labels), pl.DataFrame(rows, SAMPLE_SCHEMA, orient="row")), 0, 60_000)
    assert found.rows["kv_cache_used_ratio"].to_list() == [share]


def test_replicas_engines_and_a_restart_add_up(server: HeldServer, lake: Lake) -> None:
    """Two replicas, one of which restarted at 0, and one with two engines on two GPUs; two jobs scrape one of them."""
    restarted = SimulatedServer("llm-1", began_s=SINCE_S - 600, restarted_s=SINCE_S + 100 * STEP_S)
    wide = SimulatedServer("wide-0", node="gn005", began_s=SINCE_S - 600, engines=("0", "1"))
    servers = [LLM, restarted, wide]
    imported(server, lake, [*servers, replace(LLM, others={"job": "twice"})])
    rows = rows_of(lake)
    assert counted(rows, "generated_tokens") == pytest.approx(
        sum(each.served("generated", LAST_S, SINCE_S) for each in servers), abs=0.01
    )
    assert rows.filter(pl.col("pod") == "wide-0").group_by("gpu").len().sort("gpu")["gpu"].to_list() == sorted(
        gpu.uuid for gpu in GPUS[2:]
    )
    before = rows.sort("endpoint", "time", "gpu")
    imported(server, lake, [], "--restart")
    assert rows_of(lake).sort("endpoint", "time", "gpu").equals(before), "once more changes nothing"


def test_tokens_cost_what_their_gpus_cost(server: HeldServer, lake: Lake) -> None:
    servers = [LLM, SimulatedServer("wide-0", node="gn005", began_s=SINCE_S - 600)]
    imported(server, lake, servers)
    context = context_of(lake)
    (found,) = measured_tokens(context)
    rate = context.costs.rate_of(GPUS[0].uuid)
    assert rate is not None
    assert (found.served, found.namespace, found.team) == (MODEL, "serving", None)
    assert found.tokens == pytest.approx(sum(each.served("generated", LAST_S, SINCE_S) for each in servers), abs=0.01)
    assert found.cost == pytest.approx(rate * 3 * (LAST_S - SINCE_S) / 3600, abs=0.005)
    own = context.whole.segments.filter(pl.col("gpu").is_in([GPUS[n].uuid for n in (0, 2, 3)]))
    assert found.cost == pytest.approx(context.costs.of(own), abs=2 * 3 * rate * STEP_S / 3600), (
        "but for the first scrape"
    )
    price_in, price_out = found.input_cost_per_million, found.output_cost_per_million
    assert price_in is not None
    assert price_out == pytest.approx(OUTPUT_WEIGHT * price_in)
    assert found.prompt_tokens is not None
    assert price_in * found.prompt_tokens / 1e6 + price_out * found.tokens / 1e6 == pytest.approx(found.cost)


def test_a_loaded_server_without_a_request_is_idle_by_its_own_count(server: HeldServer, lake: Lake) -> None:
    idle = SiteGpu("gn006", 0, lambda _, __: 0, 70_000, "serving", "quiet-0")
    server.write(site_samples(dcgm_of_pods, (at_s * 1000 for at_s in TIMES_S), [idle]))
    imported(server, lake, [LLM, SimulatedServer("quiet-0", node="gn006", began_s=SINCE_S - 600, is_asked=False)])
    finding = only_of("held", lake)
    assert finding.gpus == (idle.uuid,)
    assert finding.evidence.numbers["quiet_h"] == pytest.approx(2.0, abs=0.6)
    assert "the same model serves traffic elsewhere, so this may be a spare replica" in finding.confidence.failed


def test_tokens_are_by_namespace_and_team(server: HeldServer, lake: Lake, tmp_path: Path) -> None:
    """Two pods of one model in two namespaces; the owners' table knows the team of one of them."""
    other = SiteGpu("gn006", 0, lambda _, noise: 40 + noise, 70_000, "search", "llm-9")
    server.write(site_samples(dcgm_of_pods, (at_s * 1000 for at_s in TIMES_S), [other]))
    theirs = SimulatedServer("llm-9", namespace="search", node="gn006", began_s=SINCE_S - 600)
    imported(server, lake, [LLM, theirs])
    owners, config = tmp_path / "owners.csv", tmp_path / "fallow.toml"
    owners.write_text("kind,name,team\nnamespace,search,Discovery\n")
    config.write_text(f'[money]\nowners = "{owners}"\n')
    found = answer(lake, "fit", "--config", str(config))["tokens"]
    tokens = {(each["namespace"], each["team"]): each["tokens"] for each in found}
    assert tokens == {
        ("serving", None): pytest.approx(LLM.served("generated", LAST_S, SINCE_S), abs=0.01),
        ("search", "Discovery"): pytest.approx(theirs.served("generated", LAST_S, SINCE_S), abs=0.01),
    }


def test_a_server_whose_pod_no_exporter_names_has_no_gpu_and_no_cost(server: HeldServer, lake: Lake) -> None:
    said = imported(server, lake, [LLM, SimulatedServer("router-0", page="dynamo", node="cpu-7", began_s=SINCE_S)])
    assert "2 inference servers (dynamo, vllm)" in said
    assert "1 without a known GPU" in said
    router = rows_of(lake).filter(pl.col("pod") == "router-0")
    assert (set(router["gpu"]), set(router["host"])) == ({None}, {"cpu-7"})
    context = context_of(lake)
    assert [found.tokens for found in measured_tokens(context)] == [
        pytest.approx(LLM.served("generated", LAST_S, SINCE_S), abs=0.01)
    ]
    assert {gpu for gpu in context.inventory.devices if gpu.startswith("cpu-7")} == set()


def test_a_server_without_gpu_exporters_is_imported_too(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldServer()
    monkeypatch.setattr(MetricsServer, "connect", lambda *_: held)
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: UNTIL_S * 1000)
    assert "1 without a known GPU" in imported(held, lake, [LLM])
    assert counted(rows_of(lake), "prompt_tokens") == pytest.approx(LLM.served("prompt", LAST_S, SINCE_S), abs=0.01)


def test_the_gpu_of_a_server_may_become_known_later(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldServer()
    monkeypatch.setattr(MetricsServer, "connect", lambda *_: held)
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: UNTIL_S * 1000)
    imported(held, lake, [LLM])
    held.write(site_samples(dcgm_of_pods, (at_s * 1000 for at_s in TIMES_S), GPUS))
    imported(held, lake, [], "--restart")
    rows = rows_of(lake)
    assert (set(rows["gpu"]), rows.height) == ({GPUS[0].uuid}, len(TIMES_S) - 1)


@pytest.mark.parametrize("page", PAGES)
def test_a_check_says_what_servers_give_and_understands_all_of_it(server: HeldServer, lake: Lake, page: str) -> None:
    server.write(replace(LLM, page=page).samples([UNTIL_S - 60, UNTIL_S - 30]))
    said = json.loads(imported(server, lake, [], "--check", "--json"))
    assert said["not_understood"] == []
    _, servers = said["exporters"]
    columns = {each["column"] for each in servers["columns"]}
    assert {"serving.running_requests", "serving.generated_tokens_per_s", "serving.prompt_tokens_per_s"} <= columns


@pytest.mark.long
def test_a_server_that_a_real_prometheus_scrapes_costs_to_the_cent_and_counts_to_the_token(
    tmp_path: Path, lake: Lake
) -> None:
    """A server of ours serves vLLM's page and restarts after the sixth scrape; another exporter names its pod's GPU."""
    if lacking := missing():
        pytest.skip(lacking)
    gpu, counters = GPUS[0], ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")
    truth = SimulatedServer(gpu.pod, began_s=0)

    def page(number: int) -> str:
        began = truth if number < 6 else replace(truth, restarted_s=300)
        return page_of(_of_exporter(began.samples([60 * (number + 1)])))

    def cards(_: int) -> str:
        return page_of(_of_exporter(dcgm_of_pods(gpu, int(time.time() * 1000))))

    where = {"namespace": gpu.namespace, "pod": gpu.pod, "node": gpu.host}
    with Replayer(page) as served, Replayer(cards) as exporter:
        labelled = {"static_configs": [{"targets": [served.target], "labels": where}]}
        jobs = [ScrapeJob("servers", (served.target,), options=labelled), ScrapeJob("dcgm", (exporter.target,))]
        with PrometheusProcess(tmp_path / "server", jobs) as server:
            served.wait_for(12)
            with served.away(), exporter.away():
                served.wait_for(1)
                done = run_in_process(
                    "import", "prometheus", "--url", server.url, "--since", "1h", "--lake", lake.root, "--yes"
                )
                kept = {name: sorted((each.time_ms, each.value) for each in server.kept(name)) for name in counters}
    assert done.returncode == 0, done.stderr
    scrapes = len(kept[counters[0]])
    assert scrapes > 8
    seconds = [*range(60, 60 * scrapes + 1, 60)]
    prices, config = tmp_path / "prices.csv", tmp_path / "fallow.toml"
    prices.write_text(f"model,hourly\n{SITE_MODEL},36000\n")  # ten a second: a few scrapes cost more than a cent
    config.write_text(f'[money]\nprices = "{prices}"\n')
    (tokens,) = answer(lake, "fit", "--config", str(config))["tokens"]
    for column, name in (("prompt_tokens", "prompt"), ("tokens", "generated")):
        before, after = truth.served(name, seconds[5], seconds[0]), truth.served(name, seconds[-1], 300)
        assert tokens[column] == pytest.approx(before + after, abs=0.001), column
    lasted_s = (kept[counters[0]][-1][0] - kept[counters[0]][0][0]) / 1000
    assert tokens["cost"] == pytest.approx(10 * lasted_s, abs=0.005)
    assert tokens["namespace"] == gpu.namespace


def _of_exporter(samples: Iterable[Exposed]) -> Iterator[Exposed]:
    """What a page has before a server adds the target's labels."""
    return (each.labelled(instance="", job="", node="") for each in samples)
