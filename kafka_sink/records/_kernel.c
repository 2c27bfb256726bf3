/* The work per row, compiled: hashes of the keys, order by destination, sizes, records, fingerprint.
 *
 * The Python side is compiled.py, which describes the arguments. fallback/ and key_hashes.py have the same functions
 * without a compiler. Both yield the same bytes.
 *
 * Built with CPython's limited API, so that one binary serves every Python from 3.11 on, except free-threaded ones.
 * Memory is passed in and out only through the buffer protocol. The GIL is released while rows are processed, and no
 * state is shared but constants that each import sets to the same values: nothing here needs the GIL.
 *
 * No input is trusted. Each Arrow offset, row number, position and length is checked against its buffer just before
 * use, in 64-bit arithmetic that cannot overflow. A wrong one raises ValueError; the output buffers are then undefined.
 * Arrow buffers may be unaligned and are read bytewise (with memcpy, which compilers turn into a load). numpy's buffers
 * must be aligned.
 */

#include "_columns.h"
#include "_kernel.h"

#include <string.h>

static const char ROW_OUTSIDE[] = "a row number lies outside its column";
static const char HEADERS_OUTSIDE[] = "the headers of a row descend, or leave the header columns";
static const char HEADERS_CHANGED[] = "a header changed while it was written";
static const char RUN_OUTSIDE[] = "a run of rows descends, or leaves the order";
static const char PLACE_OUTSIDE[] = "a place is negative, or there are fewer";
static const char POSITION_OUTSIDE[] = "a batch's end lies outside its buffer, or that outside the memory";
static const char TOO_MANY_RECORDS[] = "a batch would have more than 2^31 - 1 records";
static const char RECORD_TOO_LARGE[] = "a record would be larger than 2^31 - 1 bytes";
static const char DESTINATION_OUTSIDE[] = "a destination is negative, or there are fewer";


/* --- columns of rows ---------------------------------------------------------------------------------------- */

/* Row i has the header entries row_offsets[i] to row_offsets[i + 1]. */
typedef struct {
    Column value;
    Column key;
    int has_key;
    const int64_t *row_offsets; /* NULL: no headers */
    Column header_key;
    Column header_value;
} Columns;

#define COLUMNS_BUFFERS (4 * COLUMN_BUFFERS + 1)

static int hold_columns(Held *held, PyObject *value, PyObject *key, PyObject *headers, Columns *columns)
{
    if (!hold_column(held, value, &columns->value))
        return 0;
    columns->has_key = key != Py_None;
    if (columns->has_key) {
        if (!hold_column(held, key, &columns->key))
            return 0;
        if (columns->key.count != columns->value.count)
            return refuse(PyExc_ValueError, "keys and values differ in number");
    }
    columns->row_offsets = NULL;
    if (headers != Py_None) {
        PyObject *row_offsets, *header_key, *header_value;
        int64_t *items;
        if (!PyTuple_Check(headers))
            return refuse(PyExc_TypeError, "headers are a tuple of row offsets, keys, values");
        if (!PyArg_ParseTuple(headers, "OOO:headers", &row_offsets, &header_key, &header_value) ||
            !hold_int64s_of(held, row_offsets, 0, columns->value.count + 1, &items) ||
            !hold_column(held, header_key, &columns->header_key) ||
            !hold_column(held, header_value, &columns->header_value))
            return 0;
        if (columns->header_key.count != columns->header_value.count)
            return refuse(PyExc_ValueError, "header keys and header values differ in number");
        columns->row_offsets = items;
    }
    return 1;
}


/* --- records ------------------------------------------------------------------------------------------------ */

/* Zig-zag varints (record_size.py). Differences wrap around, as in numpy. */
static inline uint64_t zigzag(int64_t value)
{
    return ((uint64_t)value << 1) ^ (value < 0 ? UINT64_MAX : 0);
}

static inline int64_t varint_size(int64_t value)
{
    /* ceil(bits / 7) for 1 to 64 bits, without a division. */
    int bits = 64 - __builtin_clzll(zigzag(value) | 1);
    return (bits * 9 + 64) >> 6;
}

