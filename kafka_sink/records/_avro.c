/* Decodes records of Avro into the buffers of Arrow columns, by a program that `registry/avro_program.py` compiles.
 *
 * A program is a tree of the writer's types in the order of their bytes. A type without a column is read over. A record
 * is refused if anything about it is unusual; Python's decoder then says what is wrong, or takes it. So what this file
 * accepts must be what Python's decoder makes of it, and what it refuses costs only time.
 *
 * Memory grows with the values that were read, never by a length that the bytes claim.
 */

#include "_avro.h"

/* What ops have in `a` and `b`. INT64, INT32: factor and divisor. ENUM: symbols. FIXED: a size. DECIMAL: digits.
 * FIXED_DECIMAL: digits and a size. UNION: `a` is 1 if null may be stored. ARRAY, MAP: the bytes of an item that is a
 * struct, and how many bytes such items of a record may take. */

/* `values`: numbers, bits, or the int32 offsets of texts and lists. `bytes`: of texts. `valid`: bits, if `nullable`. */
typedef struct {
    Growing values, bytes, valid;
    int64_t count;
    int64_t kind; /* of its op; NOTHING: not used */
    int nullable;
} Output;

typedef struct {
    const uint8_t *at, *end;
    int64_t structs_bytes; /* of the record's items */
    const Op *ops;
    int64_t op_count;
    Output *columns;
    int64_t column_count;
} State;


/* --- columns ----------------------------------------------------------------------------------------------------- */

/* Sets bit `index`, the one behind the last. */
static inline Result put_bit(Growing *bits, int64_t index, int bit)
{
    int64_t place = index / 8;
    if (place >= bits->capacity && grow(bits, place + 1 - bits->size) != DONE)
        return NO_MEMORY;
    uint8_t below = (uint8_t)((1 << index % 8) - 1);
    uint8_t kept = index % 8 ? bits->data[place] & below : 0;
    bits->data[place] = (uint8_t)(kept | (bit << index % 8));
    bits->size = place + 1;
    return DONE;
}

/* Counts a value whose data is there. */
static inline Result counted(Output *column, int valid)
{
    int64_t index = column->count++;
    return column->nullable ? put_bit(&column->valid, index, valid) : DONE;
}

static inline Result put(Output *column, const void *value, int64_t size)
{
    if (column == NULL)
        return DONE;
    Result result = put_bytes(&column->values, value, size);
    return result ? result : counted(column, 1);
}

/* Ends a text or a list, whose last byte or item is in front of `end`. */
static inline Result put_end(Output *column, int64_t end, int valid)
{
    int32_t offset = (int32_t)end;
    if (end > INT32_MAX)
        return REFUSED;
    Result result = put_bytes(&column->values, &offset, 4);
    return result ? result : counted(column, valid);
}

static inline int32_t offset_of(const Output *column, int64_t index)
{
    int32_t offset;
    memcpy(&offset, column->values.data + 4 * index, 4);
    return offset;
}

static int64_t width_of(int64_t kind)
{
    switch (kind) {
    case INT32: case INT_TO_FLOAT: case ENUM: case FLOAT: return 4;
    case DECIMAL: case FIXED_DECIMAL: return 16;
    case RECORD: return 0;
    default: return 8;
    }
}

static int is_text(int64_t kind)
{
    return kind == BYTES || kind == TEXT || kind == FIXED;
}

/* Stores a null for a type and for all within it. */
static Result put_null(State *state, const Op *op)
{
    static const uint8_t ZEROS[16];
    Output *column = op->column < 0 ? NULL : &state->columns[op->column];
    Result result = DONE;
    if (column != NULL) {
        if (is_text(op->kind))
            return put_end(column, column->bytes.size, 0);
        if (op->kind == ARRAY || op->kind == MAP)
            return put_end(column, offset_of(column, column->count), 0);
        result = op->kind == BOOLEAN ? put_bit(&column->values, column->count, 0)
                                     : put_bytes(&column->values, ZEROS, width_of(op->kind));
        if (result == DONE)
            result = counted(column, 0);
    }
    if (op->kind != RECORD)
        return result;
    const Op *child = op + 1;
    for (int64_t i = 0; i < op->children && result == DONE; i++, child = state->ops + child->end) {
        /* Within a null a union's value is its type's. */
        const Op *held = child;
        if (child->kind == UNION) {
            held = child + 1;
            if (held->kind == NOTHING && child->children > 1)
                held = state->ops + held->end;
        }
        result = put_null(state, held);
    }
    return result;
}

