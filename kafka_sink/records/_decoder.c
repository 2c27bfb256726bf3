/* Record batches to Arrow columns, in three calls for each Arrow batch. The GIL is released in each.
 *
 *     scan_batches      headers of the batches of a record set, and their CRCs -> a row of a table for each batch
 *     measure_records   rows and bytes of the records of such a table, up to a limit
 *     fill_columns      the same records into Arrow buffers of exactly those sizes
 *
 * batch_table.py describes the table, the totals and the faults. fallback/decoder.py has the same functions
 * without a compiler. Both find the same rows and the same faults.
 *
 * No input is trusted. What a broker may send wrong is a fault, which Python makes an error of. What only a caller can do
 * wrong is a ValueError. Memory may change between two calls, so each call checks every length again just before use.
 */

#include "_kernel.h"

#include <string.h>

static const char NOT_A_TABLE[] = "a table has 11 numbers for each batch, and a state three";
static const char PLACE_OUTSIDE[] = "the records of a batch lie outside their source";
static const char POSITION_OUTSIDE[] = "a position lies outside the record set";
static const char COLUMN_TOO_LARGE[] = "a column has more than 2^31 - 1 bytes";
static const char RECORDS_CHANGED[] = "the records are not those that were measured";

/* --- faults and tables (batch_table.py) --------------------------------------------------------------------- */

typedef enum {
    NO_FAULT,
    OLD_FORMAT,
    UNKNOWN_MAGIC,
    WRONG_SIZE,
    WRONG_CRC,
    WRONG_OFFSETS,
    WRONG_COUNT,
    WRONG_RECORD,
    WRONG_TIMESTAMP,
} Fault;

enum {
    BASE_OFFSET,
    LAST_OFFSET,
    NEXT_OFFSET,
    ATTRIBUTES,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    RECORD_COUNT,
    SOURCE,
    START,
    END,
    TABLE_COLUMNS,
};

enum { STATE_POSITION, STATE_NEXT_OFFSET, STATE_FAULT, STATE_NUMBERS };

enum {
    RECORDS,
    ROWS,
    NULL_KEYS,
    KEY_BYTES,
    NULL_VALUES,
    VALUE_BYTES,
    NULL_HEADERS,
    HEADERS,
    HEADER_KEY_BYTES,
    NULL_HEADER_VALUES,
    HEADER_VALUE_BYTES,
    TOTALS_FAULT,
    FAULT_BATCH,
    TOTALS,
};

#define LOG_APPEND_TIME_BIT 0x08
#define MICROS_PER_MILLI 1000


/* --- batches ------------------------------------------------------------------------------------------------ */

static inline uint64_t big_endian(const uint8_t *at, int bytes)
{
    uint64_t number = 0;
    for (int i = 0; i < bytes; i++)
        number = number << 8 | at[i];
    return number;
}

static inline int64_t int64_at(const uint8_t *at)
{
    return (int64_t)big_endian(at, 8);
}

static inline int32_t int32_at(const uint8_t *at)
{
    return (int32_t)(uint32_t)big_endian(at, 4);
}

/* The header of a whole batch of `size` bytes, 0 <= size < 2^31 + 12, as a row of the table. */
static Fault read_header(const uint8_t *batch, int64_t size, int checks_crc, int64_t *row)
{
    if (checks_crc && extend_crc(0, batch + CRC_END, size - CRC_END) != (uint32_t)big_endian(batch + CRC_OFFSET, 4))
        return WRONG_CRC;
    int64_t base_offset = int64_at(batch), last_offset_delta = int32_at(batch + 23);
    if (base_offset < 0 || last_offset_delta < 0 || base_offset >= INT64_MAX - last_offset_delta)
        return WRONG_OFFSETS;
    int64_t record_count = int32_at(batch + 57);
    if (record_count < 0 || (record_count == 0 && size > HEADER_BYTES))
        return WRONG_COUNT;
    row[BASE_OFFSET] = base_offset;
    row[LAST_OFFSET] = base_offset + last_offset_delta;
    row[NEXT_OFFSET] = base_offset;
    row[ATTRIBUTES] = (int64_t)big_endian(batch + CRC_END, 2);
    row[BASE_TIMESTAMP] = int64_at(batch + 27);
    row[MAX_TIMESTAMP] = int64_at(batch + 35);
    row[PRODUCER_ID] = int64_at(batch + 43);
    row[RECORD_COUNT] = record_count;
    return NO_FAULT;
}

