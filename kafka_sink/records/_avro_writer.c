/* Encodes Arrow columns as records of Avro, by a program that `registry/avro_encoding.py` compiles.
 *
 * Anything unusual is refused: fastavro then encodes the batch, or its error says what is wrong. So what this file takes
 * must be what fastavro writes.
 */

#include "_avro.h"

/* What ops have in `a` and `b`. INT64, INT32: factor and divisor. FIXED, FIXED_DECIMAL: a size. UNION: the number of
 * null, -1 if there is none, and that of the value. CONSTANT: the bytes of its column's only row. */

/* `values`: numbers, bits or offsets. `data`: of texts. */
typedef struct {
    Bytes validity, values, data;
    int width;
    int64_t first, count;
} Input;

typedef struct {
    const Op *ops;
    int64_t op_count;
    Input *columns;
    int64_t column_count;
    Growing written;
} Writer;


/* --- columns ----------------------------------------------------------------------------------------------------- */

static inline int is_null(const Input *column, int64_t row)
{
    int64_t bit = column->first + row;
    return column->validity.size > 0 && !(column->validity.data[bit / 8] >> (bit % 8) & 1);
}

static inline const uint8_t *at(const Input *column, int64_t row)
{
    return column->values.data + (column->first + row) * column->width;
}

static inline int64_t offset(const Input *column, int64_t row)
{
    int32_t narrow;
    int64_t wide;
    if (column->width == 8) {
        memcpy(&wide, at(column, row), 8);
        return wide;
    }
    memcpy(&narrow, at(column, row), 4);
    return narrow;
}

static int is_text(int64_t kind)
{
    return kind == BYTES || kind == TEXT || kind == FIXED || kind == CONSTANT;
}

/* Whether a column has what ops of the kind read of it. */
static int fits(const Input *column, int64_t kind)
{
    int64_t end = column->first + column->count;
    if (kind == UNION || kind == RECORD)
        return 1;
    if (kind == BOOLEAN)
        return (end + 7) / 8 <= column->values.size;
    if (is_text(kind) || kind == ARRAY || kind == MAP)
        return (column->width == 4 || column->width == 8) &&
               (column->count == 0 || (end + 1) * column->width <= column->values.size);
    int width = kind == INT32 || kind == FLOAT ? 4 : kind == DECIMAL || kind == FIXED_DECIMAL ? 16 : 8;
    return column->width == width && end * width <= column->values.size;
}

static int hold_input(Held *held, PyObject *tuple, Input *column)
{
    PyObject *validity, *values, *data;
    long long first, count;
    if (!PyTuple_Check(tuple))
        return refuse(PyExc_TypeError, "a column is a tuple of validity, values, data, width, first, count");
    if (!PyArg_ParseTuple(tuple, "OOOiLL:column", &validity, &values, &data, &column->width, &first, &count) ||
        !hold_bytes(held, validity, PyBUF_SIMPLE, &column->validity) ||
        !hold_bytes(held, values, PyBUF_SIMPLE, &column->values) ||
        !hold_bytes(held, data, PyBUF_SIMPLE, &column->data))
        return 0;
    column->first = first;
    column->count = count;
    if (first < 0 || count < 0 || first > INT32_MAX || count > INT32_MAX)
        return refuse(PyExc_ValueError, "a column has a negative place, or more than 2^31 rows");
    if (validity != Py_None && (first + count + 7) / 8 > column->validity.size)
        return refuse(PyExc_ValueError, "a column has more rows than its validity bitmap");
    return 1;
}


/* --- values ------------------------------------------------------------------------------------------------------ */

static inline Result put_long(Writer *writer, int64_t number)
{
    uint64_t left = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
    uint8_t bytes[10];
    int64_t size = 0;
    for (; left >= 0x80; left >>= 7)
        bytes[size++] = (uint8_t)(left | 0x80);
    bytes[size++] = (uint8_t)left;
    return put_bytes(&writer->written, bytes, size);
}

static inline Result integer(Writer *writer, const Op *op, const Input *column, int64_t row)
{
    int32_t narrow;
    int64_t number;
    if (op->kind == INT32) {
        memcpy(&narrow, at(column, row), 4);
        number = narrow;
    } else {
        memcpy(&number, at(column, row), 8);
    }
    if (op->a != 1 && __builtin_mul_overflow(number, op->a, &number))
        return REFUSED;
    if (op->b != 1)
        number = number / op->b - (number % op->b < 0);
    return put_long(writer, number);
}

static inline Result boolean(Writer *writer, const Input *column, int64_t row)
{
    int64_t bit = column->first + row;
    uint8_t byte = column->values.data[bit / 8] >> (bit % 8) & 1;
    return put_bytes(&writer->written, &byte, 1);
}

