"""CUDA on the host: toolkits, wheels, compatibility packages, and the GPUs that programs are told to see."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agent.doctor import cuda_installs as pythons
from agent.doctor.cuda_installs import Package, find_environments, find_toolkits
from agent.doctor.look import DriverLook
from tests.doctor.conftest import H100, NO_LIBRARY, P40, RTX5090, V100, answers, findings, says

if TYPE_CHECKING:
    from pathlib import Path

    from agent.doctor.look import GpuLook
    from tests.doctor.conftest import Hosts, Tree

TORCH_VERSION = "opt/{}/lib/python3.12/site-packages/torch/version.py"


def test_what_the_driver_runs(hosts: Hosts) -> None:
    driver = answers(H100, cuda_version=(13, 0))
    says("cuda.driver", hosts.healthy().case(driver), "ok: .*runs CUDA up to 13.0 with every feature, and any 13.x")
    found = says("cuda.driver", hosts.bare().module("535.104.05").case(driver), "warning")
    assert (found.facts["native_cuda"], found.facts["cuda_by_libcuda"]) == ("12.2", "13.0"), "of another libcuda"


def test_compatibility_packages_are_for_newer_cuda_on_data_center_cards(hosts: Hosts) -> None:
    for driver, package, card, pattern in (
        ("535.104.05", "580.65.06", H100, "ok: .*compatibility package"),
        ("570.124.06", "580.65.06", RTX5090, "error: .*804"),
        ("580.95.05", "570.124.06", H100, "error: .*803"),
    ):
        tree = hosts.bare().module(driver).library("libcuda", package, "/usr/local/cuda-13.0/compat")
        tree.environment["LD_LIBRARY_PATH"] = str(tree.root / "usr/local/cuda-13.0/compat")
        says("cuda.driver", tree.case(answers(card)), pattern)


def test_toolkits_are_found_once_by_each_of_their_marks(healthy: Tree) -> None:
    healthy.toolkit("usr/local/cuda-12.8", "12.8.1").link("usr/local/cuda", "cuda-12.8")
    healthy.file("usr/local/cuda-10.2/version.txt", "CUDA Version 10.2.89\n")
    healthy.file("opt/nvidia/hpc_sdk/Linux_x86_64/25.11/cuda/13.0/include/cuda.h", "#define CUDA_VERSION 13000\n")
    healthy.file("usr/local/cuda-samples/README")
    header = "opt/conda/envs/x/targets/x86_64-linux/include/cuda_runtime_api.h"
    healthy.file(header, "#define CUDART_VERSION  12060\n")
    healthy.environment["CONDA_PREFIX"] = str(healthy.root / "opt/conda/envs/x")
    found = [(each.version, each.active) for each in find_toolkits(healthy.host)]
    assert found == [((12, 6), True), ((13, 0), False), ((10, 2), False), ((12, 8), False)]
    healthy.file("usr/local/cuda-12.8/bin/nvcc")
    healthy.environment |= {"PATH": str(healthy.root / "usr/local/cuda-12.8/bin"), "CONDA_PREFIX": ""}
    assert [each.version for each in find_toolkits(healthy.host) if each.active] == [(12, 8)], "that of the PATH"


def test_a_toolkit_beyond_the_driver_is_an_error_only_where_it_is_in_use(hosts: Hosts) -> None:
    tree = hosts.bare().module("535.104.05").toolkit("usr/local/cuda-13.0", "13.0.2")
    needs = "needs driver 580 or newer, but driver 535.104.05 is loaded"
    told = "CUDA driver version is insufficient for CUDA runtime version"
    says("cuda.toolkit", tree.case(), f"warning: .*{needs}.*{told}.*-> .*cuda-compat-13-0")
    tree.environment["CUDA_HOME"] = str(tree.root / "usr/local/cuda-13.0")
    in_use = says("cuda.toolkit", tree.case(answers(H100, RTX5090)), "error")
    assert "cuda-compat" not in in_use.remedy, "one of the cards does not take it"
    tree.module("470.256.02")
    says("cuda.toolkit", tree.case(answers(H100, version="470.256.02")), "error: .*-> .*install driver 580")
    old = replace(P40, index=0, model="Tesla K80", capability=(3, 7))
    kept = says(
        "cuda.toolkit",
        tree.case(answers(old, version="470.256.02")),
        r"error: .*no longer supports GPU 0 \(Tesla K80\)",
    )
    assert "install driver" not in kept.remedy


def test_toolkits_that_run_in_full_by_compatibility_and_on_no_card(hosts: Hosts) -> None:
    tree = hosts.bare().module("570.124.06").toolkit("usr/local/cuda-12.9", "12.9.1")
    says(
        "cuda.toolkit",
        tree.case(),
        "ok: .*by minor-version compatibility; all features need driver 575.51.03 or newer\n",
    )
    assert says("cuda.toolkit", tree.module().case(), "ok").facts["fit"] == "full"
    tree.toolkit("usr/local/cuda-12.9", "12.6.3")
    card = r"cannot compile for GPU 3 \(NVIDIA GeForce RTX 5090\), compute capability 12.0\n"
    says("cuda.toolkit", tree.case(answers(H100, RTX5090)), f"warning: .*{card}-> .*CUDA 12.8 or newer")
    says("cuda.toolkit", tree.toolkit("usr/local/cuda-12.9", "14.0.0").case(), "skipped")
    without = hosts.bare().toolkit("usr/local/cuda-13.0", "13.0.2").case(NO_LIBRARY)
    says("cuda.toolkit", without, "skipped: .*comes with driver 580.65.06")


def test_wheels_tell_their_cuda_without_being_imported(healthy: Tree) -> None:
    healthy.wheel("opt/a", "torch", "2.8.0+cu128").wheel("opt/a", "nvidia_cuda_runtime_cu12", "12.8.90")
    healthy.wheel("opt/a", "jax_cuda12_plugin", "0.7.0").wheel("opt/a", "cupy_cuda13x", "14.0.0")
    healthy.wheel("opt/a", "numpy", "2.0.0").wheel("opt/b", "numpy", "2.0.0")
    healthy.wheel("opt/c", "torch", "2.9.1").wheel("opt/d", "torch", "2.9.1+cpu")
    healthy.file(
        TORCH_VERSION.format("c"), "__version__ = '2.9.1'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n"
    )
    healthy.file(TORCH_VERSION.format("d"), "cuda: Optional[str] = None\n")
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


def test_a_torch_beyond_the_driver_says_what_its_user_sees_and_needs(hosts: Hosts) -> None:
    tree = hosts.bare().module("535.104.05")
    folder = environment(tree, "2.9.1+cu130")
    says("cuda.python", tree.case(), "warning")
    tree.environment["VIRTUAL_ENV"] = str(folder)
    needs = "needs driver 580 or newer, but driver 535.104.05 is loaded.*CUDA driver version is insufficient"
    remedy = "use the cu128 build of torch.*install driver 580 or newer"
    assert says("cuda.python", tree.case(), f"error: .*{needs}.*-> {remedy}").subject == str(folder)
    tree = hosts.bare().module("535.104.05")
    environment(tree, "2.8.0+cu128")
    says("cuda.python", tree.case(), "ok: .*by minor-version compatibility")
    tree = hosts.bare().module("535.104.05").wheel("opt/a", "cupy_cuda13x", "14.0.0")
    remedy = "use a build of cupy-cuda13x for CUDA 12.x or older, or install driver 580 or newer"
    says("cuda.python", tree.case(), f"warning: .*-> {remedy}")


@pytest.mark.parametrize(
    ("torch", "gpu", "build"),
    [("2.9.1+cu130", V100, 126), ("2.8.0+cu128", P40, 126), ("2.6.0+cu124", RTX5090, 130), ("1.13.1+cu117", H100, 130)],
)
def test_a_torch_without_code_for_the_card(healthy: Tree, torch: str, gpu: GpuLook, build: int) -> None:
    case = healthy.case(answers(gpu), pythons=(str(environment(healthy, torch)),))
    says("cuda.python", case, f"error: .*no kernel image is available.*-> use the cu{build} build of torch")


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


WITHOUT = "cuda: Optional[str] = None\nhip: Optional[str] = "


@pytest.mark.parametrize(
    ("version", "text", "built_for"),
    [
        ("2.9.1+cpu", "", "cpu"),
        ("2.9.1+rocm6.4", "", "rocm"),
        ("2.9.1+xpu", "", "xpu"),
        ("2.9.1", f"{WITHOUT}None\n", "cpu"),
        ("2.9.1", f"{WITHOUT}'6.4.43482'\n", "rocm"),
    ],
)
def test_a_torch_without_cuda_is_an_error_where_it_is_in_use(
    healthy: Tree, version: str, text: str, built_for: str
) -> None:
    folder = environment(healthy, version)
    healthy.file(TORCH_VERSION.format("a"), text)
    assert says("cuda.python", healthy.case(), "ok").facts["built_for"] == built_for
    remedy = r"-> install the cu130 build of torch \(its version ends with \+cu130\)\n"
    given = says("cuda.python", healthy.case(pythons=(str(folder),)), f"error: .*{remedy}")
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        healthy.environment[variable] = str(folder)
        assert findings("cuda.python", healthy.case()) == [given]
        del healthy.environment[variable]


def test_a_torch_that_does_not_tell_is_not_judged(healthy: Tree) -> None:
    folder = environment(healthy, "2.9.1")
    says("cuda.python", healthy.case(pythons=(str(folder),)), "skipped")


VISIBLE = {
    None: "ok: .*not set",
    "0": r"ok: .*1 device\(s\)",
    "0, 1": r"ok: .*2 device\(s\)",
    "GPU-b,MIG-1": r"ok: .*2 device\(s\)",
    "": "error: .*hides every GPU",
    "-1": "error: .*hides every GPU",
    "NoDevFiles": "error: .*hides every GPU",
    "2": r"error: .*this host has 2 GPU\(s\)",
    "GPU-x": "error: the first entry of .* is not a device",
    "0,2,1": r"warning: .*'2' is not a device .*2 GPU\(s\).*; programs can use only the 1 before it",
    "0,-1": "warning: .*only the 1 before it",
}


@pytest.mark.parametrize("value", VISIBLE, ids=repr)
def test_a_variable_that_hides_gpus(healthy: Tree, value: str | None) -> None:
    if value is not None:
        healthy.environment["CUDA_VISIBLE_DEVICES"] = value
    says("cuda.visible", healthy.case(answers(H100, V100)), VISIBLE[value])


def test_positions_are_not_judged_where_they_count_mig_instances_or_nothing_is_known(healthy: Tree) -> None:
    healthy.environment["CUDA_VISIBLE_DEVICES"] = "3"
    for driver in (answers(replace(H100, mig=True, mig_instances=7)), DriverLook("hung", step="nvmlInit")):
        says("cuda.visible", healthy.case(driver), "ok")


@pytest.mark.parametrize("value", ["void", "none"])
def test_a_container_that_keeps_the_gpus_out(hosts: Hosts, value: str) -> None:
    tree = hosts.bare()
    tree.environment["NVIDIA_VISIBLE_DEVICES"] = value
    says("cuda.visible", tree.case(NO_LIBRARY), "skipped")  # on a host it says nothing
    tree.file(".dockerenv")
    says("cuda.visible", tree.case(NO_LIBRARY), "error")
    says("cuda.visible", tree.case(answers()), "error")
    says("cuda.visible", tree.case(answers(H100)), "ok")  # handed in in another way