/* The bytes of the batch at `at`, which has `left` bytes behind it; 0: it is cut off. Magic and length are needed to
 * know. */
static Fault batch_size(const uint8_t *at, int64_t left, int64_t *size)
{
    *size = 0;
    if (left < CRC_OFFSET)
        return NO_FAULT;
    uint8_t magic = at[CRC_OFFSET - 1];
    if (magic != MAGIC)
        return magic < MAGIC ? OLD_FORMAT : UNKNOWN_MAGIC;
    int64_t length = int32_at(at + 8);
    if (length < HEADER_BYTES - LENGTH_END)
        return WRONG_SIZE;
    if (length <= left - LENGTH_END)
        *size = length + LENGTH_END;
    return NO_FAULT;
}

typedef struct {
    Bytes records;
    int64_t end_offset;
    int64_t most_bytes;
    int checks_crc;
    int64_t *table;
    int64_t capacity;
} Scan;

/* Whether a batch at `position` begins before `offset`, as far as its header is there. */
static int begins_before(const Bytes *records, int64_t position, int64_t offset)
{
    if (records->size - position < CRC_OFFSET)
        return 0;
    const uint8_t *batch = records->data + position;
    return batch[CRC_OFFSET - 1] == MAGIC && int64_at(batch) < offset;
}

/* The batches that were written into the table. */
static int64_t scan_all(const Scan *scan, int64_t *state)
{
    int64_t count = 0, first = state[STATE_POSITION];
    while (count < scan->capacity && state[STATE_POSITION] - first < scan->most_bytes &&
           state[STATE_NEXT_OFFSET] < scan->end_offset) {
        int64_t position = state[STATE_POSITION], size;
        const uint8_t *batch = scan->records.data + position;
        Fault fault = batch_size(batch, scan->records.size - position, &size);
        int is_cut_off = fault == NO_FAULT && size == 0;
        if (fault == NO_FAULT && !is_cut_off && int64_at(batch) >= scan->end_offset) {
            state[STATE_NEXT_OFFSET] = scan->end_offset;
            break;
        }
        int64_t *row = scan->table + TABLE_COLUMNS * count;
        if (fault == NO_FAULT && !is_cut_off)
            fault = read_header(batch, size, scan->checks_crc, row);
        if (fault == NO_FAULT && begins_before(&scan->records, position, state[STATE_NEXT_OFFSET]))
            fault = WRONG_OFFSETS;
        if (fault != NO_FAULT) {
            state[STATE_FAULT] = fault;
            break;
        }
        if (is_cut_off)
            break;
        row[SOURCE] = 0;
        row[START] = position + HEADER_BYTES;
        row[END] = position + size;
        state[STATE_NEXT_OFFSET] = row[LAST_OFFSET] + 1;
        state[STATE_POSITION] = position + size;
        count++;
    }
    return count;
}

const char scan_batches_doc[] =
    "scan_batches(records, state, end_offset, most_bytes, checks_crc, table)\n--\n\nWrites a row for each whole batch "
    "from the position of `state` on, and moves `state` behind it. Returns the number of rows.";