static inline Result text(Writer *writer, const Op *op, const Input *column, int64_t row)
{
    int64_t start = offset(column, row), end = offset(column, row + 1), size = end - start;
    if (start < 0 || size < 0 || end > column->data.size)
        return REFUSED;
    const uint8_t *data = column->data.data + start;
    if ((op->kind == FIXED && size != op->a) || (op->kind == TEXT && !is_utf8(data, size)))
        return REFUSED;
    Result result = op->kind == FIXED || op->kind == CONSTANT ? DONE : put_long(writer, size);
    return result ? result : put_bytes(&writer->written, data, size);
}

/* An unscaled number: big-endian two's complement, in as few bytes as it takes, or in a fixed size. */
static Result decimal(Writer *writer, const Op *op, const Input *column, int64_t row)
{
    uint8_t big[16];
    const uint8_t *little = at(column, row);
    for (int i = 0; i < 16; i++)
        big[i] = little[15 - i];
    uint8_t sign = big[0] & 0x80 ? 0xFF : 0;
    int64_t size = 16;
    while (size > 1 && big[16 - size] == sign && (big[17 - size] & 0x80) == (sign & 0x80))
        size--;
    Result result = DONE;
    if (op->kind == FIXED_DECIMAL && size > op->a)
        return REFUSED;
    if (op->kind == DECIMAL)
        result = put_long(writer, size);
    for (int64_t more = op->kind == DECIMAL ? 0 : op->a - size; more > 0 && result == DONE; more--)
        result = put_bytes(&writer->written, &sign, 1);
    return result ? result : put_bytes(&writer->written, big + 16 - size, size);
}


/* --- types with types within them -------------------------------------------------------------------------------- */

static Result encode(Writer *writer, const Op *op, int64_t row);

static Result record(Writer *writer, const Op *op, int64_t row)
{
    const Op *child = op + 1;
    for (int64_t i = 0; i < op->children; i++, child = writer->ops + child->end) {
        Result result = encode(writer, child, row);
        if (result != DONE)
            return result;
    }
    return DONE;
}

static int has_equal_keys(const Input *keys, int64_t start, int64_t end)
{
    if (end - start > MAX_ENTRIES || end > keys->count)
        return 1;
    for (int64_t i = start; i < end; i++)
        for (int64_t j = start; j < i; j++) {
            int64_t at = offset(keys, i), size = offset(keys, i + 1) - at, before = offset(keys, j);
            if (at < 0 || before < 0 || size < 0 || size > keys->data.size - at || size > keys->data.size - before)
                return 1;
            if (offset(keys, j + 1) - before == size &&
                memcmp(keys->data.data + at, keys->data.data + before, (size_t)size) == 0)
                return 1;
        }
    return 0;
}

/* An array's items, or a map's keys and values. */
static Result list(Writer *writer, const Op *op, const Input *column, int64_t row)
{
    int64_t start = offset(column, row), end = offset(column, row + 1);
    if (start < 0 || end < start)
        return REFUSED;
    Result result = end > start ? put_long(writer, end - start) : DONE;
    if (op->kind == MAP && has_equal_keys(&writer->columns[op[1].column], start, end))
        return REFUSED;
    for (int64_t item = start; item < end && result == DONE; item++)
        result = record(writer, op, item);
    return result ? result : put_long(writer, 0);
}

static Result choice(Writer *writer, const Op *op, const Input *column, int64_t row)
{
    if (is_null(column, row))
        return op->a < 0 ? REFUSED : put_long(writer, op->a);
    Result result = put_long(writer, op->b);
    return result ? result : encode(writer, op + 1, row);
}

static Result encode(Writer *writer, const Op *op, int64_t row)
{
    if (op->kind == NOTHING)
        return DONE;
    const Input *column = &writer->columns[op->column];
    if (op->kind == CONSTANT)
        return text(writer, op, column, 0);
    if (row < 0 || row >= column->count || (op->kind != UNION && is_null(column, row)))
        return REFUSED;
    switch (op->kind) {
    case BOOLEAN: return boolean(writer, column, row);
    case INT64: case INT32: return integer(writer, op, column, row);
    case FLOAT: return put_bytes(&writer->written, at(column, row), 4);
    case DOUBLE: return put_bytes(&writer->written, at(column, row), 8);
    case BYTES: case TEXT: case FIXED: return text(writer, op, column, row);
    case DECIMAL: case FIXED_DECIMAL: return decimal(writer, op, column, row);
    case UNION: return choice(writer, op, column, row);
    case RECORD: return record(writer, op, row);
    default: return list(writer, op, column, row);
    }
}


/* --- the call ---------------------------------------------------------------------------------------------------- */

static const char NO_PROGRAM[] = "the program is not one that avro_encoding.py compiles";

