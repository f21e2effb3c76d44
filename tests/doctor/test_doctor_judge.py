"""What runs on what, and that the catalog does not contradict itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.doctor import compatibility as catalog
from agent.doctor.compatibility import (
    CardSupport,
    CudaFit,
    generation_of,
    is_data_center,
    judge_card,
    judge_driver,
    native_cuda,
    old_generation,
    torch_build,
    torch_lacks,
)
from agent.doctor.host import Copy, Version, shown, version

ON_DRIVERS = """
13.0 580.65.06  full     580
13.2 580.65.06  minor    580
13.4 580.65.06  minor    580
13.0 575.57.08  too_new  580
12.8 535.104.05 minor    525.60.13
12.2 535.104.05 full     525.60.13
12.8 525.60.11  too_new  525.60.13
12.8 470.256.02 too_new  525.60.13
11.8 470.256.02 minor    450.80.02
11.4 470.256.02 full     450.80.02
11.8 610.43.02  full     450.80.02
10.2 440.33.01  full     440.33
10.2 418.39.00  too_new  440.33
12.x 535.104.05 full     525.60.13
12.x 595.45.04  full     525.60.13
13.x 535.104.05 too_new  580
14.0 610.43.02  unknown  -
"""
ON_CARDS = """
11.7 9.0  card_too_new
11.8 9.0  known
12.6 12.0 card_too_new
12.8 12.0 known
12.9 7.0  known
13.0 7.0  card_dropped
13.x 7.0  card_dropped
12.x 7.0  known
11.x 12.0 card_too_new
12.0 3.7  card_dropped
12.0 99.0 unknown
"""
TORCH_LACKS = """
12.8 6.1 True
12.6 6.1 False
12.8 7.0 False
13.0 7.0 True
12.8 9.0 False
10.2 3.7 False
"""
TORCH_BUILDS = """
580.65.06  9.0      13.0
580.65.06  9.0,7.0  12.6
535.104.05 9.0      12.8
575.51.03  12.0     12.8
470.256.02 8.0      11.8
580.65.06  12.0,6.1 -
470.256.02 3.7      -
440.33     7.0      -
"""


def table(text: str) -> pytest.MarkDecorator:
    lines = text.strip().splitlines()
    return pytest.mark.parametrize(
        "line", [each.split() for each in lines], ids=[" ".join(each.split()) for each in lines]
    )


def driver(text: str) -> Version:
    return version(text) or ()


def pair(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


def cuda(text: str) -> tuple[int, int | None]:
    return (int(text[:-2]), None) if text.endswith(".x") else pair(text)


@table(ON_DRIVERS)
def test_a_cuda_version_on_a_driver(line: list[str]) -> None:
    judged = judge_driver(cuda(line[0]), driver(line[1]))
    assert judged.fit is CudaFit[line[2].upper()]
    assert (shown(judged.needs) if judged.needs else "-") == line[3]


@table(ON_CARDS)
def test_a_cuda_version_on_a_card(line: list[str]) -> None:
    assert judge_card(cuda(line[0]), generation_of(pair(line[1]))) is CardSupport[line[2].upper()]


@table(TORCH_LACKS)
def test_cards_that_pytorch_leaves_out(line: list[str]) -> None:
    assert str(torch_lacks(pair(line[0]), pair(line[1]))) == line[2]


@table(TORCH_BUILDS)
def test_the_build_of_pytorch_for_a_host(line: list[str]) -> None:
    build = torch_build(driver(line[0]), [pair(each) for each in line[1].split(",")])
    assert (shown(build) if build else "-") == line[2]


def test_the_newest_cuda_of_a_driver() -> None:
    newest = {"580.65.06": (13, 0), "580.65.05": (12, 9), "535.104.05": (12, 2), "616.0": (13, 3), "300.1": None}
    assert {text: native_cuda(driver(text)) for text in newest} == newest


def test_the_catalog_does_not_contradict_itself() -> None:
    ordered = [needed for _, needed in sorted(catalog.FULL_DRIVER.items())]
    assert ordered == sorted(ordered), "a newer CUDA never needs an older driver"
    for (major, _), needed in catalog.FULL_DRIVER.items():
        if major in catalog.FAMILY_DRIVER and major != 11:  # 11.0 itself came with an older driver
            assert needed >= catalog.FAMILY_DRIVER[major], "the first driver of a major version runs all of it"
    for generation in catalog.GENERATIONS.values():
        assert (generation.last_cuda is None) == (generation.last_branch is None)
        if generation.last_cuda is not None and generation.last_branch is not None:
            judged = judge_driver(generation.last_cuda, (generation.last_branch, 999))
            assert judged.fit in (CudaFit.FULL, CudaFit.MINOR), "its last driver runs its last CUDA"
            assert generation.first_cuda <= generation.last_cuda
    assert not catalog.ENDED_BRANCHES & set(catalog.BRANCHES), "a branch is either dated or ended"
    assert catalog.BRANCHES[catalog.RECOMMENDED_BRANCH].ends > catalog.READ_ON


def test_old_cards_by_their_device_id() -> None:
    old = {0x1DB1: "Volta", 0x1B38: "Pascal", 0x15F8: "Pascal", 0x17C2: "Maxwell", 0x102D: "Kepler"}
    found = {device: old_generation(device) for device in (*old, 0x1EB8, 0x20B0, 0x2330, 0)}
    assert {device: generation.name for device, generation in found.items() if generation} == old


DATA_CENTER = """\
NVIDIA H100 80GB HBM3, Tesla V100-SXM2-16GB, NVIDIA A10G, NVIDIA L40S, NVIDIA GB200, NVIDIA GH200 480GB,
Tesla T4, NVIDIA B200"""
OTHERS = "NVIDIA GeForce RTX 5090, NVIDIA RTX A6000, Quadro P4000, NVIDIA TITAN V, NVIDIA GeForce GT 1030"


def test_cards_that_take_a_compatibility_package() -> None:
    assert all(is_data_center(each.strip()) for each in DATA_CENTER.split(","))
    assert not any(is_data_center(each.strip()) for each in OTHERS.split(","))


def test_versions_compare_as_numbers() -> None:
    assert driver("580.126.09") > driver("580.65.06")
    assert shown(driver("580.65.06")) == "580.65.06"
    assert version("none") is None
    libraries = [Copy("", Path(f"libcuda.so.{each}")) for each in ("580.65.06", "1")]
    assert [each.version for each in libraries] == [(580, 65, 6), None]