PyObject *kernel_scan_batches(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *records, *state_object, *table_object;
    long long end_offset, most_bytes;
    int checks_crc;
    if (!PyArg_ParseTuple(args, "OOLLpO:scan_batches", &records, &state_object, &end_offset, &most_bytes, &checks_crc,
                          &table_object))
        return NULL;
    Held held;
    if (!hold_up_to(&held, 3))
        return NULL;
    PyObject *result = NULL;
    Scan scan = {.end_offset = end_offset, .most_bytes = most_bytes, .checks_crc = checks_crc};
    Int64s state, table;
    if (hold_bytes(&held, records, PyBUF_SIMPLE, &scan.records) && hold_int64s(&held, state_object, 1, &state) &&
        hold_int64s(&held, table_object, 1, &table)) {
        scan.table = table.items;
        scan.capacity = table.count / TABLE_COLUMNS;
        if (table.count % TABLE_COLUMNS != 0 || state.count != STATE_NUMBERS) {
            PyErr_SetString(PyExc_ValueError, NOT_A_TABLE);
        } else if (state.items[STATE_POSITION] < 0 || state.items[STATE_POSITION] > scan.records.size) {
            PyErr_SetString(PyExc_ValueError, POSITION_OUTSIDE);
        } else {
            /* A copy, which no other thread changes. */
            int64_t count, now[STATE_NUMBERS];
            memcpy(now, state.items, sizeof now);
            Py_BEGIN_ALLOW_THREADS
            count = scan_all(&scan, now);
            Py_END_ALLOW_THREADS
            memcpy(state.items, now, sizeof now);
            result = PyLong_FromLongLong(count);
        }
    }
    release(&held);
    return result;
}


/* --- records ------------------------------------------------------------------------------------------------ */

#define ALWAYS_INLINE inline __attribute__((always_inline))
#define NEVER_INLINE __attribute__((noinline))
#define VARINT_BYTES 5
#define VARLONG_BYTES 10

/* Where a number ends, NULL if it cannot be read, and what it is. A value and no pointer, so that a record's position
 * stays in a register. */
typedef struct {
    const uint8_t *end;
    uint64_t zigzag;
} Varint;

static NEVER_INLINE Varint long_varint(const uint8_t *at, const uint8_t *end, int most_bytes)
{
    Varint varint = {.end = NULL, .zigzag = 0};
    for (int i = 0; i < most_bytes && at < end; i++, at++) {
        uint64_t bits = *at & 0x7F;
        if (i == VARLONG_BYTES - 1 && bits > 1)
            break;
        varint.zigzag |= bits << 7 * i;
        if (*at < 0x80) {
            if (most_bytes == VARLONG_BYTES || varint.zigzag <= UINT32_MAX)
                varint.end = at + 1;
            break;
        }
    }
    return varint;
}

/* A varint of `most_bytes` at most. Like all functions that read, it returns 0 if that is not there. Nearly all numbers
 * of a record have one byte or two. */
static ALWAYS_INLINE int read_varint(const uint8_t **at, const uint8_t *end, int most_bytes, int64_t *value)
{
    const uint8_t *byte = *at;
    Varint varint;
    if (byte < end && byte[0] < 0x80)
        varint = (Varint){.end = byte + 1, .zigzag = byte[0]};
    else if (end - byte >= 2 && byte[1] < 0x80)
        varint = (Varint){.end = byte + 2, .zigzag = (byte[0] & 0x7Fu) | (uint64_t)byte[1] << 7};
    else if ((varint = long_varint(byte, end, most_bytes)).end == NULL)
        return 0;
    *at = varint.end;
    *value = (int64_t)(varint.zigzag >> 1) ^ -(int64_t)(varint.zigzag & 1);
    return 1;
}

/* Bytes with their length before them. Null has the length -1. */
typedef struct {
    const uint8_t *data;
    int64_t length;
} Field;

static ALWAYS_INLINE int read_field(const uint8_t **at, const uint8_t *end, Field *field)
{
    if (!read_varint(at, end, VARINT_BYTES, &field->length) || field->length < -1 || field->length > end - *at)
        return 0;
    field->data = *at;
    *at += field->length > 0 ? field->length : 0;
    return 1;
}

typedef struct {
    int64_t timestamp_delta;
    int64_t offset_delta;
    Field key;
    Field value;
    int64_t header_count;
    const uint8_t *headers; /* up to `end` */
    const uint8_t *end;
} Record;

