"""`fallow plan fit` over real lakes: needs of models and workloads, cards that suffice, old cards, token costs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from analytics.money.costs import Costs
from analytics.money.prices import PriceBook
from analytics.plan.fit import active_parameters, api_price, measured_tokens
from analytics.plan.model_needs import MemoryNeed
from analytics.plan.seen_work import (
    CardOption,
    OldCards,
    card_options,
    old_cards,
    price_rank,
    seen_workloads,
    times_as_long,
)
from analytics.workloads.cards import Demand, Offer, Shelf
from analytics.workloads.ledger_rows import gpu_ms_of
from fallow.clock import from_ms
from tests.findings.conftest import context_of
from tests.findings.scenarios.builder import A100_80, GB, H100, L40S, V100, Fleet
from tests.findings.scenarios.situations import serve, train
from tests.lakes import made_lake
from tests.ledger.rows import device, fill, samples
from tests.plan.asked import answer, text
from tests.plan.test_model_needs import LLAMA, known

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake import Lake
    from tests.ledger.recording import Recording

DAYS, GIB = 2.0, 2**30
SERVED = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.fixture(scope="module")
def fleet_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Old V100s beside H100s with light and heavy work, and a server that counts tokens."""
    fleet = Fleet(DAYS)
    fleet.host("v1", V100, 2, pool="legacy")
    first, second, third, fourth = fleet.host("h1", H100, 4)
    train(fleet, first, "light", util=10.0, sm=5.0, mem_gb=8, job="1")
    train(fleet, second, "heavy", util=95.0, sm=80.0, mem_gb=8, job="2")
    fleet.run(third, "writer", util=4.0, sm=3.0, mem_gb=9, command="ipykernel_launcher")
    train(fleet, fourth, "linked", util=10.0, sm=5.0, mem_gb=60, job="3")
    (server,) = fleet.host("s1", L40S, 1, pool="serving")
    serve(fleet, server, util=60.0, mem_gb=0.9 * L40S.mem_total_bytes / GB, pod="llm-0")
    asked = np.where(fleet.between(0, 1), 100.0, 0.0)  # a day of answers, a day of waiting
    fleet.serving(server, model=SERVED, kv_cache_used_ratio=0.25, running_requests=4.0, generated_tokens_per_s=asked)
    return fleet.write(made_lake(tmp_path_factory.mktemp("fit") / "lake"))


def queue(site: Lake | Recording) -> OldCards:
    context = context_of(site)
    segments = context.inside.segments
    return old_cards(context, seen_workloads(context, segments), segments, with_idle=True)


def test_a_config_gives_the_need_and_the_cheapest_cards_first(fleet_lake: Lake, tmp_path: Path) -> None:
    config = tmp_path / "Llama-3.1-8B" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps(LLAMA))
    found = answer(fleet_lake, "fit", "--config-json", str(config), "--requests", "1")
    (model,), fleet = found["fit_model"], found["fit_fleet"]
    assert (model["name"], model["is_typical_layout"], model["work"]["bits"]) == ("Llama-3.1-8B", False, 16)
    assert model["parameters"] == pytest.approx(8.03e9, rel=0.001)
    *parts, together, sure = found["memory"]
    assert together.keys() == {"part", "bits_16_bytes", "bits_8_bytes", "bits_4_bytes"}
    assert together["bits_16_bytes"] == pytest.approx(sum(each["bits_16_bytes"] for each in parts))
    assert (model["need_bytes"], model["sure_bytes"]) == (together["bits_16_bytes"], sure["bits_16_bytes"])
    priced = [each for each in fleet if each["fits"] == "yes" and each["hourly"] is not None]
    assert [each["hourly"] for each in priced] == sorted(each["hourly"] for each in priced)
    assert {each["card"] for each in fleet} == {"H100 SXM", "L40S", "V100 SXM2 32GB"}
    assert {"GeForce RTX 4090"} <= {each["card"] for each in found["fit_market"]}
    assert all(each["mig_profile"] is None for each in found["fit_market"])
    served = next(each for each in fleet if each["card"] == "L40S")
    assert (served["measured_model"], served["measured_cost_per_million"]) == (SERVED, pytest.approx(1.861 * 48 / 8.64))
    assert next(each for each in fleet if each["card"] == "H100 SXM")["measured_model"] is None


