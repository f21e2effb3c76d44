"""What runs on what, and that the catalog does not contradict itself."""

from __future__ import annotations

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
from agent.doctor.host import library_version, shown, version


@pytest.mark.parametrize(
    ("cuda", "driver", "fit", "needs"),
    [
        ((13, 0), "580.65.06", CudaFit.FULL, "580"),
        ((13, 2), "580.65.06", CudaFit.MINOR, "580"),
        ((13, 4), "580.65.06", CudaFit.MINOR, "580"),
        ((13, 0), "575.57.08", CudaFit.TOO_NEW, "580"),
        ((12, 8), "535.104.05", CudaFit.MINOR, "525.60.13"),
        ((12, 2), "535.104.05", CudaFit.FULL, "525.60.13"),
        ((12, 8), "525.60.11", CudaFit.TOO_NEW, "525.60.13"),
        ((12, 8), "470.256.02", CudaFit.TOO_NEW, "525.60.13"),
        ((11, 8), "470.256.02", CudaFit.MINOR, "450.80.02"),
        ((11, 4), "470.256.02", CudaFit.FULL, "450.80.02"),
        ((11, 8), "610.43.02", CudaFit.FULL, "450.80.02"),
        ((10, 2), "440.33.01", CudaFit.FULL, "440.33"),
        ((10, 2), "418.39.00", CudaFit.TOO_NEW, "440.33"),
        ((12, None), "535.104.05", CudaFit.FULL, "525.60.13"),
        ((12, None), "595.45.04", CudaFit.FULL, "525.60.13"),
        ((13, None), "535.104.05", CudaFit.TOO_NEW, "580"),
        ((14, 0), "610.43.02", CudaFit.UNKNOWN, None),
    ],
)
def test_a_cuda_version_on_a_driver(cuda: tuple[int, int | None], driver: str, fit: CudaFit, needs: str | None) -> None:
    judged = judge_driver(cuda, version(driver) or ())
    assert judged.fit is fit
    assert (shown(judged.needs) if judged.needs else None) == needs


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [("580.65.06", (13, 0)), ("580.65.05", (12, 9)), ("535.104.05", (12, 2)), ("616.0", (13, 3)), ("300.1", None)],
)
def test_the_newest_cuda_of_a_driver(driver: str, cuda: tuple[int, int] | None) -> None:
    assert native_cuda(version(driver) or ()) == cuda


@pytest.mark.parametrize(
    ("cuda", "capability", "fit"),
    [
        ((11, 7), (9, 0), CardSupport.CARD_TOO_NEW),
        ((11, 8), (9, 0), CardSupport.KNOWN),
        ((12, 6), (12, 0), CardSupport.CARD_TOO_NEW),
        ((12, 8), (12, 0), CardSupport.KNOWN),
        ((12, 9), (7, 0), CardSupport.KNOWN),
        ((13, 0), (7, 0), CardSupport.CARD_DROPPED),
        ((13, None), (7, 0), CardSupport.CARD_DROPPED),
        ((12, None), (7, 0), CardSupport.KNOWN),
        ((11, None), (12, 0), CardSupport.CARD_TOO_NEW),
        ((12, 0), (3, 7), CardSupport.CARD_DROPPED),
        ((12, 0), (99, 0), CardSupport.UNKNOWN),
    ],
)
def test_a_cuda_version_on_a_card(cuda: tuple[int, int | None], capability: tuple[int, int], fit: CardSupport) -> None:
    assert judge_card(cuda, generation_of(capability)) is fit


def test_a_newer_cuda_never_needs_an_older_driver() -> None:
    ordered = sorted(catalog.FULL_DRIVER.items())
    assert [driver for _, driver in ordered] == sorted(driver for _, driver in ordered)


def test_the_first_driver_of_a_major_version_runs_all_of_it() -> None:
    for (major, _), driver in catalog.FULL_DRIVER.items():
        if major in catalog.FAMILY_DRIVER and major != 11:  # 11.0 itself came with an older driver
            assert driver >= catalog.FAMILY_DRIVER[major]


