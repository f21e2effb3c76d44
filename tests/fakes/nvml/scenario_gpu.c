/* The lines of a scenario file that describe one GPU and its MIG instances. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "reader.h"

static void read_process(struct reader *reader, struct process_list *list, char *rest) {
    static const char *const kinds[] = {"compute", "graphics", "mps"};
    struct process *process = append((void **)&list->items, &list->count, sizeof *process);
    process->pid = (unsigned)next_number(reader, &rest);
    const char *kind = word(reader, &rest);
    unsigned found = 0;
    while (found < 3 && strcmp(kind, kinds[found]) != 0) found++;
    if (found == 3) fail(reader, "unknown kind of process");
    process->kind = (enum process_kind)found;
    process->start_ms = next_number(reader, &rest);
    process->end_ms = number_or(reader, &rest, FOREVER);
    process->mem_bytes = (uint64_t)number_or(reader, &rest, -1); /* all ones is NVML's "not available" */
}

static void read_gpm(struct reader *reader, struct gpm_list *list, char *rest, bool is_nan) {
    struct gpm_metric *metric = append((void **)&list->items, &list->count, sizeof *metric);
    metric->id = (unsigned)next_number(reader, &rest);
    metric->is_nan = is_nan;
    if (!is_nan) metric->value = read_steps(reader, rest);
}

static void read_mig(struct reader *reader, char *rest) {
    struct mig *mig = append((void **)&reader->gpu->migs, &reader->gpu->mig_count, sizeof *mig);
    mig->uuid = strdup(word(reader, &rest));
    mig->slot = (unsigned)next_number(reader, &rest);
    if (mig->slot >= MIG_SLOTS) fail(reader, "a GPU has seven MIG slots");
    mig->gi = (unsigned)next_number(reader, &rest);
    mig->ci = (unsigned)next_number(reader, &rest);
    mig->gpu_slices = (unsigned)next_number(reader, &rest);
    mig->compute_slices = (unsigned)next_number(reader, &rest);
    mig->mem_total = (uint64_t)next_number(reader, &rest);
    mig->start_ms = next_number(reader, &rest);
    mig->end_ms = number_or(reader, &rest, FOREVER);
    reader->mig = mig;
}

static void read_field_error(struct reader *reader, char *rest) {
    struct gpu *gpu = reader->gpu;
    struct field_error *error = append((void **)&gpu->field_errors, &gpu->field_error_count, sizeof *error);
    error->field = (unsigned)next_number(reader, &rest);
    error->status = (nvmlReturn_t)next_number(reader, &rest);
}

/* The plain values of a GPU, by name, kind and place in its struct. */
enum value_kind { TEXT, NUMBER32, NUMBER64, FLAG, STEPS, RECORDING };
#define GPU_VALUE(key, kind, member) {key, kind, offsetof(struct gpu, member)}
static const struct gpu_value {
    const char *key;
    enum value_kind kind;
    size_t offset;
} gpu_values[] = {
    GPU_VALUE("name", TEXT, name), GPU_VALUE("serial", TEXT, serial), GPU_VALUE("pci", TEXT, pci),
    GPU_VALUE("minor", NUMBER32, minor), GPU_VALUE("arch", NUMBER32, arch), GPU_VALUE("cc_major", NUMBER32, cc_major),
    GPU_VALUE("cc_minor", NUMBER32, cc_minor), GPU_VALUE("max_sm_clock", NUMBER32, max_sm_clock),
    GPU_VALUE("max_mem_clock", NUMBER32, max_mem_clock), GPU_VALUE("power_limit_mw", NUMBER32, power_limit_mw),
    GPU_VALUE("nvlink_group", NUMBER32, nvlink_group), GPU_VALUE("ring_size", NUMBER32, ring_size),
    GPU_VALUE("mem_total", NUMBER64, mem_total), GPU_VALUE("mem_reserved", NUMBER64, mem_reserved),
    GPU_VALUE("energy_offset_mj", NUMBER64, energy_offset_mj),
    GPU_VALUE("ecc_corrected_offset", NUMBER64, ecc_corrected_offset),
    GPU_VALUE("ecc_uncorrected_offset", NUMBER64, ecc_uncorrected_offset),
    GPU_VALUE("throttled_power_cap_offset_ns", NUMBER64, throttled_offset_ns[POWER_CAP]),
    GPU_VALUE("throttled_sync_boost_offset_ns", NUMBER64, throttled_offset_ns[SYNC_BOOST]),
    GPU_VALUE("throttled_sw_thermal_offset_ns", NUMBER64, throttled_offset_ns[SW_THERMAL]),
    GPU_VALUE("throttled_hw_thermal_offset_ns", NUMBER64, throttled_offset_ns[HW_THERMAL]),
    GPU_VALUE("throttled_power_brake_offset_ns", NUMBER64, throttled_offset_ns[POWER_BRAKE]),
    GPU_VALUE("samples_while_idle", FLAG, samples_while_idle), GPU_VALUE("ring_garbage", FLAG, ring_garbage),
    GPU_VALUE("gpm_supported", FLAG, gpm_supported),
    GPU_VALUE("mig_capable", FLAG, mig_capable), GPU_VALUE("persistence", FLAG, persistence), GPU_VALUE("ecc", FLAG, ecc),
    GPU_VALUE("row_remap", FLAG, row_remap), GPU_VALUE("ring_recorded", FLAG, ring_recorded),
    GPU_VALUE("ring_util", RECORDING, ring_util), GPU_VALUE("ring_mem_util", RECORDING, ring_mem_util),
    GPU_VALUE("energy_power", STEPS, energy_power), GPU_VALUE("rates_util", STEPS, rates_util),
    GPU_VALUE("rates_mem_util", STEPS, rates_mem_util), GPU_VALUE("encoder_util", STEPS, encoder_util),
    GPU_VALUE("decoder_util", STEPS, decoder_util),
    GPU_VALUE("util", STEPS, util), GPU_VALUE("mem_util", STEPS, mem_util), GPU_VALUE("mem_used", STEPS, mem_used),
    GPU_VALUE("power", STEPS, power), GPU_VALUE("temperature", STEPS, temperature),
    GPU_VALUE("mem_temperature", STEPS, mem_temperature), GPU_VALUE("sm_clock", STEPS, sm_clock),
    GPU_VALUE("mem_clock", STEPS, mem_clock), GPU_VALUE("throttle", STEPS, throttle), GPU_VALUE("mig_mode", STEPS, mig_mode),
    GPU_VALUE("ecc_corrected", STEPS, ecc_corrected), GPU_VALUE("ecc_uncorrected", STEPS, ecc_uncorrected),
    GPU_VALUE("remapped_corrected", STEPS, remapped_corrected),
    GPU_VALUE("remapped_uncorrected", STEPS, remapped_uncorrected), GPU_VALUE("remap_pending", STEPS, remap_pending),
    GPU_VALUE("remap_failed", STEPS, remap_failed), GPU_VALUE("pcie_replay", STEPS, pcie_replay),
    GPU_VALUE("recovery_action", STEPS, recovery_action), GPU_VALUE("throttled_power_cap", STEPS, throttled[POWER_CAP]),
    GPU_VALUE("throttled_sync_boost", STEPS, throttled[SYNC_BOOST]),
    GPU_VALUE("throttled_sw_thermal", STEPS, throttled[SW_THERMAL]),
    GPU_VALUE("throttled_hw_thermal", STEPS, throttled[HW_THERMAL]),
    GPU_VALUE("throttled_power_brake", STEPS, throttled[POWER_BRAKE]),
};
static const struct gpu_value *const gpu_values_end = gpu_values + sizeof gpu_values / sizeof *gpu_values;

