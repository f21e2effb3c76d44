"""Names of GPU models as NVML, Slurm and people write them, and the facts behind them."""

from __future__ import annotations

import csv
from datetime import date
from importlib import resources
from typing import TYPE_CHECKING

import pytest

from analytics.cards import card, cards, is_called, words
from analytics.inventory import load_inventory
from analytics.ledger.resting_draws import resting_draws
from analytics.money.prices import catalog, listed
from tests.ledger.rows import device, fill, samples

if TYPE_CHECKING:
    from fallow.lake import Lake

GIB = 2**30


WRITTEN = {
    "H100 SXM": ("NVIDIA H100 80GB HBM3", "H100 SXM5"),
    "H100 PCIe": ("NVIDIA H100 PCIe",),
    "H100 NVL": ("NVIDIA H100 NVL MIG 1g.12gb",),
    "H200 SXM": ("NVIDIA H200",),
    "GH200 96GB": ("NVIDIA GH200 480GB",),
    "A100 SXM 80GB": ("NVIDIA A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB"),
    "A100 SXM 40GB": ("A100-SXM4-40GB",),
    "A100 PCIe 80GB": ("nvidia_a100_80gb_pcie",),
    "A100 PCIe 40GB": ("NVIDIA A100-PCIE-40GB",),
    "T4": ("Tesla T4",),
    "V100 SXM2 16GB": ("Tesla V100-SXM2-16GB",),
    "V100 PCIe 32GB": ("Tesla V100-PCIE-32GB",),
    "RTX 6000 Ada": ("NVIDIA RTX 6000 Ada Generation",),
    **{name: (f"NVIDIA {name}",) for name in ("B200", "GB200", "A30", "A10", "A10G", "A40", "L4", "L40S", "L40")},
    **{
        name: (f"NVIDIA {name}",) for name in ("RTX A6000", "GeForce RTX 4090", "RTX PRO 6000 Blackwell Server Edition")
    },
    "Quadro RTX 6000": ("Quadro RTX 6000",),
    "GeForce RTX 4090 Laptop": ("NVIDIA GeForce RTX 4090 Laptop GPU",),
    "Instinct MI300X": ("AMD Instinct MI300X", "AMD Instinct MI300X OAM", "mi300x"),
    "Instinct MI250X GCD": ("AMD Instinct MI250X",),  # ROCm shows each half of the module as a GPU
    "Gaudi 2": ("HL-225", "Intel Gaudi 2"),
    "Data Center GPU Max 1550": ("Intel(R) Data Center GPU Max 1550",),
}
UNCLEAR = (None, "", "A100", "H100", "V100", "GRID A100X-40C", "NVIDIA H100 Super", "AMD Instinct MI999X")
UNCLEAR += ("H100L-1-12C", "NVIDIA", "AMD", "M4", "Apple M3 Max", "NVIDIA GeForce RTX 3080 Laptop GPU")


def test_a_card_is_known_by_every_way_to_write_it_and_a_name_of_several_or_none_is_unknown() -> None:
    found = {written: card(written) for own in WRITTEN.values() for written in own}
    expected = {written: name for name, own in WRITTEN.items() for written in own}
    assert {written: each and each.name for written, each in found.items()} == expected
    assert [card(written) for written in UNCLEAR] == [None] * len(UNCLEAR)


def test_no_two_cards_share_a_name() -> None:
    text = resources.files("analytics").joinpath("cards.csv").read_text(encoding="utf-8")
    owner: dict[frozenset[str], str] = {}
    for row in csv.DictReader(text.splitlines()):
        for alias in {words(each) for each in (row["name"], *filter(None, row["aliases"].split("|")))}:
            assert owner.setdefault(alias, row["name"]) == row["name"], alias


def test_facts_are_plausible() -> None:
    for each in cards():
        assert 5 * GIB < each.memory_bytes < 400 * GIB, each.name
        assert 2016 <= each.year <= 2026, each.name
        assert each.source, each.name
        assert (each.link is None) == (each.link_cards == 1), each.name
        assert each.mig_slices in (0, 4, 7), each.name
        assert bool(each.mig_profiles) == bool(each.mig_slices), each.name
        for profile in each.mig_profiles:
            assert 1 <= profile.slices <= each.mig_slices, each.name
            assert profile.memory_bytes < each.memory_bytes * 1.02, (each.name, profile.name)
    newest = [each.year for each in cards()]
    assert newest[0] == max(newest)


