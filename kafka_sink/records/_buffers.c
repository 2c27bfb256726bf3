/* Buffers of a call of the kernel; see _kernel.h. */

#include "_kernel.h"

#include <string.h>

const uint8_t NO_BYTES[1];

int hold_up_to(Held *held, Py_ssize_t capacity)
{
    held->count = 0;
    held->capacity = capacity;
    held->views = PyMem_Calloc((size_t)capacity, sizeof(Py_buffer));
    if (held->views == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    return 1;
}

void release(Held *held)
{
    while (held->count > 0)
        PyBuffer_Release(&held->views[--held->count]);
    PyMem_Free(held->views);
}

static Py_buffer *hold(Held *held, PyObject *object, int flags)
{
    if (held->count == held->capacity) {
        PyErr_SetString(PyExc_SystemError, "more buffers than were counted");
        return NULL;
    }
    Py_buffer *view = &held->views[held->count];
    if (PyObject_GetBuffer(object, view, flags) < 0) {
        if (PyErr_ExceptionMatches(PyExc_BufferError)) {
            PyErr_Clear();
            PyErr_SetString(PyExc_ValueError, "a buffer is not contiguous, or must be writable and is not");
        }
        return NULL;
    }
    held->count++;
    return view;
}

int hold_bytes(Held *held, PyObject *object, int flags, Bytes *bytes)
{
    bytes->data = (uint8_t *)NO_BYTES;
    bytes->size = 0;
    if (object == Py_None)
        return 1;
    const Py_buffer *view = hold(held, object, flags);
    if (view == NULL)
        return 0;
    if (view->len > 0) {
        bytes->data = view->buf;
        bytes->size = view->len;
    }
    return 1;
}

int hold_integers(Held *held, PyObject *object, int writable, Py_ssize_t itemsize, void **data, int64_t *count)
{
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    const Py_buffer *view = hold(held, object, flags);
    if (view == NULL)
        return 0;
    /* strchr also finds the end of a string. So it would accept an empty format, and format[1] would be out of bounds.
    */
    const char *format = view->format == NULL ? "" : view->format;
    int is_signed = format[0] != '\0' && strchr("bhilq", format[0]) != NULL && format[1] == '\0';
    if (!is_signed || view->itemsize != itemsize || (uintptr_t)view->buf % (size_t)itemsize != 0) {
        PyErr_Format(PyExc_ValueError, "expected aligned signed integers of %zd bytes", itemsize);
        return 0;
    }
    *data = view->buf;
    *count = view->len / itemsize;
    return 1;
}

int hold_int64s(Held *held, PyObject *object, int writable, Int64s *array)
{
    void *data;
    if (!hold_integers(held, object, writable, 8, &data, &array->count))
        return 0;
    array->items = data;
    return 1;
}

int hold_int64s_of(Held *held, PyObject *object, int writable, int64_t count, int64_t **items)
{
    Int64s array;
    if (!hold_int64s(held, object, writable, &array))
        return 0;
    if (array.count != count) {
        PyErr_Format(PyExc_ValueError, "expected %lld numbers, found %lld", (long long)count, (long long)array.count);
        return 0;
    }
    *items = array.items;
    return 1;
}

int refuse(PyObject *kind, const char *why)
{
    PyErr_SetString(kind, why);
    return 0;
}

PyObject *none_or(Error error)
{
    if (error) {
        PyErr_SetString(PyExc_ValueError, error);
        return NULL;
    }
    Py_RETURN_NONE;
}
