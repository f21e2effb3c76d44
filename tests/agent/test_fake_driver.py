"""The fake driver: its truth, its library, identity, static facts and plain readings."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.agent.player import OTHER_UUID, UUID, Player, ms_ago, one
from tests.fakes.nvml import (
    GIB,
    Fabric,
    Gpu,
    NoCompilerError,
    Platform,
    Scenario,
    Steps,
    constant,
    library_folder,
    standard_fleet,
)

if TYPE_CHECKING:
    from pathlib import Path

# -- the truth itself


def test_steps_answer_for_any_stretch() -> None:
    steps = Steps(((0, 80.0), (30, 0.0), (40, 20.0)))

    assert [steps.at(t) for t in (-1, 0, 29.999, 30, 45)] == [80, 80, 80, 0, 20]
    assert steps.mean(20, 50) == (80 * 10 + 20 * 10) / 30
    assert steps.max(30, 50) == 20
    assert steps.zero_ratio(20, 40) == 0.5


def test_steps_refuse_disorder() -> None:
    with pytest.raises(ValueError, match="in order"):
        Steps(((10, 1.0), (0, 2.0)))


# -- the library


@pytest.mark.long
def test_two_compilations_at_once_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(library_folder, [tmp_path, tmp_path])

    assert first == second
    assert sorted(path.name for path in first.iterdir()) == [
        "libfakeclock.so",
        "libfaultyfiles.so",
        "libnvidia-ml.so.1",
    ]


def test_no_compiler_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    with pytest.raises(NoCompilerError, match="ziglang"):
        library_folder(tmp_path)


def test_without_a_scenario_the_driver_is_not_loaded(library: Path) -> None:
    program = "import pynvml\ntry: pynvml.nvmlInit()\nexcept pynvml.NVMLError_DriverNotLoaded: print('not loaded')"
    environment = {name: value for name, value in os.environ.items() if name != "FALLOW_FAKE_NVML"}
    environment["LD_LIBRARY_PATH"] = str(library)

    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )

    assert result.stdout == "not loaded\n"


def test_a_malformed_scenario_aborts(player: Player, tmp_path: Path) -> None:
    process = player.start(one(Gpu(UUID, model="two\nlines")), "nv.nvmlInit(); out = 0")
    errors = process.communicate()[1]

    assert process.returncode < 0
    assert f"{tmp_path / 'scenario'}:8: unknown key" in errors


# -- identity and plain readings


def test_system(player: Player) -> None:
    out = player.play(
        one(),
        """
        out = [attempt(nv.nvmlDeviceGetCount)]
        nv.nvmlInit()
        out += [nv.nvmlSystemGetDriverVersion(), nv.nvmlSystemGetNVMLVersion(), nv.nvmlSystemGetCudaDriverVersion_v2(),
                nv.nvmlDeviceGetCount(), nv.nvmlErrorString(15), attempt(nv.nvmlDeviceGetFanSpeed, None)]
        nv.nvmlShutdown()
        out += [attempt(nv.nvmlDeviceGetCount)]
        """,
    )

    uninitialized = "NVMLError_Uninitialized"
    missing = "NVMLError_FunctionNotFound"
    assert out == [uninitialized, "580.65.06", "13.580.65.06", 13000, 1, "GPU is lost", missing, uninitialized]


def test_identity(player: Player) -> None:
    first = Gpu(OTHER_UUID)
    second = Gpu(UUID, model="NVIDIA A100-SXM4-40GB", minor=7, pci_bus_id="0001:c3:00", serial="42", architecture=7)
    out = player.play(
        Scenario(gpus=(first, second), start_ms=ms_ago(1)),
        f"""
        nv.nvmlInit()
        gpu = nv.nvmlDeviceGetHandleByUUID("{UUID}")
        pci = nv.nvmlDeviceGetPciInfo_v3(gpu)
        out = (nv.nvmlDeviceGetIndex(gpu), nv.nvmlDeviceGetMinorNumber(gpu), nv.nvmlDeviceGetName(gpu),
               nv.nvmlDeviceGetUUID(gpu), nv.nvmlDeviceGetSerial(gpu), pci.busId, pci.bus,
               nv.nvmlDeviceGetArchitecture(gpu), nv.nvmlDeviceGetCudaComputeCapability(gpu),
               nv.nvmlDeviceGetPersistenceMode(gpu), nv.nvmlDeviceGetEccMode(gpu),
               attempt(nv.nvmlDeviceGetHandleByIndex, 2), attempt(nv.nvmlDeviceGetHandleByUUID, "GPU-none"),
               attempt(nv.nvmlDeviceGetName, nv.c_nvmlDevice_t()))
        """,
    )

    name = "NVIDIA A100-SXM4-40GB"
    errors = ("NVMLError_InvalidArgument", "NVMLError_NotFound", "NVMLError_InvalidArgument")
    assert out == (1, 7, name, UUID, "42", "00000001:C3:00.0", 0xC3, 7, (9, 0), 1, [1, 1], *errors)


def test_readings_follow_their_steps(player: Player) -> None:
    gpu = Gpu(
        UUID,
        power_w=Steps(((0, 100), (10, 350.125))),
        temperature_c=Steps(((0, 30), (10, 61))),
        sm_clock=constant(1200),
        mem_clock=constant(1593),
        throttle=constant(0x24),
        power_limit_w=400,
        mem_temperature_c=constant(77),
    )
    out = player.ask(
        one(gpu),
        """
        fields = nv.nvmlDeviceGetFieldValues(gpu, [82, 83, 185, 186, 999])
        out = (nv.nvmlDeviceGetPowerUsage(gpu), nv.nvmlDeviceGetTemperature(gpu, 0), nv.nvmlDeviceGetTemperatureV(gpu, 0),
               nv.nvmlDeviceGetClockInfo(gpu, nv.NVML_CLOCK_SM), nv.nvmlDeviceGetClockInfo(gpu, nv.NVML_CLOCK_MEM),
               nv.nvmlDeviceGetMaxClockInfo(gpu, nv.NVML_CLOCK_SM), nv.nvmlDeviceGetCurrentClocksEventReasons(gpu),
               nv.nvmlDeviceGetCurrentClocksThrottleReasons(gpu), nv.nvmlDeviceGetEnforcedPowerLimit(gpu),
               nv.nvmlDeviceGetPowerManagementLimit(gpu), [field.nvmlReturn for field in fields],
               fields[0].value.uiVal, fields[2].value.uiVal, fields[3].value.uiVal)
        """,
    )

    limits = (400_000, 400_000)
    assert out == (350_125, 61, 61, 1200, 1593, 1980, 0x24, 0x24, *limits, [0, 0, 0, 0, 3], 77, 350_125, 350_125)


def test_memory_versions_differ_in_what_the_driver_keeps(player: Player) -> None:
    gpu = Gpu(UUID, mem_total_bytes=80 * GIB, mem_reserved_bytes=GIB, mem_used=Steps(((0, 0), (5, 3 * GIB + 1))))
    out = player.ask(
        one(gpu),
        """
        old, new = nv.nvmlDeviceGetMemoryInfo(gpu), nv.nvmlDeviceGetMemoryInfo(gpu, nv.nvmlMemory_v2)
        out = ((old.total, old.used, old.free), (new.total, new.reserved, new.used, new.free),
               attempt(nv.nvmlDeviceGetMemoryInfo, gpu, 1))
        """,
    )

    used, free = 3 * GIB + 1, 76 * GIB - 1
    old, new = (80 * GIB, used + GIB, free), (80 * GIB, GIB, used, free)
    assert out == (old, new, "NVMLError_ArgumentVersionMismatch")


def test_a_part_without_memory_of_its_own_reports_nothing_but_zeros(player: Player) -> None:
    gpu = Gpu(UUID, mem_total_bytes=0, mem_used=constant(GIB))
    out = player.ask(
        one(gpu),
        """
        old, new = nv.nvmlDeviceGetMemoryInfo(gpu), nv.nvmlDeviceGetMemoryInfo(gpu, nv.nvmlMemory_v2)
        out = (old.total, old.used, old.free, new.total, new.reserved, new.used, new.free)
        """,
    )

    assert out == (0,) * 7


def test_energy_is_exact(player: Player) -> None:
    spent = Gpu(UUID, power_w=Steps(((0, 123.457), (1.001, 699.999), (50.003, 0))), energy_offset_mj=10**12)
    running = Gpu(OTHER_UUID, power_w=Steps(((0, 50.5), (20, 333.333))))
    scenario = Scenario(gpus=(spent, running), start_ms=ms_ago(60))
    energy, before, reading, after = player.ask(
        scenario,
        """
        out = [nv.nvmlDeviceGetTotalEnergyConsumption(gpu), time.time_ns()]
        out += [nv.nvmlDeviceGetTotalEnergyConsumption(nv.nvmlDeviceGetHandleByIndex(1)), time.time_ns()]
        """,
    )

    exact_microjoules = 1001 * 123_457 + 49_002 * 699_999
    assert energy == spent.energy_mj(60) == 10**12 + exact_microjoules // 1000
    elapsed_ms = range(before // 10**6 - scenario.start_ms, after // 10**6 - scenario.start_ms + 1)
    assert reading in {running.energy_mj_at_ms(t_ms) for t_ms in elapsed_ms}


# -- the ready-made fleet


@pytest.mark.parametrize("gpm", [True, False])
def test_standard_fleet(player: Player, *, gpm: bool) -> None:
    out = player.play(
        standard_fleet(ms_ago(60), range(1000, 1032), gpm=gpm),
        """
        nv.nvmlInit()
        handles = [nv.nvmlDeviceGetHandleByIndex(index) for index in range(nv.nvmlDeviceGetCount())]
        lists = [nv.nvmlDeviceGetComputeRunningProcesses_v3(handle) for handle in handles]
        out = (len({nv.nvmlDeviceGetUUID(handle) for handle in handles}), sorted(p.pid for each in lists for p in each),
               [nv.nvmlDeviceGetUtilizationRates(handle).gpu for handle in handles[:2]],
               {nv.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice for handle in handles},
               {nv.nvmlDeviceGetP2PStatus(handles[0], handle, nv.NVML_P2P_CAPS_INDEX_NVLINK) for handle in handles[1:]})
        """,
    )

    assert out == (8, list(range(1000, 1032)), [0, 100], {int(gpm)}, {0})


CLUSTER = "7f1c6f3a-0d4e-4c55-9d0b-2a4f6b8c1e33"


def host(*gpus: Gpu) -> Scenario:
    return Scenario(gpus=gpus, start_ms=ms_ago(60))


def test_links_of_a_card(player: Player) -> None:
    out = player.ask(
        one(Gpu(UUID, pcie_gen=4, pcie_width=8, numa_node=3, nvlink_group=0, nvlink_links=12)),
        """
        out = (nv.nvmlDeviceGetMaxPcieLinkGeneration(gpu), nv.nvmlDeviceGetMaxPcieLinkWidth(gpu),
               nv.nvmlDeviceGetCurrPcieLinkGeneration(gpu), nv.nvmlDeviceGetCurrPcieLinkWidth(gpu),
               nv.nvmlDeviceGetNumaNodeId(gpu), [nv.nvmlDeviceGetNvLinkState(gpu, link) for link in range(18)],
               attempt(nv.nvmlDeviceGetNvLinkState, gpu, 18))
        """,
    )

    assert out == (4, 8, 4, 8, 3, [1] * 12 + [0] * 6, "NVMLError_InvalidArgument")


def test_what_a_plain_card_lacks(player: Player) -> None:
    out = player.ask(
        one(Gpu(UUID, numa_node=None)),
        """
        info, place = nv.c_nvmlGpuFabricInfoV_t(), nv.c_nvmlPlatformInfo_v2_t()
        out = {attempt(nv.nvmlDeviceGetNvLinkState, gpu, 0), attempt(nv.nvmlDeviceGetNumaNodeId, gpu),
               attempt(nv.nvmlDeviceGetModuleId, gpu),
               attempt(nv.nvmlDeviceGetGpuFabricInfoV, gpu, nv.byref(info)),
               attempt(nv.nvmlDeviceGetGpuFabricInfo, gpu, nv.byref(nv.c_nvmlGpuFabricInfo_t())),
               attempt(nv.nvmlDeviceGetPlatformInfo, gpu, nv.byref(place))}
        """,
    )

    assert out == {"NVMLError_NotSupported"}


PAIRS = """
nv.nvmlInit()
handles = [nv.nvmlDeviceGetHandleByIndex(index) for index in range(nv.nvmlDeviceGetCount())]
pairs = [(one, other) for place, one in enumerate(handles) for other in handles[place + 1:]]
"""


def test_common_ancestors(player: Player) -> None:
    scenario = host(
        Gpu("GPU-0", pcie_group=0, host_bridge=0),
        Gpu("GPU-1", pcie_group=0, host_bridge=0),
        Gpu("GPU-2", pcie_group=1, host_bridge=0),
        Gpu("GPU-3", pcie_group=2, host_bridge=1),
        Gpu("GPU-4", numa_node=1),
    )
    out = player.play(
        scenario,
        PAIRS
        + "out = [nv.nvmlDeviceGetTopologyCommonAncestor(one, other) for one, other in pairs]\n"
        + "out.append(nv.nvmlDeviceGetTopologyCommonAncestor(handles[0], handles[0]))",
    )

    switch, bridge, node, system = 10, 30, 40, 50
    from_0, from_1, from_2 = [switch, bridge, node, system], [bridge, node, system], [node, system]
    assert out == [*from_0, *from_1, *from_2, system, 0]


def test_peer_to_peer(player: Player) -> None:
    scenario = host(
        Gpu("GPU-0", nvlink_group=0), Gpu("GPU-1", nvlink_group=0), Gpu("GPU-2", nvlink_group=1, pcie_group=5),
        Gpu("GPU-3", pcie_group=5),
    )  # fmt: skip
    out = player.play(
        scenario,
        PAIRS
        + """