/* Takes back what was stored behind the first `count` values. */
static void take_back(State *state, const Op *op, int64_t count)
{
    int64_t inner = count;
    if (op->column >= 0) {
        Output *column = &state->columns[op->column];
        column->count = count;
        if (is_text(op->kind)) {
            column->values.size = 4 * (count + 1);
            column->bytes.size = offset_of(column, count);
        } else if (op->kind == ARRAY || op->kind == MAP) {
            column->values.size = 4 * (count + 1);
            inner = offset_of(column, count);
        } else if (op->kind != BOOLEAN) {
            column->values.size = width_of(op->kind) * count;
        } else {
            column->values.size = (count + 7) / 8;
        }
        if (column->nullable)
            column->valid.size = (count + 7) / 8;
    }
    const Op *child = op + 1;
    for (int64_t i = 0; i < op->children; i++, child = state->ops + child->end)
        take_back(state, child, inner);
}


/* --- values ------------------------------------------------------------------------------------------------------ */

static inline Result read_long(State *state, int64_t *number)
{
    uint64_t bits = 0;
    for (int shift = 0; shift < 64 && state->at < state->end; shift += 7) {
        uint8_t byte = *state->at++;
        if (shift == 63 && byte > 1)
            return REFUSED;
        bits |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *number = (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
            return DONE;
        }
    }
    return REFUSED;
}

/* Whether a number is none that its type has. Python's decoder looks at it only if it is stored. */
static inline int is_too_wide(const Op *op, int64_t number)
{
    return op->flags & OF_32_BITS && number != (int32_t)number;
}

static inline Result integer(State *state, const Op *op, Output *column)
{
    int64_t number;
    if (read_long(state, &number) != DONE || is_too_wide(op, number))
        return REFUSED;
    if (column == NULL)
        return DONE;
    if (op->a != 1 && __builtin_mul_overflow(number, op->a, &number))
        return REFUSED;
    if (op->b != 1)
        number = number / op->b - (number % op->b < 0);
    if (op->kind == INT64)
        return put(column, &number, 8);
    int32_t narrow = (int32_t)number;
    return narrow == number ? put(column, &narrow, 4) : REFUSED;
}

static inline Result symbol(State *state, const Op *op, Output *column)
{
    int64_t number;
    if (read_long(state, &number) != DONE || number < 0 || number >= op->a)
        return REFUSED;
    int32_t narrow = (int32_t)number;
    return put(column, &narrow, 4);
}

static inline Result rounded(State *state, const Op *op, Output *column)
{
    int64_t number;
    if (read_long(state, &number) != DONE || is_too_wide(op, number))
        return REFUSED;
    double wide = (double)number;
    float narrow = (float)number;
    return op->kind == INT_TO_DOUBLE ? put(column, &wide, 8) : put(column, &narrow, 4);
}

static inline Result floating(State *state, const Op *op, Output *column)
{
    int64_t size = op->kind == DOUBLE ? 8 : 4;
    const uint8_t *at = state->at;
    if (state->end - at < size)
        return REFUSED;
    state->at += size;
    if (op->kind != FLOAT_TO_DOUBLE)
        return put(column, at, size);
    float narrow;
    memcpy(&narrow, at, 4);
    double wide = narrow;
    return put(column, &wide, 8);
}

static inline Result boolean(State *state, Output *column)
{
    if (state->at == state->end || *state->at > 1)
        return REFUSED;
    int bit = *state->at++;
    if (column == NULL)
        return DONE;
    Result result = put_bit(&column->values, column->count, bit);
    return result ? result : counted(column, 1);
}

/* Reads over bytes, whose length is in front of them or fixed. */
static inline Result take(State *state, int64_t size, const uint8_t **data)
{
    if (size < 0 || size > state->end - state->at)
        return REFUSED;
    *data = state->at;
    state->at += size;
    return DONE;
}

