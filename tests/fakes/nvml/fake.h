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
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_RESET_REQUIRED = 16,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999
} nvmlReturn_t;

/* A piecewise-constant function of scenario time, in thousandths of its unit so that C and Python agree exactly. */
struct steps {
    size_t count;
    int64_t *at_ms;
    int64_t *milli;
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

struct gpu {
    unsigned index, minor, arch, cc_major, cc_minor, max_sm_clock, max_mem_clock, power_limit_mw;
    char *uuid, *name, *serial, *pci;
    uint64_t mem_total, mem_reserved, energy_offset_mj;
    bool samples_while_idle, ring_garbage, ring_keeps_old, gpm_supported, mig_capable, persistence, ecc;
    struct steps util, mem_util, mem_used, power, temperature, mem_temperature, sm_clock, mem_clock, throttle, mig_mode;
    struct process_list processes;
    struct gpm_list gpm;
    struct mig_slot slots[MIG_SLOTS];
    size_t mig_count;
    struct mig *migs;
};

enum fault_kind {
    FAULT_LOST, FAULT_RESET_REQUIRED, FAULT_NOT_SUPPORTED, FAULT_NO_PERMISSION, FAULT_FUNCTION_NOT_FOUND, FAULT_HANG,
    FAULT_UNKNOWN, FAULT_TIMEOUT, FAULT_SLOW, FAULT_MISMATCH, FAULT_DRIVER_NOT_LOADED
};

struct fault {
    enum fault_kind kind;
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

/* call.c: the clock, the faults, and what every entry point checks first. */
extern struct scenario *scenario;
int64_t scenario_now_us(void);
int64_t clock_us(void);
void sleep_us(int64_t us);
void library_initialized(bool yes);
bool library_is_initialized(void);
nvmlReturn_t faults_of(const char *function, const struct gpu *gpu);
nvmlReturn_t begin_system(const char *function);
nvmlReturn_t begin_device(struct call *call, const char *function, nvmlDevice_t device, enum scope scope);
struct mig *mig_in_slot(const struct gpu *gpu, unsigned slot, int64_t now_us);
bool mig_enabled(const struct call *call);
nvmlReturn_t copy_text(char *to, unsigned size, const char *text);

/* samples.c: the driver's sample ring. */
unsigned last_sample_percent(const struct steps *steps, int64_t now_us);
size_t ring_entries(const struct gpu *gpu, int64_t now_us, int64_t entries[], int64_t starts[]);
unsigned mean_percent(const struct steps *steps, int64_t from_us, int64_t to_us);
#define RING_SIZE 72

/* device.c */
uint64_t energy_mj(const struct gpu *gpu, int64_t now_us);

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
