/* Reads a scenario file (format: top of nvml.c). */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reader.h"

static const struct {
    const char *name;
    enum fault_kind kind;
    nvmlReturn_t status;
} faults[] = {
    {"lost", FAULT_ERROR, NVML_ERROR_GPU_IS_LOST},
    {"reset_required", FAULT_ERROR, NVML_ERROR_RESET_REQUIRED},
    {"not_supported", FAULT_ERROR, NVML_ERROR_NOT_SUPPORTED},
    {"no_permission", FAULT_ERROR, NVML_ERROR_NO_PERMISSION},
    {"function_not_found", FAULT_ERROR, NVML_ERROR_FUNCTION_NOT_FOUND},
    {"unknown", FAULT_ERROR, NVML_ERROR_UNKNOWN},
    {"timeout", FAULT_ERROR, NVML_ERROR_TIMEOUT},
    {"insufficient_power", FAULT_ERROR, NVML_ERROR_INSUFFICIENT_POWER},
    {"irq_issue", FAULT_ERROR, NVML_ERROR_IRQ_ISSUE},
    {"corrupted_inforom", FAULT_ERROR, NVML_ERROR_CORRUPTED_INFOROM},
    {"operating_system", FAULT_ERROR, NVML_ERROR_OPERATING_SYSTEM},
    {"in_use", FAULT_ERROR, NVML_ERROR_IN_USE},
    {"memory", FAULT_ERROR, NVML_ERROR_MEMORY},
    {"no_data", FAULT_ERROR, NVML_ERROR_NO_DATA},
    {"insufficient_resources", FAULT_ERROR, NVML_ERROR_INSUFFICIENT_RESOURCES},
    {"not_ready", FAULT_ERROR, NVML_ERROR_NOT_READY},
    {"gpu_not_found", FAULT_ERROR, NVML_ERROR_GPU_NOT_FOUND},
    {"mismatch", FAULT_DRIVER, NVML_ERROR_LIB_RM_VERSION_MISMATCH},
    {"driver_not_loaded", FAULT_DRIVER, NVML_ERROR_DRIVER_NOT_LOADED},
    {"hang", FAULT_HANG, NVML_SUCCESS},
    {"slow", FAULT_SLOW, NVML_SUCCESS},
    {"crash", FAULT_CRASH, NVML_SUCCESS},
    {"unplug", FAULT_UNPLUG, NVML_ERROR_GPU_IS_LOST},
};

static void read_fault(struct reader *reader, char *rest) {
    struct scenario *s = reader->scenario;
    struct fault *fault = append((void **)&s->faults, &s->fault_count, sizeof *fault);
    const char *kind = word(reader, &rest);
    size_t found = 0, kind_count = sizeof faults / sizeof *faults;
    while (found < kind_count && strcmp(kind, faults[found].name) != 0) found++;
    if (found == kind_count) fail(reader, "unknown kind of fault");
    fault->kind = faults[found].kind;
    fault->status = faults[found].status;
    fault->gpu = (int)number_or(reader, &rest, -1);
    const char *function = word(reader, &rest);
    if (strcmp(function, "-") != 0) fault->function = strdup(function);
    fault->start_ms = next_number(reader, &rest);
    fault->end_ms = number_or(reader, &rest, FOREVER);
    fault->delay_ms = next_number(reader, &rest);
}

static void read_xid(struct reader *reader, char *rest) {
    struct scenario *s = reader->scenario;
    struct xid *xid = append((void **)&s->xids, &s->xid_count, sizeof *xid);
    xid->gpu = (int)next_number(reader, &rest);
    xid->at_ms = next_number(reader, &rest);
    xid->code = (uint64_t)next_number(reader, &rest);
}

static void read_gpu(struct reader *reader, char *rest) {
    struct scenario *s = reader->scenario;
    reader->gpu = append((void **)&s->gpus, &s->gpu_count, sizeof *reader->gpu);
    reader->gpu->index = (unsigned)s->gpu_count - 1;
    reader->gpu->uuid = strdup(word(reader, &rest));
    reader->mig = NULL;
}

static void read_line(struct reader *reader, char *line) {
    char *rest = line, *key = word(reader, &rest);
    struct scenario *s = reader->scenario;
    if (strcmp(key, "start_ms") == 0) {
        s->start_ms = next_number(reader, &rest);
    } else if (strcmp(key, "sample_clock_offset_us") == 0) {
        s->sample_clock_offset_us = next_number(reader, &rest);
    } else if (strcmp(key, "event_poll_ms") == 0) {
        s->event_poll_ms = next_number(reader, &rest);
    } else if (strcmp(key, "driver_version") == 0) {
        s->driver_version = text_copy(reader, rest);
    } else if (strcmp(key, "cuda_driver_version") == 0) {
        s->cuda_driver_version = (int)next_number(reader, &rest);
    } else if (strcmp(key, "fault") == 0) {
        read_fault(reader, rest);
    } else if (strcmp(key, "xid") == 0) {
        read_xid(reader, rest);
    } else if (strcmp(key, "gpu") == 0) {
        read_gpu(reader, rest);
    } else {
        read_gpu_line(reader, key, rest);
    }
}

/* Only now do the GPUs lie where they stay, so only now may their slots point at them. */
static void finish(struct reader *reader) {
    struct scenario *s = reader->scenario;
    for (size_t i = 0; i < s->gpu_count; i++) {
        struct gpu *gpu = &s->gpus[i];
        for (unsigned slot = 0; slot < MIG_SLOTS; slot++) gpu->slots[slot] = (struct mig_slot){gpu, slot};
        check_gpu(reader, gpu);
    }
    for (size_t i = 0; i < s->xid_count; i++) {
        if (s->xids[i].gpu < 0 || (size_t)s->xids[i].gpu >= s->gpu_count) fail(reader, "an xid of no GPU");
    }
    if (s->driver_version == NULL) fail(reader, "driver_version is missing");
}

struct scenario *scenario_read(const char *path) {
    struct reader reader = {.path = path, .scenario = calloc(1, sizeof(struct scenario))};
    FILE *file = fopen(path, "r");
    if (file == NULL || reader.scenario == NULL) fail(&reader, "cannot be opened");
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, file) > 0) {
        line[strcspn(line, "\n")] = '\0';
        reader.line++;
        if (reader.line > 1) {
            read_line(&reader, line);
        } else if (strcmp(line, "fallow-fake-nvml 1") != 0) {
            fail(&reader, "not a scenario of version 1");
        }
    }
    free(line);
    fclose(file);
    finish(&reader);
    return reader.scenario;
}
