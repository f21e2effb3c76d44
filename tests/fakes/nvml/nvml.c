/* A fake NVIDIA driver library (libnvidia-ml.so.1) that plays a scenario: start-up, system calls, error texts.
 *
 * FALLOW_FAKE_NVML names the scenario file; without it the driver is "not loaded". The file is read at the first
 * nvmlInit of a process. Scenario time is CLOCK_REALTIME minus start_ms, so that every process and the tests agree.
 *
 * The file is text, one fact a line: a key, one space, its value. Times are integer milliseconds since the start
 * ("-" as an end: for ever). STEPS is "ms:milli ms:milli ...": from that moment on the value, in thousandths of its
 * unit; the first value also holds before its moment.
 *
 *   fallow-fake-nvml 1               first line: the format's version
 *   start_ms N                       scenario start, milliseconds since the epoch
 *   sample_clock_offset_us N         added to the time stamps of the sample rings
 *   driver_version TEXT              cuda_driver_version N
 *   fault KIND GPU FUNCTION START END DELAY_MS    GPU and FUNCTION may be "-" (any)
 *   event_poll_ms N                  nvmlEventSetWait looks so often, as some drivers do; 0: it sleeps
 *   xid GPU AT CODE                  an event for nvmlEventSetWait, in order of time
 *   gpu UUID                         starts a GPU; the keys below belong to it
 *     name, serial, pci TEXT
 *     minor, arch, cc_major, cc_minor, max_sm_clock, max_mem_clock, power_limit_mw N
 *     ring_size N                    places in the sample ring
 *     nvlink_group N or "-" (none)
 *     mem_total, mem_reserved, energy_offset_mj, ecc_corrected_offset, ecc_uncorrected_offset, throttled_..._offset_ns N
 *     samples_while_idle, ring_garbage, gpm_supported, mig_capable, persistence, ecc, row_remap 0|1
 *     ring_recorded 0|1              whether the four below are played instead of rings and rates made from util, mem_util
 *     ring_util, ring_mem_util US:VALUE US:VALUE ...    entries of a real ring; rates_util, rates_mem_util (%) STEPS
 *     util, mem_util, encoder_util, decoder_util (%), mem_used (bytes), power, energy_power (W; what the counter sums up), temperature, mem_temperature (degC), sm_clock, mem_clock (MHz),
 *     throttle (bit mask), mig_mode (0 or 1), ecc_corrected, ecc_uncorrected (errors so far), remapped_corrected,
 *     remapped_uncorrected, remap_pending, remap_failed, pcie_replay, recovery_action,
 *     throttled_power_cap, _sync_boost, _sw_thermal, _hw_thermal, _power_brake (share of the time) STEPS
 *     field_error FIELD CODE         what nvmlDeviceGetFieldValues says of one field
 *     gpm ID STEPS                   gpm_nan ID
 *     process PID KIND START END BYTES    KIND is compute, graphics or mps; BYTES may be "-" (not available)
 *     mig UUID SLOT GI CI GPU_SLICES COMPUTE_SLICES BYTES START END    starts a MIG instance of this GPU
 *       mig_name TEXT, mig_mem_used STEPS, mig_gpm ID STEPS, mig_gpm_nan ID, mig_process (as process)
 */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static int init_count;

static nvmlReturn_t initialize(const char *function) {
    const char *path = getenv("FALLOW_FAKE_NVML");
    if (path == NULL) return NVML_ERROR_DRIVER_NOT_LOADED;
    pthread_mutex_lock(&init_lock);
    if (scenario == NULL) scenario = scenario_read(path);
    pthread_mutex_unlock(&init_lock);

    /* Outside the lock: a call that hangs must not block the other threads' calls for a reason of our own. */
    nvmlReturn_t status = faults_of(function, NULL);
    if (status != NVML_SUCCESS) return status;
    pthread_mutex_lock(&init_lock);
    if (init_count++ == 0) list_gpus();
    library_initialized(true);
    pthread_mutex_unlock(&init_lock);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlInit_v2(void) { return initialize(__func__); }

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return initialize(__func__);
}

EXPORT nvmlReturn_t nvmlShutdown(void) {
    BEGIN_SYSTEM();
    pthread_mutex_lock(&init_lock);
    if (--init_count == 0) library_initialized(false);
    pthread_mutex_unlock(&init_lock);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
    BEGIN_SYSTEM();
    return copy_text(version, length, scenario->driver_version);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    BEGIN_SYSTEM();
    /* NVML's own version is the driver's with the CUDA major in front. */
    char text[96] = {(char)('0' + scenario->cuda_driver_version / 10000 % 10),
                     (char)('0' + scenario->cuda_driver_version / 1000 % 10), '.', '\0'};
    strncat(text, scenario->driver_version, sizeof text - strlen(text) - 1);
    return copy_text(version, length, text);
}

static nvmlReturn_t cuda_driver_version(int *version) {
    REQUIRE(version != NULL);
    *version = scenario->cuda_driver_version;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    BEGIN_SYSTEM();
    return cuda_driver_version(version);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    BEGIN_SYSTEM();
    return cuda_driver_version(version);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    BEGIN_SYSTEM();
    REQUIRE(count != NULL);
    *count = 0;
    while (gpu_at(*count) != NULL) (*count)++;
    return NVML_SUCCESS;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result) {
    switch (result) {
        case NVML_SUCCESS: return "Success";
        case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
        case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
        case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
        case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
        case NVML_ERROR_NOT_FOUND: return "Not Found";
        case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
        case NVML_ERROR_INSUFFICIENT_POWER: return "Insufficient External Power";
        case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
        case NVML_ERROR_TIMEOUT: return "Timeout";
        case NVML_ERROR_IRQ_ISSUE: return "Interrupt Request Issue";
        case NVML_ERROR_CORRUPTED_INFOROM: return "Corrupted infoROM";
        case NVML_ERROR_FUNCTION_NOT_FOUND: return "Function Not Found";
        case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
        case NVML_ERROR_RESET_REQUIRED: return "GPU requires reset";
        case NVML_ERROR_OPERATING_SYSTEM: return "Operating System Error";
        case NVML_ERROR_IN_USE: return "In Use";
        case NVML_ERROR_NO_DATA: return "No Data";
        case NVML_ERROR_INSUFFICIENT_RESOURCES: return "Insufficient Resources";
        case NVML_ERROR_NOT_READY: return "Not Ready";
        case NVML_ERROR_GPU_NOT_FOUND: return "GPU Not Found";
        case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
        case NVML_ERROR_MEMORY: return "Insufficient Memory";
        case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Argument version mismatch";
        default: return "Unknown Error";
    }
}