static inline int64_t difference(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

static inline int64_t clamp(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

static inline uint8_t *put_varint(uint8_t *at, int64_t value)
{
    uint64_t rest = zigzag(value);
    while (rest > 0x7F) {
        *at++ = (uint8_t)(rest | 0x80);
        rest >>= 7;
    }
    *at++ = (uint8_t)rest;
    return at;
}

static inline int64_t field_size(const Field *field)
{
    return varint_size(field->length) + (field->length > 0 ? field->length : 0);
}

/* `at` must have `field_size` free bytes. A short field is copied as 16 bytes if both sides have that much room: this
 * takes two instructions, while a call of memcpy takes twenty. */
static inline uint8_t *put_field(uint8_t *at, const uint8_t *room_end, const Field *field, const Bytes *source)
{
    at = put_varint(at, field->length);
    if (field->length <= 0)
        return at;
    if (field->length <= 16 && room_end - at >= 16 && source->data + source->size - field->data >= 16)
        memcpy(at, field->data, 16);
    else
        memcpy(at, field->data, (size_t)field->length);
    return at + field->length;
}

typedef struct {
    Field key;
    Field value;
    int64_t first_header;
    int64_t end_header;
    int64_t payload; /* bytes of the record without its length and its two deltas (record_size.py) */
} Row;

static Error read_headers(const Columns *columns, int64_t row, Row *found)
{
    int64_t first = columns->row_offsets[row], end = columns->row_offsets[row + 1];
    if (first < 0 || end < first || end > columns->header_key.count)
        return HEADERS_OUTSIDE;
    found->first_header = first;
    found->end_header = end;
    found->payload += varint_size(end - first);
    for (int64_t entry = first; entry < end; entry++) {
        Field key, value;
        Error error;
        if ((error = field_at(&columns->header_key, entry, &key)) ||
            (error = field_at(&columns->header_value, entry, &value)))
            return error;
        found->payload += field_size(&key) + field_size(&value);
    }
    return NULL;
}

static inline Error read_row(const Columns *columns, int64_t row, Row *found)
{
    Error error;
    if (row < 0 || row >= columns->value.count)
        return ROW_OUTSIDE;
    if ((error = field_at(&columns->value, row, &found->value)))
        return error;
    found->key = NULL_FIELD;
    if (columns->has_key && (error = field_at(&columns->key, row, &found->key)))
        return error;
    found->payload = 1 + field_size(&found->key) + field_size(&found->value); /* 1: attributes */
    if (columns->row_offsets != NULL)
        return read_headers(columns, row, found);
    found->first_header = found->end_header = 0;
    found->payload += 1; /* the count, 0 */
    return NULL;
}

static Error put_headers(uint8_t *at, const uint8_t *record_end, const Columns *columns, const Row *row)
{
    for (int64_t entry = row->first_header; entry < row->end_header; entry++) {
        Field key, value;
        Error error;
        if ((error = field_at(&columns->header_key, entry, &key)) ||
            (error = field_at(&columns->header_value, entry, &value)))
            return error;
        if (field_size(&key) + field_size(&value) > record_end - at)
            return HEADERS_CHANGED;
        at = put_field(at, record_end, &key, &columns->header_key.data);
        at = put_field(at, record_end, &value, &columns->header_value.data);
    }
    return NULL;
}

/* The record with its length `body`, which fits between `at` and `room_end`. */
static inline Error put_record(uint8_t *at, const uint8_t *room_end, const Columns *columns, const Row *row,
                               int64_t body, int64_t timestamp_delta, int64_t offset_delta)
{
    at = put_varint(at, body);
    const uint8_t *record_end = at + body;
    *at++ = 0; /* attributes */
    at = put_varint(at, timestamp_delta);
    at = put_varint(at, offset_delta);
    at = put_field(at, room_end, &row->key, &columns->key.data);
    at = put_field(at, room_end, &row->value, &columns->value.data);
    at = put_varint(at, row->end_header - row->first_header);
    if (row->first_header == row->end_header)
        return NULL;
    return put_headers(at, record_end, columns, row);
}

/* With many destinations, the rows of one destination are far apart in their column, and the end of its batch was last
 * touched one Arrow batch ago. The processor sees no pattern in either. A record takes so many instructions that only
 * one or two cache misses are in flight. So this code prefetches values ROWS_AHEAD rows ahead, and the ends of batches
 * BATCHES_AHEAD batches ahead. In values and runs longer than the limits below, cache lines follow each other, which
 * the processor detects itself. A prefetch is a guess and may be wrong: invalid input is ignored here and checked
 * later.
 *
 * gcc considers a function that only prefetches to have no effect, and drops its calls. So always inline. */
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define LINE_BYTES 64
#define ROWS_AHEAD 16
#define BATCHES_AHEAD 4
#define LONG_VALUE_BYTES 512
#define LONG_RUN_BYTES 1024

/* `position` >= 0, in wire order. */
static ALWAYS_INLINE void prefetch_value(const Column *values, const Int64s *order, int64_t position)
{
    if (position >= order->count)
        return;
    int64_t row = order->items[position];
    Field value;
    if (row < 0 || row >= values->count || bytes_at(values, row, &value) || value.length > LONG_VALUE_BYTES)
        return;
    uintptr_t end = (uintptr_t)value.data + (uintptr_t)value.length;
    for (uintptr_t line = (uintptr_t)value.data & -(uintptr_t)LINE_BYTES; line < end; line += LINE_BYTES)
        __builtin_prefetch((const void *)line);
}

/* One open batch, and the run of rows (in wire order) to append. Its records end at `end` of the memory and may grow to
 * `limit`. */
typedef struct {
    uint8_t *memory;
    int64_t limit;
    int64_t end;
    int64_t record_count;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t next_row;
    int64_t end_row;
    int sums;       /* true if a CRC is requested */
    int64_t summed; /* the end of the records that `crc` covers */
    uint32_t crc;
} Batch;

/* Records are summed in pieces of this size, while they are in the first-level cache. */
#define SUMMED_BYTES 8192

static inline void sum_records(Batch *batch)
{
    if (batch->sums)
        batch->crc = extend_crc(batch->crc, batch->memory + batch->summed, batch->end - batch->summed);
    batch->summed = batch->end;
}

static Error fill_batch(const Columns *columns, const Int64s *order, const int64_t *timestamp_ms, Batch *batch)
{
    if (batch->next_row < 0 || batch->end_row < batch->next_row || batch->end_row > order->count)
        return RUN_OUTSIDE;
    if (batch->record_count < 0)
        return TOO_MANY_RECORDS;
    for (; batch->next_row < batch->end_row; batch->next_row++) {
        Row row;
        prefetch_value(&columns->value, order, batch->next_row + ROWS_AHEAD);
        int64_t row_number = order->items[batch->next_row];
        Error error = read_row(columns, row_number, &row);
        if (error)
            return error;
        int64_t timestamp = timestamp_ms[row_number];
        int64_t timestamp_delta = difference(timestamp, batch->base_timestamp), offset_delta = batch->record_count;
        int64_t body = row.payload + varint_size(timestamp_delta) + varint_size(offset_delta);
        int64_t record = varint_size(body) + body;
        if (record > batch->limit - batch->end)
            return NULL;
        if (body > INT32_MAX)
            return RECORD_TOO_LARGE;
        if (offset_delta >= INT32_MAX)
            return TOO_MANY_RECORDS;
        error = put_record(batch->memory + batch->end, batch->memory + batch->limit, columns, &row, body,
                           timestamp_delta, offset_delta);
        if (error)
            return error;
        batch->end += record;
        if (batch->end - batch->summed >= SUMMED_BYTES)
            sum_records(batch);
        batch->record_count++;
        if (timestamp > batch->max_timestamp)
            batch->max_timestamp = timestamp;
    }
    return NULL;
}


/* --- what Python calls -------------------------------------------------------------------------------------- */

PyDoc_STRVAR(fill_doc,
             "fill(value, key, headers, order, timestamp_ms, places, next_row, end_row, memory, base_timestamp, end, "
             "limit, record_count, max_timestamp, records_crc)\n\nWrites into the batch of each of `places` as many "
             "rows of its run as fit, and moves next_row, end, record_count, max_timestamp and, unless it is None, "
             "records_crc accordingly.");

/* Open batches are places of arrays, and so are their runs of rows: run p of `order` goes into batch p. Only the
 * places in `places` are used. */
typedef struct {
    Columns columns;
    Int64s order;
    int64_t *timestamp_ms;
    Int64s places;
    Int64s next_row;
    int64_t *end_row, *base_timestamp, *end, *limit, *record_count, *max_timestamp;
    int64_t *records_crc; /* NULL: no CRC requested */
    Bytes memory;
} Fill;

/* The approximate bytes of a record: the mean value length, plus a short key and numbers. */
static int64_t guess_record_bytes(const Column *values)
{
    if (values->count == 0)
        return 0;
    int64_t bytes = difference(offset_at(values, values->first + values->count), offset_at(values, values->first));
    return clamp(bytes / values->count, 0, LONG_RUN_BYTES) + 20;
}

static ALWAYS_INLINE void prefetch_batch(const Fill *fill, int64_t place, int64_t record_bytes)
{
    if (place < 0 || place >= fill->next_row.count)
        return;
    int64_t end = fill->end[place], limit = fill->limit[place];
    if (end < 0 || limit < end || limit > fill->memory.size)
        return;
    int64_t rows = clamp(difference(fill->end_row[place], fill->next_row.items[place]), 0, LONG_RUN_BYTES);
    int64_t bytes = clamp(rows * record_bytes, 0, limit - end < LONG_RUN_BYTES ? limit - end : LONG_RUN_BYTES);
    for (int64_t i = 0; i < bytes; i += LINE_BYTES)
        __builtin_prefetch(fill->memory.data + end + i, 1);
}

static Error fill_place(const Fill *fill, int64_t place)
{
    if (place < 0 || place >= fill->next_row.count)
        return PLACE_OUTSIDE;
    int64_t end = fill->end[place], limit = fill->limit[place];
    if (end < 0 || limit < end || limit > fill->memory.size)
        return POSITION_OUTSIDE;
    Batch batch = {
        .memory = fill->memory.data,
        .limit = limit,
        .end = end,
        .record_count = fill->record_count[place],
        .base_timestamp = fill->base_timestamp[place],
        .max_timestamp = fill->max_timestamp[place],
        .next_row = fill->next_row.items[place],
        .end_row = fill->end_row[place],
        .sums = fill->records_crc != NULL,
        .summed = end,
        .crc = fill->records_crc != NULL ? (uint32_t)fill->records_crc[place] : 0,
    };
    Error error = fill_batch(&fill->columns, &fill->order, fill->timestamp_ms, &batch);
    if (error)
        return error;
    if (batch.sums) {
        sum_records(&batch);
        fill->records_crc[place] = batch.crc;
    }
    fill->end[place] = batch.end;
    fill->record_count[place] = batch.record_count;
    fill->max_timestamp[place] = batch.max_timestamp;
    fill->next_row.items[place] = batch.next_row;
    return NULL;
}

static Error fill_all(const Fill *fill)
{
    int64_t record_bytes = guess_record_bytes(&fill->columns.value);
    for (int64_t i = 0; i < fill->places.count; i++) {
        if (i + BATCHES_AHEAD < fill->places.count)
            prefetch_batch(fill, fill->places.items[i + BATCHES_AHEAD], record_bytes);
        Error error = fill_place(fill, fill->places.items[i]);
        if (error)
            return error;
    }
    return NULL;
}

static PyObject *kernel_fill(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *value, *key, *headers, *order, *timestamp_ms, *places, *next_row, *end_row, *memory, *base_timestamp,
        *end, *limit, *record_count, *max_timestamp, *records_crc;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOOOOOO:fill", &value, &key, &headers, &order, &timestamp_ms, &places,
                          &next_row, &end_row, &memory, &base_timestamp, &end, &limit, &record_count, &max_timestamp,
                          &records_crc))
        return NULL;
    Held held;
    Fill fill = {.records_crc = NULL};
    if (!hold_up_to(&held, COLUMNS_BUFFERS + 12))
        return NULL;
    PyObject *result = NULL;
    if (hold_columns(&held, value, key, headers, &fill.columns) && hold_int64s(&held, order, 0, &fill.order) &&
        hold_int64s_of(&held, timestamp_ms, 0, fill.columns.value.count, &fill.timestamp_ms) &&
        hold_int64s(&held, places, 0, &fill.places) && hold_int64s(&held, next_row, 1, &fill.next_row) &&
        hold_int64s_of(&held, end_row, 0, fill.next_row.count, &fill.end_row) &&
        hold_int64s_of(&held, base_timestamp, 0, fill.next_row.count, &fill.base_timestamp) &&
        hold_int64s_of(&held, end, 1, fill.next_row.count, &fill.end) &&
        hold_int64s_of(&held, limit, 0, fill.next_row.count, &fill.limit) &&
        hold_int64s_of(&held, record_count, 1, fill.next_row.count, &fill.record_count) &&
        hold_int64s_of(&held, max_timestamp, 1, fill.next_row.count, &fill.max_timestamp) &&
        (records_crc == Py_None || hold_int64s_of(&held, records_crc, 1, fill.next_row.count, &fill.records_crc)) &&
        hold_bytes(&held, memory, PyBUF_WRITABLE, &fill.memory)) {
        Error error;
        Py_BEGIN_ALLOW_THREADS
        error = fill_all(&fill);
        Py_END_ALLOW_THREADS
        result = none_or(error);
    }
    release(&held);
    return result;
}

