/* What the decoder (_avro.c) and the encoder (_avro_writer.c) of Avro share. */

#ifndef KAFKA_SINK_AVRO_H
#define KAFKA_SINK_AVRO_H

#include "_columns.h"
#include "_kernel.h"

#include <stdlib.h>
#include <string.h>

enum {
    NOTHING, BOOLEAN, INT64, INT32, INT_TO_FLOAT, INT_TO_DOUBLE, ENUM, FLOAT, FLOAT_TO_DOUBLE, DOUBLE,
    BYTES, TEXT, FIXED, DECIMAL, FIXED_DECIMAL, UNION, RECORD, ARRAY, MAP, CONSTANT, KINDS
};

/* A type of a program, with the types within it behind it. `column`: -1 if there is none. `flags`: see below. `a`, `b`:
 * depend on the kind. `children`: how many follow. `end`: the op behind all of them. */
typedef struct {
    int64_t kind, column, flags, a, b, children, end;
} Op;

/* The column has nulls. The bytes are an int's, which has 32 bits. */
#define NULLABLE 1
#define OF_32_BITS 2

#define NUMBERS_OF_OP 7
#define MAX_DEPTH 64
#define MAX_COLUMNS 100000
#define MAX_DIGITS 38
/* Keys of a map are compared with each other up to this many. A map with equal keys is for Python, whose dict has the last
 * value. */
#define MAX_ENTRIES 32

/* NO_ROW: a row outside of its column. */
typedef enum { DONE, REFUSED, NO_MEMORY, NO_ROW } Result;

typedef struct {
    uint8_t *data;
    int64_t size, capacity;
} Growing;

static inline Result grow(Growing *growing, int64_t more)
{
    int64_t capacity = 2 * growing->capacity;
    if (capacity < growing->size + more)
        capacity = growing->size + more;
    if (capacity < 64)
        capacity = 64;
    uint8_t *data = realloc(growing->data, (size_t)capacity);
    if (data == NULL)
        return NO_MEMORY;
    growing->data = data;
    growing->capacity = capacity;
    return DONE;
}

static inline Result put_bytes(Growing *growing, const void *data, int64_t size)
{
    if (size == 0)
        return DONE;
    if (growing->capacity - growing->size < size && grow(growing, size) != DONE)
        return NO_MEMORY;
    memcpy(growing->data + growing->size, data, (size_t)size);
    growing->size += size;
    return DONE;
}

/* The bytes of a character that is not ASCII (Unicode 16, table 3-7), 0 if it is none. */
static inline int64_t character(const uint8_t *at, int64_t left)
{
    uint8_t first = at[0], low = 0x80, high = 0xBF;
    int64_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || left < size)
        return 0;
    if (first == 0xE0)
        low = 0xA0;
    else if (first == 0xED)
        high = 0x9F;
    else if (first == 0xF0)
        low = 0x90;
    else if (first == 0xF4)
        high = 0x8F;
    if (at[1] < low || at[1] > high)
        return 0;
    for (int64_t i = 2; i < size; i++)
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    return size;
}

static inline int is_utf8(const uint8_t *at, int64_t size)
{
    int64_t done = 0;
    while (done < size) {
        uint64_t eight;
        if (size - done >= 8 && (memcpy(&eight, at + done, 8), (eight & 0x8080808080808080u) == 0)) {
            done += 8;
        } else if (at[done] < 0x80) {
            done++;
        } else {
            int64_t more = character(at + done, size - done);
            if (more == 0)
                return 0;
            done += more;
        }
    }
    return 1;
}

#endif