static void read_gpu_value(struct reader *reader, const char *key, char *rest) {
    const struct gpu_value *value = gpu_values;
    while (value < gpu_values_end && strcmp(value->key, key) != 0) value++;
    if (value == gpu_values_end) fail(reader, "unknown key");
    void *place = (char *)reader->gpu + value->offset;
    switch (value->kind) {
        case TEXT: *(char **)place = text_copy(reader, rest); break;
        case NUMBER32: *(unsigned *)place = (unsigned)number_or(reader, &rest, -1); break;
        case NUMBER64: *(uint64_t *)place = (uint64_t)next_number(reader, &rest); break;
        case FLAG: *(bool *)place = next_number(reader, &rest) != 0; break;
        case STEPS: *(struct steps *)place = read_steps(reader, rest); break;
        case RECORDING: *(struct recording *)place = read_recording(reader, rest); break;
    }
}

static void read_mig_line(struct reader *reader, const char *key, char *rest) {
    struct mig *mig = reader->mig;
    if (mig == NULL) fail(reader, "a MIG key before any mig");
    if (strcmp(key, "mig_name") == 0) {
        mig->name = text_copy(reader, rest);
    } else if (strcmp(key, "mig_mem_used") == 0) {
        mig->mem_used = read_steps(reader, rest);
    } else if (strcmp(key, "mig_gpm") == 0) {
        read_gpm(reader, &mig->gpm, rest, false);
    } else if (strcmp(key, "mig_gpm_nan") == 0) {
        read_gpm(reader, &mig->gpm, rest, true);
    } else if (strcmp(key, "mig_process") == 0) {
        read_process(reader, &mig->processes, rest);
    } else {
        fail(reader, "unknown MIG key");
    }
}

void read_gpu_line(struct reader *reader, const char *key, char *rest) {
    if (reader->gpu == NULL) fail(reader, "a GPU's key before any gpu");
    if (strcmp(key, "process") == 0) {
        read_process(reader, &reader->gpu->processes, rest);
    } else if (strcmp(key, "gpm") == 0) {
        read_gpm(reader, &reader->gpu->gpm, rest, false);
    } else if (strcmp(key, "gpm_nan") == 0) {
        read_gpm(reader, &reader->gpu->gpm, rest, true);
    } else if (strcmp(key, "field_error") == 0) {
        read_field_error(reader, rest);
    } else if (strcmp(key, "mig") == 0) {
        read_mig(reader, rest);
    } else if (strncmp(key, "mig_", 4) == 0 && strcmp(key, "mig_mode") != 0 && strcmp(key, "mig_capable") != 0) {
        read_mig_line(reader, key, rest);
    } else {
        read_gpu_value(reader, key, rest);
    }
}

void check_gpu(struct reader *reader, struct gpu *gpu) {
    if (gpu->ring_size == 0 || gpu->ring_size > RECORDED_RING_MAX) fail(reader, "ring_size");
    for (const struct gpu_value *value = gpu_values; value < gpu_values_end; value++) {
        const struct steps *steps = (const void *)((char *)gpu + value->offset);
        if (value->kind == STEPS && steps->count == 0) fail(reader, value->key);
        if (value->kind == TEXT && *(char **)((char *)gpu + value->offset) == NULL) fail(reader, value->key);
    }
}
