/* What the files of the kernel have of each other. */

#ifndef KAFKA_SINK_KERNEL_H
#define KAFKA_SINK_KERNEL_H

#define PY_SSIZE_T_CLEAN
#include <pyconfig.h>
#if !defined(Py_LIMITED_API) && !defined(Py_GIL_DISABLED)
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

#include <stdint.h>

/* --- memory (_buffers.c) ----------------------------------------------------------------------------------------- */

/* The buffer protocol holds the memory that a call reads and writes. Each `hold` function returns 0 with an exception
 * set if the object is not what is expected. */

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

/* Sets an exception and returns 0, as each `hold` function does that is not given what it expects. */
int refuse(PyObject *kind, const char *why);

/* What a function returns to Python: None, or NULL with a ValueError. */
PyObject *none_or(Error error);


/* --- CRC-32C (Castagnoli), by the processor's instruction where there is one (_crc32c.c) ------------------------- */

/* Must be called before the functions below. Calling it again does no harm. */
void make_powers(void);

/* True if the processor has the instructions. Without them, `extend_crc` is slow. */
int has_crc32c(void);

/* The CRC of bytes with the CRC `crc`, followed by `size` more bytes. */
uint32_t extend_crc(uint32_t crc, const uint8_t *at, int64_t size);

/* The CRC of bytes with the CRC `first`, followed by `size` < 2^31 bytes with the CRC `second`. */
uint32_t join_crcs(uint32_t first, uint32_t second, uint32_t size);


/* --- where the fields of a record batch's header are (record_batch.py) ------------------------------------------- */

#define HEADER_BYTES 61
#define LENGTH_END 12
#define CRC_OFFSET 17
#define CRC_END 21
#define MAGIC 2


/* --- record batches to Arrow columns (_decoder.c) ---------------------------------------------------------------- */

extern const char scan_batches_doc[], measure_records_doc[], fill_columns_doc[];

PyObject *kernel_scan_batches(PyObject *module, PyObject *args);
PyObject *kernel_measure_records(PyObject *module, PyObject *args);
PyObject *kernel_fill_columns(PyObject *module, PyObject *args);


/* --- records of Avro to Arrow columns (_avro.c), and back (_avro_writer.c) ---------------------------------------- */

extern const char decode_avro_doc[], encode_avro_doc[];

PyObject *kernel_decode_avro(PyObject *module, PyObject *args);
PyObject *kernel_encode_avro(PyObject *module, PyObject *args);

#endif