def test_a_model_too_large_for_one_card_is_split_within_a_host(fleet_lake: Lake) -> None:
    found = answer(fleet_lake, "fit", "--params", "70B")
    assert found["fit_model"][0]["is_typical_layout"]
    assert [(each["card"], each["count"], each["link"], each["fits"]) for each in found["fit_fleet"]] == [
        ("H100 SXM", 2, "NVLink", "tight")
    ]
    trained = answer(fleet_lake, "fit", "--params", "70B", "--train", "full")
    assert trained["fit_fleet"] == []
    assert list(trained["memory"][0]) == ["part", "full_bytes", "lora_bytes", "qlora_bytes"]


def test_what_was_seen_says_its_need_with_its_interval(fleet_lake: Lake) -> None:
    found = answer(fleet_lake, "fit", "--seen", "light/1")
    (light,) = found["seen"]
    assert (light["job"], light["kind"], light["peak_bytes"]) == ("slurm:1", "batch job", 8 * GB)
    assert light["usual_bytes"] <= light["need_bytes"] == 8 * GB < light["sure_bytes"] == 10 * GB
    cards = found["seen_cards"]
    times = {each["card"]: each["times_as_long_at_most"] for each in cards if each["mig_profile"] is None}
    assert times["H100 SXM"] == 1.0
    assert times["V100 SXM2 32GB"] == pytest.approx(1.0)
    assert sum(not each["in_fleet"] for each in cards) > 8, "people see eight"
    (server,) = answer(fleet_lake, "fit", "--seen", "serving")["seen"]
    assert server["is_reserved"]
    assert 16e9 < server["need_bytes"] < server["peak_bytes"], "weights of 8B and a quarter of the rest"
    assert answer(fleet_lake, "fit", "--seen", "nobody")["seen"] == []
    assert answer(fleet_lake, "fit", "--seen", "light/2")["seen"] == []


def test_light_work_and_notebooks_are_in_the_queue_for_old_cards(fleet_lake: Lake) -> None:
    found = queue(fleet_lake)
    assert [(each.work.user, each.work.kind, each.option.card.name) for each in found.queue] == [
        ("light", "batch job", "V100 SXM2 32GB"),
        ("writer", "notebook", "V100 SXM2 32GB"),
    ]
    # `heavy` would take eight times as long, `linked` more memory
    assert all(each.times == 1.0 for each in found.queue)
    assert [offer.card.name for offer in found.offers] == ["V100 SXM2 32GB"]
    assert found.idle_ms == pytest.approx(2 * DAYS * 86_400_000, rel=0.01), "both stood free"


def test_batch_jobs_may_take_twice_as_long_and_notebooks_no_longer() -> None:
    fleet = Fleet(DAYS)
    fleet.host("a1", A100_80, 2)
    first, second = fleet.host("h1", H100, 2)
    train(fleet, first, "batch", util=95.0, sm=50.0, mem_gb=8, job="1")
    fleet.run(second, "notebook", util=95.0, sm=50.0, mem_gb=8, command="jupyter-lab")
    (only,) = queue(fleet.recording()).queue
    assert only.work.user == "batch"
    assert 1.5 < only.times < 2.0


