/* What the parts of the fake NVIDIA driver share: the scenario in memory, the NVML types, one entry check. */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

#define MIG_SLOTS 7
#define FOREVER INT64_MAX
#define NO_INSTANCE 0xFFFFFFFFu

/* NVML's return codes, by their numbers in nvml.h. */
typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_INSUFFICIENT_POWER = 8,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_IRQ_ISSUE = 11,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_CORRUPTED_INFOROM = 14,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_RESET_REQUIRED = 16,
    NVML_ERROR_OPERATING_SYSTEM = 17,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_IN_USE = 19,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_NO_DATA = 21,
    NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_NOT_READY = 27,
    NVML_ERROR_GPU_NOT_FOUND = 28,
    NVML_ERROR_UNKNOWN = 999
} nvmlReturn_t;

/* A piecewise-constant function of scenario time, in thousandths of its unit so that C and Python agree exactly. */
struct steps {
    size_t count;
    int64_t *at_ms;
    int64_t *milli;
    size_t *last; /* the piece that was asked for last */
    __int128 *before; /* integral from the first moment to each moment, in thousandths times microseconds */
};

/* Entries of a real sample ring, as they were: moments since the scenario's start, and whatever value was read. */
struct recording {
    size_t count;
    int64_t *at_us;
    int64_t *value;
};

enum process_kind { COMPUTE, GRAPHICS, MPS };

struct process {
    unsigned pid;
    enum process_kind kind;
    int64_t start_ms, end_ms;
    uint64_t mem_bytes;
};

struct process_list {
    size_t count;
    struct process *items;
};

struct gpm_metric {
    unsigned id;
    struct steps value;
    bool is_nan;
};

struct gpm_list {
    size_t count;
    struct gpm_metric *items;
};

struct gpu;

/* One MIG instance; NVML's handle is the slot that it lies in, because the driver reuses handles. */
struct mig {
    char *uuid, *name;
    unsigned slot, gi, ci, gpu_slices, compute_slices;
    uint64_t mem_total;
    int64_t start_ms, end_ms;
    struct steps mem_used;
    struct process_list processes;
    struct gpm_list gpm;
};

struct mig_slot {
    struct gpu *gpu;
    unsigned number;
};

/* Why clocks are held down, in the order of the fields that count it. */
enum throttle_reason { POWER_CAP, SYNC_BOOST, SW_THERMAL, HW_THERMAL, POWER_BRAKE, THROTTLE_REASONS };

struct field_error {
    unsigned field;
    nvmlReturn_t status;
};

struct gpu {
    unsigned index, minor, arch, cc_major, cc_minor, max_sm_clock, max_mem_clock, power_limit_mw, ring_size;
    int position; /* in the enumeration of this process' library; -1: it was not there at nvmlInit */
    int nvlink_group; /* -1: none */
    char *uuid, *name, *serial, *pci;
    uint64_t mem_total, mem_reserved, energy_offset_mj, ecc_corrected_offset, ecc_uncorrected_offset,
        throttled_offset_ns[THROTTLE_REASONS];
    bool samples_while_idle, ring_garbage, gpm_supported, mig_capable, persistence, ecc, row_remap, ring_recorded;
    struct steps util, mem_util, mem_used, power, temperature, mem_temperature, sm_clock, mem_clock, throttle, mig_mode;
    struct steps energy_power, rates_util, rates_mem_util, encoder_util, decoder_util;
    struct recording ring_util, ring_mem_util;
    struct steps ecc_corrected, ecc_uncorrected, remapped_corrected, remapped_uncorrected, remap_pending, remap_failed,
        pcie_replay, recovery_action, throttled[THROTTLE_REASONS];
    struct process_list processes;
    struct gpm_list gpm;
    struct mig_slot slots[MIG_SLOTS];
    size_t mig_count, field_error_count;
    struct mig *migs;
    struct field_error *field_errors;
};

enum fault_kind {
    FAULT_ERROR, /* the call fails with `status` */
    FAULT_DRIVER, /* so does every call, whatever it asks */
    FAULT_HANG, FAULT_SLOW, FAULT_CRASH, FAULT_UNPLUG
};