/* The record at `at`, without its headers. Moves `at` behind it. */
static ALWAYS_INLINE int read_record(const uint8_t **at, const uint8_t *end, Record *record)
{
    int64_t length;
    if (!read_varint(at, end, VARINT_BYTES, &length) || length < 1 || length > end - *at)
        return 0;
    const uint8_t *next = *at + 1, *record_end = *at + length; /* 1: attributes, which have no meaning yet */
    if (!read_varint(&next, record_end, VARLONG_BYTES, &record->timestamp_delta) ||
        !read_varint(&next, record_end, VARINT_BYTES, &record->offset_delta) ||
        !read_field(&next, record_end, &record->key) || !read_field(&next, record_end, &record->value) ||
        !read_varint(&next, record_end, VARINT_BYTES, &record->header_count) || record->header_count < 0 ||
        (record->header_count == 0 && next != record_end))
        return 0;
    record->headers = next;
    record->end = record_end;
    *at = record_end;
    return 1;
}

static ALWAYS_INLINE int read_header_entry(const uint8_t **at, const uint8_t *end, Field *key, Field *value)
{
    return read_field(at, end, key) && key->length >= 0 && read_field(at, end, value);
}

/* The records of one batch that are left to read. */
typedef struct {
    const uint8_t *source;
    const uint8_t *at;
    const uint8_t *end;
    int64_t left;
    int64_t base_offset, last_offset, next_offset;
    int64_t base_timestamp, max_timestamp;
    int has_append_time;
} Batch;

typedef struct {
    const Bytes *sources;
    int64_t source_count;
    int64_t first_offset, end_offset; /* the range that is wanted */
} Wanted;

static Error open_batch(const Wanted *wanted, const int64_t *row, Batch *batch)
{
    int64_t source = row[SOURCE], start = row[START], end = row[END];
    if (source < 0 || source >= wanted->source_count)
        return PLACE_OUTSIDE;
    const Bytes *bytes = &wanted->sources[source];
    if (start < 0 || end < start || end > bytes->size || row[RECORD_COUNT] < 0)
        return PLACE_OUTSIDE;
    batch->source = bytes->data;
    batch->at = bytes->data + start;
    batch->end = bytes->data + end;
    batch->left = row[RECORD_COUNT];
    batch->base_offset = row[BASE_OFFSET];
    batch->last_offset = row[LAST_OFFSET];
    batch->next_offset = row[NEXT_OFFSET];
    batch->base_timestamp = row[BASE_TIMESTAMP];
    batch->max_timestamp = row[MAX_TIMESTAMP];
    batch->has_append_time = (row[ATTRIBUTES] & LOG_APPEND_TIME_BIT) != 0;
    return NULL;
}

/* The next record, and its offset. Offsets ascend, so a batch gives each at most once. */
static ALWAYS_INLINE Fault next_record(Batch *batch, Record *record, int64_t *offset)
{
    if (batch->at == batch->end)
        return WRONG_COUNT;
    if (!read_record(&batch->at, batch->end, record))
        return WRONG_RECORD;
    if (__builtin_add_overflow(batch->base_offset, record->offset_delta, offset) || *offset < batch->next_offset ||
        *offset > batch->last_offset)
        return WRONG_OFFSETS;
    /* No overflow: scan_batches has checked the last offset. A table that says otherwise wraps around. */
    batch->next_offset = (int64_t)((uint64_t)*offset + 1);
    batch->left--;
    return NO_FAULT;
}

static ALWAYS_INLINE int is_wanted(const Wanted *wanted, int64_t offset)
{
    return offset >= wanted->first_offset && offset < wanted->end_offset;
}

/* Spark's microseconds of Kafka's milliseconds. */
static ALWAYS_INLINE int read_timestamp(const Batch *batch, const Record *record, int64_t *micros)
{
    int64_t millis = batch->max_timestamp;
    if (!batch->has_append_time &&
        __builtin_add_overflow(batch->base_timestamp, record->timestamp_delta, &millis))
        return 0;
    return !__builtin_mul_overflow(millis, (int64_t)MICROS_PER_MILLI, micros);
}

