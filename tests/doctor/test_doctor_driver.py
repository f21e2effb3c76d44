"""The driver's checks, each with a host on which it speaks up and one on which it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agent.doctor.case import Status
from agent.doctor.look import DriverLook
from tests.doctor.conftest import (
    DRIVER,
    H100,
    KERNEL,
    LIBRARIES,
    NO_LIBRARY,
    P40,
    RTX5090,
    UNKNOWN,
    V100,
    answers,
    finding,
    findings,
)

if TYPE_CHECKING:
    from tests.doctor.conftest import Tree

HUNG = DriverLook("hung", step="nvmlInit")


def test_a_loaded_module_is_named_with_its_flavour(healthy: Tree) -> None:
    found = finding("driver.module", healthy.case())
    assert (found.status, found.found) == (Status.OK, f"nvidia {DRIVER}, open kernel module")
    assert found.facts["flavour"] == "open"


def test_the_modules_version_is_read_from_sys_where_proc_has_none(tree: Tree) -> None:
    tree.file("sys/module/nvidia/version", f"{DRIVER}\n")
    assert finding("driver.module", tree.case()).facts["version"] == DRIVER


@pytest.mark.parametrize(("flavour", "gpu"), [(True, V100), (False, RTX5090)])
def test_a_flavour_that_does_not_know_the_card(tree: Tree, flavour: bool, gpu: object) -> None:  # noqa: FBT001
    found = finding("driver.module", tree.module(open_flavour=flavour).case(answers(gpu)))  # type: ignore[arg-type]
    assert found.status is Status.WARNING
    assert "does not support" in found.found


def test_without_a_card_and_a_driver_there_is_none(tree: Tree) -> None:
    found = finding("driver.module", tree.case(NO_LIBRARY))
    assert (found.status, found.next) == (Status.ERROR, "lspci -nn -d 10de:")


def test_a_container_without_gpus_says_how_to_get_them(tree: Tree) -> None:
    tree.file(".dockerenv")
    found = finding("driver.module", tree.case(NO_LIBRARY))
    assert found.status is Status.ERROR
    assert "--gpus all" in found.remedy


def test_nouveau_holds_the_card(tree: Tree) -> None:
    found = finding("driver.module", tree.card(driver="nouveau").distribution().case(NO_LIBRARY))
    assert found.status is Status.ERROR
    assert "nouveau holds the card" in found.found
    assert "blacklist nouveau" in found.next
    assert "update-initramfs" in found.next


def test_a_card_for_virtual_machines_is_nothing_to_mend(tree: Tree) -> None:
    assert finding("driver.module", tree.card(driver="vfio-pci").case(NO_LIBRARY)).status is Status.SKIPPED


def test_a_module_for_another_kernel_names_both_and_builds_it(tree: Tree) -> None:
    tree.card(driver="").distribution()
    tree.file("lib/modules/6.1.0-39-amd64/modules.dep", "updates/dkms/nvidia.ko: kernel/drivers/video.ko\n")
    tree.file(f"lib/modules/{KERNEL}/modules.dep", "kernel/drivers/nvidia-wmi.ko:\n")
    found = finding("driver.module", tree.case(NO_LIBRARY))
    assert found.status is Status.ERROR
    assert f"built for kernel 6.1.0-39-amd64, not for the running {KERNEL}" in found.found
    assert f"dkms autoinstall -k {KERNEL}" in found.next


def test_no_module_at_all_says_which_driver_the_cards_need(tree: Tree) -> None:
    found = finding("driver.module", tree.card(driver="", device=0x1B38).distribution().case(NO_LIBRARY))
    assert found.remedy == "install driver branch 580, the last that knows Pascal cards"
    assert found.next == "sudo apt install nvidia-driver"


def test_secure_boot_refuses_what_is_not_signed(tree: Tree) -> None:
    tree.card(driver="")
    tree.file(f"lib/modules/{KERNEL}/modules.dep", "updates/dkms/nvidia.ko.zst:\n")
    variable = tree.file("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c")
    variable.write_bytes(b"\x06\x00\x00\x00\x01")
    found = finding("driver.module", tree.case(NO_LIBRARY))
    assert "Key was rejected by service" in found.found
    assert "mokutil" in found.next
    variable.write_bytes(b"\x06\x00\x00\x00\x00")
    assert "modprobe" in finding("driver.module", tree.case(NO_LIBRARY)).next


def test_module_and_library_of_one_version_match(healthy: Tree) -> None:
    assert finding("driver.match", healthy.case()).status is Status.OK


def test_a_driver_upgraded_under_its_module_names_both_versions(tree: Tree) -> None:
    tree.module("570.124.06").library(version="580.95.05")
    found = finding("driver.match", tree.case(DriverLook("refused", code=18)))
    assert found.status is Status.ERROR
    assert "Driver/library version mismatch" in found.found
    assert "570.124.06" in found.found
    assert "580.95.05" in found.found
    assert "modprobe nvidia" in found.next
    tree.file(".dockerenv")
    assert "recreate the container" in finding("driver.match", tree.case()).remedy


def test_the_library_that_the_loader_takes(healthy: Tree) -> None:
    found = finding("driver.library", healthy.case())
    assert found.status is Status.OK
    assert found.found.endswith(f"libnvidia-ml.so.{DRIVER}")


def test_a_stub_in_the_library_path_is_found(healthy: Tree) -> None:
    stubs = healthy.file("usr/local/cuda/lib64/stubs/libnvidia-ml.so.1").parent
    healthy.environment["LD_LIBRARY_PATH"] = str(stubs)
    found = finding("driver.library", healthy.case())
    assert found.status is Status.ERROR
    assert "stub" in found.found
    assert finding("driver.match", healthy.case()).status is Status.OK, "a stub has no version to compare"


def test_leftovers_of_an_older_driver_are_named(healthy: Tree) -> None:
    healthy.library(version="470.256.02", folder="/opt/old/lib")
    healthy.file("etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n# no\n")
    healthy.file("etc/ld.so.conf.d/old.conf", "/opt/old/lib\n")
    found = finding("driver.library", healthy.case())
    assert found.status is Status.WARNING
    assert "470.256.02" in found.found


def test_a_module_without_its_library(tree: Tree) -> None:
    found = finding("driver.library", tree.module().case(NO_LIBRARY))
    assert (found.status, found.next) == (Status.ERROR, "ldconfig -p | grep libnvidia-ml")


def test_a_driver_that_answers(healthy: Tree) -> None:
    assert finding("driver.nvml", healthy.case()).found == f"driver {DRIVER} answers and lists 1 GPU(s)"


def test_a_driver_that_hangs_and_one_that_crashes(healthy: Tree) -> None:
    hung = finding("driver.nvml", healthy.case(HUNG, timeout_s=2))
    assert (hung.status, hung.found) == (Status.ERROR, "nvmlInit does not return within 2 s")
    crashed = finding("driver.nvml", healthy.case(DriverLook("crashed", step="nvmlInit", detail="signal 11")))
    assert (crashed.status, crashed.found) == (
        Status.ERROR, "the driver's library crashed in nvmlInit (signal 11)",
    )  # fmt: skip
    absent = finding("driver.nvml", healthy.case(DriverLook("crashed", detail="exit code 1")))
    assert absent.found == "Python cannot start the process that asks the driver (exit code 1)"
    assert "install fallow for this Python" in absent.remedy


@pytest.mark.parametrize(("code", "words"), [(18, "different versions"), (4, "refuses access"), (999, "Unknown Error")])
def test_a_driver_that_refuses_says_why(healthy: Tree, code: int, words: str) -> None:
    found = finding("driver.nvml", healthy.case(DriverLook("refused", code=code, message="Unknown Error")))
    assert found.status is Status.ERROR
    assert words in found.found
    assert found.remedy


def test_one_cause_is_one_error(tree: Tree) -> None:
    case = tree.case(NO_LIBRARY)
    errors = [
        check
        for check in ("driver.module", "driver.match", "driver.library", "driver.nvml", "driver.gpus", "driver.calls",
                      "driver.persistence", "driver.branch", "device.nodes", "device.rights", "device.mig",
                      "host.containers", "cuda.driver", "cuda.toolkit", "cuda.python", "cuda.card")
        for found in findings(check, case)
        if found.status is Status.ERROR
    ]  # fmt: skip
    assert errors == ["driver.module"]


def test_all_gpus_answer(healthy: Tree) -> None:
    assert finding("driver.gpus", healthy.case()).status is Status.OK


def test_a_lost_gpu_is_named(healthy: Tree) -> None:
    (found,) = findings("driver.gpus", healthy.case(answers(replace(H100, error="GPU is lost"))))
    assert (found.status, found.subject) == (Status.ERROR, "GPU-a")
    assert found.next == "sudo nvidia-smi --gpu-reset -i 0"


def test_a_gpu_that_blocks_is_named_with_its_call(healthy: Tree) -> None:
    driver = answers(H100, gpu_count=2, hung=("GPU 1: nvmlDeviceGetPowerUsage",))
    (found,) = findings("driver.gpus", healthy.card("0000:18:00.0").case(driver))
    assert found.found == "GPU 1: nvmlDeviceGetPowerUsage does not return within 10 s"
    assert found.next == "sudo nvidia-smi --gpu-reset -i 1"


def test_a_card_that_fell_off_the_bus_and_one_that_the_driver_dropped(healthy: Tree) -> None:
    healthy.card("0000:3b:00.0")
    (lost,) = [found for found in findings("driver.gpus", healthy.case()) if found.subject == "bus"]
    assert "2 GPU(s), the driver lists 1" in lost.found
    assert "fell off the bus" in lost.remedy
    healthy.module("595.58.03").card("0000:3c:00.0", device=0x1DB1, driver="")
    (dropped,) = [found for found in findings("driver.gpus", healthy.case()) if found.subject == "bus"]
    assert "driver 595.58.03 no longer knows 0000:3c:00.0 (Volta)" in dropped.found
    assert "branch 580" in dropped.remedy


def test_cards_that_are_passed_on_are_not_missed(healthy: Tree) -> None:
    healthy.card("0000:3b:00.0", driver="vfio-pci").card("0000:3c:00.0", driver="nouveau")
    assert finding("driver.gpus", healthy.case()).status is Status.OK


@pytest.mark.parametrize(("expected", "status"), [(1, Status.OK), (2, Status.ERROR)])
def test_the_setting_says_how_many_gpus_there_should_be(healthy: Tree, expected: int, status: Status) -> None:
    found = findings("driver.gpus", healthy.card("0000:3b:00.0").case(expected_gpus=expected))
    assert found[0].status is status
    if status is Status.ERROR:
        assert found[0].found == "agent.expected_gpus is 2, the driver lists 1"


def test_refused_calls_are_a_warning_and_unsupported_ones_a_fact(healthy: Tree) -> None:
    denied = finding("driver.calls", healthy.case(answers(replace(H100, denied=("nvmlDeviceGetSamples",)))))
    assert denied.status is Status.WARNING
    assert "nvmlDeviceGetSamples" in denied.found
    unsupported = finding("driver.calls", healthy.case(answers(replace(H100, unsupported=("nvmlDeviceGetSamples",)))))
    assert unsupported.status is Status.OK
    assert "nvmlDeviceGetSamples" in unsupported.found


def test_persistence_off_is_a_warning(healthy: Tree) -> None:
    assert finding("driver.persistence", healthy.case()).status is Status.OK
    found = finding("driver.persistence", healthy.case(answers(replace(H100, persistence=False))))
    assert (found.status, found.next) == (Status.WARNING, "sudo systemctl enable --now nvidia-persistenced")


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("580.95.05", Status.OK),
        ("535.104.05", Status.WARNING),
        ("550.54.14", Status.WARNING),
        ("700.10.01", Status.SKIPPED),
    ],
)
def test_a_branch_without_updates(tree: Tree, version: str, status: Status) -> None:
    found = finding("driver.branch", tree.module(version).case(answers(H100, version=version)))
    assert found.status is status


def test_the_last_branch_of_a_card_is_kept(tree: Tree) -> None:
    kepler = replace(P40, capability=(3, 7), model="Tesla K80")
    assert finding("driver.branch", tree.module("470.256.02").case(answers(kepler))).status is Status.OK


def test_how_long_cards_are_known(healthy: Tree) -> None:
    new, old, odd = findings("cuda.card", healthy.case(answers(H100, V100, UNKNOWN)))
    assert (new.status, new.subject) == (Status.OK, "NVIDIA H100 80GB HBM3")
    assert (odd.status, odd.subject) == (Status.WARNING, "Tesla V100-SXM2-16GB")
    assert (old.status, old.subject) == (Status.SKIPPED, "NVIDIA X1000")
    assert "stays at driver branch 580 and CUDA 12.9" in odd.found


def test_libraries_are_looked_for_where_the_loader_looks(healthy: Tree) -> None:
    assert LIBRARIES in str(finding("driver.library", healthy.case()).facts["copies"])
