/* How GPUs reach one another: PCIe, NVLink, the fabric that spans hosts, the place in the chassis. */
#include <string.h>

#include "fake.h"

enum { LEVEL_INTERNAL = 0, LEVEL_SINGLE = 10, LEVEL_HOST_BRIDGE = 30, LEVEL_NODE = 40, LEVEL_SYSTEM = 50 };
enum { P2P_OK = 0, P2P_CHIPSET_NOT_SUPPORTED = 1, P2P_NOT_SUPPORTED = 5 };
enum { P2P_NVLINK = 2, P2P_INDEXES = 5 };
enum { LINKS_MAX = 18 };

#define FABRIC_V2 0x02000024u
#define FABRIC_V3 0x03000028u
#define PLATFORM_V1 0x0100002Cu
#define PLATFORM_V2 0x0200002Cu

typedef struct {
    unsigned char clusterUuid[16];
    nvmlReturn_t status;
    unsigned cliqueId;
    unsigned char state;
} nvmlGpuFabricInfo_t;

typedef struct {
    unsigned version;
    unsigned char clusterUuid[16];
    nvmlReturn_t status;
    unsigned cliqueId;
    unsigned char state;
    unsigned healthMask;
    unsigned char healthSummary; /* from version 3 on */
} nvmlGpuFabricInfoV_t;

/* Both versions name the same bytes differently: rack GUID or chassis serial, chassis slot or slot, node index or host. */
typedef struct {
    unsigned version;
    unsigned char ibGuid[16], chassisSerialNumber[16];
    unsigned char slotNumber, trayIndex, hostId, peerType, moduleId;
} nvmlPlatformInfo_t;

static bool share(int one, int other) { return one >= 0 && one == other; }

EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1, nvmlDevice_t device2, unsigned *level) {
    struct call one, other;
    nvmlReturn_t status = begin_pair(&one, &other, __func__, device1, device2);
    if (status != NVML_SUCCESS) return status;
    REQUIRE(level != NULL);
    *level = LEVEL_SYSTEM;
    if (share(one.gpu->numa_node, other.gpu->numa_node)) *level = LEVEL_NODE;
    if (share(one.gpu->host_bridge, other.gpu->host_bridge)) *level = LEVEL_HOST_BRIDGE;
    if (share(one.gpu->pcie_group, other.gpu->pcie_group)) *level = LEVEL_SINGLE;
    if (one.gpu == other.gpu) *level = LEVEL_INTERNAL;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2, unsigned index, unsigned *p2p) {
    struct call one, other;
    nvmlReturn_t status = begin_pair(&one, &other, __func__, device1, device2);
    if (status != NVML_SUCCESS) return status;
    REQUIRE(p2p != NULL && index < P2P_INDEXES && one.gpu != other.gpu);
    bool by_nvlink = share(one.gpu->nvlink_group, other.gpu->nvlink_group);
    bool by_pcie = share(one.gpu->pcie_group, other.gpu->pcie_group);
    if (index == P2P_NVLINK) {
        *p2p = by_nvlink ? P2P_OK : P2P_NOT_SUPPORTED;
    } else {
        *p2p = by_nvlink || by_pcie ? P2P_OK : P2P_CHIPSET_NOT_SUPPORTED;
    }
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *active) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    REQUIRE(active != NULL && link < LINKS_MAX);
    if (call.gpu->nvlink_group < 0) return NVML_ERROR_NOT_SUPPORTED;
    *active = link < call.gpu->nvlink_links;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned *node) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    REQUIRE(node != NULL);
    if (call.gpu->numa_node < 0) return NVML_ERROR_NOT_SUPPORTED;
    *node = (unsigned)call.gpu->numa_node;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetModuleId(nvmlDevice_t device, unsigned *module) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    REQUIRE(module != NULL);
    if (!call.gpu->platform.known) return NVML_ERROR_NOT_SUPPORTED;
    *module = call.gpu->platform.module;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    REQUIRE(info != NULL);
    const struct fabric *fabric = &call.gpu->fabric;
    if (!fabric->known) return NVML_ERROR_NOT_SUPPORTED;
    memcpy(info->clusterUuid, fabric->cluster, sizeof info->clusterUuid);
    info->status = NVML_SUCCESS;
    info->cliqueId = fabric->clique;
    info->state = (unsigned char)fabric->state;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    REQUIRE(info != NULL);
    if (info->version != FABRIC_V2 && info->version != FABRIC_V3) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    const struct fabric *fabric = &call.gpu->fabric;
    if (!fabric->known) return NVML_ERROR_NOT_SUPPORTED;
    memcpy(info->clusterUuid, fabric->cluster, sizeof info->clusterUuid);
    info->status = NVML_SUCCESS;
    info->cliqueId = fabric->clique;
    info->state = (unsigned char)fabric->state;
    info->healthMask = 0;
    if (info->version == FABRIC_V3) info->healthSummary = 1; /* healthy; an older caller's struct ends before it */
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPlatformInfo(nvmlDevice_t device, nvmlPlatformInfo_t *info) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    REQUIRE(info != NULL);
    if (info->version != PLATFORM_V1 && info->version != PLATFORM_V2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    const struct platform *platform = &call.gpu->platform;
    if (!platform->known) return NVML_ERROR_NOT_SUPPORTED;
    unsigned version = info->version;
    memset(info, 0, sizeof *info);
    info->version = version;
    memcpy(info->chassisSerialNumber, platform->serial, sizeof platform->serial);
    info->slotNumber = (unsigned char)platform->slot;
    info->trayIndex = (unsigned char)platform->tray;
    info->hostId = (unsigned char)platform->host;
    info->peerType = 1; /* by a switch */
    info->moduleId = (unsigned char)platform->module;
    return NVML_SUCCESS;
}
