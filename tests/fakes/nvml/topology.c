/* How GPUs reach one another: NVLink. */
#include "fake.h"

enum { P2P_OK = 0, P2P_CHIPSET_NOT_SUPPORTED = 1, P2P_NOT_SUPPORTED = 5 };
enum { P2P_NVLINK = 2, P2P_INDEXES = 5 };
enum { LINKS_MAX = 18 };

EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2, unsigned index, unsigned *p2p) {
    struct call one, other;
    nvmlReturn_t status = begin_pair(&one, &other, __func__, device1, device2);
    if (status != NVML_SUCCESS) return status;
    REQUIRE(p2p != NULL && index < P2P_INDEXES && one.gpu != other.gpu);
    bool by_nvlink = one.gpu->nvlink_group >= 0 && one.gpu->nvlink_group == other.gpu->nvlink_group;
    *p2p = by_nvlink ? P2P_OK : index == P2P_NVLINK ? P2P_NOT_SUPPORTED : P2P_CHIPSET_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *active) {
    struct call call;
    BEGIN_DEVICE(call, device, WHOLE_GPU);
    REQUIRE(active != NULL && link < LINKS_MAX);
    if (call.gpu->nvlink_group < 0) return NVML_ERROR_NOT_SUPPORTED;
    *active = 1;
    return NVML_SUCCESS;
}