def test_a_mig_instance_is_never_said_to_hold_more_than_it_shows() -> None:
    """What nvidia-smi mig -lgip shows in GiB of a 1g.5gb of an A100 40GB and a 1g.18gb of an H200."""
    for model, shown_gib in (("NVIDIA A100-SXM4-40GB", 4.75), ("NVIDIA H200", 16.0)):
        found = card(model)
        assert found is not None
        assert found.mig_profiles[0].memory_bytes <= shown_gib * GIB


def test_the_catalog_is_dated_sourced_and_of_known_cards() -> None:
    names = {each.name for each in cards()}
    assert len(catalog()) >= 20
    for model, each in catalog().items():
        assert model in names
        assert each.hourly > 0
        assert each.currency == "USD"
        assert date(2026, 1, 1) <= each.date <= date(2026, 11, 21)
        assert each.source


def test_a_list_price_is_found_by_the_drivers_name() -> None:
    found = listed("NVIDIA H100 80GB HBM3")
    assert found is not None
    assert str(found.hourly) == "6.88"
    assert listed("NVIDIA A100") is None, "which A100 is not said"
    assert listed("NVIDIA A30") is None, "nobody lists it"


def test_number_formats_are_those_of_the_architecture() -> None:
    expected = {
        "P40": "INT8",
        "P100 SXM2 16GB": "FP16",
        "V100 SXM2 32GB": "FP16",
        "T4": "FP16 INT8",
        "A100 SXM 80GB": "BF16 FP16 INT8",
        "RTX 4060 Ti 16GB": "BF16 FP16 FP8 INT8",
        "H100 SXM": "BF16 FP16 FP8 INT8",
        "B200": "BF16 FP16 FP8 INT8 FP4",
    }
    assert {name: " ".join(found.formats) for name in expected if (found := card(name))} == expected
    for each in cards():
        assert each.fp8_tflops is None or "FP8" in each.formats, each.name
        assert each.fp4_tflops is None or "FP4" in each.formats, each.name
        twice = pytest.approx(2 * (each.fp16_tflops or 0), rel=0.02)
        assert each.fp8_tflops is None or each.fp8_tflops == twice or each.name == "Gaudi 3", each.name
    assert card("RTX 4060 Ti") is None, "8 or 16 GB is not said"


def test_memory_tells_cards_of_one_name_apart_and_a_laptop_is_no_desktop() -> None:
    sizes = {gib: card("NVIDIA GeForce RTX 3080 Laptop GPU", gib * GIB) for gib in (8, 16, 24)}
    assert [each and each.name for each in sizes.values()] == [
        "GeForce RTX 3080 Laptop 8GB",
        "GeForce RTX 3080 Laptop 16GB",
        None,
    ]
    assert card("NVIDIA", 8 * GIB) is None
    asked = ("RTX 4090", "rtx 4090 laptop", "NVIDIA GeForce RTX 4090 Laptop GPU")
    assert [is_called(each, "NVIDIA GeForce RTX 4090 Laptop GPU") for each in asked] == [False, True, True]


def test_a_mac_lends_its_gpu_two_thirds_of_little_memory_and_three_quarters_of_much() -> None:
    shares = {
        gib: each.memory_bytes / GIB
        for gib in (16, 64)
        if (each := card(f"Apple M1 {['Pro', 'Max'][gib > 32]} {gib}GB"))
    }
    assert shares == pytest.approx({16: 10.67, 64: 48.0}, abs=0.01)


def test_a_maker_limit_is_a_witness_of_nvidia_cards_only(lake: Lake) -> None:
    """The shares of the limit that a card at rest draws were measured on an H200."""
    rows = [row for gpu in ("a", "x") for row in samples(gpu, 0, 60)]
    fill(lake, rows, devices=[device("a", model="NVIDIA A100-SXM4-80GB"), device("x", model="AMD Instinct MI300X")])
    draws = resting_draws(load_inventory(lake))["h1"]
    assert [gpu for gpu, draw in draws.items() if draw.spinning_w > 0] == ["a"]