static inline Result text(State *state, const Op *op, Output *column)
{
    const uint8_t *data;
    int64_t size = op->a;
    if ((op->kind != FIXED && read_long(state, &size) != DONE) || take(state, size, &data) != DONE ||
        (op->kind == TEXT && !is_utf8(data, size)))
        return REFUSED;
    if (column == NULL)
        return DONE;
    Result result = put_bytes(&column->bytes, data, size);
    return result ? result : put_end(column, column->bytes.size, 1);
}

/* An unscaled number in two's complement, big-endian, as Arrow has it. */
static Result decimal(State *state, const Op *op, Output *column)
{
    const uint8_t *data;
    int64_t size = op->b;
    if ((op->kind == DECIMAL && read_long(state, &size) != DONE) || take(state, size, &data) != DONE)
        return REFUSED;
    if (column == NULL)
        return DONE;
    if (size < 1 || size > 16)
        return REFUSED;
    unsigned __int128 number = data[0] & 0x80 ? ~(unsigned __int128)0 : 0, most = 1;
    for (int64_t i = 0; i < size; i++)
        number = number << 8 | data[i];
    for (int64_t i = 0; i < op->a; i++)
        most *= 10;
    unsigned __int128 absolute = data[0] & 0x80 ? -number : number;
    if (absolute >= most)
        return REFUSED;
    uint64_t halves[2] = {(uint64_t)number, (uint64_t)(number >> 64)};
    return put(column, halves, 16);
}


/* --- types with types within them -------------------------------------------------------------------------------- */

static Result decode(State *state, const Op *op);

static inline Result choice(State *state, const Op *op)
{
    int64_t number;
    if (read_long(state, &number) != DONE || number < 0 || number >= op->children)
        return REFUSED;
    const Op *child = op + 1, *other = op + 1;
    for (int64_t i = 0; i < number; i++)
        child = state->ops + child->end;
    if (child->kind != NOTHING)
        return decode(state, child);
    if (!op->a)
        return REFUSED;
    if (other->kind == NOTHING && op->children > 1)
        other = state->ops + other->end;
    return put_null(state, other);
}

static inline Result record(State *state, const Op *op, Output *column)
{
    const Op *child = op + 1;
    for (int64_t i = 0; i < op->children; i++, child = state->ops + child->end) {
        Result result = decode(state, child);
        if (result != DONE)
            return result;
    }
    return column == NULL ? DONE : counted(column, 1);
}

static int has_equal_keys(const Output *keys, int64_t first)
{
    if (keys->count - first > MAX_ENTRIES)
        return 1;
    for (int64_t i = first; i < keys->count; i++)
        for (int64_t j = first; j < i; j++) {
            int32_t at = offset_of(keys, i), size = offset_of(keys, i + 1) - at;
            int32_t before = offset_of(keys, j);
            if (offset_of(keys, j + 1) - before == size &&
                (size == 0 || memcmp(keys->bytes.data + at, keys->bytes.data + before, (size_t)size) == 0))
                return 1;
        }
    return 0;
}

static Result repeated(State *state, const Op *op, Output *column)
{
    int64_t block, unused, first = column == NULL ? 0 : offset_of(column, column->count), count = first;
    for (;;) {
        if (read_long(state, &block) != DONE || block == INT64_MIN)
            return REFUSED;
        if (block == 0)
            break;
        if (block < 0) {
            block = -block;
            if (read_long(state, &unused) != DONE)
                return REFUSED;
        }
        for (; block > 0; block--, count++) {
            const uint8_t *before = state->at;
            const Op *child = op + 1;
            for (int64_t i = 0; i < op->children; i++, child = state->ops + child->end) {
                Result result = decode(state, child);
                if (result != DONE)
                    return result;
            }
            /* Items without bytes could be any number, and an item of a byte may be a struct of a thousand nulls. */
            state->structs_bytes += op->a;
            if (state->at == before || (op->a > 0 && state->structs_bytes > op->b))
                return REFUSED;
        }
    }
    if (column == NULL)
        return DONE;
    if (op->kind == MAP && has_equal_keys(&state->columns[op[1].column], first))
        return REFUSED;
    return put_end(column, count, 1);
}

