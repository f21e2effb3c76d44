"""The fake driver's static facts: PCIe, NVLink, fabric, chassis, and cards that lack them."""

from __future__ import annotations

import uuid

from tests.agent.player import UUID, Player, ms_ago, one
from tests.fakes.nvml import Fabric, Gpu, Platform, Scenario

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