def test_beside_a_cheaper_new_card_none_is_old(lake: Lake, tmp_path: Path) -> None:
    """By list prices an A100 costs half as much as an H100; here it costs twice as much."""
    fleet = Fleet(DAYS)
    fleet.host("a1", A100_80, 1)
    (gpu,) = fleet.host("h1", H100, 1)
    train(fleet, gpu, "light", util=10.0, sm=5.0, mem_gb=8)
    fleet.write(lake)
    prices, config = tmp_path / "prices.csv", tmp_path / "fallow.toml"
    prices.write_text(f"model,hourly\n{A100_80.model},2\n{H100.model},1\n")
    config.write_text(f'[money]\nprices = "{prices}"\n')
    assert answer(lake, "fit")["old_cards_counted"][0]["models"] == [A100_80.model]
    assert answer(lake, "fit", "--config", str(config))["old_cards_counted"][0]["models"] == []


def test_tokens_cost_what_their_hours_cost_waiting_included(fleet_lake: Lake) -> None:
    (found,) = measured_tokens(context_of(fleet_lake))
    assert (found.served, found.card, found.most_running) == (SERVED, L40S.model, 4.0)
    assert found.gpu_ms == pytest.approx(DAYS * 86_400_000, rel=0.02)
    assert found.tokens == pytest.approx(100 * 86_400, rel=0.02)
    assert found.cost_per_million == pytest.approx(1.861 * 48 / 8.64, rel=0.02)
    assert found.kwh is not None
    assert found.kwh > 1


def test_tokens_have_both_bases_of_opencost_and_an_estimated_rate(fleet_lake: Lake) -> None:
    (alone,) = measured_tokens(context_of(fleet_lake))
    assert (alone.allocated_cost_per_million, alone.tflops_per_gpu) == (None, None), "input tokens are not known"
    found = replace(alone, prompt_tokens=3 * alone.tokens)
    assert found.allocated_cost_per_million == pytest.approx(1.861 * 48 / 8.64 / 4, rel=0.02)
    assert found.used_cost_per_million == pytest.approx(found.allocated_cost_per_million * 0.6, rel=0.03)
    assert found.tflops_per_gpu == pytest.approx(2 * 8e9 * 4 * 50 / 1e12, rel=0.02)
    assert found.peak_share == pytest.approx(3.2 / 362, rel=0.03)
    assert replace(found, prompt_tokens=1000 * alone.tokens).peak_share is None, (
        "tokens from a cache took no operations"
    )
    assert replace(found, is_whole=False).peak_share is None, "a MIG instance has a part of the card's rate"


def test_an_hour_without_utilization_costs_the_used_share_of_the_others(tmp_path: Path) -> None:
    fleet = Fleet(1.0)
    (server,) = fleet.host("s1", L40S, 1, pool="serving")
    serve(fleet, server, util=np.where(fleet.between(0.25, 0.3), np.nan, 60.0), mem_gb=20, pod="llm-0")
    fleet.serving(server, model=SERVED, running_requests=4.0, generated_tokens_per_s=50.0, prompt_tokens_per_s=50.0)
    (found,) = measured_tokens(context_of(fleet.write(made_lake(tmp_path / "lake"))))
    assert found.used_cost == pytest.approx(0.6 * found.cost, rel=0.01)


@pytest.mark.parametrize(
    ("served", "active"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 8e9),
        ("Qwen/Qwen3-30B-A3B-FP8", 3e9),
        ("mistralai/Mixtral-8x7B-v0.1", 12.9e9),
        ("openai/gpt-oss-120b", 5.1e9),
        ("zai-org/GLM-4.5-Air-FP8", 12e9),
        ("someone/mixtral-4x3b", None),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", 8e9),
        ("allenai/OLMoE-1B-7B", None),
        ("our-model", None),
    ],
)
def test_active_parameters_are_those_that_a_name_states_or_unknown(served: str, active: float | None) -> None:
    assert active_parameters(served) == active


