"""The driver's checks, each with a host on which it speaks up and one on which it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agent.doctor.checks import CHECKS
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
    findings,
    says,
)

if TYPE_CHECKING:
    from tests.doctor.conftest import Hosts, Tree

SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def test_a_loaded_module_and_its_flavour(hosts: Hosts) -> None:
    found = says("driver.module", hosts.healthy().case(), f"ok: nvidia {DRIVER}, open kernel module\n")
    assert found.facts["flavour"] == "open"
    tree = hosts.bare()
    tree.file("sys/module/nvidia/version", f"{DRIVER}\n")
    assert says("driver.module", tree.case(), "ok").facts["version"] == DRIVER, "where /proc has none"
    for open_flavour, gpu in ((True, V100), (False, RTX5090)):
        case = hosts.bare().module(open_flavour=open_flavour).case(answers(gpu))
        says("driver.module", case, "warning: .*does not support")


def test_why_there_is_no_module(hosts: Hosts) -> None:
    bare, container = hosts.bare(), hosts.bare()
    container.file(".dockerenv")
    says("driver.module", bare.case(NO_LIBRARY), r"error: .*\$ lspci -nn -d 10de:\n")
    says("driver.module", container.case(NO_LIBRARY), "error: .*-> .*--gpus all")
    nouveau = hosts.bare().card(driver="nouveau").distribution().case(NO_LIBRARY)
    says(
        "driver.module", nouveau, r"error: .*the nouveau driver uses the card.*\$ .*blacklist nouveau.*update-initramfs"
    )
    says("driver.module", hosts.bare().card(driver="vfio-pci").case(NO_LIBRARY), "skipped")
    old = hosts.bare().card(driver="", device=0x1B38).distribution().case(NO_LIBRARY)
    remedy = "install driver branch 580, the last that supports Pascal cards"
    says("driver.module", old, rf"error: .*-> {remedy}\n\$ sudo apt install nvidia-driver\n")


def test_a_module_for_another_kernel_names_both_and_builds_it(hosts: Hosts) -> None:
    tree = hosts.bare().card(driver="").distribution()
    tree.file("lib/modules/6.1.0-39-amd64/modules.dep", "updates/dkms/nvidia.ko: kernel/drivers/video.ko\n")
    tree.file(f"lib/modules/{KERNEL}/modules.dep", "kernel/drivers/nvidia-wmi.ko:\n")
    wrong = f"built for kernel 6.1.0-39-amd64, but kernel {KERNEL}"
    says("driver.module", tree.case(NO_LIBRARY), rf"error: .*{wrong}.*\$ .*dkms autoinstall -k {KERNEL}")


def test_secure_boot_refuses_what_is_not_signed(hosts: Hosts) -> None:
    tree = hosts.bare().card(driver="")
    tree.file(f"lib/modules/{KERNEL}/modules.dep", "updates/dkms/nvidia.ko.zst:\n")
    tree.file(SECURE_BOOT, "\x06\0\0\0\1")
    says("driver.module", tree.case(NO_LIBRARY), r"error: .*Key was rejected by service.*\$ .*mokutil")
    tree.file(SECURE_BOOT, "\x06\0\0\0\0")
    says("driver.module", tree.case(NO_LIBRARY), r"error: .*\$ .*modprobe")


def test_module_and_library_of_one_version_match(hosts: Hosts) -> None:
    says("driver.match", hosts.healthy().case(), "ok")
    tree = hosts.bare().module("570.124.06").library(version="580.95.05")
    both = "error: .*Driver/library version mismatch.*570.124.06.*580.95.05"
    says("driver.match", tree.case(DriverLook("refused", code=18)), rf"{both}.*\$ .*modprobe nvidia")
    tree.file(".dockerenv")
    says("driver.match", tree.case(), "error: .*-> recreate the container")


def test_the_library_that_the_loader_takes(hosts: Hosts) -> None:
    found = says("driver.library", hosts.healthy().case(), rf"ok: .*libnvidia-ml.so.{DRIVER}\n")
    assert LIBRARIES in str(found.facts["copies"])
    tree = hosts.healthy()
    tree.environment["LD_LIBRARY_PATH"] = str(tree.file("usr/local/cuda/lib64/stubs/libnvidia-ml.so.1").parent)
    says("driver.library", tree.case(), "error: .*stub")
    says("driver.match", tree.case(), "ok")  # a stub has no version to compare
    tree = hosts.healthy().library(version="470.256.02", folder="/opt/old/lib")
    tree.file("etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n# no\n")
    tree.file("etc/ld.so.conf.d/old.conf", "/opt/old/lib\n")
    says("driver.library", tree.case(), "warning: .*470.256.02")
    says("driver.library", hosts.bare().module().case(NO_LIBRARY), r"error: .*\$ ldconfig -p \| grep libnvidia-ml\n")


@pytest.mark.parametrize(
    ("driver", "pattern"),
    [
        (answers(H100), rf"ok: driver {DRIVER} answers and lists 1 GPU\(s\)\n"),
        (DriverLook("hung", step="nvmlInit"), "error: nvmlInit did not return within 2 s\n"),
        (DriverLook("crashed", step="nvmlInit", detail="signal 11"), r"error: .* crashed in nvmlInit \(signal 11\)\n"),
        (
            DriverLook("crashed", detail="exit code 1"),
            r"error: Python cannot start the process .* \(exit code 1\)\n.*install fallow for this Python",
        ),
        (DriverLook("refused", code=18), "error: .*different versions.*-> ."),
        (DriverLook("refused", code=4), "error: .*refuses access.*-> ."),
        (DriverLook("refused", code=999, message="Unknown Error"), "error: .*Unknown Error.*-> ."),
    ],
    ids=["answers", "hangs", "crashes", "no process", "other versions", "no access", "anything else"],
)
def test_a_driver_that_does_not_answer_says_why(healthy: Tree, driver: DriverLook, pattern: str) -> None:
    says("driver.nvml", healthy.case(driver, timeout_s=2), pattern)


def test_one_cause_is_one_error(hosts: Hosts) -> None:
    case = hosts.bare().case(NO_LIBRARY)
    found = [(check.id, each.status) for check in CHECKS for each in check.look(case)]
    assert [check for check, status in found if status == "error"] == ["driver.module"]


def test_gpus_that_do_not_answer_are_named(healthy: Tree) -> None:
    says("driver.gpus", healthy.case(), "ok")
    lost = says("driver.gpus", healthy.case(answers(replace(H100, error="GPU is lost"))), "error: .*--gpu-reset -i 0\n")
    assert lost.subject == "GPU-a"
    driver = answers(H100, gpu_count=2, hung=("GPU 1: nvmlDeviceGetPowerUsage",))
    blocked = "error: GPU 1: nvmlDeviceGetPowerUsage did not return within 10 s\n.*--gpu-reset -i 1\n"
    says("driver.gpus", healthy.card("0000:18:00.0").case(driver), blocked)


def test_cards_that_the_driver_does_not_list(hosts: Hosts) -> None:
    passed_on = hosts.healthy().card("0000:3b:00.0", driver="vfio-pci").card("0000:3c:00.0", driver="nouveau")
    says("driver.gpus", passed_on.case(), "ok")
    tree = hosts.healthy().card("0000:3b:00.0")
    lost, _ = findings("driver.gpus", tree.case())
    assert (lost.subject, "2 GPU(s), but the driver lists 1" in lost.found) == ("bus", True)
    assert "fell off the bus" in lost.remedy
    dropped, _ = findings("driver.gpus", tree.module("595.58.03").card("0000:3c:00.0", device=0x1DB1, driver="").case())
    assert "driver 595.58.03 no longer supports 0000:3c:00.0 (Volta)" in dropped.found
    assert "branch 580" in dropped.remedy
    says("driver.gpus", tree.case(expected_gpus=1), "ok")  # the setting says how many there should be
    assert (
        findings("driver.gpus", tree.case(expected_gpus=2))[0].found
        == "agent.expected_gpus is 2, but the driver lists 1"
    )


def test_refused_calls_are_a_warning_and_unsupported_ones_a_fact(healthy: Tree) -> None:
    says("driver.calls", healthy.case(answers(replace(H100, denied=("nvmlX",)))), "warning: .*nvmlX")
    says("driver.calls", healthy.case(answers(replace(H100, unsupported=("nvmlX",)))), "ok: .*nvmlX")


def test_persistence_off_is_a_warning(healthy: Tree) -> None:
    says("driver.persistence", healthy.case(), "ok")
    off = healthy.case(answers(replace(H100, persistence=False)))
    says("driver.persistence", off, r"warning: .*\$ sudo systemctl enable --now nvidia-persistenced\n")


def test_a_branch_without_updates(hosts: Hosts) -> None:
    judged = {"580.95.05": "ok", "535.104.05": "warning", "550.54.14": "warning", "700.10.01": "skipped"}
    for version, status in judged.items():
        says("driver.branch", hosts.bare().module(version).case(answers(H100, version=version)), status)
    kepler = replace(P40, capability=(3, 7), model="Tesla K80")
    says("driver.branch", hosts.bare().module("470.256.02").case(answers(kepler)), "ok")  # the last of the card


def test_how_long_cards_are_known(healthy: Tree) -> None:
    found = findings("cuda.card", healthy.case(answers(H100, V100, UNKNOWN)))
    assert [(each.status, each.subject) for each in found] == [
        ("ok", "NVIDIA H100 80GB HBM3"),
        ("skipped", "NVIDIA X1000"),
        ("warning", "Tesla V100-SXM2-16GB"),
    ]
    assert "driver branch 580 and CUDA 12.9 are the last for Volta" in found[2].found