PyDoc_STRVAR(write_header_doc,
             "write_header(batch, records_crc, attributes, base_timestamp, max_timestamp, producer_id, producer_epoch, "
             "base_sequence, record_count)\n\nWrites the first 61 bytes of a record batch whose records lie behind, and "
             "have the CRC `records_crc`; they are read where that is None.");

#define NO_PARTITION_LEADER_EPOCH (-1)

static uint8_t *put_big_endian(uint8_t *at, int64_t number, int bytes)
{
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
        *at++ = (uint8_t)((uint64_t)number >> shift);
    return at;
}

/* The arguments after batch and CRC. */
enum { ATTRIBUTES, BASE_TIMESTAMP, MAX_TIMESTAMP, PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE, RECORD_COUNT };
#define HEADER_NUMBERS (RECORD_COUNT + 1)

static void put_header(uint8_t *batch, int64_t size, const uint32_t *records_crc, const int64_t *numbers)
{
    uint8_t *at = put_big_endian(batch, 0, 8); /* base offset: the broker assigns it */
    at = put_big_endian(at, size - LENGTH_END, 4);
    at = put_big_endian(at, NO_PARTITION_LEADER_EPOCH, 4);
    at = put_big_endian(at, MAGIC, 1) + CRC_END - CRC_OFFSET;
    at = put_big_endian(at, numbers[ATTRIBUTES], 2);
    at = put_big_endian(at, difference(numbers[RECORD_COUNT], 1), 4); /* last offset delta */
    at = put_big_endian(at, numbers[BASE_TIMESTAMP], 8);
    at = put_big_endian(at, numbers[MAX_TIMESTAMP], 8);
    at = put_big_endian(at, numbers[PRODUCER_ID], 8);
    at = put_big_endian(at, numbers[PRODUCER_EPOCH], 2);
    at = put_big_endian(at, numbers[BASE_SEQUENCE], 4);
    put_big_endian(at, numbers[RECORD_COUNT], 4);
    uint32_t crc = extend_crc(0, batch + CRC_END, HEADER_BYTES - CRC_END);
    if (records_crc == NULL)
        crc = extend_crc(crc, batch + HEADER_BYTES, size - HEADER_BYTES);
    else
        crc = join_crcs(crc, *records_crc, (uint32_t)(size - HEADER_BYTES));
    put_big_endian(batch + CRC_OFFSET, crc, 4);
}