def test_tokens_of_instances_and_under_a_changed_price_cost_what_the_ledger_has(lake: Lake, tmp_path: Path) -> None:
    fleet = Fleet(DAYS)
    (gpu,) = fleet.host("h1", H100, 1)
    instances = fleet.split(gpu, "3g.40gb", "2g.20gb")
    for number, each in enumerate(instances):
        serve(fleet, each, util=50.0, mem_gb=15, pod=f"llm-{number}")
        fleet.serving(each, generated_tokens_per_s=10.0)
    fleet.write(lake)
    context = context_of(lake)
    second = from_ms(fleet.moment(1.0)).date()
    prices = tmp_path / "prices.csv"
    prices.write_text(f"model,hourly,date\n{H100.model},3,2020-01-01\n{H100.model},5,{second}\n")
    context = replace(context, costs=Costs(PriceBook.load(str(prices), "USD"), context.inventory))
    own = context.inside.segments.filter(pl.col("gpu").is_in([each.uuid for each in instances]))
    (found,) = measured_tokens(context)
    assert (found.cost, found.gpu_ms) == (pytest.approx(context.costs.of(own)), pytest.approx(gpu_ms_of(own)))
    assert found.cost == pytest.approx((24 * 3 + 24 * 5) * 5 / 7)


def test_a_user_who_left_the_gpu_before_the_server_came_pays_for_no_token() -> None:
    fleet = Fleet(2)
    (gpu,) = fleet.host("h1", L40S, 1)
    fleet.run(gpu, "ann", fleet.between(0, 1), util=90.0, slurm_job_id="1", slurm_account="vision")
    fleet.serving(gpu, generated_tokens_per_s=10.0)
    namespaces = {each.namespace: each.gpu_ms for each in measured_tokens(context_of(fleet.recording()))}
    assert namespaces == {name: pytest.approx(86_400_000, rel=0.05) for name in ("vision", None)}


def test_nothing_is_known_without_servers_old_cards_or_work(lake: Lake) -> None:
    fleet = Fleet(1)
    fleet.host("h1", L40S, 1)
    fleet.write(lake)
    said = text(lake, "fit", "--seen", "ann")
    assert "No workload of ann ran for an hour or more on whole cards in this window." in said
    said = text(lake, "fit")
    assert "No card of this fleet is older and slower than another card." in said
    assert "TOKENS" not in said


def test_cards_without_a_price_or_in_no_table_are_said_so(lake: Lake) -> None:
    rows = [row for gpu in ("a", "x") for row in samples(gpu, 0, 7200)]
    fill(lake, rows, devices=[device("a", model="NVIDIA A30"), device("x", model="NVIDIA X9000")])
    said = text(lake, "fit", "--params", "3B")
    assert "A30 fits the model (10.7 GiB on each card). No price is known for any card that fits." in said
    assert "Left out, because they are not in the table of cards: NVIDIA X9000." in said


def test_what_a_config_lacks_is_said_and_the_rest_answered(fleet_lake: Lake, tmp_path: Path) -> None:
    config = tmp_path / "odd.json"
    config.write_text(json.dumps({key: value for key, value in LLAMA.items() if key != "vocab_size"}))
    said = text(fleet_lake, "fit", "--config-json", str(config))
    assert "odd.json lacks vocab_size" in said
    assert "WORKLOADS THAT OLDER CARDS COULD RUN" in said
    (missing,) = answer(fleet_lake, "fit", "--config-json", str(config))["missing_model"]
    assert missing == {"name": "odd.json", "missing_keys": ["vocab_size"], "uneven_key": None}
    config.write_text(json.dumps(LLAMA | {"hybrid_override_pattern": "M-M*-"}))
    said = text(fleet_lake, "fit", "--config-json", str(config))
    assert "odd.json is not estimated: no formula here knows layers with hybrid_override_pattern." in said


def test_a_model_of_short_texts_is_asked_for_no_longer_ones(fleet_lake: Lake, tmp_path: Path) -> None:
    config = tmp_path / "short.json"
    config.write_text(json.dumps(LLAMA | {"max_position_embeddings": 2048}))
    assert answer(fleet_lake, "fit", "--config-json", str(config))["fit_model"][0]["work"]["context"] == 2048
    said = text(fleet_lake, "fit", "--config-json", str(config), "--context", "8192", "--train", "qlora")
    assert "the model takes at most 2,048 tokens at once" in said
    assert "MLX and PyTorch train" in said


