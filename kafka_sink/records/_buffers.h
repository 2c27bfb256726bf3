/* The memory that a call of the kernel reads and writes, held by the buffer protocol.
 *
 * Each `hold` function returns 0 with an exception set if the object is not what is expected. */

#ifndef KAFKA_SINK_BUFFERS_H
#define KAFKA_SINK_BUFFERS_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

#include <stdint.h>

/* An error message for a ValueError; NULL: no error. */
typedef const char *Error;

/* All buffers of one call, released together. Py_buffers are never moved, because some point into themselves. */
typedef struct {
    Py_buffer *views;
    Py_ssize_t count;
    Py_ssize_t capacity;
} Held;

extern const uint8_t NO_BYTES[1];

typedef struct {
    uint8_t *data; /* never NULL */
    int64_t size;
} Bytes;

typedef struct {
    int64_t *items;
    int64_t count;
} Int64s;

/* Whatever follows, `release` must be called after a success. */
int hold_up_to(Held *held, Py_ssize_t capacity);

void release(Held *held);

/* Any contiguous memory, as bytes. None means no bytes. */
int hold_bytes(Held *held, PyObject *object, int flags, Bytes *bytes);

/* An aligned array of native signed integers of `itemsize` bytes. */
int hold_integers(Held *held, PyObject *object, int writable, Py_ssize_t itemsize, void **data, int64_t *count);

int hold_int64s(Held *held, PyObject *object, int writable, Int64s *array);

/* As above, with exactly `count` numbers. */
int hold_int64s_of(Held *held, PyObject *object, int writable, int64_t count, int64_t **items);

/* What a function returns to Python: None, or NULL with a ValueError. */
PyObject *none_or(Error error);

#endif