static Error check(const Writer *writer, int64_t place, int depth)
{
    if (place < 0 || place >= writer->op_count || depth > MAX_DEPTH)
        return NO_PROGRAM;
    const Op *op = &writer->ops[place];
    int is_inner = op->kind >= UNION && op->kind <= MAP;
    if (op->kind < 0 || op->kind >= KINDS || op->kind == INT_TO_FLOAT || op->kind == INT_TO_DOUBLE ||
        op->kind == FLOAT_TO_DOUBLE || op->kind == ENUM)
        return NO_PROGRAM;
    if (op->end > writer->op_count || op->end <= place || op->children < 0 || (!is_inner && op->children > 0) ||
        ((op->kind == UNION || op->kind == ARRAY) && op->children != 1) || (op->kind == MAP && op->children != 2))
        return NO_PROGRAM;
    if (op->kind != NOTHING && (op->column < 0 || op->column >= writer->column_count ||
                                !fits(&writer->columns[op->column], op->kind)))
        return NO_PROGRAM;
    if ((op->kind == CONSTANT && writer->columns[op->column].count != 1) ||
        ((op->kind == INT64 || op->kind == INT32) && (op->a < 1 || op->b < 1)) || op->a > INT32_MAX)
        return NO_PROGRAM;
    int64_t next = place + 1;
    for (int64_t i = 0; i < op->children; i++) {
        Error error = check(writer, next, depth + 1);
        if (error)
            return error;
        if (op->kind == MAP && i == 0 && writer->ops[next].kind != TEXT)
            return NO_PROGRAM;
        next = writer->ops[next].end;
    }
    return next == op->end ? NULL : NO_PROGRAM;
}

/* `ends`: where each row ends in what was written; its first number is 0. A row that is null takes no bytes. */
static Result encode_rows(Writer *writer, const Bytes *head, int32_t *ends, int64_t count)
{
    const Input *whole = &writer->columns[writer->ops[0].column];
    ends[0] = 0;
    for (int64_t row = 0; row < count; row++) {
        if (!is_null(whole, row)) {
            Result result = put_bytes(&writer->written, head->data, head->size);
            if (result == DONE)
                result = encode(writer, writer->ops, row);
            if (result != DONE)
                return result;
            if (writer->written.size > INT32_MAX)
                return REFUSED;
        }
        ends[row + 1] = (int32_t)writer->written.size;
    }
    return DONE;
}

static int hold_inputs(Held *held, PyObject *program, PyObject *columns, Writer *writer)
{
    Int64s numbers;
    if (!hold_int64s(held, program, 0, &numbers))
        return 0;
    writer->ops = (const Op *)numbers.items;
    writer->op_count = numbers.count / NUMBERS_OF_OP;
    writer->column_count = PyTuple_Size(columns);
    if (numbers.count == 0 || numbers.count % NUMBERS_OF_OP)
        return refuse(PyExc_ValueError, NO_PROGRAM);
    writer->columns = calloc((size_t)writer->column_count + 1, sizeof(Input));
    if (writer->columns == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (int64_t i = 0; i < writer->column_count; i++)
        if (!hold_input(held, PyTuple_GetItem(columns, (Py_ssize_t)i), &writer->columns[i]))
            return 0;
    Error error = check(writer, 0, 0);
    if (!error && (writer->ops[0].end != writer->op_count || writer->ops[0].kind != RECORD))
        error = NO_PROGRAM;
    return error ? refuse(PyExc_ValueError, error) : 1;
}

const char encode_avro_doc[] =
    "encode_avro(program, columns, head, ends)\n\nReturns the bytes of all rows, or None if a row was refused.";

PyObject *kernel_encode_avro(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *program, *columns, *head, *out;
    if (!PyArg_ParseTuple(args, "OOOO:encode_avro", &program, &columns, &head, &out))
        return NULL;
    if (!PyTuple_Check(columns) || PyTuple_Size(columns) > MAX_COLUMNS) {
        PyErr_SetString(PyExc_TypeError, "columns are a tuple of up to 100,000");
        return NULL;
    }
    Held held;
    if (!hold_up_to(&held, 3 * PyTuple_Size(columns) + 3))
        return NULL;
    PyObject *result = NULL;
    Writer writer = {0};
    Bytes first;
    int64_t count;
    void *ends;
    if (hold_inputs(&held, program, columns, &writer) && hold_bytes(&held, head, PyBUF_SIMPLE, &first) &&
        hold_integers(&held, out, 1, 4, &ends, &count)) {
        if (count != writer.columns[writer.ops[0].column].count + 1) {
            refuse(PyExc_ValueError, "there is an end for each row, and one in front");
        } else {
            Result encoded;
            Py_BEGIN_ALLOW_THREADS
            encoded = encode_rows(&writer, &first, ends, count - 1);
            Py_END_ALLOW_THREADS
            if (encoded == NO_MEMORY)
                PyErr_NoMemory();
            else if (encoded == REFUSED)
                result = Py_NewRef(Py_None);
            else
                result = PyBytes_FromStringAndSize((const char *)writer.written.data, (Py_ssize_t)writer.written.size);
        }
    }
    free(writer.written.data);
    free(writer.columns);
    release(&held);
    return result;
}