def test_a_dropped_card_has_both_ends_and_its_last_driver_runs_its_last_cuda() -> None:
    for generation in catalog.GENERATIONS.values():
        assert (generation.last_cuda is None) == (generation.last_branch is None)
        if generation.last_cuda is not None and generation.last_branch is not None:
            judged = judge_driver(generation.last_cuda, (generation.last_branch, 999))
            assert judged.fit in (CudaFit.FULL, CudaFit.MINOR), generation
            assert generation.first_cuda <= generation.last_cuda


def test_every_branch_is_either_dated_or_ended() -> None:
    assert not catalog.ENDED_BRANCHES & set(catalog.BRANCHES)
    assert catalog.BRANCHES[catalog.RECOMMENDED_BRANCH].ends > catalog.READ_ON


@pytest.mark.parametrize(
    ("device", "name"),
    [(0x1DB1, "Volta"), (0x1B38, "Pascal"), (0x15F8, "Pascal"), (0x17C2, "Maxwell"), (0x102D, "Kepler"),
     (0x1EB8, None), (0x20B0, None), (0x2330, None), (0, None)],
)  # fmt: skip
def test_old_cards_by_their_device_id(device: int, name: str | None) -> None:
    generation = old_generation(device)
    assert (generation.name if generation else None) == name


@pytest.mark.parametrize(
    ("cuda", "capability", "lacks"),
    [((12, 8), (6, 1), True), ((12, 6), (6, 1), False), ((12, 8), (7, 0), False), ((13, 0), (7, 0), True),
     ((12, 8), (9, 0), False), ((10, 2), (3, 7), False)],
)  # fmt: skip
def test_cards_that_pytorch_leaves_out(cuda: tuple[int, int], capability: tuple[int, int], lacks: bool) -> None:  # noqa: FBT001
    assert torch_lacks(cuda, capability) is lacks


@pytest.mark.parametrize(
    ("driver", "capabilities", "build"),
    [
        ("580.65.06", [(9, 0)], (13, 0)),
        ("580.65.06", [(9, 0), (7, 0)], (12, 6)),
        ("535.104.05", [(9, 0)], (12, 8)),
        ("575.51.03", [(12, 0)], (12, 8)),
        ("470.256.02", [(8, 0)], (11, 8)),
        ("580.65.06", [(12, 0), (6, 1)], None),
        ("470.256.02", [(3, 7)], None),
        ("440.33", [(7, 0)], None),
    ],
)
def test_the_build_of_pytorch_for_a_host(
    driver: str, capabilities: list[tuple[int, int]], build: tuple[int, int] | None
) -> None:
    assert torch_build(version(driver) or (), capabilities) == build


@pytest.mark.parametrize(
    ("model", "data_center"),
    [("NVIDIA H100 80GB HBM3", True), ("Tesla V100-SXM2-16GB", True), ("NVIDIA A10G", True), ("NVIDIA L40S", True),
     ("NVIDIA GB200", True), ("NVIDIA GH200 480GB", True), ("Tesla T4", True), ("NVIDIA B200", True),
     ("NVIDIA GeForce RTX 5090", False), ("NVIDIA RTX A6000", False), ("Quadro P4000", False),
     ("NVIDIA TITAN V", False), ("NVIDIA GeForce GT 1030", False)],
)  # fmt: skip
def test_cards_that_take_a_compatibility_package(model: str, data_center: bool) -> None:  # noqa: FBT001
    assert is_data_center(model) is data_center


def test_versions_compare_as_numbers() -> None:
    assert version("580.126.09") > version("580.65.06")  # type: ignore[operator]
    assert shown(version("580.65.06") or ()) == "580.65.06"
    assert version("none") is None
    assert library_version("libcuda.so.580.65.06") == "580.65.06"
    assert library_version("libcuda.so.1") is None