def test_a_file_of_narrow_weights_is_served_as_it_is(fleet_lake: Lake, tmp_path: Path) -> None:
    config = tmp_path / "fp8.json"
    config.write_text(json.dumps(LLAMA | {"quantization_config": {"quant_method": "fp8"}}))
    assert answer(fleet_lake, "fit", "--config-json", str(config))["fit_model"][0]["work"]["bits"] == 8
    wide = answer(fleet_lake, "fit", "--config-json", str(config), "--bits", "16")
    assert wide["fit_model"][0]["work"]["bits"] == 16


def test_a_reader_of_one_user_sees_no_work_of_others(fleet_lake: Lake) -> None:
    found = answer(fleet_lake, "fit", "--user", "light")
    assert {each["user"] for each in found["old_card_workloads"]} == {"light"}
    assert found["old_cards_counted"][0]["unused_gpu_hours"] is None
    assert "tokens" not in found
    fitted = answer(fleet_lake, "fit", "--user", "light", "--params", "8B")
    assert {each["measured_model"] for each in fitted["fit_fleet"]} == {None}


def test_a_model_smaller_than_its_layouts_vocabulary_is_answered(fleet_lake: Lake) -> None:
    for size, billions in (("1M", "0.001"), ("30M", "0.030")):
        assert f"A model of {billions} billion" in text(fleet_lake, "fit", "--params", size)
    assert answer(fleet_lake, "fit", "--user", "light", "--seen", "heavy")["seen"] == []


def offer(name: str, hourly: float | None = 1.0, there: int = 8) -> Offer:
    """A card of the fleet; with `there` 0 one of the market."""
    return Offer(known(name), name if there else None, there, hourly, None if hourly is None else "site")


def options(gib: float, *offers: Offer, counts: tuple[int, ...] = (1, 2, 4, 8)) -> list[tuple[str, int, str, bool]]:
    def need(cards: int) -> MemoryNeed:
        return MemoryNeed((("all", gib * GIB / cards),), 1.15 * gib * GIB / cards)

    found = card_options(offers, need, lambda _: counts)
    return [(each.card.name, each.count, each.part.profile.name if each.part else "", each.is_tight) for each in found]


def test_the_smallest_part_and_the_whole_card_of_the_fleet() -> None:
    a100 = "A100 SXM 80GB"
    assert options(7, offer(a100)) == [(a100, 1, "1g.10gb", False), (a100, 1, "", False)]
    assert options(8, offer(a100))[-1] == (a100, 1, "1g.10gb", True)  # it fits, but not with the error
    assert options(30, offer(a100))[0][2] == "3g.40gb"
    assert [part for _, _, part, _ in options(8, offer(a100, there=0))] == [""]  # no part is rented
    part, whole = card_options((offer(a100, 7.0),), lambda _: MemoryNeed((), 0.0), lambda _: (1,))
    assert (part.hourly, whole.hourly, part.sm_share, part.memory_share) == pytest.approx((1.0, 7.0, 1 / 7, 1 / 8))


def test_large_needs_are_split_over_as_few_cards_as_hold_them() -> None:
    assert options(140, offer("L40S"), offer("H100 SXM")) == [("L40S", 4, "", False), ("H100 SXM", 2, "", True)]
    assert options(140, offer("L40S"), counts=(1, 2)) == []
    assert options(140, offer("RTX 4090 Laptop"), offer("Apple M4 16GB")) == [], "their hosts have one"


