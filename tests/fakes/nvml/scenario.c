/* Reads a scenario file (format: top of nvml.c). A malformed file aborts: a test must never run on half a scenario. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

struct reader {
    const char *path;
    int line;
    struct scenario *scenario;
    struct gpu *gpu;
    struct mig *mig;
};

static _Noreturn void fail(const struct reader *reader, const char *what) {
    fprintf(stderr, "fake nvml: %s:%d: %s\n", reader->path, reader->line, what);
    abort();
}

/* A zeroed element at the end of a growing array; pointers into the array die, so none are kept before reading ends. */
static void *append(void **items, size_t *count, size_t size) {
    *items = realloc(*items, (*count + 1) * size);
    if (*items == NULL) abort();
    void *added = (char *)*items + *count * size;
    memset(added, 0, size);
    (*count)++;
    return added;
}

static char *word(struct reader *reader, char **rest) {
    char *found = strsep(rest, " ");
    if (found == NULL || *found == '\0') fail(reader, "a value is missing");
    return found;
}

static int64_t number(struct reader *reader, const char *text) {
    char *end;
    errno = 0;
    int64_t value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0') fail(reader, "not a number");
    return value;
}

static int64_t next_number(struct reader *reader, char **rest) { return number(reader, word(reader, rest)); }

static int64_t number_or(struct reader *reader, char **rest, int64_t otherwise) {
    char *text = word(reader, rest);
    return strcmp(text, "-") == 0 ? otherwise : number(reader, text);
}

static char *text_copy(struct reader *reader, const char *rest) {
    if (rest == NULL) fail(reader, "a text is missing");
    return strdup(rest);
}

static struct steps read_steps(struct reader *reader, char *rest) {
    struct steps steps = {0};
    for (char *item; (item = strsep(&rest, " ")) != NULL;) {
        char *milli = strchr(item, ':');
        if (milli == NULL) fail(reader, "a step is not ms:milli");
        *milli++ = '\0';
        size_t count = steps.count;
        *(int64_t *)append((void **)&steps.at_ms, &count, sizeof(int64_t)) = number(reader, item);
        *(int64_t *)append((void **)&steps.milli, &steps.count, sizeof(int64_t)) = number(reader, milli);
    }
    if (steps.count == 0) fail(reader, "no steps");
    return steps;
}

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

static void read_fault(struct reader *reader, char *rest) {
    static const char *const kinds[] = {"lost",    "reset_required", "not_supported", "no_permission", "function_not_found",
                                        "hang",    "unknown",        "timeout",       "slow",          "mismatch",
                                        "driver_not_loaded"};
    struct scenario *s = reader->scenario;
    struct fault *fault = append((void **)&s->faults, &s->fault_count, sizeof *fault);
    const char *kind = word(reader, &rest);
    size_t found = 0, kind_count = sizeof kinds / sizeof *kinds;
    while (found < kind_count && strcmp(kind, kinds[found]) != 0) found++;
    if (found == kind_count) fail(reader, "unknown kind of fault");
    fault->kind = (enum fault_kind)found;
    fault->gpu = (int)number_or(reader, &rest, -1);
    const char *function = word(reader, &rest);
    if (strcmp(function, "-") != 0) fault->function = strdup(function);
    fault->start_ms = next_number(reader, &rest);
    fault->end_ms = number_or(reader, &rest, FOREVER);
    fault->delay_ms = next_number(reader, &rest);
}