static Result decode(State *state, const Op *op)
{
    Output *column = op->column < 0 ? NULL : &state->columns[op->column];
    switch (op->kind) {
    case NOTHING: return DONE;
    case BOOLEAN: return boolean(state, column);
    case INT64: case INT32: return integer(state, op, column);
    case ENUM: return symbol(state, op, column);
    case INT_TO_FLOAT: case INT_TO_DOUBLE: return rounded(state, op, column);
    case FLOAT: case FLOAT_TO_DOUBLE: case DOUBLE: return floating(state, op, column);
    case BYTES: case TEXT: case FIXED: return text(state, op, column);
    case DECIMAL: case FIXED_DECIMAL: return decimal(state, op, column);
    case UNION: return choice(state, op);
    case RECORD: return record(state, op, column);
    default: return repeated(state, op, column);
    }
}


/* --- programs ---------------------------------------------------------------------------------------------------- */

static const char NO_PROGRAM[] = "the program is not one that avro_program.py compiles";

static int is_sound(const Op *op)
{
    switch (op->kind) {
    case INT64: case INT32: return op->a > 0 && op->b > 0;
    case ENUM: return op->a > 0 && op->a <= INT32_MAX;
    case FIXED: return op->a >= 0;
    case DECIMAL: case FIXED_DECIMAL: return op->a > 0 && op->a <= MAX_DIGITS && op->b >= 0;
    case NOTHING: return op->column < 0;
    case UNION: return op->column < 0 && op->children > 0;
    case ARRAY: return op->children == 1 && op->a >= 0 && op->a <= INT32_MAX && op->b >= 0 && op->b <= INT32_MAX;
    case MAP: return op->children == 2 && op->a >= 0 && op->a <= INT32_MAX && op->b >= 0 && op->b <= INT32_MAX;
    default: return 1;
    }
}

/* Checks the op at `place` and all within it: their places, and that each value gives each column one value. `*stores`:
 * whether any of them has a column. */
static Error check(State *state, int64_t place, int depth, int *stores)
{
    if (place < 0 || place >= state->op_count || depth > MAX_DEPTH)
        return NO_PROGRAM;
    const Op *op = &state->ops[place];
    int is_inner = op->kind >= UNION;
    if (op->kind < 0 || op->kind > MAP || op->column >= state->column_count || op->end > state->op_count ||
        op->end <= place || op->children < 0 || (!is_inner && op->children > 0) || !is_sound(op))
        return NO_PROGRAM;
    int64_t next = place + 1, storing = 0;
    for (int64_t i = 0; i < op->children; i++) {
        int inner = 0;
        Error error = check(state, next, depth + 1, &inner);
        if (error)
            return error;
        storing += inner;
        if (op->kind == UNION && storing > 0 && !inner && state->ops[next].kind != NOTHING)
            return NO_PROGRAM;
        if (op->kind == MAP && i == 0 && state->ops[next].kind != TEXT)
            return NO_PROGRAM;
        next = state->ops[next].end;
    }
    if (next != op->end || (op->kind == UNION && storing > 1) ||
        ((op->kind == ARRAY || op->kind == MAP) && storing > 0 && op->column < 0) ||
        (op->kind == MAP && op->column >= 0 && op[1].column < 0))
        return NO_PROGRAM;
    *stores = storing > 0 || op->column >= 0;
    if (op->column < 0)
        return NULL;
    Output *column = &state->columns[op->column];
    if (column->kind != NOTHING)
        return NO_PROGRAM;
    column->kind = op->kind;
    column->nullable = (op->flags & NULLABLE) != 0;
    return NULL;
}

/* The first bytes of offsets. Returns 0 without memory. */
static int begin(State *state)
{
    static const int32_t ZERO = 0;
    for (int64_t i = 0; i < state->column_count; i++) {
        Output *column = &state->columns[i];
        if ((is_text(column->kind) || column->kind == ARRAY || column->kind == MAP) &&
            put_bytes(&column->values, &ZERO, 4) != DONE)
            return 0;
    }
    return 1;
}


/* --- the call ---------------------------------------------------------------------------------------------------- */