static PyObject *kernel_write_header(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    int64_t numbers[HEADER_NUMBERS];
    if (count != 2 + HEADER_NUMBERS) {
        PyErr_SetString(PyExc_TypeError, "write_header takes a batch, a CRC and 7 numbers");
        return NULL;
    }
    uint32_t crc = 0;
    if (args[1] != Py_None) {
        crc = (uint32_t)PyLong_AsUnsignedLong(args[1]);
        if (PyErr_Occurred())
            return NULL;
    }
    for (Py_ssize_t i = 0; i < HEADER_NUMBERS; i++) {
        numbers[i] = PyLong_AsLongLong(args[2 + i]);
        if (numbers[i] == -1 && PyErr_Occurred())
            return NULL;
    }
    Py_buffer batch;
    if (PyObject_GetBuffer(args[0], &batch, PyBUF_WRITABLE) < 0)
        return NULL;
    if (batch.len < HEADER_BYTES || batch.len > INT32_MAX)
        PyErr_SetString(PyExc_ValueError, "a record batch has 61 bytes or more, and fewer than 2^31");
    else
        put_header(batch.buf, batch.len, args[1] == Py_None ? NULL : &crc, numbers);
    PyBuffer_Release(&batch);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(payload_sizes_doc,
             "payload_sizes(value, key, headers, sizes)\n\nWrites each row's bytes but its length and deltas.");

static ALWAYS_INLINE Error add_fields(const Column *column, int64_t *sizes)
{
    for (int64_t i = 0; i < column->count; i++) {
        Field field;
        Error error = field_at(column, i, &field);
        if (error)
            return error;
        sizes[i] += field_size(&field);
    }
    return NULL;
}

static Error add_field_sizes(const Column *column, int64_t *sizes)
{
    /* Nearly all columns are like this. With constants, the compiler omits the checks in each row. */
    if (column->width == 4 && column->validity.size == 0) {
        const Column plain = {.offsets = column->offsets,
                              .data = column->data,
                              .width = 4,
                              .first = column->first,
                              .count = column->count};
        return add_fields(&plain, sizes);
    }
    return add_fields(column, sizes);
}

static Error add_header_sizes(const Columns *columns, int64_t *sizes)
{
    for (int64_t i = 0; i < columns->value.count; i++) {
        Row row = {.payload = 0};
        Error error = read_headers(columns, i, &row);
        if (error)
            return error;
        sizes[i] += row.payload;
    }
    return NULL;
}

static Error size_all(const Columns *columns, int64_t *sizes)
{
    Error error;
    /* The attributes, plus one byte for a null key and one for a header count of 0, if no row has a key or headers. */
    int64_t constant = 1 + !columns->has_key + (columns->row_offsets == NULL);
    for (int64_t i = 0; i < columns->value.count; i++)
        sizes[i] = constant;
    if ((error = add_field_sizes(&columns->value, sizes)) ||
        (columns->has_key && (error = add_field_sizes(&columns->key, sizes))) ||
        (columns->row_offsets != NULL && (error = add_header_sizes(columns, sizes))))
        return error;
    return NULL;
}

static PyObject *kernel_payload_sizes(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *value, *key, *headers, *out;
    if (!PyArg_ParseTuple(args, "OOOO:payload_sizes", &value, &key, &headers, &out))
        return NULL;
    Held held;
    if (!hold_up_to(&held, COLUMNS_BUFFERS + 1))
        return NULL;
    PyObject *result = NULL;
    Columns columns;
    int64_t *sizes;
    if (hold_columns(&held, value, key, headers, &columns) &&
        hold_int64s_of(&held, out, 1, columns.value.count, &sizes)) {
        Error error;
        Py_BEGIN_ALLOW_THREADS
        error = size_all(&columns, sizes);
        Py_END_ALLOW_THREADS
        result = none_or(error);
    }
    release(&held);
    return result;
}

PyDoc_STRVAR(murmur2_doc, "murmur2(keys, hashes)\n\nWrites the hash of each key; a null's means nothing.");

static inline uint32_t little_endian_32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Kafka's Utils.murmur2 (key_hashes.py). */
static inline uint32_t murmur2(const uint8_t *at, int64_t length)
{
    const uint32_t m = 0x5BD1E995;
    uint32_t hash = 0x9747B28C ^ (uint32_t)length;
    for (; length >= 4; at += 4, length -= 4) {
        uint32_t k = little_endian_32(at) * m;
        k = (k ^ k >> 24) * m;
        hash = hash * m ^ k;
    }
    if (length > 0) {
        if (length == 3)
            hash ^= (uint32_t)at[2] << 16;
        if (length >= 2)
            hash ^= (uint32_t)at[1] << 8;
        hash = (hash ^ at[0]) * m;
    }
    hash = (hash ^ hash >> 13) * m;
    return hash ^ hash >> 15;
}

static Error hash_all(const Column *keys, int32_t *hashes)
{
    for (int64_t i = 0; i < keys->count; i++) {
        Field key;
        Error error = bytes_at(keys, i, &key);
        if (error)
            return error;
        hashes[i] = (int32_t)murmur2(key.data, key.length);
    }
    return NULL;
}

static PyObject *kernel_murmur2(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *column, *out;
    if (!PyArg_ParseTuple(args, "OO:murmur2", &column, &out))
        return NULL;
    Held held;
    if (!hold_up_to(&held, COLUMN_BUFFERS + 1))
        return NULL;
    PyObject *result = NULL;
    Column keys;
    void *hashes;
    int64_t count;
    if (hold_column(&held, column, &keys) && hold_integers(&held, out, 1, 4, &hashes, &count)) {
        Error error = "there are not as many hashes as keys";
        Py_BEGIN_ALLOW_THREADS
        if (count == keys.count)
            error = hash_all(&keys, hashes);
        Py_END_ALLOW_THREADS
        result = none_or(error);
    }
    release(&held);
    return result;
}

PyDoc_STRVAR(wire_order_doc,
             "wire_order(destination, order, counts)\n\nWrites how many rows each destination has, and the rows "
             "sorted by destination, their order kept.");

/* `next` is scratch space for as many numbers as `counts`. */
static Error sort_by_destination(const Int64s *destination, int64_t *order, const Int64s *counts, int64_t *next)
{
    memset(counts->items, 0, (size_t)counts->count * sizeof(int64_t));
    for (int64_t row = 0; row < destination->count; row++) {
        int64_t to = destination->items[row];
        if (to < 0 || to >= counts->count)
            return DESTINATION_OUTSIDE;
        counts->items[to]++;
    }
    int64_t start = 0;
    for (int64_t to = 0; to < counts->count; to++) {
        next[to] = start;
        start += counts->items[to];
    }
    for (int64_t row = 0; row < destination->count; row++) {
        int64_t to = destination->items[row];
        if (to < 0 || to >= counts->count || next[to] >= destination->count)
            return DESTINATION_OUTSIDE; /* it changed since the first loop */
        order[next[to]++] = row;
    }
    return NULL;
}

static PyObject *kernel_wire_order(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *destination_object, *order_object, *counts_object;
    if (!PyArg_ParseTuple(args, "OOO:wire_order", &destination_object, &order_object, &counts_object))
        return NULL;
    Held held;
    if (!hold_up_to(&held, 3))
        return NULL;
    PyObject *result = NULL;
    Int64s destination, counts;
    int64_t *order;
    if (hold_int64s(&held, destination_object, 0, &destination) &&
        hold_int64s_of(&held, order_object, 1, destination.count, &order) &&
        hold_int64s(&held, counts_object, 1, &counts)) {
        int64_t *next = PyMem_Calloc((size_t)counts.count, sizeof(int64_t));
        if (next == NULL) {
            PyErr_NoMemory();
        } else {
            Error error;
            Py_BEGIN_ALLOW_THREADS
            error = sort_by_destination(&destination, order, &counts, next);
            Py_END_ALLOW_THREADS
            PyMem_Free(next);
            result = none_or(error);
        }
    }
    release(&held);
    return result;
}


/* --- fingerprint -------------------------------------------------------------------------------------------- */

__extension__ typedef unsigned __int128 uint128_t;

/* The state of a row's hash within its message (row_hashes.py): the sum so far, and the keys of the next block. */
typedef struct {
    uint128_t sum;
    const int64_t *key;
    const int64_t *keys; /* KEY_COUNT, then `end` */
    const int64_t *end;
} RowHash;

#define CHUNK_BLOCKS 64
#define KEY_COUNT (2 * CHUNK_BLOCKS)
#define PREFETCH_BYTES 2048

static inline uint64_t avalanche(uint64_t h)
{
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD;
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53;
    return h ^ h >> 33;
}

/* MurmurHash3_x64_128's last steps. */
static inline void stir(RowHash *hash)
{
    uint64_t low = (uint64_t)hash->sum, high = (uint64_t)(hash->sum >> 64);
    low += high;
    high += low;
    low = avalanche(low);
    high = avalanche(high);
    low += high;
    high += low;
    hash->sum = (uint128_t)high << 64 | low;
}

/* Add the next block of the message. */
static inline void mix(RowHash *hash, uint64_t first, uint64_t second)
{
    hash->sum += (uint128_t)(first + (uint64_t)hash->key[0]) * (second + (uint64_t)hash->key[1]);
    hash->key += 2;
    if (hash->key == hash->end) {
        stir(hash);
        hash->key = hash->keys;
    }
}

static inline uint64_t little_endian_64(const uint8_t *at)
{
    return (uint64_t)little_endian_32(at) | (uint64_t)little_endian_32(at + 4) << 32;
}

/* The low `count` bytes, 0 <= count <= 8. */
static inline uint64_t low_bytes(uint64_t word, int64_t count)
{
    return count < 8 ? word & ~(UINT64_MAX << 8 * count) : word;
}

/* Add the bytes of a field, padded with zeros to a whole block. The last block is read as 16 bytes if the source has
 * that much, as in put_field. */
static inline void mix_field(RowHash *hash, const Field *field, const Bytes *source)
{
    const uint8_t *at = field->data;
    int64_t left = field->length;
    for (; left >= 16; at += 16, left -= 16) {
        /* Rows are further away than the processor prefetches itself: 1 KiB took 200 ns, and takes 115 ns. The
         * address is computed as a number, because it may lie outside the buffer. */
        __builtin_prefetch((const void *)((uintptr_t)at + PREFETCH_BYTES));
        mix(hash, little_endian_64(at), little_endian_64(at + 8));
    }
    if (left <= 0)
        return;
    uint8_t padded[16] = {0};
    if (source->data + source->size - at < 16)
        at = memcpy(padded, at, (size_t)left);
    mix(hash, low_bytes(little_endian_64(at), left), low_bytes(little_endian_64(at + 8), left > 8 ? left - 8 : 0));
}

static inline void mix_lengths(RowHash *hash, const Field *first, const Field *second)
{
    mix(hash, (uint64_t)first->length, (uint64_t)second->length);
}

typedef struct {
    Columns columns;
    Column topic;
    int has_topic;
    int64_t *partition, *timestamp_ms;
    int64_t *keys;
} Rows;

static Error mix_headers(RowHash *hash, const Columns *columns, int64_t row)
{
    int64_t first = columns->row_offsets[row], end = columns->row_offsets[row + 1];
    if (first < 0 || end < first || end > columns->header_key.count)
        return HEADERS_OUTSIDE;
    for (int64_t entry = first; entry < end; entry++) {
        Field key, value;
        Error error;
        if ((error = field_at(&columns->header_key, entry, &key)) ||
            (error = field_at(&columns->header_value, entry, &value)))
            return error;
        mix_lengths(hash, &key, &value);
        mix_field(hash, &key, &columns->header_key.data);
        mix_field(hash, &value, &columns->header_value.data);
    }
    return NULL;
}

static inline Error hash_row(const Rows *rows, int64_t row, RowHash *hash)
{
    const Columns *columns = &rows->columns;
    Field key = NULL_FIELD, value, topic = NULL_FIELD;
    Error error;
    if ((error = field_at(&columns->value, row, &value)) ||
        (columns->has_key && (error = field_at(&columns->key, row, &key))) ||
        (rows->has_topic && (error = field_at(&rows->topic, row, &topic))))
        return error;
    mix_lengths(hash, &key, &value);
    mix(hash, (uint64_t)rows->partition[row], (uint64_t)rows->timestamp_ms[row]);
    mix_field(hash, &key, &columns->key.data);
    mix_field(hash, &value, &columns->value.data);
    if (topic.length >= 0) {
        mix_lengths(hash, &NULL_FIELD, &topic);
        mix_field(hash, &topic, &rows->topic.data);
    }
    if (columns->row_offsets != NULL && (error = mix_headers(hash, columns, row)))
        return error;
    stir(hash);
    return NULL;
}

static Error sum_hashes(const Rows *rows, int64_t *sums)
{
    uint64_t sum1 = 0, sum2 = 0;
    for (int64_t row = 0; row < rows->columns.value.count; row++) {
        RowHash hash = {.sum = 0, .key = rows->keys, .keys = rows->keys, .end = rows->keys + KEY_COUNT};
        Error error = hash_row(rows, row, &hash);
        if (error)
            return error;
        sum1 += (uint64_t)hash.sum;
        sum2 += (uint64_t)(hash.sum >> 64);
    }
    sums[0] = (int64_t)sum1;
    sums[1] = (int64_t)sum2;
    return NULL;
}

PyDoc_STRVAR(sum_row_hashes_doc,
             "sum_row_hashes(value, key, headers, topic, partition, timestamp_ms, keys, sums)\n\nWrites the sums, modulo "
             "2^64, of both halves of the rows' hashes.");

static int hold_rows(Held *held, PyObject *topic, PyObject *partition, PyObject *timestamp_ms, PyObject *keys,
                     Rows *rows)
{
    int64_t count = rows->columns.value.count;
    rows->has_topic = topic != Py_None;
    if (rows->has_topic) {
        if (!hold_column(held, topic, &rows->topic))
            return 0;
        if (rows->topic.count != count)
            return refuse(PyExc_ValueError, "topics and values differ in number");
    }
    return hold_int64s_of(held, partition, 0, count, &rows->partition) &&
           hold_int64s_of(held, timestamp_ms, 0, count, &rows->timestamp_ms) &&
           hold_int64s_of(held, keys, 0, KEY_COUNT, &rows->keys);
}

static PyObject *kernel_sum_row_hashes(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *value, *key, *headers, *topic, *partition, *timestamp_ms, *keys, *out;
    if (!PyArg_ParseTuple(args, "OOOOOOOO:sum_row_hashes", &value, &key, &headers, &topic, &partition, &timestamp_ms,
                          &keys, &out))
        return NULL;
    Held held;
    if (!hold_up_to(&held, COLUMNS_BUFFERS + COLUMN_BUFFERS + 4))
        return NULL;
    PyObject *result = NULL;
    Rows rows;
    int64_t *sums;
    if (hold_columns(&held, value, key, headers, &rows.columns) &&
        hold_rows(&held, topic, partition, timestamp_ms, keys, &rows) &&
        hold_int64s_of(&held, out, 1, 2, &sums)) {
        Error error;
        Py_BEGIN_ALLOW_THREADS
        error = sum_hashes(&rows, sums);
        Py_END_ALLOW_THREADS
        result = none_or(error);
    }
    release(&held);
    return result;
}


/* --- module -------------------------------------------------------------------------------------------------- */

static PyMethodDef METHODS[] = {
    {"decode_avro", kernel_decode_avro, METH_VARARGS, decode_avro_doc},
    {"encode_avro", kernel_encode_avro, METH_VARARGS, encode_avro_doc},
    {"fill", kernel_fill, METH_VARARGS, fill_doc},
    {"fill_columns", kernel_fill_columns, METH_VARARGS, fill_columns_doc},
    {"measure_records", kernel_measure_records, METH_VARARGS, measure_records_doc},
    {"murmur2", kernel_murmur2, METH_VARARGS, murmur2_doc},
    {"payload_sizes", kernel_payload_sizes, METH_VARARGS, payload_sizes_doc},
    {"scan_batches", kernel_scan_batches, METH_VARARGS, scan_batches_doc},
    {"sum_row_hashes", kernel_sum_row_hashes, METH_VARARGS, sum_row_hashes_doc},
    {"wire_order", kernel_wire_order, METH_VARARGS, wire_order_doc},
    {"write_header", (PyCFunction)(void (*)(void))kernel_write_header, METH_FASTCALL, write_header_doc},
    {NULL, NULL, 0, NULL},
};

static int set_up(PyObject *module)
{
    make_powers();
    return PyModule_AddIntConstant(module, "SUMS_RECORDS", has_crc32c());
}

static PyModuleDef_Slot SLOTS[] = {
    {Py_mod_exec, (void *)set_up},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_kernel",
    .m_doc = "What is done once a row, compiled; see compiled.py.",
    .m_methods = METHODS,
    .m_slots = SLOTS,
};

PyMODINIT_FUNC PyInit__kernel(void);

PyMODINIT_FUNC PyInit__kernel(void)
{
    return PyModuleDef_Init(&MODULE);
}