struct fault {
    enum fault_kind kind;
    nvmlReturn_t status;
    int gpu; /* -1: every GPU */
    char *function; /* NULL: every function */
    int64_t start_ms, end_ms, delay_ms;
};

struct xid {
    int gpu;
    int64_t at_ms;
    uint64_t code;
};

struct scenario {
    int64_t start_ms, sample_clock_offset_us;
    int64_t event_poll_ms; /* 0: the wait for events sleeps until something may happen */
    char *driver_version;
    int cuda_driver_version;
    size_t gpu_count, fault_count, xid_count;
    struct gpu *gpus;
    struct fault *faults;
    struct xid *xids;
};

typedef void *nvmlDevice_t;

/* The one call that is being answered: whose, and when. */
struct call {
    struct gpu *gpu;
    struct mig *mig; /* NULL when the handle is a whole GPU's */
    int64_t now_us; /* since the scenario's start */
};

enum scope {
    ANY_DEVICE, /* whole GPUs and MIG instances */
    WHOLE_GPU /* quantities that a MIG instance does not have */
};

/* scenario.c: reads the file that FALLOW_FAKE_NVML names; aborts with a message where it is malformed. */
struct scenario *scenario_read(const char *path);

/* steps.c: values and exact integrals of a step function. */
int64_t steps_at_milli(const struct steps *steps, int64_t t_us);
int64_t steps_at(const struct steps *steps, int64_t t_us);
__int128 steps_integral(const struct steps *steps, int64_t from_us, int64_t to_us);
void steps_sum(struct steps *steps);

/* call.c: the clock, the faults, and what every entry point checks first. */
extern struct scenario *scenario;
int64_t scenario_now_us(void);
int64_t clock_us(void);
void sleep_us(int64_t us);
void sleep_until_us(int64_t epoch_us);
void library_initialized(bool yes);
bool library_is_initialized(void);
nvmlReturn_t faults_of(const char *function, const struct gpu *gpu);
bool is_lost(const char *function, const struct gpu *gpu);
int64_t next_fault_us(int64_t after_us);
void list_gpus(void);
struct gpu *gpu_at(unsigned position);
nvmlReturn_t begin_system(const char *function);
nvmlReturn_t begin_device(struct call *call, const char *function, nvmlDevice_t device, enum scope scope);
nvmlReturn_t begin_pair(struct call *one, struct call *other, const char *function, nvmlDevice_t device1,
                        nvmlDevice_t device2);
struct mig *mig_in_slot(const struct gpu *gpu, unsigned slot, int64_t now_us);
bool mig_enabled(const struct call *call);
nvmlReturn_t copy_text(char *to, unsigned size, const char *text);

/* samples.c: the driver's sample ring. */
size_t ring_entries(const struct gpu *gpu, int64_t now_us, uint64_t last_seen, int64_t ends[], int64_t starts[]);
unsigned mean_percent(const struct steps *steps, int64_t from_us, int64_t to_us);
unsigned last_sample_percent(const struct steps *steps, int64_t now_us);
#define RING_SIZE 72
#define RECORDED_RING_MAX 1024

/* counters.c: what climbs. */
uint64_t energy_mj(const struct gpu *gpu, int64_t now_us);
uint64_t throttled_ns(const struct gpu *gpu, enum throttle_reason reason, int64_t now_us);

#define BEGIN_SYSTEM()                                  \
    do {                                                \
        nvmlReturn_t status_ = begin_system(__func__);  \
        if (status_ != NVML_SUCCESS) return status_;    \
    } while (0)

/* For calls that name a GPU otherwise than by a handle: its faults, and only once. */
#define REQUIRE_INITIALIZED()                                              \
    do {                                                                   \
        if (!library_is_initialized()) return NVML_ERROR_UNINITIALIZED;    \
    } while (0)

#define BEGIN_DEVICE(call, device, scope)                                        \
    do {                                                                         \
        nvmlReturn_t status_ = begin_device(&(call), __func__, (device), scope); \
        if (status_ != NVML_SUCCESS) return status_;                             \
    } while (0)

#define REQUIRE(condition)                                        \
    do {                                                          \
        if (!(condition)) return NVML_ERROR_INVALID_ARGUMENT;     \
    } while (0)

#endif