@pytest.mark.parametrize(
    ("name", "count", "link"),
    [
        ("H100 SXM", 8, "NVLink"),
        ("RTX 3090", 2, "NVLink"),
        ("RTX 3090", 8, "PCIe"),  # a bridge joins two
        ("H200 NVL", 4, "NVLink"),
        ("A100 PCIe 80GB", 4, "PCIe"),
        ("MI300X", 8, "Infinity Fabric"),
        ("L40S", 4, "PCIe"),
        ("T4", 1, None),
    ],
)
def test_a_link_joins_as_many_cards_as_it_can(name: str, count: int, link: str | None) -> None:
    assert CardOption(known(name), count, MemoryNeed((), 0.0)).link == link


def test_prices_of_two_kinds_are_listed_one_after_the_other() -> None:
    kinds = (("L40S", 2.0, "on_demand"), ("RTX 4090", 0.5, "lowest"), ("A40", 3.0, "on_demand"))
    offers = [replace(offer(name, price), basis=kind) for name, price, kind in kinds]
    found = card_options(offers, lambda _: MemoryNeed((), 0.0), lambda _: (1,))
    assert [each.card.name for each in found] == ["L40S", "A40", "GeForce RTX 4090"]
    assert price_rank(found[0]) < price_rank(found[2])


def test_work_moves_to_no_card_with_other_software() -> None:
    """An MI210 is smaller and slower than an H100, and no CUDA program runs there."""
    own, other = (replace(offer(name), origin="site") for name in ("H100 SXM", "MI210"))
    cuda = Shelf({"H100 SXM": own, "MI210": replace(other, hourly=0.1)}, ())
    light = Demand(8 * GIB, 0.05, 0.05)
    assert cuda.choose("H100 SXM", light) is None
    same = replace(other, card=replace(other.card, software="CUDA"), hourly=0.1)
    assert Shelf({"H100 SXM": own, "MI210": same}, ()).choose("H100 SXM", light) == same


def test_the_software_of_each_card_is_named_and_explained(fleet_lake: Lake) -> None:
    found = answer(fleet_lake, "fit", "--params", "70B", "--bits", "4")["fit_market"]
    software = {each["card"]: each["software"] for each in found}
    assert (software["Instinct MI300X"], software["Apple M3 Ultra 96GB"], software["Gaudi 3"]) == (
        "ROCm",
        "MPS",
        "Gaudi",
    )
    assert "TensorRT-LLM and other CUDA programs do not run" in text(
        fleet_lake, "fit", "--params", "70B", "--bits", "4"
    )


def test_own_tokens_are_set_beside_the_api_price_of_the_same_model(fleet_lake: Lake) -> None:
    (found,) = answer(fleet_lake, "fit")["tokens"]
    assert (found["api_per_million"], found["api_input_per_million"], found["api_provider"]) == (0.08, 0.05, "Groq")
    assert found["cost_per_million"] > found["api_per_million"], "a day of waiting costs too"
    assert api_price("our-model", PriceBook("USD")) is None
    assert api_price(SERVED, PriceBook("EUR")) is None, "without a rate"


def test_sure_ones_come_before_cheap_ones_and_priced_ones_before_others() -> None:
    sure, tight, unpriced = offer("L40S", 2.0), offer("RTX 4090", 0.5), offer("A40", None)
    assert [name for name, *_ in options(22, unpriced, tight, sure)] == ["L40S", "A40", "GeForce RTX 4090"]


@pytest.mark.parametrize(
    ("busy", "bandwidth", "expected"),
    [(1.0, 0.0, 989.4 / 125), (0.0, 0.9, 0.9 * 3350 / 900), (0.1, 0.1, 1.0), (0.2, 0.0, 0.2 * 989.4 / 125)],
)
def test_work_is_slowed_down_by_what_it_uses(busy: float, bandwidth: float, expected: float) -> None:
    need = MemoryNeed((), 0.0)
    slower, unknown = (CardOption(known(name), 1, need) for name in ("V100 SXM2 32GB", "P40"))
    assert times_as_long(Demand(0, busy, bandwidth), known("H100 SXM"), slower) == pytest.approx(expected)
    assert times_as_long(Demand(0, busy, bandwidth), known("H100 SXM"), unknown) is None