nvlink, read = nv.NVML_P2P_CAPS_INDEX_NVLINK, 0
out = [[nv.nvmlDeviceGetP2PStatus(one, other, index) for one, other in pairs] for index in (nvlink, read)]
out.append(attempt(nv.nvmlDeviceGetP2PStatus, handles[0], handles[0], nvlink))
""",
    )

    ok, no_chipset, unsupported = 0, 1, 5
    assert out[0] == [ok, *[unsupported] * 5]
    assert out[1] == [ok, *[no_chipset] * 4, ok]
    assert out[2] == "NVMLError_InvalidArgument"


def test_fabric_in_every_version(player: Player) -> None:
    out = player.ask(
        one(Gpu(UUID, fabric=Fabric(CLUSTER, clique=32766))),
        """
        infos = (nv.c_nvmlGpuFabricInfo_t(), nv.c_nvmlGpuFabricInfo_v2_t(), nv.c_nvmlGpuFabricInfo_v3_t())
        nv.nvmlDeviceGetGpuFabricInfo(gpu, nv.byref(infos[0]))
        for info in infos[1:]:
            nv.nvmlDeviceGetGpuFabricInfoV(gpu, nv.byref(info))
        out = [(bytes(info.clusterUuid), info.status, info.cliqueId, info.state) for info in infos]
        infos[1].version = 1
        out += [infos[2].healthSummary, attempt(nv.nvmlDeviceGetGpuFabricInfoV, gpu, nv.byref(infos[1]))]
        """,
    )

    known = (uuid.UUID(CLUSTER).bytes, 0, 32766, 3)
    assert out == [known, known, known, 1, "NVMLError_ArgumentVersionMismatch"]


def test_place_in_the_chassis(player: Player) -> None:
    place = Platform("SN1234567890", slot=24, tray=13, module=2, host=1)
    out = player.ask(
        one(Gpu(UUID, platform=place)),
        """
        info = nv.c_nvmlPlatformInfo_v2_t()
        nv.nvmlDeviceGetPlatformInfo(gpu, nv.byref(info))
        out = [info.chassisSerialNumber, *map(ord, (info.slotNumber, info.trayIndex, info.hostId, info.moduleId)),
               nv.nvmlDeviceGetModuleId(gpu)]
        info.version = 9
        out.append(attempt(nv.nvmlDeviceGetPlatformInfo, gpu, nv.byref(info)))
        """,
    )

    assert out == ["SN1234567890", 24, 13, 1, 2, 2, "NVMLError_ArgumentVersionMismatch"]
