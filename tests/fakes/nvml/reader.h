/* Reading the lines of a scenario file: words, numbers, texts and steps, each refused aloud where it is malformed. */
#ifndef FAKE_NVML_READER_H
#define FAKE_NVML_READER_H

#include "fake.h"

struct reader {
    const char *path;
    int line;
    struct scenario *scenario;
    struct gpu *gpu;
    struct mig *mig;
};

_Noreturn void fail(const struct reader *reader, const char *what);
void *append(void **items, size_t *count, size_t size);
char *word(struct reader *reader, char **rest);
int64_t next_number(struct reader *reader, char **rest);
int64_t number_or(struct reader *reader, char **rest, int64_t otherwise);
char *text_copy(struct reader *reader, const char *rest);
struct steps read_steps(struct reader *reader, char *rest);
struct recording read_recording(struct reader *reader, char *rest);

/* scenario_gpu.c: one line that belongs to the GPU read last, and what must be there when all lines are read. */
void read_gpu_line(struct reader *reader, const char *key, char *rest);
void check_gpu(struct reader *reader, struct gpu *gpu);

#endif
