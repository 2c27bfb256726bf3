/* Arrow's binary columns, as rows to read. Included by the files that read them. */

#ifndef KAFKA_SINK_COLUMNS_H
#define KAFKA_SINK_COLUMNS_H

#include "_kernel.h"

#include <string.h>

static const char OFFSETS_DESCEND[] = "the offsets of a column descend, or leave its data";

/* A binary (width 4) or large_binary (width 8) array: its rows are `first` to `first + count` of the buffers. */
typedef struct {
    Bytes validity; /* no bytes: no nulls */
    Bytes offsets;
    Bytes data;
    int width;
    int64_t first;
    int64_t count;
} Column;

#define COLUMN_BUFFERS 3

static inline int hold_column(Held *held, PyObject *tuple, Column *column)
{
    PyObject *validity, *offsets, *data;
    long long first, count;
    if (!PyTuple_Check(tuple))
        return refuse(PyExc_TypeError, "a column is a tuple of validity, offsets, data, width, first, count");
    if (!PyArg_ParseTuple(tuple, "OOOiLL:column", &validity, &offsets, &data, &column->width, &first, &count))
        return 0;
    if (!hold_bytes(held, validity, PyBUF_SIMPLE, &column->validity) ||
        !hold_bytes(held, offsets, PyBUF_SIMPLE, &column->offsets) ||
        !hold_bytes(held, data, PyBUF_SIMPLE, &column->data))
        return 0;
    column->first = first;
    column->count = count;
    if (column->width != 4 && column->width != 8)
        return refuse(PyExc_ValueError, "the offsets of a column are 4 or 8 bytes wide");
    /* n rows have n + 1 offsets. An array without rows may have no offsets. Each comparison is with the rest of the
     * buffer, so that no sum can overflow. */
    int64_t offset_count = column->offsets.size / column->width;
    if (first < 0 || count < 0 || (count > 0 && (first >= offset_count || count > offset_count - 1 - first)))
        return refuse(PyExc_ValueError, "a column has more rows than its offsets");
    if (count > 0 && validity != Py_None && (first + count - 1) / 8 >= column->validity.size)
        return refuse(PyExc_ValueError, "a column has more rows than its validity bitmap");
    return 1;
}

static inline int64_t offset_at(const Column *column, int64_t index)
{
    if (column->width == 4) {
        int32_t narrow;
        memcpy(&narrow, column->offsets.data + 4 * index, 4);
        return narrow;
    }
    int64_t wide;
    memcpy(&wide, column->offsets.data + 8 * index, 8);
    return wide;
}

/* One key or value. A null has the length -1. */
typedef struct {
    const uint8_t *data;
    int64_t length;
} Field;

static const Field NULL_FIELD = {NO_BYTES, -1};

/* The bytes of row `row`, 0 <= row < count, also if it is null. */
static inline Error bytes_at(const Column *column, int64_t row, Field *field)
{
    int64_t start = offset_at(column, column->first + row), end = offset_at(column, column->first + row + 1);
    if (start < 0 || end < start || end > column->data.size)
        return OFFSETS_DESCEND;
    field->data = column->data.data + start;
    field->length = end - start;
    return NULL;
}

static inline Error field_at(const Column *column, int64_t row, Field *field)
{
    int64_t bit = column->first + row;
    if (column->validity.size > 0 && !(column->validity.data[bit / 8] >> (bit % 8) & 1)) {
        *field = NULL_FIELD;
        return NULL;
    }
    return bytes_at(column, row, field);
}

#endif