/* Decodes the records at `rows` from the bytes at `starts` on. `is_read`: 1 for each that was. */
static Result decode_rows(State *state, const Column *data, const int64_t *rows, const int64_t *starts,
                          int64_t count, uint8_t *is_read)
{
    int64_t done = 0;
    for (int64_t i = 0; i < count; i++) {
        Field row;
        Result result = REFUSED;
        if (rows[i] < 0 || rows[i] >= data->count)
            return NO_ROW;
        if (!field_at(data, rows[i], &row) && starts[i] >= 0 && starts[i] <= row.length) {
            state->at = row.data + starts[i];
            state->end = row.data + row.length;
            state->structs_bytes = 0;
            result = decode(state, state->ops);
        }
        if (result == NO_MEMORY)
            return result;
        is_read[i] = result == DONE && state->at == state->end;
        if (is_read[i])
            done++;
        else
            take_back(state, state->ops, done);
    }
    return DONE;
}

static PyObject *bytes_of(Growing *growing)
{
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)growing->data, (Py_ssize_t)growing->size);
    free(growing->data);
    *growing = (Growing){NULL, 0, 0};
    return bytes;
}

/* A list of (valid, values, bytes, count). */
static PyObject *found(State *state)
{
    PyObject *list = PyList_New((Py_ssize_t)state->column_count);
    for (int64_t i = 0; list != NULL && i < state->column_count; i++) {
        Output *column = &state->columns[i];
        PyObject *item = Py_BuildValue("NNNL", bytes_of(&column->valid), bytes_of(&column->values),
                                       bytes_of(&column->bytes), (long long)column->count);
        if (item == NULL || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static int hold_program(Held *held, PyObject *program, long long column_count, State *state)
{
    Int64s numbers;
    if (!hold_int64s(held, program, 0, &numbers))
        return 0;
    if (column_count < 0 || column_count > MAX_COLUMNS || numbers.count == 0 || numbers.count % NUMBERS_OF_OP)
        return refuse(PyExc_ValueError, NO_PROGRAM);
    state->ops = (const Op *)numbers.items;
    state->op_count = numbers.count / NUMBERS_OF_OP;
    state->columns = calloc((size_t)column_count + 1, sizeof(Output));
    if (state->columns == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    state->column_count = column_count;
    int stores;
    Error error = check(state, 0, 0, &stores);
    if (!error && state->ops[0].end != state->op_count)
        error = NO_PROGRAM;
    for (int64_t i = 0; !error && i < column_count; i++)
        if (state->columns[i].kind == NOTHING)
            error = NO_PROGRAM;
    return error ? refuse(PyExc_ValueError, error) : 1;
}

static void give_back(State *state)
{
    for (int64_t i = 0; state->columns != NULL && i < state->column_count; i++) {
        free(state->columns[i].values.data);
        free(state->columns[i].bytes.data);
        free(state->columns[i].valid.data);
    }
    free(state->columns);
}

const char decode_avro_doc[] =
    "decode_avro(program, column_count, data, rows, starts, is_read)\n\nReturns the columns of the records that could "
    "be read, as (valid, values, bytes, count).";

PyObject *kernel_decode_avro(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *program, *data, *rows, *starts, *read;
    long long column_count;
    if (!PyArg_ParseTuple(args, "OLOOOO:decode_avro", &program, &column_count, &data, &rows, &starts, &read))
        return NULL;
    Held held;
    if (!hold_up_to(&held, 7))
        return NULL;
    PyObject *result = NULL;
    State state = {0};
    Column column;
    Int64s members;
    int64_t *from;
    Bytes is_read;
    if (hold_program(&held, program, column_count, &state) && hold_column(&held, data, &column) &&
        hold_int64s(&held, rows, 0, &members) && hold_int64s_of(&held, starts, 0, members.count, &from) &&
        hold_bytes(&held, read, PyBUF_WRITABLE, &is_read)) {
        Result decoded = NO_MEMORY;
        if (is_read.size != members.count) {
            refuse(PyExc_ValueError, "is_read has a byte for each row");
        } else {
            Py_BEGIN_ALLOW_THREADS
            if (begin(&state))
                decoded = decode_rows(&state, &column, members.items, from, members.count, is_read.data);
            Py_END_ALLOW_THREADS
            if (decoded == DONE)
                result = found(&state);
            else if (decoded == NO_ROW)
                refuse(PyExc_ValueError, "a row number lies outside its column");
            else
                PyErr_NoMemory();
        }
    }
    give_back(&state);
    release(&held);
    return result;
}