static void read_xid(struct reader *reader, char *rest) {
    struct xid *xid = append((void **)&reader->scenario->xids, &reader->scenario->xid_count, sizeof *xid);
    xid->gpu = (int)next_number(reader, &rest);
    xid->at_ms = next_number(reader, &rest);
    xid->code = (uint64_t)next_number(reader, &rest);
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

static void read_gpu(struct reader *reader, char *rest) {
    struct scenario *s = reader->scenario;
    reader->gpu = append((void **)&s->gpus, &s->gpu_count, sizeof *reader->gpu);
    reader->gpu->index = (unsigned)s->gpu_count - 1;
    reader->gpu->uuid = strdup(word(reader, &rest));
    reader->mig = NULL;
}

/* The plain values of a GPU, by name, kind and place in its struct. */
enum value_kind { TEXT, NUMBER32, NUMBER64, FLAG, STEPS };
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
    GPU_VALUE("mem_total", NUMBER64, mem_total), GPU_VALUE("mem_reserved", NUMBER64, mem_reserved),
    GPU_VALUE("energy_offset_mj", NUMBER64, energy_offset_mj),
    GPU_VALUE("samples_while_idle", FLAG, samples_while_idle), GPU_VALUE("ring_garbage", FLAG, ring_garbage),
    GPU_VALUE("ring_keeps_old", FLAG, ring_keeps_old), GPU_VALUE("gpm_supported", FLAG, gpm_supported),
    GPU_VALUE("mig_capable", FLAG, mig_capable), GPU_VALUE("persistence", FLAG, persistence), GPU_VALUE("ecc", FLAG, ecc),
    GPU_VALUE("util", STEPS, util), GPU_VALUE("mem_util", STEPS, mem_util), GPU_VALUE("mem_used", STEPS, mem_used),
    GPU_VALUE("power", STEPS, power), GPU_VALUE("temperature", STEPS, temperature),
    GPU_VALUE("mem_temperature", STEPS, mem_temperature), GPU_VALUE("sm_clock", STEPS, sm_clock),
    GPU_VALUE("mem_clock", STEPS, mem_clock), GPU_VALUE("throttle", STEPS, throttle), GPU_VALUE("mig_mode", STEPS, mig_mode),
};

static void read_gpu_value(struct reader *reader, const char *key, char *rest) {
    const struct gpu_value *value = gpu_values, *end = gpu_values + sizeof gpu_values / sizeof *gpu_values;
    while (value < end && strcmp(value->key, key) != 0) value++;
    if (value == end) fail(reader, "unknown key");
    void *place = (char *)reader->gpu + value->offset;
    switch (value->kind) {
        case TEXT: *(char **)place = text_copy(reader, rest); break;
        case NUMBER32: *(unsigned *)place = (unsigned)next_number(reader, &rest); break;
        case NUMBER64: *(uint64_t *)place = (uint64_t)next_number(reader, &rest); break;
        case FLAG: *(bool *)place = next_number(reader, &rest) != 0; break;
        case STEPS: *(struct steps *)place = read_steps(reader, rest); break;
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

static void read_gpu_line(struct reader *reader, const char *key, char *rest) {
    if (reader->gpu == NULL) fail(reader, "a GPU's key before any gpu");
    if (strcmp(key, "process") == 0) {
        read_process(reader, &reader->gpu->processes, rest);
    } else if (strcmp(key, "gpm") == 0) {
        read_gpm(reader, &reader->gpu->gpm, rest, false);
    } else if (strcmp(key, "gpm_nan") == 0) {
        read_gpm(reader, &reader->gpu->gpm, rest, true);
    } else if (strcmp(key, "mig") == 0) {
        read_mig(reader, rest);
    } else if (strncmp(key, "mig_", 4) == 0 && strcmp(key, "mig_mode") != 0 && strcmp(key, "mig_capable") != 0) {
        read_mig_line(reader, key, rest);
    } else {
        read_gpu_value(reader, key, rest);
    }
}

static void read_line(struct reader *reader, char *line) {
    char *rest = line, *key = word(reader, &rest);
    struct scenario *s = reader->scenario;
    if (strcmp(key, "start_ms") == 0) {
        s->start_ms = next_number(reader, &rest);
    } else if (strcmp(key, "sample_clock_offset_us") == 0) {
        s->sample_clock_offset_us = next_number(reader, &rest);
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
        for (const struct gpu_value *value = gpu_values; value < gpu_values + sizeof gpu_values / sizeof *gpu_values; value++) {
            const struct steps *steps = (const void *)((char *)gpu + value->offset);
            if (value->kind == STEPS && steps->count == 0) fail(reader, value->key);
            if (value->kind == TEXT && *(char **)((char *)gpu + value->offset) == NULL) fail(reader, value->key);
        }
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
