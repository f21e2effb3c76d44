/* The words, numbers and steps of a scenario file. A malformed one aborts: a test must never run on half a scenario. */
#define _GNU_SOURCE
#include "reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void fail(const struct reader *reader, const char *what) {
    fprintf(stderr, "fake nvml: %s:%d: %s\n", reader->path, reader->line, what);
    abort();
}

/* A zeroed element at the end of an array that doubles; pointers into the array die, so none are kept for long. */
void *append(void **items, size_t *count, size_t size) {
    if ((*count & (*count - 1)) == 0) { /* full: the room is always the next power of two */
        *items = realloc(*items, (*count == 0 ? 1 : *count * 2) * size);
        if (*items == NULL) abort();
    }
    void *added = (char *)*items + *count * size;
    memset(added, 0, size);
    (*count)++;
    return added;
}

char *word(struct reader *reader, char **rest) {
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

int64_t next_number(struct reader *reader, char **rest) { return number(reader, word(reader, rest)); }

int64_t number_or(struct reader *reader, char **rest, int64_t otherwise) {
    char *text = word(reader, rest);
    return strcmp(text, "-") == 0 ? otherwise : number(reader, text);
}

char *text_copy(struct reader *reader, const char *rest) {
    if (rest == NULL) fail(reader, "a text is missing");
    return strdup(rest);
}

/* "a:b a:b ..." into two arrays of the same length. */
static size_t read_pairs(struct reader *reader, char *rest, int64_t **firsts, int64_t **seconds) {
    size_t count = 0;
    for (char *item; (item = strsep(&rest, " ")) != NULL;) {
        char *second = strchr(item, ':');
        if (second == NULL) fail(reader, "a pair is not moment:value");
        *second++ = '\0';
        size_t same = count;
        *(int64_t *)append((void **)firsts, &same, sizeof(int64_t)) = number(reader, item);
        *(int64_t *)append((void **)seconds, &count, sizeof(int64_t)) = number(reader, second);
    }
    return count;
}

struct steps read_steps(struct reader *reader, char *rest) {
    struct steps steps = {0};
    steps.count = read_pairs(reader, rest, &steps.at_ms, &steps.milli);
    if (steps.count == 0) fail(reader, "no steps");
    steps_sum(&steps);
    return steps;
}

struct recording read_recording(struct reader *reader, char *rest) {
    struct recording recording = {0};
    recording.count = read_pairs(reader, rest, &recording.at_us, &recording.value);
    return recording;
}