/* All sources of a call: a tuple of buffers, of which a table's SOURCE is a place. */
static int hold_sources(Held *held, PyObject *tuple, Bytes **sources, int64_t *count)
{
    Py_ssize_t size = PyTuple_Size(tuple);
    *sources = PyMem_Calloc((size_t)size + 1, sizeof(Bytes));
    if (*sources == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    *count = size;
    for (Py_ssize_t i = 0; i < size; i++)
        if (!hold_bytes(held, PyTuple_GetItem(tuple, i), PyBUF_SIMPLE, &(*sources)[i]))
            return 0;
    return 1;
}


/* --- measure ------------------------------------------------------------------------------------------------ */

typedef struct {
    Wanted wanted;
    const int64_t *table;
    int64_t batch_count;
    int64_t most_rows;
    int64_t most_bytes;
    int checks_timestamps;
} Measure;

static Fault measure_headers(const Record *record, int64_t *totals)
{
    const uint8_t *at = record->headers;
    for (int64_t i = 0; i < record->header_count; i++) {
        Field key, value;
        if (!read_header_entry(&at, record->end, &key, &value))
            return WRONG_RECORD;
        totals[HEADER_KEY_BYTES] += key.length;
        totals[NULL_HEADER_VALUES] += value.length < 0;
        totals[HEADER_VALUE_BYTES] += value.length < 0 ? 0 : value.length;
    }
    totals[HEADERS] += record->header_count;
    return at == record->end ? NO_FAULT : WRONG_RECORD;
}

/* Adds a batch to the totals. `is_full`: a limit was reached, and the rest of the records is left. */
static Fault measure_batch(const Measure *measure, Batch *batch, int64_t *bytes, int64_t *totals, int *is_full)
{
    while (batch->left > 0) {
        const uint8_t *start = batch->at;
        Record record;
        int64_t offset, micros;
        Fault fault = next_record(batch, &record, &offset);
        if (fault != NO_FAULT)
            return fault;
        if (is_wanted(&measure->wanted, offset)) {
            int64_t size = batch->at - start;
            if (totals[ROWS] >= measure->most_rows || (totals[ROWS] > 0 && size > measure->most_bytes - *bytes)) {
                *is_full = 1;
                return NO_FAULT;
            }
            if (record.header_count > 0 && (fault = measure_headers(&record, totals)) != NO_FAULT)
                return fault;
            if (measure->checks_timestamps && !read_timestamp(batch, &record, &micros))
                return WRONG_TIMESTAMP;
            *bytes += size;
            totals[ROWS]++;
            totals[NULL_HEADERS] += record.header_count == 0;
            totals[NULL_KEYS] += record.key.length < 0;
            totals[KEY_BYTES] += record.key.length < 0 ? 0 : record.key.length;
            totals[NULL_VALUES] += record.value.length < 0;
            totals[VALUE_BYTES] += record.value.length < 0 ? 0 : record.value.length;
        }
        totals[RECORDS]++;
    }
    return batch->at == batch->end ? NO_FAULT : WRONG_COUNT;
}

static Error measure_all(const Measure *measure, int64_t *totals)
{
    int64_t bytes = 0;
    int is_full = 0;
    memset(totals, 0, TOTALS * sizeof *totals);
    for (int64_t i = 0; i < measure->batch_count && !is_full; i++) {
        Batch batch;
        Error error = open_batch(&measure->wanted, measure->table + TABLE_COLUMNS * i, &batch);
        if (error)
            return error;
        Fault fault = measure_batch(measure, &batch, &bytes, totals, &is_full);
        if (fault != NO_FAULT) {
            totals[TOTALS_FAULT] = fault;
            totals[FAULT_BATCH] = i;
            return NULL;
        }
    }
    return NULL;
}

const char measure_records_doc[] =
    "measure_records(sources, table, first_offset, end_offset, most_rows, most_bytes, checks_timestamps, totals)\n--\n\n"
    "Writes how many records of the table's batches come before a limit is reached, and what their columns need.";

PyObject *kernel_measure_records(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *source_tuple, *table_object, *totals_object;
    long long first_offset, end_offset, most_rows, most_bytes;
    Measure measure = {.batch_count = 0};
    if (!PyArg_ParseTuple(args, "O!OLLLLpO:measure_records", &PyTuple_Type, &source_tuple, &table_object,
                          &first_offset, &end_offset, &most_rows, &most_bytes, &measure.checks_timestamps,
                          &totals_object))
        return NULL;
    if (most_rows < 0 || most_bytes < 0) {
        PyErr_SetString(PyExc_ValueError, "a limit is below 0");
        return NULL;
    }
    Held held;
    if (!hold_up_to(&held, PyTuple_Size(source_tuple) + 2))
        return NULL;
    measure.wanted.first_offset = first_offset;
    measure.wanted.end_offset = end_offset;
    measure.most_rows = most_rows;
    measure.most_bytes = most_bytes;
    PyObject *result = NULL;
    Bytes *sources = NULL;
    Int64s table;
    int64_t *totals;
    if (hold_sources(&held, source_tuple, &sources, &measure.wanted.source_count) &&
        hold_int64s(&held, table_object, 0, &table) &&
        hold_int64s_of(&held, totals_object, 1, TOTALS, &totals)) {
        Error error = NOT_A_TABLE;
        int64_t now[TOTALS];
        measure.wanted.sources = sources;
        measure.table = table.items;
        measure.batch_count = table.count / TABLE_COLUMNS;
        Py_BEGIN_ALLOW_THREADS
        if (table.count % TABLE_COLUMNS == 0)
            error = measure_all(&measure, now);
        Py_END_ALLOW_THREADS
        if (!error)
            memcpy(totals, now, sizeof now);
        result = none_or(error);
    }
    PyMem_Free(sources);
    release(&held);
    return result;
}


/* --- fill --------------------------------------------------------------------------------------------------- */

/* A binary array while it is filled: `rows` of its `row_count` rows, with `end` bytes. */
typedef struct {
    int is_wanted;
    Bytes validity; /* no bytes: no nulls */
    Bytes offsets;
    Bytes data;
    int64_t row_count;
    int64_t rows, end;
} BinaryOut;

typedef struct {
    int is_wanted;
    Bytes validity;
    Bytes offsets;
    int64_t row_count;
    int64_t rows, end;
    BinaryOut key, value;
} HeadersOut;

typedef struct {
    BinaryOut key, value;
    Bytes offset, timestamp, timestamp_type; /* no bytes: not wanted */
    HeadersOut headers;
    int64_t row_count;
} Out;

#define BINARY_BUFFERS 3
#define OUT_BUFFERS (2 * BINARY_BUFFERS + 3 + 2 + 2 * BINARY_BUFFERS)

static inline void put_int32(const Bytes *array, int64_t place, int64_t value)
{
    int32_t narrow = (int32_t)value;
    memcpy(array->data + 4 * place, &narrow, 4);
}

static inline void put_int64(const Bytes *array, int64_t place, int64_t value)
{
    memcpy(array->data + 8 * place, &value, 8);
}

static inline int put_null(const Bytes *validity, int64_t row)
{
    if (row / 8 >= validity->size)
        return 0;
    validity->data[row / 8] &= (uint8_t)~(1 << row % 8);
    return 1;
}

/* `source_end`: a field of up to 16 bytes is copied as 16 bytes if both sides have that much room, as in put_field. */
static ALWAYS_INLINE int put_field(BinaryOut *out, const Field *field, const uint8_t *source_end)
{
    if (!out->is_wanted)
        return 1;
    int64_t room = out->data.size - out->end;
    if (out->rows >= out->row_count || field->length > room)
        return 0;
    if (field->length < 0) {
        if (!put_null(&out->validity, out->rows))
            return 0;
    } else {
        uint8_t *to = out->data.data + out->end;
        if (field->length <= 16 && room >= 16 && source_end - field->data >= 16)
            memcpy(to, field->data, 16);
        else
            memcpy(to, field->data, (size_t)field->length);
        out->end += field->length;
    }
    put_int32(&out->offsets, ++out->rows, out->end);
    return 1;
}

static Error put_headers(HeadersOut *out, const Record *record, const uint8_t *source_end)
{
    if (out->rows >= out->row_count)
        return RECORDS_CHANGED;
    if (record->header_count == 0 && !put_null(&out->validity, out->rows))
        return RECORDS_CHANGED;
    const uint8_t *at = record->headers;
    for (int64_t i = 0; i < record->header_count; i++) {
        Field key, value;
        if (!read_header_entry(&at, record->end, &key, &value) || !put_field(&out->key, &key, source_end) ||
            !put_field(&out->value, &value, source_end))
            return RECORDS_CHANGED;
    }
    out->end += record->header_count;
    put_int32(&out->offsets, ++out->rows, out->end);
    return NULL;
}

/* The rest of row `row`: fixed sizes, whose buffers have `row_count` rows. */
static ALWAYS_INLINE int put_numbers(const Out *out, int64_t row, const Batch *batch, const Record *record,
                                     int64_t offset)
{
    if (row >= out->row_count)
        return 0;
    if (out->offset.size > 0)
        put_int64(&out->offset, row, offset);
    if (out->timestamp.size > 0) {
        int64_t micros;
        if (!read_timestamp(batch, record, &micros))
            return 0;
        put_int64(&out->timestamp, row, micros);
    }
    if (out->timestamp_type.size > 0)
        put_int32(&out->timestamp_type, row, batch->has_append_time);
    return 1;
}

typedef struct {
    Wanted wanted;
    int64_t *table;
    int64_t batch_count;
    int64_t record_count;
    Out out;
} Fill;

/* Up to `left` records of a batch. */
static Error fill_batch(Fill *fill, Batch *batch, int64_t *left, int64_t *row)
{
    Out *out = &fill->out;
    for (; batch->left > 0 && *left > 0; --*left) {
        Record record;
        int64_t offset;
        if (next_record(batch, &record, &offset) != NO_FAULT)
            return RECORDS_CHANGED;
        if (!is_wanted(&fill->wanted, offset))
            continue;
        if (!put_numbers(out, *row, batch, &record, offset) || !put_field(&out->key, &record.key, batch->end) ||
            !put_field(&out->value, &record.value, batch->end))
            return RECORDS_CHANGED;
        if (out->headers.is_wanted) {
            Error error = put_headers(&out->headers, &record, batch->end);
            if (error)
                return error;
        }
        ++*row;
    }
    return NULL;
}

static int is_full(const BinaryOut *out)
{
    return !out->is_wanted || (out->rows == out->row_count && out->end == out->data.size);
}

static Error fill_all(Fill *fill)
{
    int64_t left = fill->record_count, row = 0;
    for (int64_t i = 0; i < fill->batch_count; i++) {
        int64_t *numbers = fill->table + TABLE_COLUMNS * i;
        Batch batch;
        Error error;
        if ((error = open_batch(&fill->wanted, numbers, &batch)) || (error = fill_batch(fill, &batch, &left, &row)))
            return error;
        numbers[START] = batch.at - batch.source;
        numbers[RECORD_COUNT] = batch.left;
        numbers[NEXT_OFFSET] = batch.next_offset;
        if (batch.left > 0)
            break;
    }
    /* Memory that is not written may hold anything. */
    const Out *out = &fill->out;
    const HeadersOut *headers = &out->headers;
    if (left > 0 || row != out->row_count || !is_full(&out->key) || !is_full(&out->value) ||
        !is_full(&headers->key) || !is_full(&headers->value) ||
        (headers->is_wanted && headers->rows != headers->row_count))
        return RECORDS_CHANGED;
    return NULL;
}

/* Offsets begin at 0. All rows are valid until one is null. */
static int begin_array(const Bytes *validity, const Bytes *offsets, int64_t *row_count)
{
    if (offsets->size < 4)
        return refuse(PyExc_ValueError, "n rows have n + 1 offsets");
    if (validity->size > 0)
        memset(validity->data, 0xFF, (size_t)validity->size);
    put_int32(offsets, 0, 0);
    *row_count = offsets->size / 4 - 1;
    return 1;
}

static int hold_binary(Held *held, PyObject *tuple, BinaryOut *out)
{
    PyObject *validity, *offsets, *data;
    memset(out, 0, sizeof *out);
    if (tuple == Py_None)
        return 1;
    if (!PyTuple_Check(tuple))
        return refuse(PyExc_TypeError, "a column is a tuple of validity, offsets, data");
    if (!PyArg_ParseTuple(tuple, "OOO:column", &validity, &offsets, &data) ||
        !hold_bytes(held, validity, PyBUF_WRITABLE, &out->validity) ||
        !hold_bytes(held, offsets, PyBUF_WRITABLE, &out->offsets) ||
        !hold_bytes(held, data, PyBUF_WRITABLE, &out->data))
        return 0;
    if (out->data.size > INT32_MAX)
        return refuse(PyExc_ValueError, COLUMN_TOO_LARGE);
    out->is_wanted = 1;
    return begin_array(&out->validity, &out->offsets, &out->row_count);
}

static int hold_headers(Held *held, PyObject *tuple, HeadersOut *out)
{
    PyObject *validity, *offsets, *key, *value;
    memset(out, 0, sizeof *out);
    if (tuple == Py_None)
        return 1;
    if (!PyTuple_Check(tuple))
        return refuse(PyExc_TypeError, "headers are a tuple of validity, offsets, keys, values");
    if (!PyArg_ParseTuple(tuple, "OOOO:headers", &validity, &offsets, &key, &value) ||
        !hold_bytes(held, validity, PyBUF_WRITABLE, &out->validity) ||
        !hold_bytes(held, offsets, PyBUF_WRITABLE, &out->offsets) || !hold_binary(held, key, &out->key) ||
        !hold_binary(held, value, &out->value))
        return 0;
    out->is_wanted = 1;
    return begin_array(&out->validity, &out->offsets, &out->row_count);
}

static int hold_numbers(Held *held, PyObject *object, int64_t bytes, Bytes *array)
{
    if (!hold_bytes(held, object, PyBUF_WRITABLE, array))
        return 0;
    if (object != Py_None && array->size != bytes)
        return refuse(PyExc_ValueError, "a column does not have as many numbers as there are rows");
    return 1;
}

static int hold_out(Held *held, PyObject *tuple, Out *out)
{
    PyObject *key, *value, *offset, *timestamp, *timestamp_type, *headers;
    if (!PyArg_ParseTuple(tuple, "OOOOOO:columns", &key, &value, &offset, &timestamp, &timestamp_type, &headers))
        return 0;
    return hold_binary(held, key, &out->key) && hold_binary(held, value, &out->value) &&
           hold_numbers(held, offset, 8 * out->row_count, &out->offset) &&
           hold_numbers(held, timestamp, 8 * out->row_count, &out->timestamp) &&
           hold_numbers(held, timestamp_type, 4 * out->row_count, &out->timestamp_type) &&
           hold_headers(held, headers, &out->headers);
}

const char fill_columns_doc[] =
    "fill_columns(sources, table, first_offset, end_offset, record_count, row_count, columns)\n--\n\nWrites the rows of "
    "the table's next records into the buffers of `columns`, and moves the table behind them.";

PyObject *kernel_fill_columns(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *source_tuple, *table_object, *columns;
    long long first_offset, end_offset, record_count, row_count;
    if (!PyArg_ParseTuple(args, "O!OLLLLO!:fill_columns", &PyTuple_Type, &source_tuple, &table_object, &first_offset,
                          &end_offset, &record_count, &row_count, &PyTuple_Type, &columns))
        return NULL;
    if (row_count < 0 || row_count > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "rows are from 0 to 2^31 - 1");
        return NULL;
    }
    Held held;
    if (!hold_up_to(&held, PyTuple_Size(source_tuple) + 1 + OUT_BUFFERS))
        return NULL;
    Fill fill = {.record_count = record_count, .out.row_count = row_count};
    fill.wanted.first_offset = first_offset;
    fill.wanted.end_offset = end_offset;
    PyObject *result = NULL;
    Bytes *sources = NULL;
    Int64s table;
    if (hold_sources(&held, source_tuple, &sources, &fill.wanted.source_count) &&
        hold_int64s(&held, table_object, 1, &table) && hold_out(&held, columns, &fill.out)) {
        Error error = NOT_A_TABLE;
        fill.wanted.sources = sources;
        fill.table = table.items;
        fill.batch_count = table.count / TABLE_COLUMNS;
        Py_BEGIN_ALLOW_THREADS
        if (table.count % TABLE_COLUMNS == 0)
            error = fill_all(&fill);
        Py_END_ALLOW_THREADS
        result = none_or(error);
    }
    PyMem_Free(sources);
    release(&held);
    return result;
}
