"""CUDA on the host: toolkits, wheels, compatibility packages, and the GPUs that programs are told to see."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agent.doctor import cuda_installs as pythons
from agent.doctor.case import Status
from agent.doctor.cuda_installs import Package, find_environments, find_toolkits
from agent.doctor.look import DriverLook
from tests.doctor.conftest import H100, NO_LIBRARY, P40, RTX5090, V100, answers, finding, findings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doctor.conftest import Tree


def test_what_the_driver_runs(healthy: Tree) -> None:
    found = finding("cuda.driver", healthy.case(answers(H100, cuda_version=(13, 0))))
    assert found.status is Status.OK
    assert "runs CUDA up to 13.0 in full, and any 13.x" in found.found


def test_a_libcuda_that_is_not_the_drivers_is_shown_beside_it(tree: Tree) -> None:
    found = finding("cuda.driver", tree.module("535.104.05").case(answers(H100, cuda_version=(13, 0))))
    assert found.status is Status.WARNING
    assert (found.facts["native_cuda"], found.facts["cuda_by_libcuda"]) == ("12.2", "13.0")


def compat(tree: Tree, version: str) -> Tree:
    folder = tree.root / "usr/local/cuda-13.0/compat"
    tree.library("libcuda", version, "/usr/local/cuda-13.0/compat")
    tree.environment["LD_LIBRARY_PATH"] = str(folder)
    return tree


def test_a_compatibility_package_on_data_center_cards_is_fine(tree: Tree) -> None:
    found = finding("cuda.driver", compat(tree.module("535.104.05"), "580.65.06").case())
    assert found.status is Status.OK
    assert "compatibility package" in found.found


def test_a_compatibility_package_on_other_cards_fails_with_804(tree: Tree) -> None:
    found = finding("cuda.driver", compat(tree.module("570.124.06"), "580.65.06").case(answers(RTX5090)))
    assert found.status is Status.ERROR
    assert "804" in found.found


def test_a_compatibility_package_that_is_older_than_the_driver_fails_with_803(healthy: Tree) -> None:
    found = finding("cuda.driver", compat(healthy, "570.124.06").case())
    assert found.status is Status.ERROR
    assert "803" in found.found


def test_toolkits_are_found_once_by_each_of_their_marks(healthy: Tree) -> None:
    healthy.toolkit("usr/local/cuda-12.8", "12.8.1").link("usr/local/cuda", "cuda-12.8")
    healthy.file("usr/local/cuda-10.2/version.txt", "CUDA Version 10.2.89\n")
    healthy.file("opt/nvidia/hpc_sdk/Linux_x86_64/25.11/cuda/13.0/include/cuda.h", "#define CUDA_VERSION 13000\n")
    healthy.file("usr/local/cuda-samples/README")
    conda = healthy.root / "opt/conda/envs/x"
    healthy.file("opt/conda/envs/x/targets/x86_64-linux/include/cuda_runtime_api.h", "#define CUDART_VERSION  12060\n")
    healthy.environment["CONDA_PREFIX"] = str(conda)
    found = find_toolkits(healthy.host)
    assert [(each.version, each.active) for each in found] == [
        ((12, 6), True), ((13, 0), False), ((10, 2), False), ((12, 8), False),
    ]  # fmt: skip


def test_the_toolkit_of_the_nvcc_on_the_path_is_active(healthy: Tree) -> None:
    healthy.toolkit("usr/local/cuda-12.8", "12.8.1").file("usr/local/cuda-12.8/bin/nvcc")
    healthy.environment["PATH"] = str(healthy.root / "usr/local/cuda-12.8/bin")
    (found,) = find_toolkits(healthy.host)
    assert found.active


def test_a_toolkit_beyond_the_driver_is_an_error_only_where_it_is_in_use(tree: Tree) -> None:
    tree.module("535.104.05").toolkit("usr/local/cuda-13.0", "13.0.2")
    lying_about = finding("cuda.toolkit", tree.case())
    assert lying_about.status is Status.WARNING
    assert "needs driver 580 or newer, here is 535.104.05" in lying_about.found
    assert "CUDA driver version is insufficient for CUDA runtime version" in lying_about.found
    assert "cuda-compat-13-0" in lying_about.remedy
    tree.environment["CUDA_HOME"] = str(tree.root / "usr/local/cuda-13.0")
    in_use = finding("cuda.toolkit", tree.case(answers(H100, RTX5090)))
    assert in_use.status is Status.ERROR
    assert "cuda-compat" not in in_use.remedy, "one of the cards does not take it"


def test_a_newer_driver_is_not_advised_where_a_card_would_be_lost(tree: Tree) -> None:
    tree.module("470.256.02").toolkit("usr/local/cuda-13.0", "13.0.2")
    kepler = answers(H100, version="470.256.02")
    assert "install driver 580" in finding("cuda.toolkit", tree.case(kepler)).remedy
    old = P40.__class__(0, "GPU-k", "Tesla K80", (3, 7))
    found = finding("cuda.toolkit", tree.case(answers(old, version="470.256.02")))
    assert "install driver" not in found.remedy
    assert "no longer knows GPU 0 (Tesla K80)" in found.remedy


def test_toolkits_that_run_in_full_by_compatibility_and_on_no_card(tree: Tree) -> None:
    tree.module("570.124.06").toolkit("usr/local/cuda-12.9", "12.9.1")
    minor = finding("cuda.toolkit", tree.case())
    assert minor.status is Status.OK
    assert minor.found.endswith("by minor-version compatibility; everything of it from driver 575.51.03 on")
    full = finding("cuda.toolkit", tree.module("580.95.05").case())
    assert (full.status, full.facts["fit"]) == (Status.OK, "full")
    card = finding("cuda.toolkit", tree.toolkit("usr/local/cuda-12.9", "12.6.3").case(answers(H100, RTX5090)))
    assert card.status is Status.WARNING
    assert "cannot compile for GPU 3 (NVIDIA GeForce RTX 5090), compute capability 12.0" in card.found
    assert "CUDA 12.8 or newer" in card.remedy
    unknown = finding("cuda.toolkit", tree.toolkit("usr/local/cuda-12.9", "14.0.0").case())
    assert unknown.status is Status.SKIPPED


def test_without_a_driver_toolkits_are_listed_and_not_judged(tree: Tree) -> None:
    found = finding("cuda.toolkit", tree.toolkit("usr/local/cuda-13.0", "13.0.2").case(NO_LIBRARY))
    assert found.status is Status.SKIPPED
    assert "comes with driver 580.65.06" in found.found


def test_wheels_tell_their_cuda_without_being_imported(healthy: Tree) -> None:
    healthy.wheel("opt/a", "torch", "2.8.0+cu128").wheel("opt/a", "nvidia_cuda_runtime_cu12", "12.8.90")
    healthy.wheel("opt/a", "jax_cuda12_plugin", "0.7.0").wheel("opt/a", "cupy_cuda13x", "14.0.0")
    healthy.wheel("opt/a", "numpy", "2.0.0").wheel("opt/b", "numpy", "2.0.0")
    healthy.wheel("opt/c", "torch", "2.9.1").wheel("opt/d", "torch", "2.9.1+cpu")
    healthy.file("opt/c/lib/python3.12/site-packages/torch/version.py",
                 "__version__ = '2.9.1'\ndebug = False\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n")  # fmt: skip
    healthy.file("opt/d/lib/python3.12/site-packages/torch/version.py", "cuda: Optional[str] = None\n")
    healthy.file("opt/e/conda-meta/cuda-version-12.4-h3060b56_3.json")
    found = {each.folder.name: each.packages for each in find_environments(healthy.host).environments}
    assert found == {
        "a": (
            Package("cupy-cuda13x", "14.0.0", (13, None)),
            Package("jax-cuda12-plugin", "0.7.0", (12, None)),
            Package("nvidia-cuda-runtime-cu12", "12.8.90", (12, 8)),
            Package("torch", "2.8.0+cu128", (12, 8)),
        ),
        "c": (Package("torch", "2.9.1", (13, 0)),),
        "d": (Package("torch", "2.9.1+cpu", None, "cpu"),),
        "e": (Package("cuda-version", "12.4", (12, 4)),),
    }


def environment(tree: Tree, torch: str) -> Path:
    tree.wheel("opt/a", "torch", torch)
    return tree.root / "opt/a"


def test_a_torch_beyond_the_driver_says_what_its_user_sees_and_needs(tree: Tree) -> None:
    folder = environment(tree.module("535.104.05"), "2.9.1+cu130")
    assert finding("cuda.python", tree.case()).status is Status.WARNING
    tree.environment["VIRTUAL_ENV"] = str(folder)
    found = finding("cuda.python", tree.case())
    assert found.status is Status.ERROR
    assert found.subject == str(folder)
    assert "CUDA driver version is insufficient" in found.found
    assert "needs driver 580 or newer, here is 535.104.05" in found.found
    assert "use the cu128 build of torch" in found.remedy
    assert "install driver 580 or newer" in found.remedy


def test_a_torch_that_runs(tree: Tree) -> None:
    environment(tree.module("535.104.05"), "2.8.0+cu128")
    found = finding("cuda.python", tree.case())
    assert found.status is Status.OK
    assert "by minor-version compatibility" in found.found


@pytest.mark.parametrize(
    ("torch", "gpu", "remedy"),
    [
        ("2.9.1+cu130", V100, "use the cu126 build of torch"),
        ("2.8.0+cu128", P40, "use the cu126 build of torch"),
        ("2.6.0+cu124", RTX5090, "use the cu130 build of torch"),
        ("1.13.1+cu117", H100, "use the cu130 build of torch"),
    ],
)
def test_a_torch_without_code_for_the_card(healthy: Tree, torch: str, gpu: object, remedy: str) -> None:
    folder = environment(healthy, torch)
    found = finding("cuda.python", healthy.case(answers(gpu), pythons=(str(folder),)))  # type: ignore[arg-type]
    assert found.status is Status.ERROR
    assert "no kernel image is available" in found.found
    assert found.remedy.startswith(remedy)


def test_other_packages_are_advised_by_their_major_version(tree: Tree) -> None:
    tree.module("535.104.05").wheel("opt/a", "cupy_cuda13x", "14.0.0")
    found = finding("cuda.python", tree.case())
    assert found.remedy.startswith("use a build of cupy-cuda13x for CUDA 12.x or older, or install driver 580 or newer")


def test_an_interpreter_stands_for_its_environment(healthy: Tree) -> None:
    folder = environment(healthy, "2.8.0+cu128")
    python = healthy.file("opt/a/bin/python3")
    (found,) = find_environments(healthy.host, (str(python),)).environments
    assert (found.folder, found.active) == (folder.resolve(), True)
    (found,) = find_environments(healthy.host, (str(folder / "lib/python3.12/site-packages"),)).environments[:1]
    assert found.active


def test_the_search_is_bounded_and_says_so(healthy: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(healthy, "2.8.0+cu128")
    healthy.wheel("opt/b", "torch", "2.8.0+cu128")
    monkeypatch.setattr(pythons, "MOST_ENVIRONMENTS", 2)
    whole = findings("cuda.python", healthy.case())
    monkeypatch.setattr(pythons, "MOST_ENVIRONMENTS", 1)
    cut = findings("cuda.python", healthy.case())
    assert [found.subject for found in cut] == [whole[0].subject, "search"]
    assert "name others with --python" in cut[-1].found


@pytest.mark.parametrize(
    ("version", "text", "built_for"),
    [
        ("2.9.1+cpu", "", "cpu"),
        ("2.9.1+rocm6.4", "", "rocm"),
        ("2.9.1+xpu", "", "xpu"),
        ("2.9.1", "cuda: Optional[str] = None\nhip: Optional[str] = None\n", "cpu"),
        ("2.9.1", "cuda: Optional[str] = None\nhip: Optional[str] = '6.4.43482'\n", "rocm"),
    ],
)
def test_a_torch_without_cuda_is_an_error_where_it_is_in_use(
    healthy: Tree, version: str, text: str, built_for: str
) -> None:
    folder = environment(healthy, version)
    healthy.file("opt/a/lib/python3.12/site-packages/torch/version.py", text)
    lying_about = finding("cuda.python", healthy.case())
    assert (lying_about.status, lying_about.facts["built_for"]) == (Status.OK, built_for)
    given = finding("cuda.python", healthy.case(pythons=(str(folder),)))
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        healthy.environment[variable] = str(folder)
        assert finding("cuda.python", healthy.case()) == given
        del healthy.environment[variable]
    assert given.status is Status.ERROR
    assert given.remedy == "install the cu130 build of torch (its version ends with +cu130)"


def test_a_torch_that_does_not_tell_is_not_judged(healthy: Tree) -> None:
    folder = environment(healthy, "2.9.1")
    assert finding("cuda.python", healthy.case(pythons=(str(folder),))).status is Status.SKIPPED


@pytest.mark.parametrize(
    ("value", "status", "says"),
    [
        (None, Status.OK, "not set"),
        ("0", Status.OK, "1 device(s)"),
        ("0, 1", Status.OK, "2 device(s)"),
        ("GPU-b,MIG-1", Status.OK, "2 device(s)"),
        ("", Status.ERROR, "hides every GPU"),
        ("-1", Status.ERROR, "hides every GPU"),
        ("NoDevFiles", Status.ERROR, "hides every GPU"),
        ("2", Status.ERROR, "of 2 GPU(s) here"),
        ("GPU-x", Status.ERROR, "begins with what is no device"),
        ("0,2,1", Status.WARNING, "'2' is no device, of 2 GPU(s) here; only the 1 before it"),
        ("0,-1", Status.WARNING, "only the 1 before it"),
    ],
)
def test_a_variable_that_hides_gpus(healthy: Tree, value: str | None, status: Status, says: str) -> None:
    if value is not None:
        healthy.environment["CUDA_VISIBLE_DEVICES"] = value
    found = finding("cuda.visible", healthy.case(answers(H100, V100)))
    assert found.status is status
    assert says in found.found


def test_positions_are_not_judged_where_they_count_mig_instances_or_nothing_is_known(healthy: Tree) -> None:
    healthy.environment["CUDA_VISIBLE_DEVICES"] = "3"
    split = replace(H100, mig=True, mig_instances=7)
    assert finding("cuda.visible", healthy.case(answers(split))).status is Status.OK
    assert finding("cuda.visible", healthy.case(DriverLook("hung", step="nvmlInit"))).status is Status.OK


@pytest.mark.parametrize("value", ["void", "none"])
def test_a_container_that_keeps_the_gpus_out(tree: Tree, value: str) -> None:
    tree.environment["NVIDIA_VISIBLE_DEVICES"] = value
    assert finding("cuda.visible", tree.case(NO_LIBRARY)).status is Status.SKIPPED, "on a host it says nothing"
    tree.file(".dockerenv")
    assert finding("cuda.visible", tree.case(NO_LIBRARY)).status is Status.ERROR
    assert finding("cuda.visible", tree.case(answers())).status is Status.ERROR
    assert finding("cuda.visible", tree.case(answers(H100))).status is Status.OK, "handed in another way"
